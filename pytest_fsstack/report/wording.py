"""The words of reports: how limits end, signs and colours of verdicts, budgets."""

from __future__ import annotations

from typing import Literal

from pytest_fsstack.records.results import Judgement
from pytest_fsstack.records.verdicts import Outcome
from pytest_fsstack.units import OverheadUnit

#: The unit of costs on the page and in pictures.
RATIOS = OverheadUnit(True)
#: Signs of verdicts in tables without colours.
SIGNS: dict[Outcome, str] = {"pass": "pass", "fail": "FAIL", "inconclusive": "?"}
#: The colours of verdicts, as classes.
TONES: dict[Outcome, str] = {"pass": "good", "fail": "bad", "inconclusive": "open"}
#: How a limit ends.
Ending = Literal["kept", "broken", "broken as expected", "undecided", "not judged"]
#: How a limit ended that was expected to be broken, and is.
AS_EXPECTED: Ending = "broken as expected"
#: Marks an overhead that is known only to the resolution of its figures.
COARSE = "~"
#: What figures mean that only one side has.
ANY_RATIO = "Such rounds could have any ratio, so they count against both verdicts"
#: Marks an overhead that seems to contradict the medians beside it.
CONTRADICTS = "\N{NOT EQUAL TO}"

#: The legend of good and bad cells in most tables, for Markdown.
COLOURS = (
    "Bold: better than what it is compared with; \N{BLACK UP-POINTING TRIANGLE}: worse; by more than 1 %, and by the "
    "cell's interval. Of cells that do not differ, it marks about 1 of 10 by chance."
)

LEGEND = (
    "pass: within its budget (in parentheses); FAIL: above it; ?: undecided, see above; @N: decided after N rounds "
    "(the figures are those of all rounds of the step)"
)


def ending_of(judgement: Judgement, *, is_expected: bool) -> Ending:
    """Return how a limit ended, whose failure may have been expected."""
    if judgement.final is None:
        return "not judged"
    if judgement.outcome == "fail":
        return AS_EXPECTED if is_expected else "broken"
    return "kept" if judgement.outcome == "pass" else "undecided"


def times(overhead: float) -> str:
    """Return a cost as a number of times: ``1.30`` for 30 %."""
    return RATIOS.signed(overhead).removeprefix("x")
