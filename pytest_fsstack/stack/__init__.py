"""Stacks: their text, their layers, and how they are built."""
