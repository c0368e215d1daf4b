"""Settings for the sessions that tests start: few plugins, and default signal handlers."""

from __future__ import annotations

import signal

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
