"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# Machines that run other things beside say nothing by how long one example takes.
settings.register_profile("fsstack", deadline=None)
settings.load_profile("fsstack")
