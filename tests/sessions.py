"""Settings for the sessions that tests start: few plugins, and default signal handlers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

#: Free bytes that temporary files need, most of them images of disks.
ROOM = 4 << 30
#: An environment variable with a unique number, inherited by all processes that tests start.
MARK = "FSSTACK_TESTS"
MEMORY = Path("/dev/shm")
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


def free(place: str | os.PathLike[str]) -> int:
    """Return the free bytes in a directory, 0 if it does not exist."""
    return shutil.disk_usage(place).free if os.path.isdir(place) else 0


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """Make a directory in memory, where syncs do not wait for a disk, or elsewhere if there is no room."""
    place = MEMORY if free(MEMORY) >= ROOM else None
    with tempfile.TemporaryDirectory(prefix=f"{os.environ.get(MARK, '')[:8]}-", dir=place) as name:
        yield Path(name)
