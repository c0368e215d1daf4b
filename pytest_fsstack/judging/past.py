"""Runs now against runs then: what each stack costs over its reference, the unit of evidence being the run.

Rounds of one run have in common what differs from run to run (docs/statistics.md), so each run gives one figure for a
stack: the typical log ratio of its rounds. `judging.runs` compares those of three runs a side or more, `judging.spread`
one or two runs with five or more earlier ones of the same machine; fewer give figures without a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import expm1, log1p
from statistics import median
from typing import Any, NamedTuple

from pytest_fsstack.judging import runs, spread
from pytest_fsstack.judging.results import ChainResults, Results
from pytest_fsstack.judging.series import kind_of, name_of, test_of
from pytest_fsstack.judging.verdict import Estimate, Outcome

ONE_EACH = "one run each: what differs from run to run is not in it"


class Entry(NamedTuple):
    """What one run says of a metric of a step on a stack.

    `figure` is the median in the metric's unit. `ratio` is the typical logarithm of the stack over its reference, more
    being worse; None for the baseline itself, and where nothing compares.
    """

    figure: float
    ratio: float | None


class Place(NamedTuple):
    """Which series it is; kernel and device are empty where all runs have one each, and so compare whatever it is."""

    test: str
    step: str
    stack: str
    metric: str
    name: str
    kernel: str
    device: str

    @property
    def within(self) -> str:
        """The place within its test."""
        words = [self.step, "on", self.stack, self.kernel, self.device]
        over = "over the first kernel" if self.name.endswith("::kernel_overhead") else ""
        return " ".join(filter(None, [*words, over, "" if self.metric == "seconds" else f"({self.metric})"]))

    def __str__(self) -> str:
        test = self.test.rpartition("::")[2]
        return self.within if test == f"test_{self.step}" else f"{test} {self.within}"


@dataclass(frozen=True)
class Change:
    """A series on both sides, and what became of it; `reference` is the stack that the overheads are over."""

    place: Place
    unit: str
    reference: str
    now: tuple[Entry, ...]
    then: tuple[Entry, ...]
    #: How much more the stack costs over its reference now than then; None for the baseline and for one run each side.
    estimate: Estimate | None = None
    #: None without a limit, for the baseline, and where there are too few runs.
    outcome: Outcome | None = None
    #: How it was judged, or why not; for people.
    how: str = ""

    @property
    def shift(self) -> float | None:
        """The change of the ratio to the reference, as a fraction, whether there is an interval or not."""
        if self.estimate:
            return self.estimate.overhead
        then, now = self.overhead(self.then), self.overhead(self.now)
        return (1 + now) / (1 + then) - 1 if then is not None and now is not None else None

    @staticmethod
    def overhead(entries: Iterable[Entry]) -> float | None:
        """The median overhead of some runs."""
        found = [each.ratio for each in entries if each.ratio is not None]
        return expm1(median(found)) if found else None

    @staticmethod
    def figure(entries: Iterable[Entry]) -> float:
        """The median figure of some runs, in the metric's unit."""
        return median(each.figure for each in entries)


@dataclass(frozen=True)
class Comparison:
    """Runs now against runs then. `limit` is how much more a stack may cost (0.05 is 5 %); None: nothing is judged."""

    now: int
    then: int
    limit: float | None
    alpha: float
    changes: list[Change] = field(default_factory=list)
    only_now: list[Place] = field(default_factory=list)
    only_then: list[Place] = field(default_factory=list)
    #: What differs in the environment, a line each.
    differences: list[str] = field(default_factory=list)

    @property
    def compared(self) -> list[Change]:
        """The changes of an overhead; the others are baselines, whose absolute figures stand beside."""
        return [change for change in self.changes if change.shift is not None]

    @property
    def regressions(self) -> list[Change]:
        return [change for change in self.changes if change.outcome == "fail"]


