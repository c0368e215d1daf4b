"""The plugin's state in a pytest session: settings, chains, the builder and the results."""

from __future__ import annotations

import contextlib
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options
from pytest_fsstack.options.built_in import brought, checked_layers
from pytest_fsstack.options.settings import Settings
from pytest_fsstack.rounds import marks
from pytest_fsstack.rounds.budgets import Budgets
from pytest_fsstack.rounds.marks import Mistakes
from pytest_fsstack.session import interruption, selecting
from pytest_fsstack.session.building import Builder, fail
from pytest_fsstack.session.parameters import Parameters
from pytest_fsstack.units import visible

if TYPE_CHECKING:
    from pytest_fsstack.judging.cells import Policy
    from pytest_fsstack.judging.course import Course
    from pytest_fsstack.records.results import Results
    from pytest_fsstack.rounds.chains import Chain, StackParameter
    from pytest_fsstack.rounds.progress import Progress
    from pytest_fsstack.rounds.runner import Runner
    from pytest_fsstack.session.round_log import RoundLog
    from pytest_fsstack.stack.build import Built
    from pytest_fsstack.stack.model import Device
    from pytest_fsstack.workloads.data.archive import Corpus

    #: A function that creates the plugin that runs chains.
    Starts = Callable[[Runner, Policy, Budgets, Progress], object]


