"""Signals that end a session. They are recorded on arrival, and raised at a safe point.

A handler could raise between an `open` and the line that would undo it, and Python ignores exceptions in some places,
such as callbacks around a fork. So handlers only record the signal, and `safe_point` raises it between two steps. In
test code (`State.TEST`), which may run for hours, the handler raises immediately.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class State(enum.Enum):
    """The state of this process."""

    #: Everything else, such as collecting and reporting.
    IDLE = enum.auto()
    #: A stack is built, or closed and opened again.
    BUILDING = enum.auto()
    #: Foreign code: a test, a fixture, a debugger.
    TEST = enum.auto()
    #: A stack is taken down.
    UNDOING = enum.auto()


#: A signal from this process to itself, which makes the main thread check whether it must stop. SIGALRM belongs to
#: pytest-timeout. The handler stays installed, because the default action would end this process.
_NUDGE = signal.SIGRTMIN + 7


def _nudge(after: float = 0.0) -> None:
    time.sleep(after)
    signal.pthread_kill(threading.main_thread().ident or 0, _NUDGE)


def _nudged(number: int, frame: FrameType | None) -> None:
    if _is_in_context_manager(frame) or _is_in_hook(frame):
        threading.Thread(target=_nudge, args=(0.02,), daemon=True).start()
        return
    _raise_in_a_test()
    _raise_overdue()


def _is_in_context_manager(frame: FrameType | None) -> bool:
    """Whether it arrived while a context manager of ours is entered or left. Raising there would skip the undo."""
    return frame is not None and frame.f_code.co_filename in (__file__, contextlib.__file__)


def _is_in_hook(frame: FrameType | None) -> bool:
    """Whether it arrived while `_Caught.dropped` runs. Python would drop what is raised there too."""
    while frame is not None and frame.f_code is not _Caught.dropped.__code__:
        frame = frame.f_back
    return frame is not None


def _in_a_debugger(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in ("pdb", "cmd"):
            return True
        frame = frame.f_back
    return False


#: Seconds after which the signal is raised again in a debugger.
_INSISTENCE = 0.5


class _Caught:
    """The signal handlers of one session, and the received signals."""

    def __init__(self, ended: Callable[[signal.Signals], BaseException]) -> None:
        self.ended = ended
        self.process = os.getpid()
        self.received: list[signal.Signals] = []
        self.handlers: dict[int, Any] = {}
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.raised: BaseException | None = None
        self.over = threading.Event()
        self.hook = sys.unraisablehook

    def note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self.process:
            # A child that was forked in a test has no session.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received.append(signal.Signals(number))
        os.eventfd_write(self.wake, 1)
        if len(self.received) == 1 and _in_a_debugger(frame):
            threading.Thread(target=self._insist, daemon=True).start()
        _nudged(number, frame)

    def dropped(self, what: Any) -> None:
        """Raise an exception again that Python ignored in a callback or a destructor."""
        if self.raised is not None and what.exc_value is self.raised:
            threading.Thread(target=_nudge, args=(0.02,), daemon=True).start()
        else:
            self.hook(what)

    def _insist(self) -> None:
        """A debugger prints the exception and prompts again, so raise it repeatedly."""
        while not self.over.wait(_INSISTENCE):
            if _state is State.TEST and _in_a_debugger(sys._current_frames().get(threading.main_thread().ident or 0)):
                _nudge()


_caught: _Caught | None = None
_state = State.IDLE
_shields = 0


@contextlib.contextmanager
def caught(ended: Callable[[signal.Signals], BaseException]) -> Iterator[None]:
    """Handle the signals that end a session during the block. `ended` makes the exception to raise.

    Signals that are already ignored, as under nohup, stay ignored. Does nothing outside of the main thread, where
    handlers cannot be set.
    """
    global _caught
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outer = _caught
    _caught = state = _Caught(ended)
    sys.unraisablehook = state.dropped
    signal.signal(_NUDGE, _nudged)
    try:
        for number in END_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                state.handlers[number] = signal.signal(number, state.note)
        yield
    finally:
        for old, handler in state.handlers.items():
            signal.signal(old, handler)
        sys.unraisablehook = state.hook
        _caught = outer
        state.over.set()
        os.close(state.wake)


def received() -> signal.Signals | None:
    """Return the first signal that arrived, or None."""
    return _caught.received[0] if _caught and _caught.received else None


def must_end() -> bool:
    """Whether a signal ends the session, or a step is over its time limit.

    Call it in a thread that blocks `END_SIGNALS`. A signal stays pending if the main thread is stuck in the kernel.
    """
    if _watch is not None and _watch.overdue:
        return True
    return _caught is not None and bool(_caught.received or _caught.handlers.keys() & signal.sigpending())


def safe_point() -> None:
    """Raise the exception for a received signal. Call it between two steps."""
    if _caught and _caught.received:
        raise _caught.ended(_caught.received[0])


def _raise_in_a_test() -> None:
    if _state is State.TEST and not _shields and _caught and _caught.received:
        _caught.raised = _caught.ended(_caught.received[0])
        raise _caught.raised


@contextlib.contextmanager
def during(state: State) -> Iterator[None]:
    """Set the state of this process for a block. During a teardown, the state does not change."""
    global _state
    outer = _state
    if outer is not State.UNDOING:
        _state = state
    try:
        _raise_in_a_test()
        yield
    finally:
        _state = outer


class shielded:  # noqa: N801 - a context manager, cheap enough for what is measured
    """A section of ours within test code. A signal is raised at its end."""

    def __enter__(self) -> None:
        global _shields
        # Handlers only run in the main thread.
        self._counts = threading.get_ident() == threading.main_thread().ident
        _shields += self._counts

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        global _shields
        _shields -= self._counts
        if kind is None and self._counts:
            _raise_in_a_test()
            _raise_overdue()


def cut_short() -> bool:
    """Whether the running command should be killed.

    In a test, the first signal kills it, otherwise the second. During a teardown, no signal does.
    """
    count = len(_caught.received) if _caught else 0
    return (count > 1 and _state is not State.UNDOING) or (bool(count) and _state is State.TEST)


def wait(fd: int, seconds: float) -> bool:
    """Wait until a descriptor is readable, the time is over, or the command should be `cut_short`."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if _caught and threading.current_thread() is threading.main_thread():
        poll.register(_caught.wake, select.POLLIN)
    while True:
        remaining = deadline - time.monotonic()
        ready = {descriptor for descriptor, _ in poll.poll(max(0, min(remaining, 86_400.0)) * 1000)}
        if fd in ready:
            return True
        if remaining <= 0 or cut_short():
            return False
        if _caught and _caught.wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(_caught.wake)


