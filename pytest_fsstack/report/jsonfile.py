"""Everything that is known, for programs and for later sessions."""

from __future__ import annotations

import json
import math
from typing import Any

from pytest_fsstack import results
from pytest_fsstack.results import Chain, Results

#: Raised whenever a reader of the old form would misread the new one.
FORMAT = 1


def report(found: Results) -> str:
    """All samples in order, with their verdicts, orders, mounts and notes, and the environment.

    Rounds are counted from 1. A figure that JSON has no number for (an open end of an interval) is null.
    """
    content = {
        "format": FORMAT,
        "environment": found.environment,
        "chains": [_chain(chain) for chain in found.chains],
    }
    return json.dumps(_finite(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _chain(chain: Chain) -> dict[str, Any]:
    return {
        "id": chain.id,
        "device": chain.device,
        "baseline": chain.baseline,
        "seed": chain.seed,
        "looks": list(chain.looks.rounds),
        "alpha": chain.looks.alpha,
        "confidence": chain.looks.confidence,
        "rounds": chain.rounds,
        "orders": chain.orders,
        "remarks": chain.remarks,
        "stacks": {arm.id: {"spec": arm.spec, "mounts": arm.mounts} for arm in chain.arms.values()},
        "steps": [
            {
                "name": step,
                "group": chain.groups.get(step),
                "stacks": {arm: _step(chain, step, arm) for arm in chain.arms},
            }
            for step in chain.steps
        ],
    }


def _step(chain: Chain, step: str, arm: str) -> dict[str, Any]:
    """The facts of a step on a stack; `rounds` says of which round each sample is, and what was kept."""
    samples = dict(sorted(chain.of(step, arm).items()))
    known = results.facts(chain, step, arm)
    return {
        "note": chain.notes.get((step, arm)),
        "verdict": known.get("verdict"),
        "incomplete": known.get("incomplete"),
        "budgets": known.get("budgets", []),
        "rounds": [index + 1 for index in samples],
        "metrics": {
            name: {**metric, "samples": [sample.values.get(name) for sample in samples.values()]}
            for name, metric in known.get("metrics", {}).items()
        },
        "kept": [dict(sample.kept) for sample in samples.values()],
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