class Session:
    """The state of a session that uses stacks. Created on demand."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the options. Raises `pytest.UsageError`."""
        from pytest_fsstack.machine import commands

        self.config = config
        self.reports: dict[str, Callable[[Results], str]] = brought(config, "reports")
        self.settings = settings = Settings.of(config)
        #: A mistake in the ini, which is none of the tests that use no stack.
        self.mistake_in_ini: pytest.UsageError | None = None
        try:
            if unknown := options.unknown_in_ini(config):
                raise pytest.UsageError(unknown)
            settings.check()
        except pytest.UsageError as error:
            if any(settings.is_typed(option.name) for option in options.OPTIONS):
                raise
            self.mistake_in_ini = error
        # The guard runs commands before the first test does.
        commands.limit = settings.timeout
        self.mistakes = Mistakes()
        self.parameters = Parameters(config, settings)
        self.budgets = Budgets(config, settings)
        self.builder = Builder(config, settings, self.interject)
        #: The chain of each selected test on stacks.
        self.chains: dict[pytest.Item, Chain] = {}
        #: Whether `plan` has accepted the selected tests.
        self.is_planned = False
        #: The number of selected chains that measure.
        self.timed_chains = 0
        #: The internal error (of pytest or a plugin) that ended the session.
        self.internal_error = ""
        #: The names of failed tests that use no stack, and of files that were not collected, in their order.
        self.other_failures: dict[str, None] = {}
        self._signals = ExitStack()
        self._prepared = False
        #: Whether any stack was built.
        self._has_built = False
        self._started = _now()
        self.log = self._new_log()

    def _new_log(self) -> RoundLog | None:
        if self.settings.log is None:
            return None
        from pytest_fsstack.session.files import ReportFile
        from pytest_fsstack.session.round_log import RoundLog

        return RoundLog(ReportFile("log", self.settings.log))

    def add_layers(self, layers: object) -> None:
        """Add layers of conftests that were loaded during collection. Raises `pytest.UsageError`."""
        self.settings.known.update({layer.name: layer for layer in checked_layers(layers)})

    @cached_property
    def results(self) -> Results:
        from pytest_fsstack.records.results import Results

        results = Results()
        results.table_layouts = self.table_layouts
        return results

    @cached_property
    def table_layouts(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that make tables, by the names for the mark `fsstack_table`."""
        return brought(self.config, "tables")

    @property
    def only_looks(self) -> bool:
        """Whether nothing will be measured, so that measuring code is not imported."""
        return self.settings.only_looks

    @property
    def is_worker(self) -> bool:
        return hasattr(self.config, "workerinput")

    # -- before the tests ----------------------------------------------------------------------------------------------

    def set_up_machine(self) -> None:
        """Apply settings for the whole session. Raises `pytest.UsageError`."""
        # Workers use the machine of the session that started them.
        if self.settings.governor is not None and not self.is_worker:
            self.catch_signals()
            self.builder.set_governor()

    def plan(self, collected: list[pytest.Item], items: list[pytest.Item], plugin: Starts | None) -> None:
        """Group the items into chains, and let `plugin` run them if it is given.

        Raises `pytest.UsageError` for wrong markers.
        """
        from pytest_fsstack.rounds.chains import chains_of

        if self.settings.control:
            selecting.set_controls_aside(self.config, items)
        complete = not (any("::" in argument for argument in self.config.args) or self.config.getoption("lf", False))
        chains = self.chains = chains_of(collected, items, complete)
        for chain in dict.fromkeys(chains.values()):
            for item in chain.examples():
                marks.check(item, lambda: self.table_layouts, self.mistakes)
                self.budgets.check_marks(item, self.mistakes)
        selecting.check_sizes(dict.fromkeys(chains.values()), self.settings, self.mistakes)
        self.budgets.check(items, chains, self.mistakes)
        if chains:
            self.budgets.check_ini(parameter.stack.id for parameter in self.parameters)
            # An ini applies to other sessions too.
            if self.settings.weights and self.settings.is_typed("weights"):
                selecting.check_weights(self.settings.weights, chains)
        self.mistakes.refuse()
        if not self.is_worker and not options.runs_once_by(self.config):
            # The workers of kernels share one error rate, which the session that started them checks.
            self.settings.check_confirmation(self.budgets.confirmed)
        selecting.apply_benchmark_filters(self.config, items)
        selecting.skip_in_xdist_workers(self.config, self.settings, chains, self.budgets.count)
        if not self.only_looks and not self.is_worker:
            # A worker holds them at its first stack, because it cannot end the session with a usage error.
            self.builder.hold_all(chain.device for chain in chains.values())
        self.timed_chains = len({chain for chain in chains.values() if chain.timed})
        if chains and not self.only_looks:
            self.catch_signals()
            self.set_up_machine()
            if not self.is_worker:
                self.builder.try_settings(parameter for chain in chains.values() for parameter in chain.stacks.values())
        self.is_planned = True
        if plugin and (chains or options.worker_input(self.config)):
            from pytest_fsstack.rounds.progress import Progress
            from pytest_fsstack.rounds.runner import Runner

            runner = Runner(self.config, chains, self.results, self.builder, self.after_round)
            self.config.pluginmanager.register(
                plugin(runner, self.policy, self.budgets, Progress.of(self.config)), "fsstack-rounds"
            )

    @property
    def policy(self) -> Policy:
        """Return the policy for running and judging chains."""
        from pytest_fsstack.judging.cells import Policy

        config, settings = self.config, self.settings
        once = bool(options.runs_once_by(config))
        return Policy(
            settings.looks,
            settings.seed,
            strict=settings.strict,
            judges_emulated=settings.judges_emulated,
            judges_one_boot=settings.judges_one_boot,
            allowed=tuple(settings.allow_unjudged),
            missing_fails=settings.missing_fails,
            runxfail=config.getoption("runxfail", False),
            # A trial run does not need a quiet machine.
            discard=() if once else settings.discard_rounds,
            once=once,
            looks_for_all=settings.rounds is not None or settings.max_regression is not None,
        )

    def catch_signals(self) -> None:
        """Delay signals to safe points from here on (docs/safety.md)."""
        if not interruption.are_caught(self.config):
            self._signals.enter_context(interruption.caught(self.config))

    # -- for the tests -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def built(self, parameter: StackParameter, base: Callable[[], Path]) -> Iterator[Built]:
        """Build a stack for the duration of a test or a class. Skip or fail the test if that is impossible."""
        try:
            self.builder.require(parameter)
            parent = self.settings.directory or base()
            self._prepare(parent)
        except OSError as error:
            fail(error)
        self._settle(parameter.device, parent)
        with self.builder.built(parameter, parent) as built:
            yield built

    def _settle(self, device: Device, directory: Path) -> None:
        """Let the machine settle between two stacks."""
        from pytest_fsstack.devices import DirectoryDevice, DiskDevice

        if not self._has_built:
            self._has_built = True
            return
        on = [member.path for member in device.members if isinstance(member, DiskDevice | DirectoryDevice)]
        if problem := self.settings.settle.rest(*on or [directory]):
            settings = self.results.environment.setdefault("settings", {})
            settings["not_settled"] = settings.get("not_settled", 0) + 1
            if settings["not_settled"] == 1:
                self.builder.notify(f"--fsstack-settle={self.settings.settle}: {problem}")

    def _prepare(self, directory: Path) -> None:
        """Record the environment before the first stack."""
        if self._prepared:
            return
        from pytest_fsstack.session import environment

        if not self.is_worker:
            self.note_labels()
        needs = [need for parameter in self.parameters for need in parameter.stack.needs()]
        tools = [*environment.tools_of(needs), "tar", "rsync"]
        self.results.environment = environment.record(self.settings.devices, directory=directory, tools=tools)
        if settings := self._chosen_settings():
            self.results.environment["settings"] = settings
        self.builder.prepare()
        self._prepared = True

    def _chosen_settings(self) -> dict[str, str | int]:
        from pytest_fsstack.devices import disks_of

        settings = self.settings
        values = {
            "discard": True if any(disk.discard for disk in disks_of(settings.devices)) else None,
            "scheduler": settings.queue.scheduler,
            "read_ahead": settings.queue.read_ahead,
            "governor": settings.governor.name if settings.governor else None,
            "settle": str(settings.settle) or None,
        }
        return {name: value for name, value in values.items() if value is not None}

    @cached_property
    def _cache(self) -> Path:
        """Return the cache directory, with a message if it is not the usual one. Raises `CorpusError`."""
        from pytest_fsstack.workloads.data.corpus import chosen_cache

        cache = chosen_cache()
        self.interject(f"{cache.reason}: {cache.place} is" if cache.reason else "")
        return cache.place

    @cached_property
    def corpus(self) -> Corpus:
        from pytest_fsstack.machine import resident
        from pytest_fsstack.workloads.data import corpus as data
        from pytest_fsstack.workloads.data.archive import CorpusError
        from pytest_fsstack.workloads.data.scale import CORPUS

        try:
            if self.settings.corpus:
                corpus = data.users_corpus(self.settings.corpus, self._cache)
            else:
                files, size = CORPUS[self.settings.scale]
                corpus = data.generated(self._cache, files=files, size=size)
        except CorpusError as error:
            fail(error)
        resident.keep_file(corpus.tar)
        return corpus

    def payload(self, size: int, seed: int = 1) -> Path:
        """Return an incompressible file of that many bytes."""
        from pytest_fsstack.machine import resident
        from pytest_fsstack.workloads.data import corpus
        from pytest_fsstack.workloads.data.archive import CorpusError

        try:
            path = corpus.payload(self._cache, size, seed)
        except CorpusError as error:
            fail(error)
        resident.keep_file(path)
        return path

    # -- after the tests -----------------------------------------------------------------------------------------------

    def complete_results(self) -> None:
        """Add the facts about the session to the results, if there are any chains."""
        if not self.results.chains:
            return
        from pytest_fsstack.session.duration import timed_share

        self._note_facts()
        self.results.stop = _now()
        self.results.timed_share = timed_share(self.results)
        self._summarize_steps()

    def after_round(self, course: Course) -> None:
        """Show what the first round of a chain has found, and add the last round to the log if there is one.

        If that fails (disk full), end the session, because later rounds would be lost as well.
        """
        for problem in course.impossible if course.chain.rounds == 1 else ():
            self.interject(f"{course.chain.id}: {problem}")
        if not self.log:
            return
        from pytest_fsstack.report import ReportError

        self._note_facts()
        try:
            self.log.add(self.results, course.views.so_far())
        except ReportError as error:
            pytest.exit(str(error))

    def _note_facts(self) -> None:
        """Add facts about the session and its machine."""
        from pytest_fsstack.session import environment

        self.results.start, self.results.scale = self._started, self.settings.scale
        self.note_labels()
        if self.settings.weights:
            self.results.environment.setdefault("settings", {})["weights"] = self.settings.weights
        # Kernels report their own environments. Add this machine's.
        if "date" not in self.results.environment:
            self.results.environment |= environment.record(self.settings.devices, directory=self.settings.directory)
        self.results.environment |= environment.crypto_facts()
        if "corpus" in self.__dict__:
            self.results.environment["corpus"] = environment.corpus_facts(self.corpus)

    def _summarize_steps(self) -> None:
        """Add a summary of each step: the first sentence of its test, or else of its workloads."""
        from pytest_fsstack.rounds.chains import parameter_of, step_of

        used = {
            (chain.id, step): chain.work.get(step, {}).get("workloads", [])
            for chain in self.results.chains
            for step in chain.steps
        }
        # Import workloads only if a test uses one.
        documented = brought(self.config, "workloads") if any(used.values()) else {}
        tests = {
            (chain.id, step_of(item, parameter)): item.function
            for item, chain in self.chains.items()
            if isinstance(item, pytest.Function) and (parameter := parameter_of(item))
        }
        for chain in self.results.chains:
            for step in chain.steps:
                of_workloads = [
                    first_sentence(documented.get(run["name"]), run["options"]) for run in used[chain.id, step]
                ]
                if summary := next(filter(None, [first_sentence(tests.get((chain.id, step))), *of_workloads]), ""):
                    chain.summaries.setdefault(step, summary)

    def note_labels(self) -> None:
        """Record the labels of the run once, because the checkout may change during the run."""
        from pytest_fsstack.options import labels

        if not self.results.labels:
            kernel = "" if self.settings.kernels else platform.release()
            self.results.labels = labels.collect(self.settings.labels, self.config.rootpath, kernel=kernel)

    def lacking_kernel(self) -> list[str]:
        """Return the stacks in the tables that need another kernel. Empty if kernels were chosen.

        Also empty if the running kernel cannot be examined.
        """
        if self.only_looks:
            return []
        from pytest_fsstack.machine.needs import Missing, lacking

        if not self.results.chains or self.settings.kernels or options.worker_input(self.config):
            return []
        built = {stack for chain in self.results.chains for stack in chain.stacks}
        stacks = {
            parameter.id: parameter.stack
            for parameter in self.parameters
            if parameter.id in built and not parameter.control
        }
        try:
            kinds = {name: {lack.kind for lack in lacking(stack.needs())} for name, stack in stacks.items()}
        except OSError:
            return []
        return [name for name, reasons in kinds.items() if Missing.KERNEL in reasons]

    def close(self) -> int:
        """Undo the changes of the session. Return the number of the signal that ended it, or 0."""
        from pytest_fsstack.machine import signals

        if leftovers := self.builder.close():
            self.say(
                f"left behind: {', '.join(leftovers)}; the next session, or --fsstack-cleanup, tries again", red=True
            )
        # A signal may have come after the last safe point.
        number = signals.received()
        self._signals.close()
        return number or 0

    # -- on the terminal -----------------------------------------------------------------------------------------------

    def say(self, text: str, *, red: bool = False) -> None:
        """Write a line to the terminal, if there is one."""
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(visible(f"fsstack: {text}"), red=red)
            # The next line may come much later, and a reader of a pipe waits for this one.
            reporter.flush()

    def interject(self, line: str) -> None:
        """Write a line between the progress of tests."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        if line and reporter is not None:
            # Otherwise the line would be captured as output of the test.
            with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
                reporter.ensure_newline()
                reporter.write_line(visible(f"fsstack: {line}"))
                reporter.flush()


def first_sentence(function: object, arguments: Mapping[str, object] = MappingProxyType({})) -> str:
    """Return the first sentence of a function's docstring, or an empty text.

    The names of `arguments` in it are replaced by their values, if these are short texts or numbers.
    """
    if function is None:
        return ""
    text = " ".join((getattr(function, "__doc__", None) or "").split("\n\n")[0].split())
    sentence = text.partition(". ")[0].partition("; ")[0].rstrip(".")
    return re.sub(r"(?<!`)`(\w+)`(?!`)", lambda name: _shown(name[1], arguments), sentence).replace("`", "")


def _shown(name: str, arguments: Mapping[str, object]) -> str:
    """Return the value of an argument as a reader expects it, or its name."""
    value = arguments.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_VALUE else name


#: The length of a text in the summary of a step, beyond which its name says more.
_LONGEST_VALUE = 30


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
