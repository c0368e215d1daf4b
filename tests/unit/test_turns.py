"""Workers that take turns: only one at a time, every test on every worker, the next test known before one runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from pytest_fsstack.hosts.turns import TurnScheduling


@dataclass(eq=False)
class Worker:
    """Runs tests as a worker of pytest-xdist does: one only when it knows the next, or that there is none."""

    number: int
    tests: list[str]
    queue: list[int] = field(default_factory=list)
    ended: bool = False

    @property
    def gateway(self) -> object:
        return SimpleNamespace(spec=SimpleNamespace(fsstack=str(self.number)))

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.ended
        self.queue += indices

    def shutdown(self) -> None:
        self.ended = True

    @property
    def can_run(self) -> bool:
        return len(self.queue) > 1 or (self.ended and bool(self.queue))


def chain_of(test: str) -> str:
    return test.partition("::")[0]


def line_up(turn: int, nodes: list[Worker]) -> list[Worker]:
    ordered = sorted(nodes, key=lambda node: node.number)
    return ordered[::-1] if turn % 2 else ordered


def begin(count: int, tests: list[str]) -> tuple[TurnScheduling, list[Worker]]:
    workers = [Worker(number, tests) for number in range(count)]
    scheduler = TurnScheduling(count, chain_of, line_up)
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        assert not scheduler.collection_is_completed
        scheduler.add_node_collection(worker, worker.tests)
    scheduler.schedule()
    return scheduler, workers


def run(scheduler: TurnScheduling, workers: list[Worker]) -> list[tuple[int, str]]:
    done = []
    while True:
        able = [worker for worker in workers if worker.can_run]
        assert len(able) <= 1, "two workers at once"
        if not able:
            return done
        (worker,) = able
        index = worker.queue.pop(0)
        done.append((worker.number, worker.tests[index]))
        scheduler.mark_test_complete(worker, index)


tests = st.lists(st.integers(1, 3).flatmap(lambda size: st.just(size)), min_size=1, max_size=5).map(
    lambda sizes: [f"chain{number}::test{test}" for number, size in enumerate(sizes) for test in range(size)]
)


@given(st.integers(1, 4), tests)
def test_every_worker_runs_every_test_and_only_one_runs_at_a_time(count: int, names: list[str]) -> None:
    scheduler, workers = begin(count, names)
    done = run(scheduler, workers)
    assert scheduler.tests_finished
    for number in range(count):
        assert [test for worker, test in done if worker == number] == names
    assert all(worker.ended for worker in workers)


@given(st.integers(2, 4), tests)
def test_chains_alternate_between_workers_and_the_order_turns_round(count: int, names: list[str]) -> None:
    _, workers = (state := begin(count, names))
    done = run(*state)
    turns = []
    for worker, test in done:
        turn = (worker, chain_of(test))
        if not turns or turns[-1] != turn:
            turns.append(turn)
    chains = list(dict.fromkeys(map(chain_of, names)))
    expected = [
        (number, chain)
        for index, chain in enumerate(chains)
        for number in (range(count) if index % 2 == 0 else reversed(range(count)))
    ]
    assert turns == expected
    assert len(workers) == count


@given(st.integers(2, 3), tests, st.data())
def test_a_worker_that_goes_down_is_replaced_by_one_that_runs_what_it_left(
    count: int, names: list[str], data: st.DataObject
) -> None:
    scheduler, workers = begin(count, names)
    done: list[tuple[int, str]] = []
    for _ in range(data.draw(st.integers(0, count * len(names) - 1))):
        worker = next(worker for worker in workers if worker.can_run)
        index = worker.queue.pop(0)
        done.append((worker.number, worker.tests[index]))
        scheduler.mark_test_complete(worker, index)
    alive = [worker for worker in workers if worker.can_run]
    if not alive:
        return
    dead = alive[0]
    assert scheduler.remove_node(dead) is None
    workers.remove(dead)
    assert not scheduler.tests_finished
    done += run(scheduler, workers)
    stand_in = Worker(dead.number, names)
    scheduler.add_node(stand_in)
    scheduler.add_node_collection(stand_in, names)
    scheduler.schedule()
    done += run(scheduler, [*workers, stand_in])
    assert scheduler.tests_finished
    for number in range(count):
        assert sorted(test for worker, test in done if worker == number) == sorted(names)


def test_a_worker_without_tests_ends_and_holds_nobody_up() -> None:
    scheduler, workers = begin(2, [])
    assert run(scheduler, workers) == []
    assert scheduler.tests_finished
