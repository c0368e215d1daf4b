"""Search for differences: draw calls, make them on a stack and on its model, and shorten sequences that differ."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine import commands, directories, orphans, signals
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.records.findings import Finding
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.truth.correctness.calls import shown
from pytest_fsstack.truth.correctness.contents import CONDITIONS, FULL, Comparison, DifferentError, Others, Weight
from pytest_fsstack.truth.correctness.drawing import PARAMETERS, REMOUNT, THEMES, Call, Theme, draw, names_of
from pytest_fsstack.truth.correctness.posix import abort, mount_points
from pytest_fsstack.truth.correctness.verdict import damage_of
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


#: Exceptions that show a difference. Errors of remounting, reading or closing are differences too.
DIFFERENT = (DifferentError, BuildError, OSError)
#: Exceptions of a stack on which no comparison can begin.
_GONE = (BuildError, OSError)
#: The filesystem in memory that holds the model.
_MEMORY = Path("/dev/shm")
#: The number of calls of each theme after a remount.
_AFTER = 4
#: Repetitions of calls at once, until a difference occurs again.
_ATTEMPTS = 20
#: Repetitions of other calls, until a difference occurs again.
_REPEATS = 2
#: Seconds after which calls are not repeated. The crash of a server alone can take that long.
_SLOW = 10.0
#: Seconds for the sequences of a theme with calls at once. On a busy machine each sequence takes long.
_RACING = 0.5


#: Conditions of a call that are part of the kind of a difference. Others are there by chance.
_TELLING = (
    *("unlinked", "linked", "another user", "symbolic link", "directory", "beyond 2 GiB", "beyond 4 GiB"),
    *("1,000 names", "other case", "long name", "odd name", "no space"),
)


@dataclass
class Difference:
    """A difference between a stack and its model, and the calls that lead to it."""

    #: The theme of the calls. None if the stack could not be remounted.
    theme: Theme | None
    error: Exception
    calls: list[Call]
    #: The model's answer to each call. If the last answer differs, it is missing.
    answers: list[str]
    #: Conditions of the last call.
    conditions: Sequence[str] = ()
    #: Whether the same calls led to a difference a second time.
    again: bool = True
    #: The time of the first attempt.
    seconds: float = 0.0

    def __str__(self) -> str:
        once = "" if self.again else ", seen once"
        return f"{self.error}{once}; calls: {'; '.join(map(str, self.shown_calls))}"

    @property
    def weight(self) -> Weight:
        return self.error.weight if isinstance(self.error, DifferentError) else Weight.UNUSABLE

    @property
    def limits(self) -> Sequence[Limit]:
        """Return the limits that would permit the difference, if a layer declared one of them."""
        return self.error.limits if isinstance(self.error, DifferentError) else ()

    @property
    def plain_kind(self) -> str:
        """Return the call and what was wrong."""
        if isinstance(self.error, BuildError):
            return "stack: unusable"
        what = self.error.what if isinstance(self.error, DifferentError) else shown(self.error)
        at_once = sorted({call.name for call in self.calls if call.at_once})
        call = f"{' and '.join(at_once)} at once" if at_once else self.calls[-1].kind if self.calls else "stack"
        return f"{call}: {what}"

    @property
    def kind(self) -> str:
        """Return what every run calls this difference: the call, what was wrong, and conditions of the call."""
        conditions = [condition for condition in _TELLING if condition in self.conditions]
        conditions += ["full"] if any(call.name == "fill" for call in self.calls) else []
        return f"{self.plain_kind} ({', '.join(conditions)})" if conditions else self.plain_kind

    @property
    def shown_calls(self) -> list[Call]:
        """Return the calls, without those of other files if the difference was seen only once."""
        return self.calls if self.again else related(self.calls)

    def finding(self, stack: str) -> Finding:
        """Return the finding on a stack, with what its script is made of."""
        error = self.error
        program = {
            "title": str(error),
            "calls": [(call.name, call.arguments, call.user, call.process, call.at_once) for call in self.calls],
            "answers": self.answers,
            "path": getattr(error, "path", ""),
            "state": {part: shown(value) for part, value in getattr(error, "expected", {}).items()},
            "possible": getattr(error, "possible", ()),
        }
        # A file name may not be UTF-8.
        text = str(self).encode(errors="backslashreplace").decode()
        limits = tuple(limit.name for limit in self.limits)
        name = re.sub(r"[^\w.+-]+", "-", f"{stack}-{self.kind}").strip("-")
        digest = zlib.crc32(repr(program["calls"]).encode())
        return Finding(self.kind, text, f"{name[:200]}-{digest:08x}.py", repr(program), limits, self.weight)


def related(calls: Sequence[Call]) -> list[Call]:
    """Return the calls that the last one may depend on: those of its files, in any number of steps."""
    files, more = set[str | tuple[int, int]](), _files(calls[-1]) if calls else set()
    while more - files:
        files |= more
        more = {file for call in calls if _files(call) & files for file in _files(call)}
    always = ("remount", "fill", "umask")
    return [call for call in calls if call is calls[-1] or call.name in always or call.at_once or _files(call) & files]


def _files(call: Call) -> set[str | tuple[int, int]]:
    """Return the paths, and the slots with their process, that are arguments of a call."""
    parameters = dict(zip(PARAMETERS.get(call.name, ()), call.arguments))
    paths = {parameters[key] for key in ("path", "old", "new") if key in parameters}
    return paths | {(call.process, parameters[key]) for key in ("slot", "source") if key in parameters}


@workload()
def explore(
    timed: Timed,
    fsstack: Built,
    *,
    seed: int,
    themes: Sequence[Theme] = THEMES,
    seconds: float = 30.0,
    leave: int | None = None,
    spoil: Callable[[Path], object] | None = None,
    expected: Callable[[str], bool] = lambda kind: False,
) -> list[Difference]:
    """Make random calls on the stack and on a model. Return the differences, the worst first.

    Each theme gets at least one sequence of calls, and more until `seconds` are over. A sequence begins in a new
    directory. After a sequence of each theme, the stack is remounted, and each theme makes a few more calls. A theme
    ends with its first difference whose kind is not `expected`. Then calls are left out as long as the difference
    remains, for half of `seconds` in all. With `leave`, the filesystem is first filled until only that many bytes are
    free, and calls may fail for lack of space. A control passes `spoil`, which gets the directory before each remount
    and alters files in it.

    Recorded are ``contents_calls``, ``contents_differences`` (kinds of differences) and ``contents_refused`` (calls
    without space). Kept is how often each call met each condition, as ``contents_met``.
    """
    try:
        fsstack.complete()
    except BuildError as error:
        return [Difference(None, error, [REMOUNT], [])]
    stack = fsstack.stack
    ballast = _fill(fsstack.stored, leave) if leave is not None else None
    patient = Patience(fsstack.machine, mount_points(fsstack, fsstack.path))
    stored = fsstack.device and not any(layer.volatile for layer in stack.layers)
    device = fsstack.device.resolve().name if fsstack.device and stored else ""
    umask = os.umask(0o022)
    with directories.scratch(directories.safe_place(_MEMORY)) as models, contextlib.closing(Others()) as others:
        numbers = count()

        def remount() -> None:
            # Without space for its work directory, an overlay is mounted read-only.
            if ballast:
                _gave_way(ballast)
            fsstack.remount()

        def compared() -> Comparison:
            # A damaged directory may have stayed, so take the next unused name.
            name = next(
                name for number in numbers if not os.path.lexists(fsstack.path / (name := f"contents-{number}"))
            )
            return Comparison(
                fsstack.path / name,
                models / name,
                remount,
                stack.limits,
                device=device,
                full=ballast is not None,
                spoil=spoil,
                others=others,
            )

        begin = functools.partial(_with_space, compared, ballast)
        try:
            with timed(cold=False):
                search = Search(begin, remount, patient, stack.name_max, _takes_users(fsstack), seconds / 2, expected)
                search.run([theme for theme in themes if theme.needs not in stack.limits], seed, seconds)
                # The end of the block syncs the stack.
                if (damage := damage_of(fsstack)) and not search.differences:
                    search.differences.append(Difference(None, BuildError(damage), [REMOUNT], [], again=False))
                if ballast:
                    ballast.unlink(missing_ok=True)
                    _write_out(fsstack)
        finally:
            os.umask(umask)
    # More calls, also without space, find more.
    for name, what in ("contents_calls", "made"), ("contents_refused", "no space"):
        calls = sum(number for (_, condition), number in search.met.items() if condition == what)
        timed.record(name, calls, better="higher", exact=True)
    timed.record("contents_differences", len(search.differences), exact=True)
    timed.keep("contents_met", matrix(search.met, themes))
    return sorted(search.differences, key=lambda difference: (difference.weight, difference.kind))


#: Seconds after which a call counts as hanging.
_HANGING = 120.0
#: The same if the processes of the session have not worked in this time.
_IDLE = 12.0
#: The share of a CPU below which they do not work. A server that is deadlocked may still have a thread that wakes up.
_ASLEEP = 0.0025
#: How often they are looked at in this time.
_LOOKS = 40


class Patience:
    """A time limit for calls. It aborts FUSE connections, because no signal ends a call that waits for a daemon."""

    def __init__(
        self, machine: Machine, targets: Sequence[Path], seconds: float = _HANGING, idle: float = _IDLE
    ) -> None:
        self.machine, self.targets, self.seconds, self.idle = machine, targets, seconds, idle
        self.over = ""

    def make(self, comparison: Comparison, *calls: Call) -> None:
        """Make a call, or several at once. Raises `DifferentError` if the limit ended it."""
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        # Remounting has a time limit of its own.
        if calls != (REMOUNT,):
            watch.start()
        try:
            comparison.make(*calls)
        except DIFFERENT as error:
            # A signal to the session may have ended a command of a remount.
            signals.safe_point()
            ended.set()
            if watch.ident is not None:
                # It may be aborting the connection, which already ended the call.
                watch.join(10.0)
            if self.over:
                text = f"{'; '.join(map(str, calls))}: it had not ended after {self.over}"
                raise DifferentError(text, "hang", Weight.UNUSABLE) from error
            raise
        finally:
            ended.set()

    def _watch(self, ended: threading.Event) -> None:
        waited, cpu = 0.0, deque[float](maxlen=_LOOKS + 1)
        # Time in which this process is stopped does not count.
        step = min(self.seconds, self.idle) / _LOOKS
        while not ended.wait(step):
            waited += step
            work = orphans.work()
            if work is None or work.on_disk:
                cpu.clear()
            else:
                cpu.append(work.seconds)
            asleep = len(cpu) > _LOOKS and abs(cpu[-1] - cpu[0]) <= _ASLEEP * step * _LOOKS
            if waited >= self.seconds or asleep:
                why = f", and in the last {step * _LOOKS:g} s no server worked" if asleep else ""
                self.over = f"{waited:.3g} s{why}" if abort(self.machine, self.targets) else ""
                return


def _takes_users(fsstack: Built) -> bool:
    """Whether this process may act as another user, and FUSE lets that user in."""
    mount = fsstack.machine.mount_at(fsstack.path)
    closed = mount and mount.kind.startswith("fuse") and "allow_other" not in mount.super_options.split(",")
    return os.geteuid() == 0 and not closed


@dataclass
class Search:
    """A search in turns. Each turn draws a sequence of each theme, and shortens those with differences."""

    #: Returns a comparison in new directories.
    compared: Callable[[], Comparison]
    remount: Callable[[], object]
    patient: Patience
    name_max: int = 255
    #: Whether another user makes calls too.
    users: bool = False
    #: Seconds that are left for leaving out calls.
    patience: float = 15.0
    #: Whether differences of this kind end no theme.
    expected: Callable[[str], bool] = lambda kind: False
    #: How often each call met each condition.
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def run(self, themes: Sequence[Theme], seed: int, seconds: float) -> None:
        """Search for at least one turn, until the time is over, a call hung or every theme has a new difference.

        A turn begins only if one as long as the last would end in time.
        """
        until, pending, turn, last = time.monotonic() + seconds, list(themes), 0, 0.0
        while pending and not self.patient.over and (not turn or time.monotonic() + last < until):
            turn_start = time.monotonic()
            due = [theme for theme in pending if turn % theme.every == 0]
            differences = self._turn([theme for theme in due if not theme.at_once], f"{seed}/{turn}")
            if not self.patient.over and all(difference.theme for difference in differences):
                self._add_races([theme for theme in due if theme.at_once], f"{seed}/{turn}", differences)
            for difference in sorted(differences, key=lambda difference: difference.weight):
                if difference.kind not in {other.kind for other in self.differences}:
                    self._shorten(difference)
                    self.differences.append(difference)
            differing = [difference.theme for difference in differences if not self.expected(difference.kind)]
            unusable = any(difference.theme is None for difference in differences)
            pending = [] if unusable else [theme for theme in pending if theme not in differing]
            turn, last = turn + 1, time.monotonic() - turn_start

    def _shorten(self, difference: Difference) -> None:
        """Repeat a difference, and leave out calls, if there is time for it."""
        if self.patient.over or self.patience <= 0 or difference.seconds > _SLOW:
            # One of calls at once has been repeated before.
            difference.again = bool(difference.theme and difference.theme.at_once)
            return
        start = time.monotonic()
        shrink(self.compared, difference, start + max(self.patience / 3, 1.0), self.patient.make)
        self.patience -= time.monotonic() - start

    def _turn(self, themes: Sequence[Theme], seed: str) -> list[Difference]:
        """Make a sequence of each theme, remount once, and make a few more calls of each."""
        comparisons: dict[Theme, Comparison] = {}
        differences: dict[Theme, Difference] = {}

        def attempt(theme: Theme, steps: Iterable[tuple[Call, ...]], *begin: Callable[[], object]) -> None:
            start = time.monotonic()
            try:
                for action in begin:
                    action()
                for step in steps:
                    # Raise a signal to the session here. Inside of a call, its exception would count as the answer.
                    signals.safe_point()
                    self.patient.make(comparisons[theme], *step)
            except DIFFERENT as error:
                signals.safe_point()
                differences[theme] = difference_of(theme, error, comparisons[theme])
                differences[theme].seconds = time.monotonic() - start

        def steps(theme: Theme, comparison: Comparison, seed: str) -> Iterator[tuple[Call, ...]]:
            options = {"name_max": self.name_max, "users": self.users, "full": comparison.full}
            return steps_of(draw(theme, seed, **options, exists=comparison.exists))  # type: ignore[arg-type]

        try:
            for theme in themes:
                try:
                    comparison = comparisons[theme] = self.compared()
                except _GONE as error:
                    name = os.path.basename(getattr(error, "filename", None) or "")
                    # After a difference, the stack may be gone, and no further theme can begin.
                    if not (differences or self.differences):
                        differences[theme] = Difference(theme, error, [Call("mkdir", (name, 0o777))], [])
                    break
                comparison.times = theme.times
                attempt(theme, steps(theme, comparison, seed))
                comparison.leave()
            try:
                for comparison in comparisons.values():
                    comparison.spoil()
                self.remount()
            except BuildError as error:
                signals.safe_point()
                # After a call that hung, the connection is aborted, so nothing can be remounted.
                if not (self.patient.over and differences):
                    return [*differences.values(), Difference(None, error, [REMOUNT], [])]
                return [*differences.values()]
            for theme, comparison in comparisons.items():
                if theme not in differences:
                    start = len(theme.begin) + comparison.full
                    after = islice(steps(theme, comparison, f"{seed}/after"), start, start + _AFTER)
                    attempt(theme, after, comparison.remounted)
                comparison.leave()
        finally:
            for comparison in comparisons.values():
                self.met += comparison.met
                comparison.dispose()
        return [*differences.values()]

    def _add_races(self, themes: Sequence[Theme], seed: str, differences: list[Difference]) -> None:
        """Add the difference of each theme that has one. Raises the error if the stack is gone without any."""
        for theme in themes:
            try:
                race = self._race(theme, seed)
            except _GONE:
                if not differences:
                    raise
                return
            differences += [race] if race else []

    def _race(self, theme: Theme, seed: str) -> Difference | None:
        """Make sequences in which two processes make calls at once. Return the first difference that is reproduced.

        Others may be moments in which the kernel itself shows a half-finished call.
        """
        until = time.monotonic() + _RACING
        for number in range(theme.at_once):
            if number > 1 and time.monotonic() > until:
                break
            calls = [*draw(theme, f"{seed}/{number}", name_max=self.name_max)]
            make = self.patient.make
            difference = replay(self.compared, theme, calls, make, met=self.met)
            try:
                again = difference and (self.patient.over or replay(self.compared, theme, calls, make, _ATTEMPTS))
            except _GONE:
                # The difference has ended the daemon.
                again = difference
            if difference and again:
                return difference
        return None


def steps_of(calls: Iterable[Call]) -> Iterator[tuple[Call, ...]]:
    """Yield calls one by one, and calls at once together."""
    for at_once, group in groupby(calls, lambda call: call.at_once):
        if at_once:
            yield tuple(group)
        else:
            yield from zip(group)


#: A function that makes calls on a comparison.
Make = Callable[..., None]


def shrink(compared: Callable[[], Comparison], difference: Difference, until: float, make: Make) -> None:
    """Leave out calls as long as there is still a difference, until a time of the monotonic clock."""
    attempts = _ATTEMPTS if difference.theme and difference.theme.at_once else _REPEATS
    difference.again = False

    def is_same(other: Difference | None) -> bool:
        # Another difference, which may be a known one, is no shorter form of this one.
        return other is not None and other.plain_kind == difference.plain_kind

    with contextlib.suppress(*_GONE):
        difference.again = is_same(replay(compared, difference.theme, difference.calls, make, attempts))
        size = len(difference.calls) if difference.again else 0
        while size:
            at = 0
            while at < len(difference.calls) and time.monotonic() < until:
                fewer = difference.calls[:at] + difference.calls[at + size :]
                other = replay(compared, difference.theme, fewer, make, attempts)
                if other and is_same(other):
                    vars(difference).update(vars(other))
                else:
                    at += size
            size //= 2


def replay(
    compared: Callable[[], Comparison],
    theme: Theme | None,
    calls: Sequence[Call],
    make: Make,
    attempts: int = 1,
    *,
    met: Counter[tuple[str, str]] | None = None,
) -> Difference | None:
    """Make calls on up to `attempts` new comparisons. Return the first difference."""
    for _ in range(attempts):
        comparison = compared()
        comparison.times = theme is not None and theme.times
        try:
            for step in steps_of(calls):
                signals.safe_point()
                make(comparison, *step)
        except DIFFERENT as error:
            signals.safe_point()
            return difference_of(theme, error, comparison)
        finally:
            if met is not None:
                met.update(comparison.met)
            comparison.dispose()
    return None


def difference_of(theme: Theme | None, error: Exception, comparison: Comparison) -> Difference:
    """Return the difference that an error of a comparison describes."""
    conditions = [] if comparison.calls[-1:] == [REMOUNT] else comparison.conditions
    return Difference(theme, error, list(comparison.calls), list(comparison.answers), conditions)


def matrix(met: Counter[tuple[str, str]], themes: Sequence[Theme]) -> dict[str, dict[str, int]]:
    """Return how often each call of the themes met each condition, by call. What was not met has a zero."""
    calls = dict.fromkeys(name for theme in themes for name in names_of(theme))
    calls |= dict.fromkeys(name for name, _ in met)
    return {name: {condition: met[name, condition] for condition in ("made", *CONDITIONS)} for name in sorted(calls)}


#: Bytes by which the next attempt is smaller if a filesystem does not give all its free space to a file.
_STEP = 256 << 10
#: Bytes by which the ballast is cut if there is no space for anything.
_WAY = 128 * 1024


def _fill(directory: Path, leave: int) -> Path:
    """Fill a filesystem with a file, until `leave` bytes are free, or are left of its quota. Return the file."""
    path = directory / "ballast"
    status = os.statvfs(directory)
    # Root may use the blocks that ext4 reserves, so they must be filled too.
    number, size = _allocate(path, status.f_bfree * status.f_frsize - leave)
    if number == errno.EDQUOT:
        _allocate_again(path, size - leave)
    return path


def _allocate(path: Path, size: int) -> tuple[int, int]:
    """Create a file of `size` bytes, or of the largest size that fits. Return the last error number and the size."""
    number = 0
    with path.open("xb") as file:
        while size > 0:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
                break
            except OSError as error:
                if error.errno not in FULL:
                    raise
                number = error.errno or 0
                size -= _STEP
    return number, size


def _allocate_again(path: Path, size: int) -> None:
    """Replace a file by one of `size` bytes."""
    path.unlink()
    commands.syncfs(path.parent)
    _allocate(path, size)


def _write_out(fsstack: Built) -> None:
    """Sync a stack that had no space. Network filesystems report the lack of space at the next sync, once."""
    try:
        fsstack.sync()
    except OSError as error:
        if error.errno not in FULL:
            raise


def _with_space(compared: Callable[[], Comparison], ballast: Path | None) -> Comparison:
    """Begin a comparison. As long as there is no space for its directory, cut the ballast."""
    while True:
        try:
            return compared()
        except OSError as error:
            # Removing files does not always free space. SSHFS says EEXIST if there is none.
            if error.errno not in (*FULL, errno.EEXIST) or ballast is None or not _gave_way(ballast):
                raise


def _gave_way(ballast: Path) -> bool:
    """Cut the ballast. Return False if it is too small."""
    size = ballast.stat().st_size
    if size < _WAY:
        return False
    try:
        os.truncate(ballast, size - _WAY)
    except OSError as error:
        if error.errno != errno.EDQUOT:
            raise
        # At its quota, Btrfs lets a file be removed, but not always be cut.
        _allocate_again(ballast, size - _WAY)
    commands.syncfs(ballast.parent)
    return True