# -- time limits -------------------------------------------------------------------------------------------------------


class _Watch(threading.Thread):
    """A watchdog that interrupts the main thread after `deadline`, and again every second."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(daemon=True, name="fsstack: time limit")
        self.what, self.seconds = what, seconds
        self.deadline = time.monotonic() + seconds
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(remaining if (remaining := self.deadline - time.monotonic()) > 0 else 1.0):
            # A late signal finds no step, and does nothing.
            if self.overdue:
                _nudge()

    @property
    def overdue(self) -> bool:
        return time.monotonic() >= self.deadline


_watch: _Watch | None = None


def _raise_overdue() -> None:
    if _watch is not None and not _shields and _watch.overdue:
        raise TimeoutError(f"{_watch.what} has not ended within {_watch.seconds:g} s (--fsstack-timeout)")


@contextlib.contextmanager
def limited(what: str, seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block if no command of it has ended for so many seconds.

    This stops hanging Python code. Commands have their own limit, and their end restarts this one, so the error names
    the command.
    """
    global _watch
    if threading.current_thread() is not threading.main_thread() or _watch is not None:
        yield
        return
    signal.signal(_NUDGE, _nudged)
    watch = _watch = _Watch(what, seconds)
    watch.start()
    try:
        yield
    finally:
        _watch = None
        watch.over.set()


def progress() -> None:
    """Restart the time limit of the step, because a command has ended."""
    if _watch is not None:
        _watch.deadline = time.monotonic() + _watch.seconds
