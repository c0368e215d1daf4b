"""Stacks whose devices are damaged: altered bytes, and power cuts."""
