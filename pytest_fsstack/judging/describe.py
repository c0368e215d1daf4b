"""Texts about failures, undecided budgets and notices."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from pytest_fsstack.judging import runs, verdict
from pytest_fsstack.judging.conditions import summary
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.notices import (
    ControlDiffers,
    ControlNotCompared,
    GaveUp,
    Noise,
    Notice,
    OddTimes,
    OverheadChanged,
    ReferenceMoved,
    RunsCorrelated,
    Unrest,
)
from pytest_fsstack.records.results import ChainResults, Judgement, Note, Unjudged, worst
from pytest_fsstack.records.sample import Metric
from pytest_fsstack.records.verdicts import CarryOver, Estimate
from pytest_fsstack.units import OverheadUnit, counted, first_names, format_quantity, percent, shortened

#: What figures of an emulated CPU mean.
EMULATED = "shows function, not speed"
#: Why figures in time have no verdict there, and what to do.
NOT_ON_EMULATED = (
    f"not judged, because the CPU is emulated, which {EMULATED}: measure with KVM, or judge anyway with "
    "--fsstack-judge-emulated"
)


def describe_failure(readings: Readings, step: str, stack: str, rerun_command: str = "") -> str:
    """Describe a failure: the broken budget with its figures in the first line, then the advice, then the samples.

    `rerun_command` is the command that runs this test alone, or empty.
    """
    chain, judgements = readings.chain, readings.chain.judgements_of(step, stack)
    order = sorted(judgements, key=lambda judgement: judgement.outcome != worst(other.outcome for other in judgements))
    lines = [_first_line(readings, step, stack, order[0])]
    lines += ["", *(["  again:   " + rerun_command] if rerun_command else [])]
    lines.append(
        f"  step:    {step}, {chain.rounds} rounds; the order of the stacks is that of --fsstack-seed={chain.seed}"
    )
    lines += [
        f"  {judgement.outcome + ':':<8} {judgement_in_words(chain, step, stack, judgement)}"
        for judgement in judgements
    ]
    for name in dict.fromkeys(judgement.budget.metric for judgement in judgements if judgement.outcome == "fail"):
        lines += ["", *_sample_lines(chain, step, stack, name)]
    lines += ["", _error_rate(chain, judgements), *filter(None, [doubt_in_words(readings.doubts(step, stack))])]
    return "\n".join(lines)


def _error_rate(chain: ChainResults, judgements: list[Judgement]) -> str:
    if all(judgement.budget.overhead is None for judgement in judgements if judgement.outcome == "fail"):
        return "A limit is compared with these rounds only. It has no error rate, because it depends on the machine."
    return f"{error_rate(chain)}."


def error_rate(chain: ChainResults) -> str:
    """Return the rate of false failures of budgets over a baseline."""
    together = f"For all {chain.budgets_sharing} budgets together: a stack that keeps its budget"
    stack = together if chain.budgets_sharing > 1 else "For each budget: a stack that keeps it"
    return f"{stack} is judged FAIL by chance in at most {chain.looks.alpha * 100:.3g} % of sessions"


#: Error rates with one boot of each kernel, from `python -m benchmarks verdict 1200`.
_BOOT_ERROR_RATES = (
    "of these boots: if boots differ by 2 %, a limit that is kept fails in 41 / 24 / 13 % of sessions at a CV of "
    "2 / 5 / 10 %"
)
#: The minimum width for the first line of a failure: 80 columns less the prefix that pytest adds.
COLUMNS = 80 - len("Failed: ")
#: The minimum width of a shortened name.
_SHORT = 8
#: What became of a step after which no other one runs, by the kind of its note.
ENDED = {"failed": "failed", "skipped": "was skipped", "failed as expected": "failed as expected"}


def _first_line(readings: Readings, step: str, stack: str, judgement: Judgement) -> str:
    """Describe a budget with its figures in 80 columns. The middle of long names is left out."""
    reference = readings.chain.reference(stack)

    def line(width: int) -> str:
        return f"{shortened(stack, width)}: {_in_short(readings, step, stack, judgement, shortened(reference, width))}"

    longest = max(len(stack), len(reference), _SHORT)
    widths = range(longest, _SHORT - 1, -1)
    return next((text for width in widths if len(text := line(width)) <= COLUMNS), line(_SHORT))


def describe_shortly(readings: Readings, step: str, stack: str) -> str:
    """Describe the budget of the worst verdict of a step on a stack in one line, with its figures."""
    chain, outcome = readings.chain, readings.chain.worst(step, stack)
    for judgement in chain.judgements_of(step, stack):
        if judgement.outcome == outcome:
            return _in_short(readings, step, stack, judgement, chain.reference(stack))
    return ""


def _in_short(readings: Readings, step: str, stack: str, judgement: Judgement, reference: str) -> str:
    """Describe a budget with its figures, for displays that show only the first line of a failure."""
    chain, budget, reading = readings.chain, judgement.budget, readings.of(step, stack, judgement.budget.metric)
    if judgement.verdict is None or reading is None:
        return judgement_in_words(chain, step, stack, judgement)
    if budget.limit is not None:
        median = format_quantity(statistics.median(_judged_figures(chain, step, stack, judgement)), reading.metric.unit)
        return f"{budget.metric} {median}, {budget_in_words(budget, reading.metric)}"
    final, limits = judgement.final or judgement.verdict, [budget.overhead or 0.0]
    numbers = final.estimate
    # The unit of the table, which shows all stacks.
    estimates = (readings.estimate(other, name, budget.metric) for other in chain.steps for name in chain.stacks)
    unit = OverheadUnit.fitting([numbers.overhead, *(each.overhead for each in estimates if each)])
    return (
        f"{budget.metric} {unit.signed(numbers.overhead, limits)} {unit.interval(numbers.low, numbers.high, limits)} "
        f"over {reference}, budget {unit.limit(limits[0])}"
    )


def describe_undecided(chain: ChainResults, step: str, stack: str) -> str:
    """Describe the undecided budgets in one line, with what would settle them."""
    parts = []
    for judgement in chain.judgements_of(step, stack):
        if judgement.outcome == "inconclusive":
            text = judgement_in_words(chain, step, stack, judgement)
            parts.append("; ".join(filter(None, [text, advice(judgement)])))
    return f"inconclusive: {' | '.join(parts)}"


def advice(judgement: Judgement) -> str:
    """Return the advice for an undecided budget. Empty if it was not judged, or is decided."""
    final = judgement.final
    if final is None:
        return ""
    if judgement.budget.limit is not None and final.estimate.rounds >= final.looks.minimum_rounds:
        return "it is too close to the limit to tell in so many rounds"
    return verdict.advice(final)


def judgement_in_words(chain: ChainResults, step: str, stack: str, judgement: Judgement) -> str:
    """Return a judgement with its figures in one line, or why there is none."""
    budget, first, confirmed = judgement.budget, judgement.verdict, judgement.confirmed
    if first is None:
        return _why_unjudged(chain, step, stack, judgement)
    if budget.limit is not None:
        metric, figures = chain.metric(step, stack, budget.metric), _judged_figures(chain, step, stack, judgement)
        median = format_quantity(statistics.median(figures), metric.unit if metric else "")
        text = f"median of {counted(len(figures), 'round')} {median}, {budget_in_words(budget, metric)}"
    elif confirmed is None:
        text = verdict.describe(first)
    else:
        verb = {"fail": "confirm", "pass": "refute", "inconclusive": "do not confirm"}[confirmed.outcome]
        text = (
            f"{verdict.describe(confirmed)}; these fresh rounds {verb} what the first {first.estimate.rounds} say: "
            f"{percent(first.estimate.overhead, first.budget)}"
        )
    of_one_boot = chain.view == "between" and chain.boots == 1
    return f"{budget.metric}: {text}{f', {_BOOT_ERROR_RATES}' if of_one_boot else ''}"


def _judged_figures(chain: ChainResults, step: str, stack: str, judgement: Judgement) -> list[float]:
    """Return the figures that were compared with a limit."""
    assert judgement.verdict is not None
    return chain.series(step, stack, judgement.budget.metric)[: judgement.verdict.estimate.rounds]


def _why_unjudged(chain: ChainResults, step: str, stack: str, judgement: Judgement) -> str:
    budget, base, name = judgement.budget, chain.reference(stack), judgement.budget.metric
    metric, recorded = chain.metric(step, stack, name), chain.metrics(step)
    match judgement.unjudged:
        case Unjudged.NO_METRIC if name in recorded:
            return f"{step} records the metric {name!r} on other stacks, but not on {stack}"
        case Unjudged.NO_METRIC:
            return f"{step} has no metric {name!r} here; it has: {', '.join(recorded)}"
        case Unjudged.UNFIT if metric and (mistake := budget.wrong_sign(metric.better)):
            return mistake
        case Unjudged.NOT_DONE:
            reason = f"{stack} did not do the work: {chain.incomplete(step, stack)}"
        case Unjudged.UNFIT:
            reason = (
                "a limit of 0 needs an exact count: give timed.record(..., exact=True)"
                if budget.limit == 0
                else "figures of 0 have no ratio: give timed.record(..., exact=True) for a count, or resolution=..."
            )
        case Unjudged.EMULATED:
            reason = NOT_ON_EMULATED
        case Unjudged.NO_BASELINE if chain.paired:
            # It may have been measured, but without this metric.
            lacking = f"{step} does not record {name!r} on it" if chain.measures(step, base) else "it was not measured"
            reason = f"nothing to compare with: baseline {base}: {note_in_words(chain.note(step, base)) or lacking}"
        case Unjudged.NO_BASELINE:
            reason = "nothing to compare with: no round was measured in all boots of both kernels"
        case Unjudged.FEW_BOOTS:
            alpha = chain.looks.alpha
            numbers = [len({key.boot for key in chain.of(step, side)}) for side in (stack, base)]
            reason = (
                f"{numbers[0]} against {numbers[1]} boots are figures without a verdict: at alpha {alpha:.3g} it takes "
                f"{runs.min_runs(alpha)} of each (--fsstack-boots)"
            )
        case _:
            reason = "nothing was measured"
    return f"{name}: {reason}"


def limit_text(budget: Budget, metric: Metric | None, unit: OverheadUnit) -> str:
    """Return the limit of a budget: ``30 %``, ``x1.3`` or ``2 s``."""
    if budget.limit is None:
        return unit.limit(budget.overhead or 0.0)
    return format_quantity(budget.limit, metric.unit if metric else "")


def budget_in_words(budget: Budget, metric: Metric | None) -> str:
    """Return a budget: ``budget 30 %``, or ``budget at most 2 s``."""
    bound = ""
    if budget.limit is not None:
        bound = "at least " if metric and metric.better == "higher" else "at most "
    return f"budget {bound}{limit_text(budget, metric, OverheadUnit())}"


def _sample_lines(chain: ChainResults, step: str, stack: str, name: str) -> list[str]:
    metric = chain.metric(step, stack, name)
    unit = f" ({metric.unit})" if metric and metric.unit else ""
    reference = chain.reference(stack)
    width = max(len(stack), len(reference))
    lines = [f"  {name}{unit}, in the order of the rounds"]
    for side in dict.fromkeys((reference, stack)):
        lines.append(f"  {side:<{width}}  {' '.join(f'{value:.4g}' for value in chain.series(step, side, name))}")
    return lines


# -- notices -----------------------------------------------------------------------------------------------------------


def remarks(chain: ChainResults) -> list[str]:
    """Return the remarks of the scenario, the notices, and a warning about the effects of the previous run."""
    return [*chain.remarks, *map(notice_in_words, chain.notices), *filter(None, [_carry_over(chain)])]


def notice_in_words(notice: Notice) -> str:
    """Return a notice in one line."""
    match notice:
        case GaveUp():
            count = summary(notice.rules)
            return f"{count}; no more were run in their place, because these are as many as were planned"
        case ControlDiffers():
            return _control(notice)
        case ControlNotCompared():
            return f"the control cannot be compared with the baseline {notice.baseline}: {notice.reason}"
        case OverheadChanged():
            return (
                f"the overhead may have changed during the session ({_steps_on_stacks(notice.stacks)}): if it has, its "
                "verdict is less certain than stated"
            )
        case OddTimes():
            where = _steps_on_stacks(notice.stacks)
            return f"the times have outliers or two clusters ({where}): overheads are those of a typical round"
        case Unrest():
            busy = ", ".join(_unrest(notice))
            return f"the machine was not at rest: {busy}; --fsstack-drop-rounds leaves such rounds out"
        case Noise():
            # A factor would be hard to read in this sentence.
            facts = notice.variation, notice.visible
            varies, missed = (OverheadUnit().signed(fact).removeprefix("+") for fact in facts)
            return (
                f"the baseline's time varies by {varies}, so {notice.rounds} rounds often miss an overhead "
                f"less than about {missed} above its budget"
            )
        case ReferenceMoved():
            then, now = (format_quantity(figure, notice.unit) for figure in (notice.then, notice.now))
            change = change_in_words(notice.change)
            return f"{notice.stack} itself: {notice.step} {then} -> {now}, {change}; no limit judges that"
        case RunsCorrelated():
            return (
                f"{notice.series}: earlier runs follow each other (lag-1 correlation {notice.correlation:.2f}), so a "
                "false verdict is likelier than stated; fsstack trend shows whether it grows"
            )


def note_in_words(note: Note | None) -> str:
    """Return why a step lacks samples. Empty if it has all."""
    if note is None:
        return ""
    why = f": {note.reason}" if note.reason else ""
    match note.kind:
        case "cannot run":
            return note.reason
        case "incomplete":
            return f"did not do the work{why}"
        case "left out":
            return f"skipped{why}"
        case "without baseline":
            return f"the chain was ended in round 1, because the baseline {note.cause} failed in setup{why}"
        case "kernel went down":
            return f"the kernel {note.cause} went down"
        case kind:
            return f"{note.cause} {ENDED[kind]} in round {note.round + 1}{why}".lstrip()


def change_in_words(estimate: Estimate | None) -> str:
    """Return an overhead, with its interval if it has one. Empty without an estimate."""
    if estimate is None:
        return ""
    unit = OverheadUnit.fitting([estimate.overhead])
    interval = f" {unit.interval(estimate.low, estimate.high)}" if estimate.has_interval else ""
    return f"{unit.signed(estimate.overhead)}{interval}"


def doubt_in_words(doubts: Sequence[CarryOver]) -> str:
    """Return in a few words why a verdict is doubtful, or an empty text."""
    reasons = dict.fromkeys(map(_effect, doubts))
    return f"the run before matters: {', '.join(reasons)}" if reasons else ""


def _steps_on_stacks(stacks: Mapping[str, Sequence[str]]) -> str:
    return first_names([f"{step} on {stack}" for step, of_step in stacks.items() for stack in of_step])


def _metric(name: str) -> str:
    return "" if name == "seconds" else f" ({name})"


def _control(notice: ControlDiffers) -> str:
    units = [(one, OverheadUnit.fitting([one.estimate.overhead])) for one in notice.differences]
    texts = [
        f"{one.step}{_metric(one.metric)} {unit.signed(one.estimate.overhead)} "
        f"{unit.interval(one.estimate.low, one.estimate.high)}"
        for one, unit in units
    ]
    which = "it does" if notice.comparisons == 1 else f"each of {notice.comparisons} comparisons does"
    chance = f"{which} so by chance in at most {(1 - notice.confidence) * 100:.3g} % of sessions"
    return (
        f"doubt the verdicts of this chain: the baseline {notice.baseline} differs from itself, run a second "
        f"time as {notice.control}: {first_names(texts)}; {chance}"
    )


def _unrest(notice: Unrest) -> Iterator[str]:
    if notice.stolen_rounds:
        yield f"CPU time was stolen in {counted(notice.stolen_rounds, 'round')}, up to {notice.stolen:.0%} in one"
    if notice.throttled_rounds:
        yield f"CPUs were throttled in {counted(notice.throttled_rounds, 'round')}"
    if notice.loaded_rounds:
        rounds = counted(notice.loaded_rounds, "round")
        yield f"the load was up to {notice.load:.1f} before {rounds}, the tests' own included"
    if notice.frequencies:
        low, high = notice.frequencies
        yield f"CPUs ran at {low:.0f} to {high:.0f} MHz"


def _carry_over(chain: ChainResults) -> str:
    """Return a warning about verdicts on figures that the previous run changed, or an empty text."""
    effects = chain.carry_over
    if not effects:
        return ""
    few = "; ".join(f"{_concerned(one)}: {_effect(one)}" for one in effects[:3])
    more = f"; and {len(effects) - 3} more" if len(effects) > 3 else ""
    return (
        f"the run before matters: {few}{more} (p {max(one.p for one in effects):.1%} for the chain). A verdict that "
        "this could change is doubtful; --fsstack-settle lets the machine rest between stacks"
    )


def _effect(carry: CarryOver) -> str:
    """Return the effect and the run before: ``+5 % after xfs``."""
    return f"{OverheadUnit.fitting([carry.overhead]).signed(carry.overhead)} after {carry.after}"


def _concerned(carry: CarryOver) -> str:
    return f"{carry.step or 'all steps'}{_metric(carry.metric)}{f' on {carry.stack}' if carry.stack else ''}"
