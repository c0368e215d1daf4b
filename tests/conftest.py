"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# Machines that run other things beside say nothing by how long one example takes.
settings.register_profile("fsstack", deadline=None)
settings.load_profile("fsstack")

# A job in the background ignores these, and so would the sessions that the tests start and interrupt.
for number in signal.SIGINT, signal.SIGHUP, signal.SIGTERM:
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
