"""Exit codes of a session for `git bisect run`."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.verdict import Outcome

#: Exit codes as git-bisect(1) reads them. From 128 on it ends, which is right for a session that a signal ended.
GOOD, BAD, SKIP, ENDS = 0, 1, 125, 128


def exit_code(results: Results, unjudged: int, status: int, changes: Iterable[Outcome | None] = ()) -> int:
    """0 if all budgets of the session are kept, 1 if one is broken, 125 if that is not known.

    `unjudged` is how many budgets nothing was found out about, `status` pytest's exit code, `changes` are the verdicts
    on what changed since earlier runs, None where there are too few of them. What fails otherwise says nothing about
    budgets: a test that is broken, a stack that cannot be built, a wrong option of an old commit.
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
    """A line for people."""
    text = {GOOD: "good: all budgets are kept", BAD: "bad: a budget is broken", SKIP: "skip: it is not decided"}
    return f"git bisect is told {text.get(code, 'to stop')} (exit code {code})"
