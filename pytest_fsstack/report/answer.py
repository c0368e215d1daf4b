"""The answer that a session was run for: the worst that happened, which stack costs least, what needs attention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pytest_fsstack import units
from pytest_fsstack.judging import control, describe
from pytest_fsstack.judging.describe import EMULATED, note_in_words
from pytest_fsstack.judging.overall import CONFIDENCE, main_metric, weights, with_all_steps
from pytest_fsstack.judging.readings import Readings, settle
from pytest_fsstack.records.notices import ControlDiffers, ControlNotCompared
from pytest_fsstack.records.results import ChainResults, Results, TestOutcome, Unjudged
from pytest_fsstack.records.verdicts import Estimate
from pytest_fsstack.report.model import View, footnote, steps_on_stacks, title_of, verdicts_of
from pytest_fsstack.report.wording import AS_EXPECTED, times
from pytest_fsstack.units import first_names

#: Problems of one kind that are shown; the last line says how many more there are.
MAX_PROBLEMS = 12
#: Stacks whose cost the sentence on two kernels names.
MAX_COSTS = 8


class Sentence(NamedTuple):
    """A line of the answer: what a headline says, and the figures or reasons behind it."""

    headline: str
    details: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.headline, self.details)))


class Cost(NamedTuple):
    """The cost of a stack over its reference, in all steps together, and in each of them."""

    stack: str
    overall: Estimate
    steps: dict[str, Estimate]


class Group(NamedTuple):
    """Stacks that compete with each other, the cheapest first, and the others of the kind with why they do not."""

    kernel: str
    name: str
    reference: str
    costs: list[Cost]
    missing: dict[str, str]


class Problem(NamedTuple):
    """Something that a reader must know: the kind, what it is about, why, and what to do."""

    kind: str
    what: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        joint = " " if self.what.startswith("[") else ": "
        text = joint.join(filter(None, (self.what, self.reason)))
        return f"{text.rstrip('.')}. {self.remedy}" if self.remedy else text


# -- which stack costs least -------------------------------------------------------------------------------------------


def answer(results: Results) -> list[Sentence]:
    """Return the answer: the worst that happened, and which stack of each group costs least."""
    results = settle(results)
    lines = [worst_first(results)]
    for chain in results.chains:
        where = prefix(chain, results)
        lines += [line._replace(headline=f"{where}{line.headline}") for line in _sentences(results, chain)]
    return [line for line in lines if line.headline]


def costs(results: Results, chain: ChainResults) -> list[Cost]:
    """Return what each stack costs that has all steps, in the order of the chain.

    Controls, references and emulated stacks have no cost.
    """
    return [
        Cost(stack, chain.overall[stack], steps)
        for stack, steps in _with_all_steps(chain).items()
        if stack in chain.overall
    ]


def _with_all_steps(chain: ChainResults) -> dict[str, dict[str, Estimate]]:
    """Return the estimates of all steps for each stack that has them, without controls and references."""
    return with_all_steps(chain, chain.overhead)


def notes_on_answer(results: Results) -> list[str]:
    """Return what emulation means, how the steps are weighed, and whether sanity limits are kept."""
    results = settle(results)
    compared = [chain for chain in results.chains if any(len(steps) > 1 for steps in _with_all_steps(chain).values())]
    weighed = dict.fromkeys(_weighing(results, chain) for chain in compared if not chain.only_counts)
    notes = [_note_on_emulation(results), *weighed, "" if _is_any_broken(results) else limits(results, sanity=True)]
    return list(filter(None, notes))


def _weighing(results: Results, chain: ChainResults) -> str:
    """Return how the steps are weighed, in a sentence or two."""
    mean = "The cost over all steps is the geometric mean"
    if not (weight_of := weights(results, chain)):
        return f"{mean}. All steps weigh the same unless --fsstack-weights changes that."
    text = ", ".join(f"{step}={weight:g}" for step, weight in weight_of.items())
    return f"{mean}, weighted by {text}. Other steps weigh 1."


def groups(results: Results, chain: ChainResults) -> list[Group]:
    """Return the stacks of a chain in groups: those of each kernel, and those that encrypt by themselves."""
    ranked = sorted(costs(results, chain), key=lambda cost: cost.overall.overhead)
    compared = [
        stack
        for stack in chain.stacks
        if stack != chain.reference(stack) and stack not in chain.controls and not chain.is_emulated(stack)
    ]
    kinds = dict.fromkeys((chain.stacks[stack].kernel, chain.stacks[stack].encrypts) for stack in compared)
    result = []
    for kernel, encrypts in kinds:
        kind = (kernel, encrypts)
        members = [stack for stack in compared if (chain.stacks[stack].kernel, chain.stacks[stack].encrypts) == kind]
        name = "encrypted stacks" if encrypts else "unencrypted stacks" if (kernel, True) in kinds else "stacks"
        costs_of_group = [cost for cost in ranked if cost.stack in members]
        absent = [stack for stack in members if all(stack != cost.stack for cost in costs_of_group)]
        missing = {stack: _why_missing(chain, stack) for stack in absent}
        result.append(Group(kernel, name, chain.reference(members[0]), costs_of_group, missing))
    return result


def _why_missing(chain: ChainResults, stack: str) -> str:
    """Return why a stack has no overall cost, without what to do about it."""
    measured = any(chain.measures(step, stack) for step in chain.steps)
    unexplained = "nothing to compare with" if measured else "no timed block ran"
    if any((cost := chain.overhead(step, stack, main_metric(chain, step))) and cost.missing for step in chain.steps):
        unexplained = "in some rounds, only it or its reference has a figure"
    note = next((note_in_words(note) for step in chain.steps if (note := chain.note(step, stack))), unexplained)
    # What to do follows the first colon outside of parentheses.
    return re.split(r": (?![^(]*\))", note, maxsplit=1)[0]


def _sentences(results: Results, chain: ChainResults) -> Iterator[Sentence]:
    if chain.only_counts:
        yield from _of_tests(results, chain)
        return
    every = groups(results, chain)
    if chain.view == "between":
        yield from _between_kernels(chain, every)
        return
    for group in every:
        where = f"On {group.kernel}: " if group.kernel else ""
        headline, *details = _nothing(chain, group), ""
        if group.costs:
            headline, *details = _least(results, chain, group)
        yield Sentence(f"{where}{headline}", " ".join(filter(None, [*details, *_unmeasured(chain, group)])))
    if not every and chain.samples and not any(map(chain.is_emulated, chain.stacks)):
        yield Sentence(f"{chain.baseline} alone was measured, so nothing is compared.")


def _least(results: Results, chain: ChainResults, group: Group) -> tuple[str, str, str]:
    """Return which stacks of a group may cost least, and how much the first of them costs."""
    readings, weight_of = Readings(chain), weights(results, chain)
    costs, reference = {cost.stack: cost for cost in group.costs}, chain.stacks[group.reference].name
    best, stacks = group.costs[0], list(costs)
    is_same_kind = chain.stacks[group.reference].encrypts == chain.stacks[best.stack].encrypts
    ranked = list(stacks)
    if is_same_kind:
        ranked.insert(sum(cost.overall.overhead <= 0 for cost in group.costs), group.reference)
    is_single = len(stacks) == 1 and not group.missing and ranked[0] == best.stack
    names = readings.may_cost_least(ranked, best.steps, weight_of)
    candidates = [stack for stack in names if stack in costs] or readings.may_cost_least(stacks, best.steps, weight_of)
    shown = costs[candidates[0]]
    cost = _estimate_of(shown)
    if not is_single:
        cost = readings.of_cheapest(shown.stack, cost, ranked, names, shown.steps, weight_of)
    text = _range(shown, reference, cost)
    of_one = f"{chain.stacks[shown.stack].name} {text}." if max(len(candidates), len(names)) > 1 else f"{text}."
    equal = ""
    if (is_single or not is_same_kind) and cost.has_interval and not cost.differs:
        over_all = "over all steps, " if len(best.steps) > 1 else ""
        equal = f"{over_all}no difference between {chain.stacks[best.stack].name} and {reference} is shown."
    if is_single:
        return f"{chain.stacks[best.stack].name} costs {text if equal else f'{text}.'}", equal, ""
    if names == [group.reference]:
        return f"Of the {group.name}, {reference} costs least. Next is {_either(chain, candidates)}", of_one, ""
    return f"Of the {group.name}, {_either(chain, names)} costs least", of_one, _capitalized(equal)


def _either(chain: ChainResults, stacks: list[str]) -> str:
    """Return the names of stacks, as in ``xfs, ext4 or btrfs``."""
    *first, last = [chain.stacks[stack].name for stack in stacks]
    return f"{', '.join(first)} or {last}" if first else last


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _nothing(chain: ChainResults, group: Group) -> str:
    begun = any(chain.measures(step, stack) for step in chain.steps for stack in group.missing)
    return f"{'No cost is known' if begun else 'Nothing was measured'} of the {group.name}"


def _between_kernels(chain: ChainResults, groups: Iterable[Group]) -> Iterator[Sentence]:
    """Yield a sentence for each kernel after the first: what each stack costs over itself on the first kernel."""
    # Its guest may not have booted.
    first = chain.stacks[chain.baseline].kernel if chain.baseline in chain.stacks else "the first kernel"
    by_kernel: dict[str, list[Group]] = {}
    for group in groups:
        by_kernel.setdefault(group.kernel, []).append(group)
    for kernel, of_kernel in by_kernel.items():
        costs_of_stacks = {cost.stack: cost for group in of_kernel for cost in group.costs}
        ordered = [costs_of_stacks[stack] for stack in chain.stacks if stack in costs_of_stacks]
        unmeasured = [text for group in of_kernel for text in _unmeasured(chain, group)]
        if not ordered:
            yield Sentence(f"{kernel} against {first}: {_lower(_nothing(chain, of_kernel[0]))}", " ".join(unmeasured))
            continue
        shown = [chain.stacks[cost.stack].name for cost in ordered if _estimate_of(cost).differs]
        # An interval of one boot does not cover how much boots differ.
        these = " for these boots" if chain.boots == 1 else ""
        known = f"the interval of {first_names(shown)} shows a difference{these}" if shown else "no difference is shown"
        named = [(chain.stacks[cost.stack].name, _estimate_of(cost)) for cost in ordered[:MAX_COSTS]]
        costs = ", ".join(f"{name} x{times(estimate.overhead)}" for name, estimate in named)
        more = f" and {len(ordered) - MAX_COSTS} more" if len(ordered) > MAX_COSTS else ""
        intervals = ", ".join(f"{name}{_interval(estimate)}" for name, estimate in named if estimate.has_interval)
        details = [f"intervals of {intervals}." if intervals else "", *unmeasured]
        yield Sentence(f"{kernel} against {first}: {costs}{more}; {known}", " ".join(filter(None, details)))


def _estimate_of(cost: Cost) -> Estimate:
    """Return the cost over all steps. That of a single step has an interval even with few boots."""
    return next(iter(cost.steps.values())) if len(cost.steps) == 1 else cost.overall


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _range(cost: Cost, reference: str, estimate: Estimate) -> str:
    """Return what a stack costs over all steps, and the least and the most that it costs in a step."""
    overall = f"{times(estimate.overhead)} times {reference}"
    if len(cost.steps) == 1:
        return f"{overall}{_interval(estimate)}"
    low, high = (pick(cost.steps, key=lambda step: cost.steps[step].overhead) for pick in (min, max))
    ends = [times(cost.steps[step].overhead) for step in (low, high)]
    if ends[0] == ends[1]:
        return f"{overall} in each step{_interval(estimate)}"
    return f"{overall} over all steps{_interval(estimate)}, from {ends[0]} times in {low} to {ends[1]} times in {high}"


def _interval(estimate: Estimate) -> str:
    if not estimate.has_interval:
        return " (too few rounds for an interval)"
    level = f", {estimate.confidence * 100:.3g} % interval" if estimate.confidence > CONFIDENCE else ""
    return f" ({times(estimate.low)} to {times(estimate.high)}{level})"


def _unmeasured(chain: ChainResults, group: Group) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for stack, reason in group.missing.items():
        by_reason.setdefault(reason, []).append(stack)
    for reason, stacks in by_reason.items():
        has_samples = any(chain.measures(step, stack) for step in chain.steps for stack in stacks)
        verbs = ("is incomplete", "are incomplete") if has_samples else ("was not measured", "were not measured")
        verb = verbs[len(stacks) > 1]
        yield f"{first_names([chain.stacks[stack].name for stack in stacks])} {verb}: {reason}."


def _of_tests(results: Results, chain: ChainResults) -> Iterator[Sentence]:
    """Return how the tests of a chain ended that only counts."""
    outcomes: dict[str, set[str]] = {}
    for step, stack in steps_on_stacks(chain):
        if test := results.test(chain, step, stack):
            outcomes.setdefault(stack, set()).add(test.outcome)
    # `worst_first` names the failures.
    failed = [stack for stack in outcomes if "failed" in outcomes[stack]]
    faulty = [stack for stack in outcomes if any(chain.incomplete(step, stack) for step in chain.steps)]
    faulty = [stack for stack in faulty if stack not in failed]
    left_out = [stack for stack in outcomes if outcomes[stack] == {"skipped"} and stack not in faulty]
    if passed := len(outcomes) - len(left_out) - len(faulty) - len(failed):
        part = f"{passed} of " if passed < len(outcomes) else "All " if passed > 1 else ""
        yield Sentence(f"{part}{units.counted(len(outcomes), 'stack')} passed.")
    elif not outcomes:
        yield Sentence(f"Tested on {units.counted(len(chain.stacks), 'stack')}.")
    if faulty:
        yield Sentence("Expected faults were found", f"{first_names(faulty)}.")
    if left_out:
        yield Sentence("Not tested", f"{first_names(left_out)}.")


def prefix(chain: ChainResults, results: Results) -> str:
    """Return the name of a chain with a colon, empty if there is only one."""
    if len(results.chains) == 1:
        return ""
    device = f" on {chain.device}" if len({other.device for other in results.chains}) > 1 else ""
    return f"{title_of(chain).rpartition('::')[2]}{device}: "


# -- whether limits are kept, and whether the session can be trusted ---------------------------------------------------


def worst_first(results: Results) -> Sentence:
    """Return the worst that happened, whatever kind of limit or failure it was. Empty without limits and failures."""
    failed = units.counted(len(results.tests), "test") if _failed_tests(results) else ""
    unexpected = [_name(test) for test in results.tests.values() if test.outcome == "xpassed"]
    sentences = [
        emulation(results),
        f"The session ended early ({results.interrupted})." if results.interrupted else "",
        f"{len(_failed_tests(results))} of {failed} failed{_first_error(results)}." if failed else "",
        f"Failed beside the stacks: {first_names(results.failures)}." if results.failures else "",
        *map(_of_control, results.chains),
        limits(results),
        limits(results, sanity=True) if _is_any_broken(results) else "",
        f"Passed unexpectedly: {first_names(unexpected)}." if unexpected else "",
    ]
    told = list(filter(None, sentences))
    if told == [emulation(results)] and results.tests:
        told.append(_how_tests_ended(results))
    return Sentence(" ".join(told))


def _failed_tests(results: Results) -> list[TestOutcome]:
    return [test for test in results.tests.values() if test.outcome == "failed"]


def failed_by_themselves(results: Results) -> list[TestOutcome]:
    """Return the failed tests whose reason is none of the limits, which have sentences of their own."""
    return [test for test in _failed_tests(results) if not test.by_limits]


def _name(test: TestOutcome) -> str:
    return f"{test.step} on {test.stack}" if test.step and test.stack else test.id.rpartition("::")[2]


def _first_error(results: Results) -> str:
    """Return in parentheses the first failed test with its error, and the names of others. Empty if limits say it."""
    errors = {_name(test): test.text.rstrip(".") for test in failed_by_themselves(results)}
    if not errors:
        return ""
    (name, text), *others = errors.items()
    first = ": ".join(filter(None, [name, text]))
    return f" ({'; '.join(filter(None, [first, first_names([other for other, _ in others])]))})"


def _how_tests_ended(results: Results) -> str:
    ended = [test.outcome for test in results.tests.values()]
    words = {"passed": "passed", "xfailed": "failed as expected", "skipped": "skipped"}
    parts = [f"{ended.count(outcome)} {word}" for outcome, word in words.items() if outcome in ended]
    return f"Of {units.counted(len(ended), 'test')}: {', '.join(parts)}."


def emulation(results: Results) -> str:
    """Return that CPUs were emulated, and on which kernels or devices if others were not. Empty if none was."""
    stacks = [(info, chain.device) for chain in results.chains for info in chain.stacks.values()]
    emulated = [(info, device) for info, device in stacks if info.emulated]
    if not emulated:
        return ""
    kernels = list(dict.fromkeys(info.kernel or device for info, device in emulated))
    where = "" if len(emulated) == len(stacks) else f" on {first_names(kernels)}"
    return f"Emulated{where}: {EMULATED}."


def _note_on_emulation(results: Results) -> str:
    chains = [chain for chain in results.chains if any(info.emulated for info in chain.stacks.values())]
    if not chains:
        return ""
    judged = "are judged (--fsstack-judge-emulated)"
    if not all(chain.judges_emulated for chain in chains):
        judged = "are not judged there (--fsstack-judge-emulated judges them)"
    return f"An emulated CPU distorts all times, so no cost is stated. Budgets on time {judged}."


def _of_control(chain: ChainResults) -> str:
    """Return that a control failed. Empty if there is none, or if it does not differ from its baseline."""
    doubts = control.doubts(Readings(chain))
    differing, missing = (
        [notice.baseline for notice in doubts if isinstance(notice, kind)]
        for kind in (ControlDiffers, ControlNotCompared)
    )
    if differing:
        return f"Doubt the verdicts: the control differs from its baseline {first_names(differing)}."
    return f"The control of {first_names(missing)} was not compared." if missing and chain.samples else ""


def _is_any_broken(results: Results) -> bool:
    """Whether a sanity limit is broken, which belongs into the first line."""
    return any(outcome in ("broken", "doubtful") for outcome, _ in _outcomes_of_limits(results, sanity=True))


def _outcomes_of_limits(results: Results, *, sanity: bool = False) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield how each limit of the user ended, or each sanity limit, with its stack and step."""
    for chain in results.chains:
        for step, stack, _ in chain.all_judgements():
            for verdict in verdicts_of(results, chain, step, stack):
                if verdict.judgement.budget.sanity == sanity:
                    is_doubtful = verdict.ending == "kept" and verdict.is_doubtful
                    yield "kept, but doubtful" if is_doubtful else verdict.ending, (stack, step)


