"""What this machine is told to do: commands, mounts, devices, and the guard and journal around them."""
