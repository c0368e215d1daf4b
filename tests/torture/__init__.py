"""Sessions that are killed at random moments: ``python -m tests.torture --seconds N --seed S``.

A scenario is a function from a `Place` to the figures of one try; all but the harmless ones must be 0. To add one,
write it in a file here and name it in `__main__.SCENARIOS`.
"""