def limits(results: Results, *, sanity: bool = False) -> str:
    """Return in a sentence how the limits of the user ended, or the sanity limits. Empty if there are none."""
    by_outcome: dict[str, list[tuple[str, str]]] = {}
    for outcome, pair in _outcomes_of_limits(results, sanity=sanity):
        by_outcome.setdefault(outcome, []).append(pair)
    total, name = sum(map(len, by_outcome.values())), "sanity limit" if sanity else "limit"
    where = {outcome: f" ({_on_stacks(by_outcome[outcome])})" for outcome in _NAMED & by_outcome.keys()}
    if total == 1:
        return "".join(f"The {name} is {outcome}{where.get(outcome, '')}." for outcome in by_outcome)
    if by_outcome.keys() == {"kept"}:
        return f"All {total} {name}s are kept."
    parts = [
        f"{len(by_outcome[outcome])} {outcome}{where.get(outcome, '')}"
        for outcome in _OUTCOMES
        if outcome in by_outcome
    ]
    return f"Of {total} {name}s: {', '.join(parts)}." if parts else ""


#: How limits end, in the order of the sentence.
_OUTCOMES = ("broken", AS_EXPECTED, "undecided", "kept, but doubtful", "kept", "not judged")
#: The outcomes of limits whose steps and stacks are named.
_NAMED = {"broken", "undecided", "kept, but doubtful"}


