"""The plugin's state in one pytest session: settings, stacks of tests, what is built, results."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options

if TYPE_CHECKING:
    from pytest_fsstack.budget import Budget, Rule
    from pytest_fsstack.corpus import Corpus
    from pytest_fsstack.journal import Journal
    from pytest_fsstack.results import Results
    from pytest_fsstack.rounds import Arm, Group
    from pytest_fsstack.scale import Sizes
    from pytest_fsstack.stack import Built, Device, Stack

NO_STACKS = (
    "uses fsstack, but there are no stacks to run it on: mark it with @pytest.mark.fsstack('ext4', 'luks | ext4'), or "
    "give --fsstack-stacks or the ini option fsstack_stacks"
)


class Session:
    """Made when the command line speaks of fsstack, or when the first test uses it."""

    def __init__(
        self,
        config: pytest.Config,
        settings: options.Settings,
        reports: dict[str, Callable[[Results], str]],
        shapes: dict[str, Callable[..., Any]],
    ) -> None:
        self.config, self.settings, self.reports, self.shapes = config, settings, reports, shapes
        self._arms: dict[object, list[Arm]] = {}
        self._rules: dict[pytest.Mark, list[Rule]] = {}
        #: What is wrong with markers, and in which tests.
        self._mistakes: dict[str, dict[str, None]] = {}
        self._mounts: list[str] = []
        self._handlers: dict[int, Any] = {}
        self._prepared = False
        self._machine = ExitStack()
        self._timed_groups = 0

    @classmethod
    def of(cls, config: pytest.Config) -> Session:
        """Read the options. Raises `pytest.UsageError`."""
        known = {layer.name: layer for layers in config.hook.pytest_fsstack_layers() for layer in layers}
        reports = {name: report for found in config.hook.pytest_fsstack_reports() for name, report in found.items()}
        shapes = {name: shape for found in config.hook.pytest_fsstack_tables() for name, shape in found.items()}
        return cls(config, options.read(config, known, frozenset(reports)), reports, shapes)

    def set_up_machine(self) -> None:
        """Set what is set for the whole session. Raises `pytest.UsageError`."""
        governor = self.settings.governor
        # Workers run on the machine of the session that started them; where something is missing, its tests say so.
        if governor is None or governor.missing() or hasattr(self.config, "workerinput"):
            return
        self._catch_signals()
        try:
            self._machine.enter_context(governor.applied(self.journal))
        except OSError as error:
            raise pytest.UsageError(f"--fsstack-governor: {error}") from None

    # -- collection ----------------------------------------------------------------------------------------------------

    def arms(self, definition: pytest.Item) -> list[Arm]:
        """The stacks of a test, on each device. Mistakes are collected, and told once by `plan`."""
        mark = definition.get_closest_marker("fsstack")
        key = None if self.settings.stacks_replace or mark is None else (mark.args, tuple(mark.kwargs.items()))
        try:
            if key not in self._arms:
                self._arms[key] = self._read_arms(mark)
        except (ValueError, TypeError) as error:
            self._mistakes.setdefault(str(error), {})[definition.nodeid] = None
            return []
        return self._arms[key]

    def _read_arms(self, mark: pytest.Mark | None) -> list[Arm]:
        from pytest_fsstack.rounds import Arm

        texts, baseline = self._stacks_of(mark)
        stacks = [stack for stack, _ in texts]
        ids = [stack.id for stack in stacks]
        if twice := next((name for name in ids if ids.count(name) > 1), None):
            raise ValueError(
                f"two stacks are called {twice!r}: give one a name, as in 'other = {stacks[ids.index(twice)]}'"
            )
        devices = self.settings.devices
        on = {device: [self._fitted(stack, text, device, mark) for stack, text in texts] for device in devices}
        names = {name: stack.id for stack in stacks for name in (str(stack), stack.spec, stack.id)}
        if baseline is not None and baseline not in names:
            raise ValueError(f"the baseline {baseline!r} is none of the stacks: {', '.join(ids)}")
        chosen = names[baseline] if baseline is not None else ids[0]
        kernel = options.worker_input(self.config).get("kernel")

        def test_id(stack: Stack, device: Device) -> str:
            return ":".join([stack.id, *([device.id] if len(devices) > 1 else []), *([kernel] if kernel else [])])

        return [Arm(stack, device, chosen, test_id(stack, device)) for device in devices for stack in on[device]]

    def _fitted(self, stack: Stack, text: str, device: Device, mark: pytest.Mark | None) -> Stack:
        """The stack as it stands on a device: what the marker has `below` goes between where it must."""
        from pytest_fsstack.stack import Stack

        below = mark.kwargs.get("below") if mark is not None and not self.settings.stacks_replace else None
        if below and device.gives not in stack.layers[0].takes:
            text = f"{below} | {stack.spec}"
            # Under its own id, because it is the same stack on every device.
            stack = Stack(Stack.parse(text, self.settings.known).layers, stack.id)
        stack.check_device(device, self.settings.known, text)
        return stack

    def _stacks_of(self, mark: pytest.Mark | None) -> tuple[list[tuple[Stack, str]], str | None]:
        """The stacks with their texts, and the baseline's name: from the command line, the marker or the ini."""
        from pytest_fsstack.stack import Stack

        settings = self.settings
        if settings.stacks_replace or mark is None:
            if not settings.stacks:
                raise ValueError(NO_STACKS)
            return [(stack, str(stack)) for stack in settings.stacks], settings.baseline
        if unknown := set(mark.kwargs) - {"baseline", "below"}:
            raise ValueError(
                f"the marker fsstack has no argument {sorted(unknown)[0]!r}; it takes stacks, baseline= and below="
            )
        if not mark.args:
            raise ValueError(NO_STACKS)
        if wrong := next((text for text in mark.args if not isinstance(text, str)), None):
            raise ValueError(f"the marker fsstack takes stacks as text, not {wrong!r}")
        stacks = [(Stack.parse(text, settings.known), text) for text in mark.args]
        return stacks, settings.baseline or mark.kwargs.get("baseline")

    def budgets(self, item: pytest.Item, arm: str, is_baseline: bool) -> list[Budget]:
        """The budgets of a test on a stack; the baseline has absolute limits only."""
        from pytest_fsstack.budget import applying

        marked = [rule for mark in item.iter_markers("fsstack_budget") for rule in self._rules_of(mark)]
        found = applying(marked, self.settings.budgets, arm)
        return [budget for budget in found if not is_baseline or budget.limit is not None]

    def _rules_of(self, mark: pytest.Mark) -> list[Rule]:
        from pytest_fsstack.budget import rules

        return rules(*mark.args, **mark.kwargs)

    def plan(self, collected: list[pytest.Item], items: list[pytest.Item]) -> None:
        """Group the items into chains, and take over their running. Raises `pytest.UsageError` for wrong markers."""
        from pytest_fsstack.rounds import Rounds, StandIn, group_items

        if reason := os.environ.get(options.GUEST_DOWN):
            self.config.pluginmanager.register(StandIn(reason), "fsstack-stand-in")
            return

        complete = not (any("::" in argument for argument in self.config.args) or self.config.getoption("lf", False))
        groups = group_items(collected, items, complete)
        for group in dict.fromkeys(groups.values()):
            for item in group.examples():
                self._check_marks(item)
                self._check_sizes(item, group)
        if self._mistakes:
            raise pytest.UsageError("\n".join(_told(mistake, list(tests)) for mistake, tests in self._mistakes.items()))
        self._obey_benchmark_options(items)
        self._refuse_company(items)
        self._timed_groups = len({group for group in groups.values() if group.timed})
        if groups:
            from pytest_fsstack.report.progress import Progress

            self.config.pluginmanager.register(
                Rounds(
                    self.config,
                    groups,
                    self.results,
                    looks=self.settings.looks,
                    seed=self.settings.seed,
                    budgets=self.budgets,
                    strict=self.settings.strict,
                    missing_fails=self.settings.missing_fails,
                    mounts=lambda: self._mounts,
                    progress=Progress(self.config.pluginmanager.get_plugin("terminalreporter")),
                    worker=options.worker_input(self.config),
                ),
                "fsstack-rounds",
            )

    def _check_marks(self, item: pytest.Item) -> None:
        for mark in item.iter_markers("fsstack_budget"):
            try:
                self._rules_of(mark)
            except (ValueError, TypeError) as error:
                self._mistake(f"fsstack_budget: {error}", item)
        for mark in item.iter_markers("fsstack_table"):
            name = mark.args[0] if len(mark.args) == 1 else mark.args
            if name not in self.shapes:
                known = ", ".join(sorted(self.shapes))
                self._mistake(f"fsstack_table: there is no table {name!r}; there are: {known}", item)

    def _mistake(self, text: str, item: pytest.Item) -> None:
        self._mistakes.setdefault(text, {})[item.nodeid.partition("[")[0]] = None

    def sizes(self, item: pytest.Item) -> Sizes:
        """The sizes of a test at the chosen scale. Raises `ValueError`."""
        from pytest_fsstack.scale import chosen

        mark = item.get_closest_marker("fsstack_sizes")
        if mark is None:
            raise ValueError("uses sizes, but has no marker fsstack_sizes that says which")
        sizes: Sizes = chosen(mark.kwargs, self.settings.scale)
        return sizes

    def _check_sizes(self, item: pytest.Item, group: Group) -> None:
        """Before anything starts, refuse sizes that cannot fit the device; those that nobody chose are skipped."""
        from pytest_fsstack.scale import refusal

        if item.get_closest_marker("fsstack_sizes") is None:
            return
        directory = self.settings.directory or Path(tempfile.gettempdir())
        try:
            problem = refusal(self.sizes(item), self.settings.scale, group.device, directory)
        except (ValueError, OSError) as error:
            self._mistake(f"fsstack_sizes: {error}", item)
            return
        if problem and self.settings.scale_given:
            self._mistake(problem, item)
        elif problem:
            for other in group.of_step(item):
                other.add_marker(pytest.mark.skip(reason=problem))

    def _obey_benchmark_options(self, items: list[pytest.Item]) -> None:
        """Let --benchmark-only and --benchmark-skip treat tests with `timed` as the benchmarks that they are."""
        from pytest_fsstack.rounds import arm_of

        plugin: Any = self.config.pluginmanager.get_plugin("pytest-benchmark")
        for item in items if plugin and (plugin.only or plugin.skip) else ():
            if arm_of(item) and item.get_closest_marker("benchmark"):
                item.own_markers[:] = [
                    mark
                    for mark in item.own_markers
                    if "--benchmark-only" not in str(mark.kwargs.get("reason", "")) or mark.name != "skip"
                ]
                if plugin.skip:
                    item.add_marker(pytest.mark.skip(reason="benchmarks are skipped (--benchmark-skip)"))

    def _refuse_company(self, items: list[pytest.Item]) -> None:
        """Skip benchmarks where several xdist workers would measure at the same time."""
        from pytest_fsstack.rounds import arm_of

        # Workers of kernels take turns.
        alone = options.worker_input(self.config) or getattr(self.config, "workerinput", {}).get("workercount", 1) == 1
        if not alone:
            reason = "stacks that are measured at the same time disturb each other: run without -n"
            for item in items:
                if arm_of(item) and item.get_closest_marker("benchmark"):
                    item.add_marker(pytest.mark.skip(reason=reason))

    # -- building ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def built(self, arm: Arm, base: Callable[[], Path]) -> Iterator[Built]:
        """Build a stack for the time of a test or a class. Skips or fails the test where that cannot be."""
        from pytest_fsstack.guard import Refused
        from pytest_fsstack.host import CommandError
        from pytest_fsstack.needs import load, missing
        from pytest_fsstack.stack import BuildError, Site, build

        governor = [self.settings.governor] if self.settings.governor else []
        needs = [*arm.device.needs(), *arm.stack.needs(), *governor]
        if reasons := missing(needs):
            say = pytest.fail if self.settings.missing_fails else pytest.skip
            say(f"{arm.id} on {arm.device.spec}: {'; '.join(reasons)}")
        load(needs)
        parent = self.settings.directory or base()
        self._prepare(parent)
        with ExitStack() as undo:
            try:
                directory = undo.enter_context(self._directory(parent))
                site = Site(directory, self.journal, queue=self.settings.queue)
                built = undo.enter_context(build(arm.stack, arm.device, site))
            except (BuildError, Refused, CommandError, OSError) as error:
                pytest.fail(str(error), pytrace=False)
            self._mounts = built.mounts()
            yield built
            try:
                undo.close()
            except (BuildError, Refused, CommandError, OSError) as error:
                pytest.fail(str(error), pytrace=False)

    @contextlib.contextmanager
    def _directory(self, base: Path) -> Iterator[Path]:
        """A directory for mount points, which are removed afterwards; never what may still be mounted there."""
        path = Path(tempfile.mkdtemp(prefix="fsstack-", dir=base))
        with self.journal.entry("directory", path=str(path)):
            try:
                yield path
            finally:
                for mountpoint in path.iterdir():
                    mountpoint.rmdir()
                path.rmdir()

    @cached_property
    def journal(self) -> Journal:
        from pytest_fsstack.journal import Journal, default_directory

        return Journal(default_directory())

    def _prepare(self, directory: Path) -> None:
        """Before the first stack: what the machine is, mounts of our own, an orderly end for signals."""
        if self._prepared:
            return
        from pytest_fsstack import environment, host

        needs = [need for arms in self._arms.values() for arm in arms for need in arm.stack.needs()]
        self.results.environment = environment.record(
            self.settings.devices, directory=directory, tools=[*environment.tools_of(needs), "tar", "rsync"]
        )
        host.private_mounts()
        if chosen := self._chosen_settings():
            self.results.environment["settings"] = chosen
        self._catch_signals()
        self._prepared = True

    def _chosen_settings(self) -> dict[str, str | int]:
        settings = self.settings
        found = {
            "discard": True if any(getattr(device, "discard", False) for device in settings.devices) else None,
            "scheduler": settings.queue.scheduler,
            "read_ahead": settings.queue.read_ahead,
            "governor": settings.governor.name if settings.governor else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _catch_signals(self) -> None:
        if not self._handlers and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_IGN:
                    continue  # as under nohup, which means it
                self._handlers[number] = signal.signal(number, self._end)

    def _end(self, number: int, frame: object) -> None:
        # Once: a second signal must not interrupt the teardown that the first one started.
        signal.signal(number, signal.SIG_IGN)
        pytest.exit(f"fsstack: ended by {signal.Signals(number).name}; the stack is torn down", returncode=128 + number)

    # -- data ----------------------------------------------------------------------------------------------------------

    @cached_property
    def corpus(self) -> Corpus:
        from pytest_fsstack import corpus as data
        from pytest_fsstack.scale import CORPUS

        try:
            if self.settings.corpus:
                return data.given(self.settings.corpus, data.cache_directory())
            files, size = CORPUS[self.settings.scale]
            return data.generated(data.cache_directory(), files=files, size=size)
        except data.CorpusError as error:
            pytest.fail(str(error), pytrace=False)

    def payload(self, size: int, seed: int = 1) -> Path:
        """A file of that many bytes that cannot be compressed."""
        from pytest_fsstack import corpus

        try:
            return corpus.payload(corpus.cache_directory(), size, seed)
        except corpus.CorpusError as error:
            pytest.fail(str(error), pytrace=False)

    # -- reporting -----------------------------------------------------------------------------------------------------

    @cached_property
    def results(self) -> Results:
        from pytest_fsstack.results import Results

        return Results(shapes=self.shapes)

    def header(self) -> list[str]:
        from pytest_fsstack.measure import can_drop_caches

        settings = self.settings
        rounds = " or ".join(map(str, settings.looks.rounds))
        devices = ", ".join(device.spec for device in settings.devices)
        lines = [f"fsstack: {devices}; {rounds} rounds; --fsstack-seed={settings.seed}"]
        if not can_drop_caches():
            lines.append(
                "fsstack: the kernel's caches cannot be dropped without root: figures are those of warm caches"
            )
        if settings.fixed_rounds and settings.looks.rounds[0] < settings.looks.minimum_rounds:
            lines.append(
                f"fsstack: {rounds} rounds are too few for a verdict: at least {settings.looks.minimum_rounds} are "
                f"needed at --fsstack-alpha={settings.looks.alpha:g}"
            )
        return lines

    @property
    def _measured_nothing(self) -> bool:
        """A gate must not pass because nothing was compared."""
        gate = self.settings.strict or self.settings.missing_fails
        return bool(gate and (self._timed_groups or self.results.chains) and not self.results.comparisons)

    def finish(self, session: pytest.Session) -> None:
        """Write the reports that were asked for."""
        if hasattr(self.config, "workerinput"):
            return  # the controller has what there is to write
        if self.results.chains:
            from pytest_fsstack import environment

            self.results.environment = self.results.environment or environment.record(self.settings.devices)
            if "corpus" in self.__dict__:
                self.results.environment["corpus"] = environment.corpus_facts(self.corpus)
            for name, path in self.settings.reports:
                path.write_text(self.reports[name](self.results), encoding="utf-8")
        if self._measured_nothing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def summarize(self, reporter: pytest.TerminalReporter) -> None:
        from pytest_fsstack import results
        from pytest_fsstack.report import terminal

        benchmarks: Any = self.config.pluginmanager.get_plugin("pytest-benchmark")
        if benchmarks and not (self.config.get_verbosity() > 0 or benchmarks.compare or benchmarks.histogram):
            results.hide_benchmark_records(benchmarks)
        if self.results.chains:
            terminal.write(reporter, self.results, self.config.get_verbosity())
        for name, path in self.settings.reports:
            wrote = (
                f"wrote {name} to {os.path.relpath(path)}" if self.results.chains else f"nothing measured for {name}"
            )
            reporter.write_line(f"fsstack: {wrote}")
        if self._measured_nothing:
            reporter.write_line("fsstack: 0 comparisons: this gate has measured nothing, and so it fails", red=True)

    def close(self) -> None:
        self._machine.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if "journal" in self.__dict__:
            self.journal.close()


def _told(mistake: str, tests: list[str]) -> str:
    more = f" (and {len(tests) - 1} more)" if len(tests) > 1 else ""
    return f"{tests[0]}{more}: {mistake}"