def compare(
    now: Sequence[Results],
    then: Sequence[Results],
    *,
    limit: float | None = None,
    alpha: float = 0.05,
    session: bool = False,
) -> Comparison:
    """Compare the overheads of runs now with those of runs then: the time, and metrics that have budgets now.

    `alpha` is the error rate of each verdict, or of all of them if it is that of the `session`. Whether the comparison
    means anything is said by `refusals`, which the caller asks first. Raises ValueError if a side has no run.
    """
    if not now or not then:
        raise ValueError(f"each side needs a run (got {len(now)} now and {len(then)} then)")
    metrics = compared_metrics(now)
    ours, theirs = ([_entries(results, metrics) for results in side] for side in (now, then))
    places = _places([*ours, *theirs])
    sides = [_by_place(side, places) for side in (ours, theirs)]
    shared = [place for place in sides[0] if place in sides[1]]
    judged = sum(any(known.entry.ratio is not None for known in sides[0][place].values()) for place in shared)
    level = alpha / max(1, judged) if session else alpha
    machines = [[results.environment.get("machine_id") for results in side] for side in (now, then)]
    return Comparison(
        len(now),
        len(then),
        limit,
        alpha,
        [_change(place, sides[0][place], sides[1][place], machines, limit, level) for place in shared],
        [place for place in sides[0] if place not in sides[1]],
        [place for place in sides[1] if place not in sides[0]],
        differences(now, then),
    )


# -- what a run says ---------------------------------------------------------------------------------------------------


class _Known(NamedTuple):
    entry: Entry
    unit: str
    reference: str


def compared_metrics(runs: Iterable[Results]) -> set[str]:
    """The time, and what has budgets in some run; the others say too little of a stack to be followed by themselves."""
    return {"seconds", *(metric for results in runs for metric in _judged(results))}


def _judged(results: Results) -> Iterator[str]:
    for chain in results.chains:
        for judgements in chain.judgements.values():
            yield from (each.budget.metric for each in judgements)


def _entries(results: Results, metrics: Collection[str]) -> dict[Place, _Known]:
    """What a run says, by place with its kernel and device; stacks that did not do the work say nothing."""
    found: dict[Place, _Known] = {}
    for chain in results.chains:
        for step in chain.steps:
            for stack, info in chain.stacks.items():
                if stack in chain.controls or chain.incomplete(step, stack):
                    continue
                for metric in metrics & chain.metrics(step).keys():
                    figure, known = chain.median(step, stack, metric), chain.metric(step, stack, metric)
                    if figure is None or known is None:
                        continue
                    name = name_of(chain, step, stack, metric, kind_of(chain, stack))
                    kernel = info.kernel or results.labels.get("kernel", "")
                    place = Place(test_of(chain), step, info.name, metric, name, kernel, chain.device)
                    ratio = _ratio(chain, step, stack, metric)
                    if place not in found or found[place].entry.ratio is None:
                        found[place] = _Known(Entry(figure, ratio), known.unit, chain.reference(stack))
    return found


def _ratio(chain: ChainResults, step: str, stack: str, metric: str) -> float | None:
    if stack == chain.reference(stack):
        return None
    if not chain.paired:
        # Boots of both sides are no pairs, so there are no ratios of rounds.
        estimate = chain.estimate(step, stack, metric)
        return log1p(estimate.overhead) if estimate and estimate.overhead > -1 else None
    ratios = list(chain.log_ratios(step, stack, metric).values())
    return typical(ratios) if ratios else None


def typical(ratios: Sequence[float]) -> float:
    """The median of the averages of all pairs of figures (Hodges & Lehmann). Raises ValueError if there are none."""
    if not ratios:
        raise ValueError("there are no figures")
    return median((one + other) / 2 for index, one in enumerate(ratios) for other in ratios[index:])


def _places(found: Iterable[Mapping[Place, _Known]]) -> Callable[[Place], Place]:
    """How places of different runs are matched: by kernel, and by device, only if some run has several."""
    by_kernel = by_device = False
    for entries in found:
        kernels: dict[tuple[str, str], set[str]] = {}
        devices: dict[tuple[str, str], set[str]] = {}
        for place in entries:
            kernels.setdefault((place.name, place.device), set()).add(place.kernel)
            devices.setdefault((place.name, place.kernel), set()).add(place.device)
        by_kernel = by_kernel or any(len(names) > 1 for names in kernels.values())
        by_device = by_device or any(len(names) > 1 for names in devices.values())
    return lambda place: place._replace(
        kernel=place.kernel if by_kernel else "", device=place.device if by_device else ""
    )


