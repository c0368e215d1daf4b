"""The timed block: cold start, measurement and sample."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import numbers
import operator
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from pytest_fsstack.machine import blockdev, commands, orphans, resident, signals
from pytest_fsstack.machine.journal import UndoError
from pytest_fsstack.measuring.settling import ABOUT_ZERO, unwritten
from pytest_fsstack.measuring.watch import Watch
from pytest_fsstack.records.sample import METRICS, Action, Better, Metric, Sample, metric_of_action
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.places import Block
from pytest_fsstack.units import reason_of

Direction = Literal["write", "read"]


@dataclass(frozen=True)
class Completed:
    """A command that `Timed.run` ran."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class MeasureError(Exception):
    """Wrong use of the timed block, or a failed cold start."""


class Timed:
    """The `timed` fixture: ``with timed(bytes=...): timed.run("tar", ...)``.

    `repeated` names a step that will be repeated, so its block must not change the stack. `metrics` are those that the
    step has recorded in other rounds and on other stacks. Its own ones are added.
    """

    def __init__(self, stack: Built, repeated: str = "", metrics: dict[str, Metric] | None = None) -> None:
        self._stack, self._repeated, self._metrics = stack, repeated, {} if metrics is None else metrics
        self._extra: dict[str, tuple[Metric, float]] = {}
        self._kept: dict[str, Any] = {}
        self._incomplete = ""
        self._sample: Sample | None = None
        self._entered = False
        self._watch: Watch | None = None
        self._block: dict[str, Any] = {}
        self._workloads: list[dict[str, Any]] = []

    @property
    def sample(self) -> Sample | None:
        """Return the sample of the finished block, with the records of the workload. Without a block, an incomplete
        step has one too, with no times.
        """
        if self._sample is None and not self._incomplete:
            return None
        measured = self._sample.values if self._sample else {}
        return Sample(
            {**measured, **{name: value for name, (_, value) in self._extra.items()}},
            {**METRICS, **{name: metric for name, (metric, _) in self._extra.items()}},
            dict(self._kept),
            self._incomplete,
            work={**self._block, **({"workloads": list(self._workloads)} if self._workloads else {})},
        )

    def __call__(
        self,
        *,
        bytes: int | None = None,
        files: int | None = None,
        direction: Direction = "write",
        cold: bool = True,
        preload: Sequence[str | os.PathLike[str]] = (),
    ) -> AbstractContextManager[Timed]:
        """Measure the block and a final syncfs of the stack. Each test has at most one block.

        `bytes` and `files` are the amounts of work, for throughput and file rate. `direction` says whether the bytes
        are read or written, for the amplification (device bytes per byte of work). A `cold` block starts with all data
        synced, daemons restarted and the kernel's caches dropped. Then files in `preload`, such as the archive to
        unpack, are read into the page cache. Commands of `run` without a path stay in memory from the session's first
        block on, and those of ready-made workloads from the start. Raises `MeasureError`.
        """
        __tracebackhide__ = True  # point to the test
        if self._entered:
            raise MeasureError("a test has one timed block; write a second test in the same class for a second step")
        if direction not in get_args(Direction):
            raise MeasureError(f"timed(direction=...) takes 'write' or 'read' (got {direction!r})")
        if isinstance(preload, str | os.PathLike):
            raise MeasureError(f"timed(preload=...) takes a list of files (got {preload!r})")
        size, count = _amount("bytes", bytes), _amount("files", files)
        self._entered = True
        return self._measure(size, count, direction, cold, preload)

    @contextlib.contextmanager
    def _measure(
        self,
        size: int | None,
        count: int | None,
        direction: Direction,
        cold: bool,
        preload: Sequence[str | os.PathLike[str]],
    ) -> Iterator[Timed]:
        arguments = {"bytes": size, "files": count, "direction": direction, "cold": cold}
        self._block = {name: value for name, value in arguments.items() if value is not None}
        watch = self._watch = Watch(self._stack) if self._repeated else None
        self._check_settings()
        with signals.shielded():
            if cold:
                self._stack.release_caches()
            else:
                self._stack.sync()
            if cold or isinstance(self._stack.bottom, Block):
                # The loop files of earlier stacks are freed now, and not during the measurement.
                self._stack.sync_directory()
            if cold:
                drop_caches()
                resident.look_up()
        for path in preload:
            _read(path)
        if watch:
            watch.begin()
        before, start = _counters(self._stack), time.perf_counter()
        yield self
        worked = time.perf_counter()
        with signals.shielded():
            self._stack.sync()
        synced = time.perf_counter()
        after, seconds = _counters(self._stack), synced - start
        values = {"seconds": seconds, "work_seconds": worked - start, "sync_seconds": synced - worked}
        values |= {name: after[name] - before[name] for name in before if name in after}
        values["used_bytes"] = float(self._stack.usage())
        self._check_settings()
        if watch and (change := watch.change()):
            raise MeasureError(
                f"{self._repeated} writes to the stack ({change}), so repeating it in a round would not do the same "
                "work again: remove @pytest.mark.fsstack_repeat, or override that of its class by fsstack_repeat(1)"
            )
        if size is not None:
            values["throughput"] = size / seconds
            moved = values.get("written_bytes" if direction == "write" else "read_bytes")
            if moved is not None and size:
                values[f"{direction}_amplification"] = moved / size
        if count is not None:
            values["file_rate"] = count / seconds
        self._sample = Sample(values)
        resident.keep_wanted()

    @property
    def checking(self) -> float:
        """Return the seconds that it took to check that the block writes nothing. Repetitions are not checked."""
        return self._watch.seconds if self._watch else 0.0

    def reread(self) -> None:
        """Make later reads of the stack come from its device, to check the work after the block.

        After a cold block, this is another cold start, which is faster than a remount. Otherwise, and without root, the
        stack is remounted.
        """
        if not (self._block.get("cold") and can_drop_caches()):
            self._stack.remount()
            return
        with signals.shielded():
            self._stack.release_caches()
            drop_clean_caches()

    def _check_settings(self) -> None:
        try:
            self._stack.tuning.check()
        except OSError as error:
            raise MeasureError(f"{self._stack.spec}: {error}") from None

    def working(self, workload: str, options: Mapping[str, Any]) -> None:
        """Record the test's workload and its options (JSON data)."""
        self._workloads.append({"name": workload, "options": dict(options)})

    def run(
        self,
        *argv: str | os.PathLike[str],
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        check: bool = True,
    ) -> Completed:
        """Run a command to its end with little overhead, and charge its CPU time to the block.

        If the session ends by a signal, the command and its children are killed. `processes.watched` does so if the
        session dies. `env` extends the environment, which has the user's locale. Raises `CommandError` if the
        command cannot be started, or if it fails and `check` is set.
        """
        # If a command fails, show the line of the test, not these.
        __tracebackhide__ = operator.methodcaller("errisinstance", commands.CommandError)
        words = [os.fspath(word) for word in argv]
        program = words[0]
        if cwd is not None and os.sep in program:
            # The command starts in the working directory, so a relative path leads from there.
            program = os.path.abspath(os.path.join(cwd, program))
        path = commands.which(program)
        if path is None:
            raise commands.not_installed(words)
        resident.want(words[0])
        environment = {**os.environ, orphans.COMMAND: os.urandom(16).hex(), **(env or {})}
        with open(os.memfd_create("stdout"), "w+b") as stdout, open(os.memfd_create("stderr"), "w+b") as stderr:
            # Output goes to files in memory: pipes and reader threads could slow the command down.
            process = None
            try:
                with signals.shielded():
                    try:
                        process = subprocess.Popen(
                            words,
                            executable=path,
                            cwd=cwd,
                            env=environment,
                            stdin=subprocess.DEVNULL if stdin is None else stdin,
                            stdout=stdout,
                            stderr=stderr,
                            start_new_session=True,
                        )
                    except OSError as error:
                        raise commands.CommandError(words, None, reason_of(error), "could not be started") from None
                process.wait()
            except BaseException:
                if process is not None and process.returncode is None:
                    with signals.shielded():
                        # Kill the process group. The id cannot be reused before somebody waits for the process.
                        os.killpg(process.pid, signal.SIGKILL)
                        commands.reap(process)
                        self._end_rest(words[0], f"{orphans.COMMAND}={environment[orphans.COMMAND]}")
                raise
            texts = []
            for file in stdout, stderr:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        if check and process.returncode:
            raise commands.CommandError(words, process.returncode, texts[1])
        return Completed(tuple(words), process.returncode, *texts)

    def _end_rest(self, command: str, mark: str) -> None:
        """Kill processes of the command that have left its process group, as fio's jobs do."""
        try:
            ended = orphans.end_marked(mark, [signal.SIGKILL])
        except UndoError as error:
            self._stack.notify(f"{command} was killed, but {error}")
            return
        if ended:
            self._stack.notify(f"{command} was killed, and so were processes that it had started: {', '.join(ended)}")

    def record(
        self,
        name: str,
        value: float,
        unit: str = "",
        better: Better = "lower",
        resolution: float = 0.0,
        *,
        exact: bool = False,
    ) -> None:
        """Add a figure of the workload to the sample, as a metric for budgets.

        Figures closer than `resolution` are equal. A metric that may be zero needs a resolution to be compared, unless
        it is an `exact` count, such as lost files: then 0 equals 0, and 5 against 0 is above any budget. Raises
        `MeasureError` unless `value` is finite and not negative, because other values have no ratio.
        """
        if not isinstance(name, str):
            raise MeasureError(f"timed.record(...) takes a name as text (got {name!r})")
        if name in METRICS or name in self._of_layers:
            raise MeasureError(f"{name!r} is always measured; record your figure under another name")
        _check_amount(f"timed.record({name!r}, ...)", value)
        if not isinstance(unit, str) or better not in ("lower", "higher"):
            raise MeasureError(
                f"timed.record({name!r}, ...) takes unit='...' and better='lower' or 'higher' "
                f"(got unit={unit!r}, better={better!r})"
            )
        if not isinstance(resolution, numbers.Real) or not 0 <= resolution < math.inf:
            raise MeasureError(f"timed.record({name!r}, ...) takes a resolution of 0 or more (got {resolution!r})")
        if exact not in (True, False) or (exact and resolution):
            raise MeasureError(
                f"timed.record({name!r}, ...) takes exact=True without a resolution, as a count is not cut off "
                f"(got exact={exact!r}, resolution={resolution!r})"
            )
        metric = Metric(name, unit, better, float(resolution), bool(exact))
        before = self._metrics.setdefault(name, metric)
        if (before.unit, before.better, before.exact) != (unit, better, metric.exact):
            raise MeasureError(
                f"timed.record({name!r}, ...) has {_kind(metric)}, but before (perhaps on another stack) it had "
                f"{_kind(before)}: give all of its figures one kind"
            )
        self._extra[name] = metric, float(value)

    @cached_property
    def _of_layers(self) -> frozenset[str]:
        """The names of the metrics of actions on the stack's layers."""
        pairs = itertools.product(get_args(Action), self._stack.stack.layer_names)
        return frozenset(metric_of_action(*pair).name for pair in pairs)

    def keep(self, name: str, value: Any) -> None:
        """Store data of this round in the JSON: a tool's output as text, or a curve as a list of pairs of numbers.

        The HTML report plots curves, ``[[x, y], ...]``. `value` must be JSON data: text, numbers, lists, dictionaries.
        Raises `MeasureError` for anything else.
        """
        try:
            # A copy in JSON types, so the caller can change its own lists.
            self._kept[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise MeasureError(
                f"timed.keep({name!r}, ...) takes text, finite numbers, lists and dictionaries of them, as JSON does: "
                f"{error}"
            ) from None

    def incomplete(self, reason: str) -> None:
        """Mark that the stack did not do all of its work: "12 of 500 links failed".

        Its figures are shown with the reason, but not compared, and the test fails after all rounds. Later steps on the
        stack still run. If they cannot, raise an error instead.
        """
        # Without a reason, the step would pass.
        self._incomplete = str(reason) or "the test gave no reason"


def _kind(metric: Metric) -> str:
    return f"unit={metric.unit!r}, better={metric.better!r} and exact={metric.exact}"


def can_drop_caches() -> bool:
    """Whether this process may drop the kernel's caches (it needs root)."""
    return os.access("/proc/sys/vm/drop_caches", os.W_OK)


def drop_caches(patience: float = 30.0) -> None:
    """Wait until nothing is left to write on the whole machine, then drop the kernel's clean caches.

    Write out the stack before. What others have left is written out here. Without root nothing is dropped, and the
    session reports that. Raises `MeasureError` if other programs keep writing for `patience` seconds, or if the kernel
    cannot write everything out.
    """
    if not commands.wait_until(_is_clean, patience):
        raise MeasureError(
            f"{unwritten() // 1024} KiB on this machine were still not written after {patience:g} s: something else "
            "is writing; stop it and run again"
        )
    if can_drop_caches():
        drop_clean_caches()


def drop_clean_caches() -> None:
    """Drop the kernel's clean caches. What is not written out stays."""
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def _is_clean() -> bool:
    if unwritten() <= ABOUT_ZERO:
        return True
    _sync()
    return False


def _sync(patience: float = 300.0) -> None:
    """Run sync(2). Raises `MeasureError` after `patience` seconds.

    A filesystem whose server is gone can block sync(2) forever, even against SIGKILL. A blocked thread would keep this
    process from ending. So it runs in a child process, which is left behind in this case.
    """
    sync = commands.which("sync")
    if sync is None:
        raise MeasureError("the command sync is missing; install coreutils or busybox")
    resident.keep("sync")
    # subprocess would poll every 50 ms, and warn about a child that is left behind.
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as end:
        try:
            process = os.posix_spawn(sync, ["sync"], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)])
        finally:
            os.close(write_end)
        # The end of the child closes its side.
        ended = signals.wait(end.fileno(), patience)
    if not ended:
        os.kill(process, signal.SIGKILL)
        raise MeasureError(
            f"the kernel has not written out everything on this machine within {patience:g} s: some filesystem hangs, "
            "or is very slow (`dmesg` may tell which); without it run again, or measure with timed(cold=False)"
        )
    os.waitpid(process, 0)


