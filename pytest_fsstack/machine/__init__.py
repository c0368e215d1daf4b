"""The machine as an object, real or recording: commands, mounts, devices, and the journal of changes."""
