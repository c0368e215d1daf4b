"""Budgets of the collected tests: which apply to which stack, and whether each can be judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_fsstack.options.budgets import Rule
    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.records.budget import Budget
    from pytest_fsstack.records.results import Results
    from pytest_fsstack.rounds.chains import Chain
    from pytest_fsstack.rounds.marks import Mistakes

#: The origin of budgets on the command line.
_TYPED = "--fsstack-budget"


class Budgets:
    """Budgets from marks, the command line and the ini. `check` counts them."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self._doubted: set[str] = set()
        #: Budgets of selected tests that must be judged. `add` adds those of workers.
        self.count = 0
        #: Why budgets have no stack in this session, by the test whose mark gives one, or by the line of the ini.
        self.without_stack: dict[str, str] = {}
        self._told: int | None = None
        self._overheads = 0

    def of(self, item: pytest.Item, stack: str, is_baseline: bool) -> list[Budget]:
        """Return the budgets of a test on a stack. The baseline has only absolute limits."""
        from pytest_fsstack.options.budgets import applying

        # pytest yields the closest mark first. Here the last one must win.
        marks = reversed(list(item.iter_markers("fsstack_budget")))
        marked = [rule for mark in marks for rule in _rules_of(mark)]
        budgets = applying(marked, self._settings.budgets, stack)
        return [budget for budget in budgets if not is_baseline or budget.limit is not None]

    def check_marks(self, item: pytest.Item, mistakes: Mistakes) -> None:
        from pytest_fsstack.options.budgets import doubts

        for mark in item.iter_markers("fsstack_budget"):
            try:
                _rules_of(mark)
            except (ValueError, TypeError) as error:
                mistakes.add(f"fsstack_budget: {error}", item)
                continue
            for doubt in doubts(*mark.args, **mark.kwargs):
                self._warn(doubt, item)

    def _warn(self, doubt: str, item: pytest.Item) -> None:
        if doubt not in self._doubted:
            self._doubted.add(doubt)
            item.warn(pytest.PytestWarning(f"fsstack_budget: {doubt}"))

    def check(self, items: Iterable[pytest.Item], chains: Mapping[pytest.Item, Chain], mistakes: Mistakes) -> None:
        """Refuse budgets that nothing would judge, because nobody would notice.

        Raises `pytest.UsageError` for a budget on the command line.
        """
        from pytest_fsstack.options.budgets import BudgetError
        from pytest_fsstack.rounds.chains import parameter_of, step_of
        from pytest_fsstack.rounds.marks import written_marks

        for item in items:
            marks = written_marks(item) if "fsstack" not in getattr(item, "fixturenames", ()) else ()
            for name in {mark.name for mark in marks} & {"fsstack", "fsstack_budget"}:
                mistakes.add(f"{name}: no effect, because neither fsstack nor timed is an argument of the test", item)
        different = list(dict.fromkeys(chains.values()))
        try:
            self._check_marked(different, mistakes)
        except (BudgetError, TypeError):
            return  # reported by `check_marks`
        if chains:
            self._check_typed([chain for chain in different if chain.timed])
        for item, chain in chains.items():
            if chain.timed and (parameter := parameter_of(item)):
                budgets = self.of(item, parameter.id, parameter.id == chain.baseline)
                overheads = sum(budget.overhead is not None for budget in budgets)
                self.count += len(budgets)
                self._overheads += overheads
                assert isinstance(item, pytest.Function)
                if overheads and chain.baseline not in chain.items[step_of(item, parameter)]:
                    mistakes.add(f"it has a budget over the baseline {chain.baseline}, which was not collected", item)

    def _check_marked(self, chains: Iterable[Chain], mistakes: Mistakes) -> None:
        from pytest_fsstack.options.budgets import uncompared, unmatched

        marked, compared = [], dict[int, list[str]]()
        for chain in chains:
            for item in chain.examples():
                for mark in item.iter_markers("fsstack_budget"):
                    marked.append((mark, item, chain))
                    # A mark of a module may belong to several classes, with different baselines.
                    compared.setdefault(id(mark), []).extend(_compared(chain))
        for mark, item, chain in marked:
            rules = _rules_of(mark)
            if self._settings.stacks_replace:
                # The mark was written for other stacks.
                if chain.timed and (problem := unmatched(rules, _judged(chain))):
                    self.without_stack[item.nodeid.partition("[")[0]] = problem
            elif problem := unmatched(rules, _judged(chain)):
                mistakes.add(f"fsstack_budget: {problem}", item)
            elif (problem := uncompared(rules, compared[id(mark)])) and self._settings.baseline:
                self._warn(problem, item)
            elif problem:
                mistakes.add(f"fsstack_budget: {problem}", item)

    def _check_typed(self, timed: Sequence[Chain]) -> None:
        from pytest_fsstack.options.budgets import uncompared, unmatched

        typed = self._given(typed=True)
        problem = (
            unmatched(typed, dict.fromkeys(stack for chain in timed for stack in _judged(chain)))
            or uncompared(typed, [stack for chain in timed for stack in _compared(chain)])
            if timed
            else "it is never judged, because no selected test measures; tests measure with the fixture timed"
        )
        if typed and problem:
            raise pytest.UsageError(f"{_TYPED}: {problem}")

    def check_ini(self, stacks: Iterable[str]) -> None:
        """Find budgets in the ini for stacks that no collected test uses. Raises `pytest.UsageError`.

        The ini also applies to other sessions. So all collected `stacks` and every layer count. A session that collects
        the whole project refuses such a budget. One that collects a part of it, or uses other stacks, fails with
        --fsstack-strict.
        """
        from pytest_fsstack.options.budgets import unmatched

        names = list(stacks)
        knows_all = not self._settings.stacks_replace and self._collected_all
        for rule in self._given(typed=False):
            problem = unmatched([rule], names, possible=self._settings.known)
            if problem and knows_all:
                raise pytest.UsageError(f"{rule.origin}: {problem}")
            if problem and self._settings.strict:
                self.without_stack[f"{rule.origin}: {rule.pattern}"] = problem

    def _given(self, *, typed: bool) -> list[Rule]:
        """Return the rules of the command line, or those of the ini."""
        return [rule for rule in self._settings.budgets if (rule.origin == _TYPED) == typed]

    @property
    def _collected_all(self) -> bool:
        """Whether all tests of the project were collected, not counting deselection."""
        config, sources = self._config, pytest.Config.ArgsSource
        if self._settings.scenarios or any(config.getoption(name, None) for name in ("lf", "ignore", "ignore_glob")):
            return False
        here = config.invocation_params.dir == config.rootpath and config.args_source == sources.INVOCATION_DIR
        return here or config.args_source == sources.TESTPATHS

    def add(self, count: int, judged: int) -> None:
        """Add budgets of the workers of kernels, or between kernels."""
        self.count += count
        self._told = (self._told or 0) + judged

    def unjudged(self, results: Results) -> int:
        """The number of budgets without a judgement. Undecided ones were judged."""
        return max(0, self.count - (results.judged if self._told is None else self._told))

    @property
    def confirmed(self) -> int:
        """Return the number of budgets that share an error rate, or 0 if each has its own."""
        return self._overheads if self._settings.confirms else 0


def _rules_of(mark: pytest.Mark) -> list[Rule]:
    from pytest_fsstack.options.budgets import rules

    return rules(*mark.args, **mark.kwargs)


def _judged(chain: Chain) -> list[str]:
    """Return the stacks that may have budgets."""
    return [stack for stack in chain.stacks if stack != chain.control]


def _compared(chain: Chain) -> list[str]:
    """Return the stacks that may have budgets over the baseline."""
    return [stack for stack in _judged(chain) if stack != chain.baseline]
