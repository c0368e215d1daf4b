"""The results of a session as JSON: one form for workers, reports, comparisons and later sessions.

`dump` and `load` are inverses. Verdicts, medians and overheads are written for other programs, and are reached again
from the samples when the results are read. The fields are described in docs/results.md, and exactly by `schema`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from pytest_fsstack.judging import shape
from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.carry_over import CarryOver
from pytest_fsstack.judging.conditions import Discarded
from pytest_fsstack.judging.repetition import Repetition
from pytest_fsstack.judging.results import ChainResults, Confirmation, Results, StackInfo, TestOutcome
from pytest_fsstack.judging.sample import METRICS, Metric, Sample
from pytest_fsstack.judging.series import kind_of, name_of
from pytest_fsstack.judging.verdict import Estimate, Looks

#: Raised whenever a reader of the old form would misread the new one.
FORMAT = 3
#: Older forms that are read as well. 2 had no session, no series and no work.
_READ = (2, FORMAT)


class FormatError(ValueError):
    """What was read is not the results of a session, or of a version that is not known here."""


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what `dumps` writes."""
    text = resources.files("pytest_fsstack.judging").joinpath("results.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@functools.cache
def _schema() -> dict[str, Any]:
    return schema()


def dump(results: Results) -> dict[str, Any]:
    """All that is known, as JSON takes it; rounds are counted from 1, an open end of an interval is None."""
    return {
        "format": FORMAT,
        "interrupted": results.interrupted or None,
        "session": {
            "start": results.start or None,
            "stop": results.stop or None,
            "scale": results.scale or None,
            "labels": results.labels,
        },
        "environment": results.environment,
        "chains": [_chain(chain) for chain in results.chains],
        "tests": [dataclasses.asdict(test) for test in results.tests.values()],
    }


def load(content: object) -> Results:
    """The results that `dump` wrote. Raises `FormatError`."""
    found = content.get("format") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(found, int):
        raise FormatError("these are not results of pytest-fsstack: there is no number under 'format'")
    if found not in _READ:
        which = "a newer" if found > FORMAT else "an older"
        raise FormatError(f"these results are of {which} pytest-fsstack: their format is {found}, this one's {FORMAT}")
    if wrong := shape.problem({**content, "format": FORMAT}, _schema()):
        raise FormatError(f"these results are damaged: {wrong}")
    try:
        environment, session = dict(content["environment"]), content["session"] if found == FORMAT else {}
        chains = [_read_chain(chain, environment.get("kernels") or {}) for chain in content["chains"]]
        return Results(
            environment,
            chains,
            content["interrupted"] or "",
            start=session.get("start") or "",
            stop=session.get("stop") or "",
            scale=session.get("scale") or "",
            labels=dict(session.get("labels") or {}),
            tests={test["id"]: _read(TestOutcome, test) for test in content.get("tests", [])},
        )
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"these results are damaged: {type(error).__name__}: {error}") from None


