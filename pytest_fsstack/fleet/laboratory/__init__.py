"""Sessions on many hosts by Slurm: one file says which hosts and disks, one directory holds all of a run."""
