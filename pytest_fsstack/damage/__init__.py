"""Damage to the devices of a stack: altered bytes, and power cuts."""
