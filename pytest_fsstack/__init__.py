"""Storage configurations as pytest parameters: build them, measure on them, compare them, judge them."""

__version__ = "0.1.0"
