"""What the sessions that tests start have in common: few plugins, and signals that reach them."""

from __future__ import annotations

import signal

#: All that is installed takes four fifths of a short session's time.
FEW_PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "pytest_benchmark.plugin,pytest_fsstack.plugin",
}


def heed_signals() -> None:
    """A job in the background ignores some signals, and so would the sessions that it starts and interrupts."""
    for number in signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