def _on_stacks(pairs: Iterable[tuple[str, str]]) -> str:
    """Return stacks with their steps, as in ``extract, du on xfs; du on btrfs``."""
    steps: dict[str, list[str]] = {}
    for stack, step in dict.fromkeys(pairs):
        steps.setdefault(stack, []).append(step)
    texts = [f"{first_names(names)} on {stack}" for stack, names in steps.items()]
    more = f"; and {len(texts) - 3} more stacks" if len(texts) > 3 else ""
    return f"{'; '.join(texts[:3])}{more}"


# -- what needs attention ----------------------------------------------------------------------------------------------


def problems(results: Results) -> list[Problem]:
    """Return what needs attention: failed, undecided, not judged, doubtful, incomplete, not measured."""
    results = settle(results)
    items = [*_failed(results)]
    for kind in (_undecided, _not_judged, _doubtful):
        for chain in results.chains:
            where = prefix(chain, results)
            items += [problem._replace(what=f"{where}{problem.what}") for problem in kind(chain)]
    notes = View(results.chains[0], results).notes if results.chains else []
    begun = {
        footnote(chain, *pair)
        for chain in results.chains
        for pair in steps_on_stacks(chain)
        if chain.measures(*pair) or chain.incomplete(*pair)
    }
    # All of these are shown, because the tables refer to their numbers.
    numbered = [
        Problem("incomplete" if note in begun else "not measured", f"[{number}]", note)
        for number, note in enumerate(notes, 1)
    ]
    return [*_shortened(dict.fromkeys(items)), *numbered, *dict.fromkeys(_slow_encryption(results))]


