"""Layers that make one block device of several devices of the session."""
