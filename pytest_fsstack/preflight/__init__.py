"""What a session would do, and whether it can: doctor, dry run, explained stacks."""