def dumps(results: Results) -> str:
    """`dump` as text. What JSON has no number for in the environment is null."""
    return json.dumps(_finite(dump(results)), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def line(results: Results) -> str:
    """`dump` as one line of ASCII without its end, which `loads` reads too."""
    return json.dumps(_finite(dump(results)), allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Results:
    """The results that `dumps` or `line` wrote. Raises `FormatError`."""
    try:
        return load(json.loads(text))
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        # Besides what is no JSON: numbers of thousands of digits, a thousand lists in each other.
        raise FormatError(f"these are not results of pytest-fsstack: no JSON: {error}") from None


def facts(chain: ChainResults, step: str, stack: str) -> dict[str, Any]:
    """What is known of a step on a stack, for records of other programs; empty if nothing was measured."""
    if not chain.of(step, stack):
        return {}
    known = _step(chain, step, stack)
    del known["kept"]
    return {
        "stack": chain.stacks[stack].spec,
        "device": chain.device,
        "baseline": chain.baseline,
        "seed": chain.seed,
        **known,
    }


def flat(known: Mapping[str, Any], *, full: bool = True) -> list[tuple[str, object]]:
    """Return the same as name and value pairs, without the samples, for JUnit's properties.

    If not `full`, they are the verdict, the rounds, the seconds, and the overheads that have a budget.
    """
    pairs = [(name, known[name]) for name in (_OF_TEST if full else _OF_TEST[-3:])]
    pairs.append(("rounds", len(known["rounds"])))
    judged = {budget["metric"] for budget in known["budgets"]} or {"seconds"}
    for name, metric in known["metrics"].items():
        if full or name in {"seconds", *judged}:
            pairs.append((name, metric["median"]))
        if full:
            pairs.append((f"{name}_unit", metric["unit"] or None))
        if full or name in judged:
            parts = _OF_OVERHEAD if full else _OF_OVERHEAD[:3]
            pairs += [(f"{name}_{part}", metric.get("overhead", {}).get(part)) for part in parts]
    for budget in known["budgets"]:
        pairs += [(f"{budget['metric']}_{kind}", budget[key]) for kind, key in _BUDGET_KINDS if key in budget]
    return [(name, value) for name, value in pairs if value is not None]


_OF_TEST = ("stack", "device", "baseline", "seed", "doubt", "verdict", "incomplete")
_OF_OVERHEAD = ("estimate", "low", "high", "confidence")
_BUDGET_KINDS = (("budget", "overhead"), ("limit", "limit"))


def _chain(chain: ChainResults) -> dict[str, Any]:
    return {
        "id": chain.id,
        "device": chain.device,
        "kernel": chain.kernel or None,
        "boots": chain.boots,
        "paired": chain.paired,
        "confirmation": vars(chain.confirmation) if chain.confirmation else None,
        "baseline": chain.baseline,
        "against": chain.against,
        "controls": chain.controls,
        "seed": chain.seed,
        "looks": {
            "rounds": chain.looks.rounds,
            "alpha": chain.looks.alpha,
            "confidence": chain.looks.confidence,
        },
        "budgets_sharing": chain.budgets_sharing,
        "rounds": chain.rounds,
        "orders": chain.orders,
        "conditions": [dict(each) for each in chain.conditions],
        "discarded": [_discarded(each) for each in chain.discarded],
        "remarks": chain.remarks,
        "carry_over": [vars(carry) for carry in chain.carry_over],
        "tables": [{"name": name, "options": options} for name, options in chain.tables],
        "stacks": {
            stack.id: {
                "spec": stack.spec,
                "name": stack.name,
                "kernel": stack.kernel or None,
                "reference": chain.reference(stack.id),
                "mounts": stack.mounts,
                "tools": {path: version or None for path, version in stack.tools.items()},
                "commands": stack.commands,
            }
            for stack in chain.stacks.values()
        },
        "steps": [
            {
                "name": step,
                "work": chain.work.get(step),
                "group": chain.groups.get(step),
                "repeated": vars(chain.repeated[step]) if step in chain.repeated else None,
                "stacks": {stack: _step(chain, step, stack) for stack in chain.stacks},
            }
            for step in chain.steps
        ],
    }


def _discarded(each: Discarded) -> dict[str, Any]:
    """A round that counts for nothing, with its samples."""
    return {
        "place": each.place + 1,
        "rule": each.rule,
        "order": each.order,
        "conditions": dict(each.conditions),
        "samples": [
            {
                "step": step,
                "stack": stack,
                "metrics": {name: [sample.values[name], *_kind(sample.metrics[name])] for name in sample.values},
                "kept": dict(sample.kept),
                "incomplete": sample.incomplete,
                "repetitions": sample.repetitions,
            }
            for (step, stack), sample in each.samples.items()
        ],
    }


def _kind(metric: Metric) -> list[str | float]:
    return [metric.unit, metric.better, metric.resolution]


def _read_discarded(content: dict[str, Any]) -> Discarded:
    samples = {}
    for each in content["samples"]:
        values = {name: _read_figure(name, found[0]) for name, found in each["metrics"].items()}
        metrics = {**METRICS, **{name: Metric(name, *found[1:]) for name, found in each["metrics"].items()}}
        sample = Sample(values, metrics, each["kept"], each["incomplete"], each["repetitions"])
        samples[each["step"], each["stack"]] = sample
    return Discarded(content["place"] - 1, content["rule"], content["order"], content["conditions"], samples)


def _step(chain: ChainResults, step: str, stack: str) -> dict[str, Any]:
    """A step on a stack: `rounds` says of which round each of the samples is, and each of what was kept."""
    samples = dict(sorted(chain.of(step, stack).items()))
    names = dict.fromkeys(name for sample in samples.values() for name in sample.values)
    return {
        "note": chain.notes.get((step, stack)),
        "verdict": chain.worst(step, stack),
        "doubt": chain.doubt(step, stack) or None,
        "incomplete": chain.incomplete(step, stack) or None,
        "incomplete_rounds": {str(at + 1): sample.incomplete for at, sample in samples.items() if sample.incomplete},
        "budgets": [
            {
                **_budget(each.budget),
                "verdict": each.outcome,
                "decided_after": each.final.decided_after if each.final else None,
                "text": each.text,
            }
            for each in chain.judgements.get((step, stack), [])
        ],
        "rounds": [at + 1 for at in samples],
        "repetitions": [sample.repetitions for sample in samples.values()],
        "metrics": {name: _metric(chain, step, stack, name, samples) for name in names},
        "kept": [dict(sample.kept) for sample in samples.values()],
    }


def _metric(chain: ChainResults, step: str, stack: str, name: str, samples: Mapping[int, Sample]) -> dict[str, Any]:
    metric = next(sample.metrics[name] for sample in samples.values() if name in sample.values)
    estimate = chain.estimate(step, stack, name)
    return {
        "series": name_of(chain, step, stack, name),
        "unit": metric.unit,
        "better": metric.better,
        "resolution": metric.resolution,
        "median": statistics.median(chain.series(step, stack, name)),
        "samples": [sample.values.get(name) for sample in samples.values()],
        **(
            {}
            if estimate is None
            else {
                "overhead": {
                    "series": name_of(chain, step, stack, name, kind_of(chain, stack)),
                    "reference": chain.reference(stack),
                    **_interval(estimate),
                }
            }
        ),
    }


def _budget(budget: Budget) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(budget).items() if value is not None}


def _interval(estimate: Estimate) -> dict[str, float | int | None]:
    return {
        "estimate": estimate.overhead,
        "low": estimate.low,
        "high": estimate.high if math.isfinite(estimate.high) else None,
        "confidence": estimate.confidence,
        "rounds": estimate.rounds,
    }


def _read_chain(content: dict[str, Any], kernels: Iterable[str]) -> ChainResults:
    chain = ChainResults(
        id=content["id"],
        device=content["device"],
        baseline=content["baseline"],
        looks=_read(Looks, content["looks"]),
        seed=content["seed"],
        orders=content["orders"],
        conditions=content["conditions"],
        discarded=[_read_discarded(each) for each in content["discarded"]],
        remarks=content["remarks"],
        carry_over=[_read(CarryOver, carry) for carry in content.get("carry_over", [])],
        kernel=content["kernel"] or "",
        against=content["against"],
        controls=content.get("controls", []),
        boots=content["boots"],
        paired=content["paired"],
        budgets_sharing=content.get("budgets_sharing", 0),
        confirmation=_read(Confirmation, content["confirmation"]) if content.get("confirmation") else None,
        tables=[(table["name"], table["options"]) for table in content["tables"]],
        stacks={name: _read_stack(name, stack, kernels) for name, stack in content["stacks"].items()},
        steps=[step["name"] for step in content["steps"]],
        groups={step["name"]: step["group"] for step in content["steps"] if step["group"] is not None},
        work={step["name"]: step["work"] for step in content["steps"] if step.get("work")},
        repeated={
            step["name"]: _read(Repetition, step["repeated"]) for step in content["steps"] if step.get("repeated")
        },
    )
    places = [(step["name"], stack, known) for step in content["steps"] for stack, known in step["stacks"].items()]
    for step, stack, known in places:
        if samples := _read_samples(known):
            chain.samples[step, stack] = samples
        if known["note"] is not None:
            chain.notes[step, stack] = known["note"]
    for step, stack, known in places:
        if known["budgets"]:
            # Only now, when there are the samples of the stack that it is compared with.
            budgets = [_read_budget(budget) for budget in known["budgets"]]
            chain.judgements[step, stack] = [chain.judge(step, stack, budget) for budget in budgets]
    return chain


def _read_budget(content: Mapping[str, Any]) -> Budget:
    budget: Budget = _read(Budget, content)
    if (budget.overhead is None) == (budget.limit is None):
        raise ValueError(f"a budget for {budget.metric} needs an overhead or a limit, and one only")
    return budget


def _read_stack(name: str, content: Mapping[str, Any], kernels: Iterable[str]) -> StackInfo:
    """A stack; of format 2, which said it in the id only, the kernel is found there."""
    kernel = content["kernel"] if "kernel" in content else next((k for k in kernels if name.endswith(f":{k}")), None)
    tools = {path: version or "" for path, version in content.get("tools", {}).items()}
    return StackInfo(name, content["spec"], content["mounts"], kernel or "", tools, content.get("commands", []))


def _read_samples(known: dict[str, Any]) -> dict[int, Sample]:
    metrics = {
        name: Metric(name, metric["unit"], metric["better"], metric["resolution"])
        for name, metric in known["metrics"].items()
    }
    found = {}
    repetitions = known.get("repetitions") or [1] * len(known["rounds"])
    for index, (number, kept) in enumerate(zip(known["rounds"], known["kept"], strict=True)):
        figures = ((name, metric["samples"][index]) for name, metric in known["metrics"].items())
        values = {name: _read_figure(name, figure) for name, figure in figures if figure is not None}
        defined = {**METRICS, **{name: metrics[name] for name in values}}
        incomplete = known["incomplete_rounds"].get(str(number), "")
        found[number - 1] = Sample(values, defined, kept, incomplete, repetitions[index])
    return found


def _read_figure(name: str, figure: float) -> float:
    if figure < 0:
        raise ValueError(f"a figure must be 0 or more (got {figure} as {name})")
    return figure


def _read(kind: type[Any], content: Mapping[str, Any]) -> Any:
    """A dataclass from its fields; what else is there was written for other programs."""
    names = [each.name for each in dataclasses.fields(kind) if each.name in content]
    return kind(**{name: tuple(each) if isinstance(each := content[name], list) else each for name in names})


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
