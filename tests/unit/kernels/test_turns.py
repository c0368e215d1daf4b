"""Turns of workers: one at a time, round by round, and every test is reported once by every worker."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_fsstack.kernels.turns import ChainTests, TurnScheduling

Done = tuple[int, str, int]  # worker, test, and the round; 0 when it is reported


@dataclass(eq=False)
class Worker:
    """A worker like that of pytest-xdist. It runs a test only when it knows the next one, or that there is none."""

    number: int
    tests: list[str]
    stands_in: bool = False
    queue: list[int] = field(default_factory=list)
    shutting_down: bool = False
    orders: list[int] = field(default_factory=list)

    @property
    def gateway(self) -> object:
        return SimpleNamespace(spec=SimpleNamespace(fsstack=str(self.number)))

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def can_run(self) -> bool:
        return len(self.queue) > 1 or (self.shutting_down and bool(self.queue))


def line_up(chain: str, number: int, nodes: Sequence[Worker]) -> list[tuple[Worker, int]]:
    return [(node, number) for node in random.Random(f"{chain} {number}").sample(nodes, len(nodes))]


@dataclass
class Orchestra:
    """A conductor with a number of rounds for each chain. A chain with 0 rounds is not measured."""

    rounds: dict[str, int]
    done: dict[str, int] = field(default_factory=dict)
    lost_workers: list[int] = field(default_factory=list)
    turns: list[tuple[int, str, int]] = field(default_factory=list)
    _running: tuple[str, int] = ("", 0)

    def parts(self, node: Worker, names: Sequence[str]) -> list[ChainTests] | None:
        if node.stands_in:
            return None
        chains: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            chains.setdefault(name.partition("::")[0], []).append(index)
        return [ChainTests(chain, tuple(tests), self.rounds[chain] > 0) for chain, tests in chains.items()]

    def next_round(self, chain: str, nodes: Sequence[Worker]) -> Sequence[tuple[Worker, int]]:
        number = self.done[chain] = self.done.get(chain, 0) + 1
        # Each worker has two turns in a round, as of two stacks.
        return line_up(chain, number, [*nodes, *nodes]) if number <= self.rounds[chain] else []

    def is_due(self, chain: str, what: int) -> bool:
        return True

    def reports(self, chain: str, nodes: Sequence[Worker]) -> Sequence[tuple[Worker, int]]:
        return line_up(chain, 0, nodes)

    def begin(self, node: Worker, chain: str, what: int, tests: int) -> None:
        assert not node.orders, "the last turn is not over"
        node.orders = [what] * tests
        self._running = chain, what

    def end(self, node: Worker) -> None:
        assert not node.orders
        self.turns.append((node.number, *self._running))

    def lose(self, node: Worker) -> None:
        self.lost_workers.append(node.number)


def begin(count: int, tests: list[str], rounds: dict[str, int]) -> tuple[TurnScheduling, list[Worker], Orchestra]:
    workers = [Worker(number, tests) for number in range(count)]
    orchestra = Orchestra(rounds)
    scheduler = TurnScheduling(count, orchestra)
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        assert not scheduler.collection_is_completed
        assert not scheduler.tests_finished
        scheduler.add_node_collection(worker, worker.tests)
    scheduler.schedule()
    return scheduler, workers, orchestra


def step(scheduler: TurnScheduling, workers: list[Worker]) -> list[Done]:
    """Run one test in the only worker that can run."""
    able = [worker for worker in workers if worker.can_run]
    assert len(able) <= 1, "two workers at once"
    for worker in able:
        index = worker.queue.pop(0)
        if not worker.stands_in and not worker.orders:
            scheduler.mark_test_complete(worker, index)  # the session is over, so the worker drops it
            return []
        number = 0 if worker.stands_in else worker.orders.pop(0)
        scheduler.mark_test_complete(worker, index)
        return [(worker.number, worker.tests[index], number)]
    return []


def run(scheduler: TurnScheduling, workers: list[Worker]) -> list[Done]:
    done: list[Done] = []
    while any(worker.can_run for worker in workers):
        done += step(scheduler, workers)
    return done


def reported(done: list[Done], worker: int) -> list[str]:
    return [test for number, test, round_number in done if number == worker and not round_number]


# Chains of one to three tests, each with its number of rounds.
chains = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=4)
Chains = list[tuple[int, int]]


def named(sizes: Chains) -> tuple[list[str], dict[str, int]]:
    names = [f"chain{number}::test{test}" for number, (size, _) in enumerate(sizes) for test in range(size)]
    return names, {f"chain{number}": rounds for number, (_, rounds) in enumerate(sizes)}


class Turns(RuleBasedStateMachine):
    """Workers that take turns and go down, and their stand-ins. One worker may never come up."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Done] = []
        self.lost: list[int] = []

    @initialize(count=st.integers(1, 4), sizes=chains, is_one_absent=st.booleans())
    def begin(self, count: int, sizes: Chains, is_one_absent: bool) -> None:
        self.names, rounds = named(sizes)
        self.numbers = range(count + is_one_absent)
        self.scheduler = TurnScheduling(len(self.numbers), Orchestra(rounds))
        self.workers: list[Worker] = []
        for number in self.numbers:
            self.add(Worker(number, self.names, stands_in=number == count))
        self.scheduler.schedule()

    def add(self, worker: Worker) -> None:
        self.workers.append(worker)
        self.scheduler.add_node(worker)
        self.scheduler.add_node_collection(worker, self.names)

    @rule(steps=st.integers(1, 5))
    def run_tests(self, steps: int) -> None:
        for _ in range(steps):
            self.runs += step(self.scheduler, self.workers)

    @precondition(lambda self: not all(worker.shutting_down for worker in self.workers))
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Lose a worker, be it that whose turn it is or another one."""
        waiting = [worker for worker in self.workers if worker.can_run or not worker.shutting_down]
        dead = data.draw(st.sampled_from(waiting))
        self.workers.remove(dead)
        self.lost.append(dead.number)
        assert self.scheduler.remove_node(dead) is None

    @precondition(lambda self: self.lost)
    @rule()
    def stand_in(self) -> None:
        self.add(Worker(self.lost.pop(), self.names, stands_in=True))
        self.scheduler.schedule()

    @invariant()
    def it_goes_on(self) -> None:
        assert not (self.lost and self.scheduler.tests_finished)
        assert any(worker.can_run for worker in self.workers) or all(worker.shutting_down for worker in self.workers)

    def teardown(self) -> None:
        while self.lost:
            self.stand_in()
        while any(worker.can_run for worker in self.workers):
            self.run_tests(1)
        assert self.scheduler.tests_finished
        assert all(worker.shutting_down for worker in self.workers)
        assert all(sorted(reported(self.runs, number)) == sorted(self.names) for number in self.numbers)


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@given(st.integers(2, 4), chains)
def test_turns_are_given_in_the_order_of_each_round(count: int, sizes: Chains) -> None:
    names, rounds = named(sizes)
    scheduler, workers, orchestra = begin(count, names, rounds)
    run(scheduler, workers)
    expected = [
        (number, chain, this)
        for chain, most in rounds.items()
        for this in [*range(1, most + 1), 0]
        for number in random.Random(f"{chain} {this}").sample(
            [*range(count)] * (2 if this else 1), count * (2 if this else 1)
        )
    ]
    assert orchestra.turns == expected


@given(st.integers(1, 3), chains)
def test_a_worker_that_never_came_up_is_stood_in_for_before_the_others_measure(count: int, sizes: Chains) -> None:
    names, rounds = named(sizes)
    scheduler = TurnScheduling(count + 1, Orchestra(rounds))
    workers = [Worker(number, names) for number in range(count)]
    stand_in = Worker(count, names, stands_in=True)
    for worker in *workers, stand_in:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, names)
    scheduler.schedule()
    done = run(scheduler, [*workers, stand_in])
    assert done[: len(names)] == [(count, name, 0) for name in names]
    assert scheduler.tests_finished
    assert all(reported(done, number) == names for number in range(count + 1))


@given(st.integers(2, 4), chains, st.data())
def test_once_the_session_ends_early_nobody_gets_a_turn(count: int, sizes: Chains, data: st.DataObject) -> None:
    names, rounds = named(sizes)
    scheduler, workers, _ = begin(count, names, rounds)
    steps = sum(size + 2 * most for size, most in sizes) * count
    for _ in range(data.draw(st.integers(0, steps - 1))):
        step(scheduler, workers)
    (active,) = [worker for worker in workers if worker.can_run]
    for node in scheduler.nodes:
        node.shutdown()
    for worker in workers:
        if worker is active:
            left = len(worker.orders)
            while worker.queue:
                step(scheduler, [worker])
            assert not worker.orders, f"it had {left} tests left in its turn"
    for worker in workers:
        assert not worker.orders
        while worker.queue:
            assert step(scheduler, [worker]) == []
        scheduler.remove_node(worker)


def test_a_worker_without_tests_ends_and_holds_nobody_up() -> None:
    scheduler, workers, _ = begin(2, [], {})
    assert run(scheduler, workers) == []
    assert all(worker.shutting_down for worker in workers)
    assert scheduler.tests_finished


def test_a_worker_without_tests_does_not_hold_up_one_that_has_some() -> None:
    scheduler = TurnScheduling(2, Orchestra({"chain": 2}))
    workers = [Worker(0, []), Worker(1, ["chain::test"])]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, worker.tests)
    scheduler.schedule()
    assert run(scheduler, workers) == [(1, "chain::test", number) for number in (1, 1, 2, 2, 0)]
    assert scheduler.tests_finished
