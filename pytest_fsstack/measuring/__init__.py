"""Measurement of a step: the timed block and its sample."""
