"""A pytest-xdist scheduler by which workers take turns, chain by chain, so that only one measures at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class TurnScheduling:
    """Hand each worker one chain in turn: A B, then B A, and so on.

    Each worker runs all of its tests. A worker runs a test only once it knows the next one, so each turn sends the
    first test of that worker's next turn along; that one waits until the next turn begins.

    `worker_count` is how many must have collected before the first turn; `chain_of` tells from a test's id in which
    chain it is; `line_up` gives the order of the workers in a turn, by its number.
    """

    def __init__(
        self, worker_count: int, chain_of: Callable[[str], str], line_up: Callable[[int, list[Any]], list[Any]]
    ) -> None:
        self._count, self._chain_of, self._line_up = worker_count, chain_of, line_up
        self._collections: dict[Any, list[str]] = {}
        self._pending: dict[Any, list[int]] = {}
        #: For each worker its tests that were not sent yet, in chains.
        self._waiting: dict[Any, list[list[int]]] = {}
        self._turns: list[Any] = []
        self._turn = 0
        self._active: Any = None
        #: How many tests of the active worker may be left when its turn ends: the one that was sent along.
        self._left = 0
        self._lost: list[tuple[Any, list[int]]] = []

    @property
    def nodes(self) -> list[Any]:
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        return len(self._collections) >= self._count

    @property
    def has_pending(self) -> bool:
        return any(self._pending.values()) or any(self._waiting.values())

    @property
    def tests_finished(self) -> bool:
        return self.collection_is_completed and not self.has_pending and not self._lost

    def add_node(self, node: Any) -> None:
        self._pending[node] = []

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        started = self.collection_is_completed
        self._collections[node] = list(collection)
        if not started:
            self._waiting[node] = self._chains(list(range(len(collection))), node)
            return
        # It stands in for one that went down, which has the tests that this one must report.
        dead = next((entry for entry in self._lost if _same(entry[0], node)), None)
        if dead is not None:
            self._lost.remove(dead)
            names = {self._collections[dead[0]][index] for index in dead[1]}
            rest = [index for index, name in enumerate(collection) if name in names]
            self._waiting[node] = self._chains(rest, node)

    def _chains(self, indices: list[int], node: Any) -> list[list[int]]:
        chains: dict[str, list[int]] = {}
        for index in indices:
            chains.setdefault(self._chain_of(self._collections[node][index]), []).append(index)
        return list(chains.values())

    def schedule(self) -> None:
        """Begin; or go on, when a stand-in has collected."""
        if self._active is None:
            self._next_turn()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        self._pending[node].remove(item_index)
        if node is self._active and len(self._pending[node]) <= self._left:
            self._active = None
            self._next_turn()

    def _next_turn(self) -> None:
        while self._active is None:
            if not self._turns:
                able = [node for node, chains in self._waiting.items() if chains or self._pending.get(node)]
                if not able:
                    return
                self._turns = self._line_up(self._turn, able)
                self._turn += 1
            self._give_turn(self._turns.pop(0))

    def _give_turn(self, node: Any) -> None:
        chains = self._waiting.get(node)
        if node not in self._pending or chains is None:
            return
        # The first test of this turn may have been sent with the last one.
        ahead = chains.pop(0) if chains else []
        sent = [index for index in ahead if index not in self._pending[node]]
        along = chains[0][:1] if chains else []
        self._pending[node] += [*sent, *along]
        if sent or along:
            node.send_runtest_some([*sent, *along])
        if not chains:
            node.shutdown()
        self._left = len(along)
        if len(self._pending[node]) > self._left:
            self._active = node

    def remove_node(self, node: Any) -> str | None:
        pending = self._pending.pop(node)
        waiting = [index for chain in self._waiting.pop(node, []) for index in chain]
        rest = list(dict.fromkeys([*pending, *waiting]))
        if self._active is node:
            self._active = None
        if not rest:
            if self.collection_is_completed:
                self._next_turn()
            return None
        self._lost.append((node, rest))
        self._next_turn()
        return None

    def mark_test_pending(self, item: str) -> None:
        raise NotImplementedError("tests are tied to their kernel")

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        raise NotImplementedError("tests are tied to their kernel")


def _same(dead: Any, node: Any) -> bool:
    """Whether two workers are of the same kernel and boot."""
    return bool(dead.gateway.spec.fsstack == node.gateway.spec.fsstack)