def _check_amount(call: str, amount: float) -> None:
    if not isinstance(amount, numbers.Real) or not 0 <= amount < math.inf:
        raise MeasureError(f"{call} takes a finite number of 0 or more (got {amount!r})")


def _amount(name: str, amount: int | None) -> Any:
    """Return an amount of work. Numbers of numpy are converted, because JSON has none. Raises `MeasureError`."""
    if amount is None:
        return None
    _check_amount(f"timed({name}=...)", amount)
    return int(amount) if isinstance(amount, numbers.Integral) else float(amount)


def _read(path: str | os.PathLike[str]) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def _counters(stack: Built) -> dict[str, float]:
    """Return counters that only grow, by the metrics that are their differences."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    user, system = sum(usage.ru_utime for usage in usages), sum(usage.ru_stime for usage in usages)
    return {
        "user_seconds": user,
        "system_seconds": system,
        "cpu_seconds": user + system,
        "machine_seconds": _machine_cpu(),
        **_transferred(stack),
    }


def _machine_cpu() -> float:
    """Return the busy CPU seconds of the whole machine (proc(5), /proc/stat).

    This includes kernel threads, such as those of dm-crypt, whose time is charged to no process. It excludes stolen
    time, and guest time (already part of user time).
    """
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _transferred(stack: Built) -> dict[str, float]:
    """Return the bytes read and written so far by the stack's bottom devices, or by the device of its directory.

    A directory on a filesystem without a device of its own, such as tmpfs or Btrfs, has no such counters.
    """
    bottom = stack.bottom
    if isinstance(bottom, Block):
        numbers = [disk.number for disk in stack.disks]
    else:
        numbers = [blockdev.major_minor(os.stat(bottom.path).st_dev)]
    try:
        read, written = zip(*map(blockdev.transferred, numbers))
    except FileNotFoundError:
        return {}
    return {"read_bytes": float(sum(read)), "written_bytes": float(sum(written))}
