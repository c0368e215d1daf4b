"""Verdicts from samples. This package is pure: it uses neither the machine nor pytest."""
