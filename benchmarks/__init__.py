"""Benchmarks of the plugin against references, and simulations of its verdicts."""