#: Drivers of the kernel for AES that use no instructions for it.
_SOFTWARE = re.compile("generic|fixed-time")


def _slow_encryption(results: Results) -> Iterator[Problem]:
    """Yield why encryption by AES is slower on the machine than on most others, if a stack that encrypts was measured.

    A daemon uses the instructions even if the kernel does not, so the kernel's driver matters only to its own layers.
    """
    for chain in results.chains:
        machine = results.environment if chain.environment is None else chain.environment
        driver = machine.get("crypto", {}).get("xts(aes)", {}).get("driver", "")
        encrypted = [
            chain.stacks[stack]
            for step, stack in steps_on_stacks(chain)
            if chain.stacks[stack].encrypts and chain.measures(step, stack)
        ]
        if chain.only_counts or not encrypted:
            continue
        slower = "slower here than on most machines"
        if machine.get("cpu", {}).get("aes_instructions") is False:
            yield Problem("note", "", f"this processor has no AES instructions, so AES is {slower}")
        elif _SOFTWARE.search(driver) and any(info.kernel_cipher for info in encrypted):
            reason = f"this kernel does not use AES instructions (its driver is {driver})"
            yield Problem("note", "", f"{reason}, so LUKS and fscrypt are {slower}")


def _shortened(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the first problems of each kind, and each remedy once."""
    numbers: dict[str, int] = {}
    remedies: set[str] = set()
    for problem in problems:
        numbers[problem.kind] = numbers.get(problem.kind, 0) + 1
        if numbers[problem.kind] <= MAX_PROBLEMS:
            yield problem._replace(remedy="") if problem.remedy in remedies else problem
            remedies.add(problem.remedy)
    for kind, number in numbers.items():
        if number > MAX_PROBLEMS:
            yield Problem(kind, "", f"and {number - MAX_PROBLEMS} more")


def _failed(results: Results) -> Iterator[Problem]:
    """Yield the broken budgets, and the tests that failed for another reason."""
    for chain in results.chains:
        for step, stack in steps_on_stacks(chain):
            worst, test = chain.worst(step, stack), results.test(chain, step, stack)
            # A test with pytest's own mark xfail has not failed.
            if worst == "fail" and not chain.expected(step, stack) and (not test or test.outcome == "failed"):
                reason = describe.describe_shortly(Readings(chain), step, stack)
                where = f", on {chain.device}" if len({other.device for other in results.chains}) > 1 else ""
                remedy = _remedy(chain, step, stack) if not test or test.by_limits else ""
                yield Problem("failed", f"{step} on {stack}{where}", reason, remedy)
    for test in failed_by_themselves(results):
        yield Problem("failed", test.id, test.text, "The output of pytest says where.")
    for name in results.failures:
        yield Problem("failed", "", name, "The output of pytest says why.")


def _remedy(chain: ChainResults, step: str, stack: str) -> str:
    broken = [judgement for judgement in chain.judgements_of(step, stack) if judgement.outcome == "fail"]
    if all(judgement.budget.sanity for judgement in broken):
        return "A healthy machine keeps this sanity limit: look for what is broken."
    return "The line `again:` of its failure runs it alone."


def _undecided(chain: ChainResults) -> Iterator[Problem]:
    """Yield what would decide the budgets that the samples do not; a line for all that have the same advice."""
    by_advice: dict[str, list[str]] = {}
    for step, stack in steps_on_stacks(chain):
        for judgement in chain.judgements_of(step, stack):
            if judgement.final and judgement.outcome == "inconclusive":
                name = judgement.budget.metric
                budget = describe.budget_in_words(judgement.budget, chain.metric(step, stack, name))
                what = f"{step} on {stack}, {name}, {budget}"
                by_advice.setdefault(describe.advice(judgement), []).append(what)
    for advice, budgets in by_advice.items():
        more = f" (and {len(budgets) - 1} more)" if len(budgets) > 1 else ""
        yield Problem("undecided", f"{budgets[0]}{more}", advice)


_REMEDIES = {
    Unjudged.NO_METRIC: "Name a metric that the step records.",
    Unjudged.NO_BASELINE: "Measure what it is compared with.",
    Unjudged.FEW_BOOTS: "Boot the kernels more often.",
}


def _not_judged(chain: ChainResults) -> Iterator[Problem]:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for step, stack in steps_on_stacks(chain):
        for judgement in chain.judgements_of(step, stack):
            if judgement.final is None and judgement.unjudged is not None and chain.measures(step, stack):
                remedy = _REMEDIES.get(judgement.unjudged, "")
                reason = describe.judgement_in_words(chain, step, stack, judgement)
                by_reason.setdefault((reason, remedy), []).append(f"{step} on {stack}")
    for (reason, remedy), where in by_reason.items():
        yield Problem("not judged", first_names(where), reason, remedy)


def _doubtful(chain: ChainResults) -> Iterator[Problem]:
    by_reason: dict[str, list[str]] = {}
    for step, stack in steps_on_stacks(chain):
        if doubt := describe.doubt_in_words(chain.known(step, stack).doubts):
            by_reason.setdefault(doubt, []).append(f"{step} on {stack}")
    for reason, where in by_reason.items():
        yield Problem("doubtful", first_names(where), reason, "--fsstack-settle lets the device rest between stacks.")
