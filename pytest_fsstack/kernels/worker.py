"""In a kernel's worker: wait for a turn, run one round of a chain or report its tests, and tell what was measured."""

from __future__ import annotations

import json
import queue
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from pytest_fsstack import options
from pytest_fsstack.judging import saved
from pytest_fsstack.judging.conditions import Conditions
from pytest_fsstack.judging.results import ChainResults, Results
from pytest_fsstack.rounds.chains import Chain
from pytest_fsstack.rounds.loop import Rounding, Rounds

#: Plugins whose part in a worker connects to their part in the controller over the loopback interface: that of a guest
#: is its own, and the worker would end before its first test.
_OF_ONE_MACHINE = ("rerunfailures", "pytest_rerunfailures")


def leave_out_plugins(config: pytest.Config) -> None:
    """Take out of a worker, before it is configured, the plugins that cannot work in a guest."""
    for name in _OF_ONE_MACHINE:
        if (plugin := config.pluginmanager.get_plugin(name)) is not None:
            config.pluginmanager.unregister(plugin)


class Order(NamedTuple):
    """What a turn is for: so many tests; a round of their chain, numbered from 1, or with number 0 their reports.

    `stacks` are those that run in the round; None stands for all that can be built. A round that counts for nothing
    comes with the rule that discards it and the machine's conditions; the next one has its number.
    """

    tests: int
    number: int
    stacks: list[str] | None
    discarded: tuple[str, dict[str, float]] | None = None


class TurnsOfWorker(Rounds):
    """The pytest plugin that runs groups in a kernel's worker, one round at a time.

    Orders arrive on an execnet channel of its own, each before the tests that it is for. A test without an order is one
    that pytest-xdist lets go when it shuts the worker down: the session is over, and it does not run.
    """

    def __init__(self, *words: Any, **keywords: Any) -> None:
        super().__init__(*words, **keywords)
        self._channel: Any = options.worker_input(self.config)["turns"]
        self._orders: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._channel.setcallback(self._orders.put)
        self._order = Order(0, 0, None)
        self._tests_left = 0
        #: Whether the test that xdist has started is over with that: there was a round, or the session ends.
        self._lets_go = False
        #: The chain that is being run, and the stacks that it wants to run in its next round.
        self._running: Chain | None = None
        self._rounds: Rounding
        self._wanted: list[str] = []
        #: The names of the chains here, which are the same in all workers.
        self._keys: dict[Chain, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which tests are chains. First, because pytest-xdist then begins."""
        chains: dict[str, list[int]] = {}
        for index, item in enumerate(session.items):
            chain = self.chains.get(item)
            if chain is None or not chain.timed:
                continue
            if chain not in self._keys:
                # A disk of a guest has a name of its own, so the devices of a chain are told apart by their order.
                self._keys[chain] = f"{chain.id} {sum(other.id == chain.id for other in self._keys)}"
            chains.setdefault(self._keys[chain], []).append(index)
        self._tell(chains=chains, confirmed=self.budgets.confirmed, budgets=self.budgets.count)

    def _before(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Take the turn, if there is one; run a round, or make everything ready for the reports."""
        self._lets_go = False
        if not self._tests_left and not self._take_turn():
            self._lets_go = True
            return
        self._tests_left -= 1
        chain = self.chains.get(item)
        if chain is None or not chain.timed:
            return
        if self._order.number:
            self._run_one_round(chain, self._order)
            self._lets_go = True
            return
        if not chain.done:
            if self._wanted:
                # A failure on another kernel ends the session.
                self._judge(chain)
            before = self.budgets.count
            self._end(chain)
            over = {"waived": before - self.budgets.count, "judged": chain.results.judged}
            self._tell_results(chain, chain.results, over)
        if nextitem is None or self.chains.get(nextitem) is not chain:
            self._tear_down(item, chain, nextitem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        return True if self._lets_go else super().pytest_runtest_protocol(item)

    def _take_turn(self) -> bool:
        order = None
        while order is None:
            try:
                order = self._orders.get_nowait()  # None only shows that the session lives
            except queue.Empty:
                return False
        self._order = Order(*order)
        self._tests_left = self._order.tests
        return True

    def _run_one_round(self, chain: Chain, order: Order) -> None:
        if self._running is not chain:
            self._running, self._rounds = chain, self._all_rounds(chain)
            self._wanted = next(self._rounds, [])
        if order.stacks is None or self._wanted:
            try:
                self._wanted = self._rounds.send(order.stacks) if self._wanted else []
            except StopIteration:
                self._wanted = []
        else:
            # Its own budgets are decided; another kernel's are not.
            results = chain.results
            results.orders += [[] for _ in range(order.number - 1 - results.rounds)]
            self._run_round(chain, order.stacks, random.Random(f"{self.seed} {chain.id} {order.number}"))
            self._keeps(results, {})
        here = order.number - 1
        samples = {place: {here: found[here]} for place, found in chain.results.samples.items() if here in found}
        self._tell_results(chain, replace(chain.results, samples=samples, judgements={}))

    def _keeps(self, results: ChainResults, conditions: Conditions) -> bool:
        if self._order.discarded:
            results.discard(*self._order.discarded)
        return not self._order.discarded

    def _tell_results(self, chain: Chain, results: ChainResults, over: Mapping[str, int] | None = None) -> None:
        """Tell what a round measured; or when it is `over` all, and what became of its budgets."""
        self._tell(
            key=self._keys[chain],
            over=over,
            results=saved.dump(Results(self.results.environment, [results])),
            alive=[name for name in chain.results.stacks if self._is_alive(chain, name)],
            wanted=[] if over else self._wanted,
            failed=chain.failures,
            states=self.planner.states if self.planner else {},
            left={} if over or not self._wanted else self.left,
        )

    def _is_alive(self, chain: Chain, stack: str) -> bool:
        items = [item for _, item in chain.needed(stack)]
        return not any(
            item in chain.absent or (item in chain.outcomes and chain.outcomes[item].ended) for item in items
        )

    def _tell(self, **message: object) -> None:
        self._channel.send(json.dumps(message))
