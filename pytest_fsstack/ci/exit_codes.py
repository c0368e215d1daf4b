"""Exit codes of a session for `git bisect run`."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.verdict import Outcome

#: Exit codes for git-bisect(1). From 128 on, it stops, which is right after a signal.
GOOD, BAD, SKIP, ENDS = 0, 1, 125, 128


def exit_code(results: Results, unjudged: int, status: int, changes: Iterable[Outcome | None] = ()) -> int:
    """Return 0 if all budgets are kept, 1 if one is broken, 125 if that is unknown.

    `unjudged` is the number of budgets without a verdict, and `status` is pytest's exit code. `changes` are the
    verdicts on changes since earlier runs, None if there are too few runs. Other failures say nothing about budgets: a
    broken test, a stack that cannot be built, an option that an old commit lacks.
    """
    if status >= ENDS:
        return status
    outcomes: list[tuple[Outcome | None, bool]] = [
        (chain.worst(step, stack), bool(chain.expected(step, stack)))
        for chain in results.chains
        for step, stack, judged in chain.all_judgements()
        if judged
    ]
    outcomes += [(outcome, False) for outcome in changes]
    if any(outcome == "fail" and not expected for outcome, expected in outcomes):
        return BAD
    decided = bool(outcomes) and all(outcome in ("pass", "fail") for outcome, _ in outcomes)
    return GOOD if status == 0 and decided and not unjudged else SKIP


def in_words(code: int) -> str:
    """Describe an exit code in a line."""
    text = {GOOD: "good: all budgets are kept", BAD: "bad: a budget is broken", SKIP: "skip: it is not decided"}
    return f"git bisect is told {text.get(code, 'to stop')} (exit code {code})"
