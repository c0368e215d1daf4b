"""The cells of a course: how chains are planned on them, and what their runs measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from pytest_fsstack.judging.conditions import Rule
from pytest_fsstack.judging.repetition import RepeatCount
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Looks


class KernelBoot(NamedTuple):
    """A boot of a kernel: the kernel's name, and the boot's number from 0."""

    kernel: str = ""
    boot: int = 0


class Cell(NamedTuple):
    """A stack on a kernel in one of its boots."""

    stack: str
    kernel: str = ""
    boot: int = 0

    @property
    def kernel_boot(self) -> KernelBoot:
        return KernelBoot(self.kernel, self.boot)


class PlannedStack(msgspec.Struct, frozen=True):
    """A stack of a chain: its text, the steps to run on it, and the requirements that its machine does not meet."""

    spec: str
    steps: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    encrypts: bool = False
    settings: dict[str, str] = {}
    #: Whether the user gave its name.
    named: bool = False
    #: Whether the kernel's own ciphers encrypt in one of its layers.
    kernel_cipher: bool = False


class PlannedTest(msgspec.Struct, frozen=True):
    """A selected test: a step on a stack, its budgets, and why it must measure something (empty if it need not).

    `id` is its node id.
    """

    step: str
    stack: str
    budgets: tuple[Budget, ...] = ()
    promise: str = ""
    #: Whether the class promised to measure, so another test of it may keep the promise.
    of_class: bool = False
    id: str = ""


class ChainPlan(msgspec.Struct, frozen=True):
    """A chain as collected in one process: the stacks, the steps and the budgets."""

    id: str
    device: str
    baseline: str
    steps: tuple[str, ...]
    stacks: Mapping[str, PlannedStack]
    tests: tuple[PlannedTest, ...] = ()
    #: The control, a second copy of the baseline. Empty if there is none.
    control: str = ""
    #: How often steps should run in each round, if not once.
    repeats: Mapping[str, RepeatCount] = {}
    groups: Mapping[str, str] = {}
    remarks: tuple[str, ...] = ()
    tables: tuple[tuple[str, dict[str, Any]], ...] = ()
    #: The number of rounds that its marker names. 0: the session's looks.
    rounds: int = 0
    #: Whether the CPU of its machine is emulated.
    emulated: bool = False
    #: The number of tests that are compared with the baseline.
    comparisons: int = 0


@dataclass(frozen=True)
class Policy:
    """The policy of a session for all of its courses, from the options.

    `discard` are the rules that discard rounds. `sharing` is the number of budgets that share the error rate. Above 1,
    fresh rounds must confirm a failure. `limit` is the allowed overhead of a kernel over the first one (0.05 is 5 %;
    None: not judged). `allowed` are patterns of tests or reasons whose budgets may stay unjudged in a `strict` session.
    """

    looks: Looks = field(default_factory=Looks)
    seed: int = 0
    strict: bool = False
    missing_fails: bool = False
    #: Whether an expected failure counts as a failure (--runxfail).
    runxfail: bool = False
    discard: tuple[Rule, ...] = ()
    #: Whether each stack runs only once, as a trial, without judging.
    once: bool = False
    #: Whether `looks` apply to all chains, also to those whose marker names a number of rounds.
    looks_for_all: bool = False
    sharing: int = 0
    limit: float | None = None
    #: Whether budgets on time are judged on emulated CPUs too (--fsstack-judge-emulated).
    judges_emulated: bool = False
    #: Whether rounds of one boot of each kernel judge the limit between kernels (--fsstack-judge-one-boot).
    judges_one_boot: bool = False
    allowed: tuple[str, ...] = ()

    def looks_of(self, plan: ChainPlan) -> Looks:
        """Return the looks of a chain."""
        # A verdict needs the rounds of the session.
        judged = self.limit is not None or any(test.budgets for test in plan.tests)
        own = 0 if self.looks_for_all or judged else plan.rounds
        rounds = 1 if self.once else own
        return Looks.fixed(rounds, self.looks.alpha) if rounds else self.looks


class Task(NamedTuple):
    """One run to do: of a cell in a round, which is counted from 0, with the steps to run."""

    cell: Cell
    number: int
    steps: tuple[str, ...]
    #: How often steps run, if not once.
    repetitions: Mapping[str, int]


#: How a step ended on a cell; empty if it ran to its end. An expected failure counts as skipped. "left out" means
#: skipped before any fixture was set up, "not run" that something else than the step ended it.
EndKind = Literal["", "failed", "skipped", "left out", "not run"]


class StepRun(msgspec.Struct, frozen=True):
    """A step in one run of a cell: a sample of each repetition, and their total duration.

    The duration is what more repetitions would take: without building the stack, and without the first one's checks.
    """

    step: str
    samples: tuple[Sample, ...] = ()
    seconds: float = 0.0
    ending: EndKind = ""
    #: The error as pytest shows it, or the reason of a skip.
    cause: str = ""
    #: Whether the step failed during setup.
    in_setup: bool = False
    #: Whether it was skipped because the machine does not meet a requirement of its workload.
    lacking: bool = False
    #: Why it failed in one line, or why that was expected.
    reason: str = ""


class CellRun(msgspec.Struct, frozen=True):
    """One run of a cell: its steps up to the one that ended it, the duration, and the details of the stack."""

    steps: tuple[StepRun, ...]
    seconds: float = 0.0
    mounts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    tools: Mapping[str, str] = {}


def stack_on(stack: str, kernel: str) -> str:
    """Return the name of a stack on a kernel, in tables and test ids."""
    return f"{stack}:{kernel}" if kernel else stack