def _by_place(
    side: Iterable[Mapping[Place, _Known]], matched: Callable[[Place], Place]
) -> dict[Place, dict[int, _Known]]:
    """The entries of each run that has them, by the run's number on its side."""
    found: dict[Place, dict[int, _Known]] = {}
    for number, entries in enumerate(side):
        for place, known in entries.items():
            found.setdefault(matched(place), {})[number] = known
    return found


# -- judging -----------------------------------------------------------------------------------------------------------


def _change(
    place: Place,
    now: Mapping[int, _Known],
    then: Mapping[int, _Known],
    machines: Sequence[Sequence[str | None]],
    limit: float | None,
    alpha: float,
) -> Change:
    some = next(iter(now.values()))
    sides = ([known.entry for known in now.values()], [known.entry for known in then.values()])
    change = Change(place, some.unit, some.reference, *map(tuple, sides))  # type: ignore[arg-type]
    ours, theirs = ([each.ratio for each in side if each.ratio is not None] for side in sides)
    if not ours or not theirs:
        return change
    if min(len(ours), len(theirs)) >= runs.FEWEST:
        verdict = runs.judge(ours, theirs, limit, alpha) if limit is not None else None
        how = f"exact test of {len(ours)} against {len(theirs)} runs"
        if limit is not None and verdict is None:
            how = f"{len(ours)} against {len(theirs)} runs; at alpha {alpha:.3g} it takes {runs.fewest(alpha)} a side"
        found = runs.estimate(ours, theirs, alpha, around=limit or 0.0)
        return Change(*_of(change), found, verdict.outcome if verdict else None, how)
    here = _one([machines[0][number] for number in now])
    same = [number for number, known in then.items() if here and machines[1][number] == here]
    earlier = [ratio for number in same if (ratio := then[number].entry.ratio) is not None]
    if len(ours) < runs.FEWEST and len(earlier) >= spread.FEWEST_EARLIER:
        verdict = spread.judge(ours, earlier, limit, alpha) if limit is not None else None
        how = f"{_runs(len(ours))} against the spread of {len(earlier)} earlier ones of this machine"
        kept = tuple(then[number].entry for number in same)
        found = spread.estimate(ours, earlier, alpha)
        return Change(
            place, some.unit, some.reference, change.now, kept, found, verdict.outcome if verdict else None, how
        )
    if len(ours) == len(theirs) == 1:
        return Change(*_of(change), how=ONE_EACH)
    of_this = f" ({len(earlier)} of this machine)" if len(earlier) < len(theirs) else ""
    how = (
        f"{_runs(len(ours))} against {len(theirs)}{of_this}: a verdict takes {runs.FEWEST} a side, or one against "
        f"{spread.FEWEST_EARLIER} earlier ones of the same machine"
    )
    return Change(*_of(change), how=how)


def _of(change: Change) -> tuple[Place, str, str, tuple[Entry, ...], tuple[Entry, ...]]:
    return change.place, change.unit, change.reference, change.now, change.then


def _one(machines: Sequence[str | None]) -> str | None:
    """The machine of some runs, if it is one that is known."""
    return machines[0] if len(set(machines)) == 1 else None


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"


# -- what differs ------------------------------------------------------------------------------------------------------

#: Of the environment, what differs between any two runs, and what is refused and said by itself.
_PASSING = ("date", "load", "kernel.version", "corpus", "kernels")


def refusals(now: Sequence[Results], then: Sequence[Results]) -> list[str]:
    """What makes a comparison of these runs meaningless, a sentence each; nothing if it may be made."""
    # Those that ended early did so in the middle of a plan, perhaps because of what they had measured.
    early = [f"a run was ended early ({each.interrupted})" for each in (*then, *now) if each.interrupted]
    return list(dict.fromkeys([*early, *(reason for old in then for new in now for reason in unlike(new, old))]))


