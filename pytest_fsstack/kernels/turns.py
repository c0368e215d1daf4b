"""A pytest-xdist scheduler with which workers take turns. Only one measures at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class ChainTests:
    """The tests of a chain in one worker, by index.

    If the chain is `measured`, the worker runs a stack when it gets the first test, and reports all tests in a last
    turn. Otherwise it runs all tests in one turn.
    """

    chain: str
    tests: tuple[int, ...]
    measured: bool


class Conductor(Protocol):
    """The decisions about turns. Nodes are xdist's controllers of workers. The task of a turn is any object."""

    def parts(self, node: Any, names: Sequence[str]) -> Sequence[ChainTests] | None:
        """Return the chains of a worker's tests, or None if the worker only replaces one that went down."""

    def next_round(self, chain: str, nodes: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
        """Return the turns of the next round of a measured chain: workers and their tasks. Empty at the end."""

    def is_due(self, chain: str, what: Any) -> bool:
        """Return whether a task of a round is still to be done."""

    def reports(self, chain: str, nodes: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
        """Return the last turns of a chain, in which the workers report its tests."""

    def begin(self, node: Any, chain: str, what: Any, tests: int) -> None:
        """Prepare a worker for a turn of so many tests."""

    def end(self, node: Any) -> None:
        """Record that a worker has ended its turn."""

    def lose(self, node: Any) -> None:
        """Record that a worker went down before its last turn."""


@dataclass(frozen=True)
class _Turn:
    """A turn of a worker: its task, and whether it reports the tests of the chain."""

    node: Any
    chain: str
    what: Any = None
    reports: bool = True


class TurnScheduling:
    """The pytest-xdist scheduler that gives turns to workers, one at a time.

    A worker runs a test only when it knows the next one. So each turn also sends the first test of the worker's next
    turn, which waits until then.

    `worker_count` is the number of workers that must have collected before the first turn.
    """

    def __init__(self, worker_count: int, conductor: Conductor) -> None:
        self._count, self._conductor = worker_count, conductor
        self._collections: dict[Any, list[str]] = {}
        self._parts: dict[Any, dict[str, ChainTests]] = {}
        #: The tests that each worker was sent and has not run yet.
        self._pending: dict[Any, list[int]] = {}
        self._unreported: dict[Any, set[int]] = {}
        #: Workers that went down, with their unreported tests.
        self._lost: list[tuple[Any, set[str]]] = []
        self._stand_ins: deque[tuple[Any, list[int]]] = deque()
        self._chains: list[str] = []
        self._turns: Iterator[_Turn] | None = None
        self._over = False
        self._turn: _Turn | None = None
        #: The number of sent tests that remain after the turn.
        self._remaining = 0

    @property
    def nodes(self) -> list[Any]:
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        return len(self._collections) >= self._count

    @property
    def has_pending(self) -> bool:
        return any(self._pending.values())

    @property
    def tests_finished(self) -> bool:
        return self._over and not (self._lost or self._stand_ins or self.has_pending)

    def add_node(self, node: Any) -> None:
        self._pending[node] = []

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._collections[node] = list(collection)
        parts = self._conductor.parts(node, collection)
        if parts is not None:
            self._parts[node] = {part.chain: part for part in parts}
            self._unreported[node] = set(range(len(collection)))
            return
        dead = next((entry for entry in self._lost if _same(entry[0], node)), None)
        if dead is not None:
            self._lost.remove(dead)
        tests = [index for index, name in enumerate(collection) if dead is None or name in dead[1]]
        self._unreported[node] = set(tests)
        self._stand_ins.append((node, tests))

    def schedule(self) -> None:
        """Begin, or continue after a stand-in has collected."""
        if self._turns is None:
            self._chains = list(dict.fromkeys(chain for parts in self._parts.values() for chain in parts))
            self._turns = self._all_turns()
            for node, parts in self._parts.items():
                if not parts and node in self._pending:
                    node.shutdown()
        self._advance()

    def _all_turns(self) -> Iterator[_Turn]:
        for chain in self._chains:
            while self._is_measured(chain) and (turns := self._conductor.next_round(chain, self._able_nodes(chain))):
                for node, what in turns:
                    if self._conductor.is_due(chain, what):
                        yield _Turn(node, chain, what, reports=False)
            for node, what in self._conductor.reports(chain, self._able_nodes(chain)):
                yield _Turn(node, chain, what)

    def _is_measured(self, chain: str) -> bool:
        return any(parts[chain].measured for parts in self._parts.values() if chain in parts)

    def _able_nodes(self, chain: str) -> list[Any]:
        return [node for node, parts in self._parts.items() if chain in parts and self._is_able(node)]

    def _is_able(self, node: Any) -> bool:
        # A session that ends early shuts down workers that still have turns.
        return node in self._pending and not node.shutting_down

    def _advance(self) -> None:
        while self._turn is None and self._turns is not None:
            if self._stand_ins:
                self._begin_stand_in(*self._stand_ins.popleft())
                continue
            turn = next(self._turns, None)
            if turn is None:
                self._over = True
                return
            if self._is_able(turn.node):
                self._begin(turn)

    def _begin(self, turn: _Turn) -> None:
        node, part = turn.node, self._parts[turn.node][turn.chain]
        tests = part.tests if turn.reports else part.tests[:1]
        along = self._first_test_after(node, turn.chain) if turn.reports else part.tests[:1]
        # The worker must get its task before its first test.
        self._conductor.begin(node, turn.chain, turn.what, len(tests))
        self._send(turn, [*tests[len(self._pending[node]) :], *along], remaining=len(along))

    def _begin_stand_in(self, node: Any, tests: list[int]) -> None:
        if not tests:
            node.shutdown()
        elif self._is_able(node):
            self._send(_Turn(node, ""), tests, remaining=0)

    def _send(self, turn: _Turn, tests: list[int], remaining: int) -> None:
        self._turn, self._remaining = turn, remaining
        self._pending[turn.node] += tests
        if tests:
            turn.node.send_runtest_some(tests)
        if not remaining:
            turn.node.shutdown()

    def _first_test_after(self, node: Any, chain: str) -> tuple[int, ...]:
        parts = self._parts[node]
        later = self._chains[self._chains.index(chain) + 1 :]
        return next((parts[other].tests[:1] for other in later if other in parts), ())

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        self._pending[node].remove(item_index)
        turn = self._turn
        if turn is None or node is not turn.node:
            return
        if turn.reports:
            self._unreported[node].discard(item_index)
        if len(self._pending[node]) <= self._remaining:
            self._turn = None
            if turn.chain:
                self._conductor.end(node)
            self._advance()

    def remove_node(self, node: Any) -> str | None:
        del self._pending[node]
        unreported = self._unreported.pop(node, set())
        if self._turn is not None and self._turn.node is node:
            self._turn = None
        if unreported:
            self._lost.append((node, {self._collections[node][index] for index in unreported}))
            self._conductor.lose(node)
        self._advance()
        return None

    def mark_test_pending(self, item: str) -> None:
        raise NotImplementedError("tests are tied to their kernel")

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        raise NotImplementedError("tests are tied to their kernel")


def _same(dead: Any, node: Any) -> bool:
    """Whether two workers belong to the same kernel and boot."""
    return bool(dead.gateway.spec.fsstack == node.gateway.spec.fsstack)
