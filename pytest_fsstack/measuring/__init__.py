"""What a step costs: the timed block and its sample."""