def unlike(now: Results, then: Results) -> list[str]:
    """What makes a comparison of two runs meaningless; what is not known of one of them is no reason."""
    found = []
    scales = (then.scale, now.scale)
    if all(scales) and len(set(scales)) > 1:
        found.append("the scale was {} and is {}".format(*scales))
    devices = (_devices(then), _devices(now))
    if all(devices) and devices[0] != devices[1]:
        found.append("the device was {} and is {}".format(*(", ".join(sorted(each)) for each in devices)))
    corpora = [results.environment.get("corpus") for results in (then, now)]
    if all(corpora) and corpora[0] != corpora[1]:
        found.append("the corpus was {} and is {}".format(*map(_value_text, corpora)))
    chains = [
        {(test_of(chain), kind): chain for chain in results.chains for kind in [bool(chain.against)]}
        for results in (then, now)
    ]
    for key, ours in chains[1].items():
        if theirs := chains[0].get(key):
            found += _differing(theirs, ours)
    return list(dict.fromkeys(found))


def _differing(then: ChainResults, now: ChainResults) -> Iterator[str]:
    """Steps that were asked to do other work, and stacks that have another reference."""
    for step in now.steps:
        works = (then.work.get(step), now.work.get(step))
        if all(works) and works[0] != works[1]:
            changed = [f"{name}: {_value_text(a)} and {_value_text(b)}" for name, a, b in _unequal(*map(_flat, works))]
            yield f"{step} was asked for other work ({', '.join(changed)})"
    references = [
        {
            info.name: chain.stacks[ref].name
            for stack, info in chain.stacks.items()
            if (ref := chain.reference(stack)) in chain.stacks
        }
        for chain in (then, now)
    ]
    for name, before, after in _unequal(*references):
        if name in references[0] and name in references[1]:
            yield f"{name} was compared with {before} and is with {after}"


def differences(now: Sequence[Results], then: Sequence[Results]) -> list[str]:
    """What differs in the environment and in the stacks, a line each: ``kernel.release: 6.1 -> 6.12``.

    What one side knows nothing of at all, such as its memory, is no difference; stacks on one side only are said by
    `compare`.
    """
    sides = []
    for side in (then, now):
        values: dict[str, dict[str, None]] = {}
        for results in side:
            for name, value in {**_environment(results.environment), **_stacks(results)}.items():
                values.setdefault(name, {})[_value_text(value)] = None
        sides.append({name: ", ".join(shown) for name, shown in values.items()})
    known = set.intersection(*({_group(name) for name in side} for side in sides))
    return [f"{name}: {before} -> {after}" for name, before, after in _unequal(*sides) if _group(name) in known]


def _group(name: str) -> str:
    return name if name.startswith("stack.") else name.partition(".")[0]


def _environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    found = _flat({name: value for name, value in environment.items() if name != "devices"})
    for number, device in enumerate(environment.get("devices", ())):
        words = {name: value for name, value in device.items() if name != "model"}
        found.update((f"devices.{number}.{name}", value) for name, value in _flat(words).items())
    for name, own in (environment.get("kernels") or {}).items():
        found.update((f"{name}: {key}", value) for key, value in _environment(own).items())
    return {name: value for name, value in found.items() if not any(_is(name, passing) for passing in _PASSING)}


def _is(name: str, passing: str) -> bool:
    return name.rpartition(": ")[2] == passing or name.rpartition(": ")[2].startswith(f"{passing}.")


def _stacks(results: Results) -> dict[str, str]:
    return {f"stack.{info.name}": info.spec for chain in results.chains for info in chain.stacks.values()}


def _devices(results: Results) -> set[str]:
    """Kind and model of each device; a path says nothing, as it may change with every start."""
    return {
        f"{_kind(device['spec'])} ({device.get('model', 'of no known model')})"
        for device in results.environment.get("devices", ())
    }


def _kind(spec: str) -> str:
    return "a directory" if spec.startswith("dir:") else "a disk" if spec.startswith("/") else spec


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested dictionaries and lists as one, with the names of all levels joined by dots."""
    inner = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else None
    )
    if inner is None:
        return {name: value}
    found: dict[str, Any] = {}
    for key, each in inner:
        found.update(_flat(each, f"{name}.{key}" if name else str(key)))
    return found


def _unequal(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = dict.fromkeys([*before, *after])
    return [
        (name, before.get(name, "nothing"), after.get(name, "nothing"))
        for name in names
        if before.get(name, "nothing") != after.get(name, "nothing")
    ]


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping) and {"name", "files", "bytes"} <= value.keys():
        return f"{value['name']} ({value['files']} files, {value['bytes']} bytes)"
    return str(value)
