"""Draw calls, make them on a stack and on a model of it, and find the fewest after which they differ."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fsstack.correctness.contents import FULL, Call, Comparison, DifferentError
from pytest_fsstack.machine import commands, mounts, signals
from pytest_fsstack.machine.needs import Missing, MissingRequirement
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine

    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


#: What a difference shows itself by. A stack that cannot be remounted, or that is read and closed with errors, is one.
DIFFERENT = (DifferentError, BuildError, OSError)


@dataclass(frozen=True)
class _Hypothesis:
    """The Python package that draws and shrinks."""

    def missing(self) -> MissingRequirement | None:
        if importlib.util.find_spec("hypothesis"):
            return None
        what = "needs the Python package hypothesis"
        return MissingRequirement(Missing.OTHER, what, "pip install 'pytest-fsstack[truth]'")


@dataclass
class Difference:
    """A difference between a stack and its model, and the calls that lead there."""

    words: str
    calls: list[Call]
    #: As of `DifferentError`.
    kind: str = ""
    #: Whether the same calls led to a difference once more.
    again: bool = True

    def __str__(self) -> str:
        once = "" if self.again else ", which did not come again"
        return f"{self.words}{once}; calls: {'; '.join(map(str, self.calls))}"


@dataclass
class Found:
    """The result of a search: all calls, those refused for lack of space, and a difference if there is one."""

    calls: int = 0
    refused: int = 0
    difference: Difference | None = None


#: How many kinds of differences are looked for.
_KINDS = 4


@workload(_Hypothesis())
def explore(
    timed: Timed,
    fsstack: Built,
    *,
    seed: int,
    examples: int = 10,
    steps: int = 50,
    leave: int | None = None,
    patience: float = 30.0,
    spoil: Callable[[Path], object] | None = None,
) -> list[Difference]:
    """Make calls on the stack and on a model: `examples` times, up to `steps` of them drawn from `seed`.

    Each time in a new directory, with a remount at the end. With `leave`, the filesystem is first filled until so many
    bytes are free, and calls may fail for lack of space. From the calls before a difference, those that it does not
    take are left out, for `patience` seconds. Then the same is made again without regard to that kind of difference, if
    the two can go on beside each other: not if contents or names differ. `spoil` is called with the directory before
    each remount, for a control that must be found out.

    Recorded are ``contents_calls`` and ``contents_differences``, which is how many kinds there are, up to 4, and how
    often space was lacking as ``contents_refused``; the differences, with the calls that lead to them, are kept as
    ``contents`` and returned.
    """
    stack = fsstack.stack
    ballast = _fill(fsstack.stored, leave) if leave is not None else None
    differences: list[Difference] = []
    patient = Patience(fsstack.machine, fsstack.path)

    def compared() -> Comparison:
        kinds = {item.kind for item in differences}
        # What is damaged may still be there.
        root = next(path for number in count() if not os.path.lexists(path := fsstack.path / f"contents-{number}"))

        def remount() -> None:
            if spoil:
                spoil(root)
            fsstack.remount()

        while True:
            try:
                return Comparison(
                    root, remount, stack.limits, stack.name_max, full=ballast is not None, passed_over=kinds
                )
            except OSError as error:
                # Not even for a directory is there space: removing files may take some, and give none.
                if error.errno not in FULL or ballast is None or not _gave_way(ballast):
                    raise

    umask = os.umask(0o022)
    try:
        with timed(cold=False):
            result = search(compared, patient, seed=seed, examples=examples, steps=steps, patience=patience)
            while result.difference:
                differences.append(result.difference)
                if not result.difference.kind or len(differences) == _KINDS:
                    break
                result = search(compared, patient, seed=seed, examples=examples, steps=steps, patience=patience)
    finally:
        os.umask(umask)
    if ballast:
        ballast.unlink()
    timed.record("contents_calls", result.calls, better="higher")
    timed.record("contents_differences", len(differences))
    timed.record("contents_refused", result.refused)
    timed.keep("contents", [str(item) for item in differences])
    return differences


#: Seconds after which a call hangs.
_HANGING = 120.0


class Patience:
    """Ends calls that hang, if a FUSE daemon does not answer them: no signal does, not even SIGKILL."""

    def __init__(self, machine: Machine, mount: Path, seconds: float = _HANGING) -> None:
        self.machine, self.mount, self.seconds = machine, mount, seconds
        self.over = False

    def make(self, comparison: Comparison, call: Call) -> None:
        """Make a call, which ends with an error where it was ended."""
        timer = threading.Timer(self.seconds, self._end)
        timer.daemon = True
        # Unmounting and mounting have limits of their own.
        if call.name != "remount":
            timer.start()
        try:
            # What a signal raised inside of hypothesis was taken for a failed example, and the next one is drawn.
            signals.safe_point()
            comparison.make(call)
        except DIFFERENT as error:
            # The signal has ended a command of a remount.
            signals.safe_point()
            if self.over:
                raise DifferentError(f"{call}: it had not ended after {self.seconds:g} s") from error
            raise
        finally:
            timer.cancel()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self.over = mounts.abort_fuse(self.machine, self.mount)


class _EndError(BaseException):
    """Ends the search, with a difference or for a `cause`: not an Exception, which hypothesis would try again."""

    def __init__(self, cause: Exception | None = None) -> None:
        super().__init__()
        self.cause = cause


def search(
    compared: Callable[[], Comparison], patient: Patience, *, seed: int, examples: int, steps: int, patience: float
) -> Found:
    """Draw calls for new comparisons until one differs, then leave out calls."""
    from hypothesis import HealthCheck, Phase, Verbosity, seed as seeded, settings
    from hypothesis.stateful import run_state_machine_as_test

    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        # Shrinking is ours: it knows nothing but calls, and so takes few attempts, each of which may cost a remount.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
    result = Found()
    try:
        run_state_machine_as_test(seeded(seed)(machine(compared, result, patient)), settings=profile)
    except _EndError as end:
        if end.cause:
            raise end.cause from None
        if result.difference and not patient.over:
            shrink(compared, result.difference, time.monotonic() + patience)
    return result


def shrink(compared: Callable[[], Comparison], difference: Difference, until: float) -> None:
    """Leave out calls before a difference as long as there is still one, and as the clock allows."""
    try:
        difference.again = replay(compared, difference.calls) is not None
    except OSError:
        # The stack is gone.
        return
    size = len(difference.calls) if difference.again else 0
    while size:
        at = 0
        while at < len(difference.calls) and time.monotonic() < until:
            fewer = difference.calls[:at] + difference.calls[at + size :]
            if other := replay(compared, fewer):
                difference.calls, difference.words, difference.kind = fewer, other.words, other.kind
            else:
                at += size
        size //= 2


def replay(compared: Callable[[], Comparison], calls: list[Call]) -> Difference | None:
    """Make calls on a new comparison; the difference that they lead to, if there is one."""
    comparison = compared()
    try:
        for call in calls:
            signals.safe_point()
            comparison.make(call)
    except DIFFERENT as error:
        signals.safe_point()
        return difference_of(error, comparison.calls)
    finally:
        comparison.dispose()
    return None


def difference_of(error: Exception, calls: list[Call]) -> Difference:
    """Return the difference that an error of a call describes."""
    return Difference(str(error), list(calls), error.kind if isinstance(error, DifferentError) else "")


def machine(compared: Callable[[], Comparison], result: Found, patient: Patience) -> type[RuleBasedStateMachine]:
    """The state machine of hypothesis: a rule for each call."""
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

    # Few names, so that calls meet; the long one is as long as names can be here.
    probe = compared()
    longest, full = probe.name_max, probe.full
    probe.dispose()
    files = st.sampled_from(["a", "b", "d/a", "d/b", "e/a", "s", "\u00fc \u4e2d", "n" * longest])
    directories = st.sampled_from(["d", "e", "d/e"])
    anything = st.one_of(files, directories)
    # What lies at the edges of blocks and of pages is where mistakes are.
    edges = st.sampled_from([0, 1, 511, 512, 4079, 4095, 4096, 4097, 8192, 12288, 32767, 65536, 131071])
    offsets = st.one_of(edges, st.integers(0, 140_000))
    lengths = st.one_of(st.sampled_from([1, 16, 4096, 4097, 65536]), st.integers(1, 20_000))
    names = st.sampled_from(["x", "y"])
    targets, links = st.sampled_from(["a", "b", "d", "d/a", "s", "nowhere"]), st.sampled_from(["s", "d/b"])
    place = {"offset": offsets, "length": lengths}
    fill, slot = {"fill": st.integers(0, 250)}, {"slot": st.integers(0, 1)}
    #: The arguments of each call, in its order.
    calls: dict[str, dict[str, Any]] = {
        "create": {"path": files},
        "mkdir": {"path": directories},
        "rmdir": {"path": anything},
        "write": {"path": files, **place, **fill},
        "append": {"path": files, "length": lengths, **fill},
        "truncate": {"path": anything, "size": offsets},
        "read": {"path": files, **place},
        "rename": {"old": anything, "new": anything},
        "link": {"old": files, "new": files},
        "symlink": {"to": targets, "path": links},
        "unlink": {"path": anything},
        # The model knows no permissions. Without root, later calls could not open a file that is read-only.
        "chmod": {"path": files, "mode": st.sampled_from([0o600, 0o644, 0o755, 0o444 if os.geteuid() == 0 else 0o640])},
        "set_attribute": {"path": files, "name": names, "value": st.sampled_from([b"", b"1", bytes(range(100))])},
        "remove_attribute": {"path": files, "name": names},
        # Where there is no space, the kernel ends whoever writes to a mapping.
        **({} if full else {"write_mapped": {"path": files, **place, **fill}}),
        "allocate": {"path": files, **place},
        "punch": {"path": files, **place},
        "fsync": {"path": files},
        "hold": {**slot, "path": files},
        "write_held": {**slot, **place, **fill},
        "truncate_held": {**slot, "size": offsets},
        "read_held": slot,
        "check": {},
        "remount": {},
    }

    class Contents(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.comparison = compared()

        def do(self, name: str, *arguments: Any) -> None:
            result.calls += 1
            try:
                patient.make(self.comparison, Call(name, arguments))
            except DIFFERENT as error:
                result.difference = difference_of(error, self.comparison.calls)
                raise _EndError from error
            except Exception as error:
                # Such as a signal that ends the session.
                raise _EndError(error) from error

        def teardown(self) -> None:
            try:
                if not result.difference:
                    self.do("remount")
            finally:
                result.refused += self.comparison.refused
                self.comparison.dispose()

        @initialize()
        def begin(self) -> None:
            # So that calls meet something from the first one on.
            self.do("mkdir", "d")
            self.do("mkdir", "e")
            self.do("write", "a", 0, 5000, 1)
            self.do("write", "d/a", 0, 70_000, 2)

    for name, strategies in calls.items():
        setattr(Contents, name, rule(**strategies)(_call(name, [*strategies])))  # type: ignore[no-untyped-call]
    return Contents


def _call(name: str, order: Sequence[str]) -> Callable[..., None]:
    """Return the body of the rule for a call, with the names of its arguments in their order."""

    def make(self: Any, **arguments: Any) -> None:
        self.do(name, *(arguments[argument] for argument in order))

    make.__name__ = name
    return make


#: By how much less is tried where a filesystem does not give all that it says is free.
_STEP = 256 << 10
#: By how much the file that fills a filesystem is cut where there is no space for anything.
_WAY = 128 * 1024


def _fill(directory: Path, leave: int) -> Path:
    """A file that takes all space but so many bytes of the filesystem there, or as much as it gives to one file."""
    path = directory / "ballast"
    with path.open("xb") as file:
        status = os.statvfs(directory)
        # Root may have what ext4 keeps back for it, so all that is free must go.
        free = status.f_bfree * status.f_frsize - leave
        while free > 0:
            try:
                os.posix_fallocate(file.fileno(), 0, free)
                break
            except OSError as error:
                if error.errno not in FULL:
                    raise
                free -= _STEP
    return path


def _gave_way(ballast: Path) -> bool:
    size = ballast.stat().st_size
    if size < _WAY:
        return False
    os.truncate(ballast, size - _WAY)
    commands.syncfs(ballast.parent)
    return True
