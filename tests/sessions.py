"""Settings for the sessions that tests start: few plugins, and default signal handlers."""

from __future__ import annotations

import signal
from types import FrameType

#: Loading all installed plugins takes four fifths of a short session.
FEW_PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "pytest_benchmark.plugin,pytest_fsstack.plugin",
}


def heed_signals() -> None:
    """Restore signals that background jobs ignore. Otherwise sessions that tests start could not be interrupted."""
    for number in signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def interrupt_once() -> None:
    """Interrupt this process at the first SIGINT or SIGTERM. A second one, as of tox, must not end the teardown."""
    numbers = signal.SIGINT, signal.SIGTERM

    def interrupt(number: int, frame: FrameType | None) -> None:
        for number in numbers:
            # Programs that it starts would inherit SIG_IGN.
            signal.signal(number, lambda number, frame: None)
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)
