"""Each bug and the scenario that notices it: ``python -m tests.real.mutants [--only=NAME,...] [--controls=20]``."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.real.mutants.campaign import SCENARIOS, Noticed, notice
from tests.real.mutants.layer import Bug, bugs, compiled


def main() -> int:
    """Return 1 if a control was not clean, or more than one bug of twenty was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="names or classes of bugs, with commas between")
    parser.add_argument(
        "--scenarios", default=",".join(SCENARIOS), help="scenarios or their tests, with commas between"
    )
    parser.add_argument("--controls", type=int, default=0, help="runs without a bug")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    chosen = [bug for bug in bugs() if not arguments.only or {bug.name, bug.kind} & {*arguments.only.split(",")}]
    compiled()
    scenarios = arguments.scenarios.split(",")

    def measure(bug: Bug | None) -> Noticed | None:
        start = time.monotonic()
        noticed = notice(bug, scenarios, scale=arguments.scale, seed=arguments.seed)
        name, kind = (bug.name, bug.kind) if bug else ("control", "")
        text = (
            f"{noticed.scenario} {noticed.step}, {noticed.calls} calls: {noticed.words}" if noticed else "not noticed"
        )
        print(f"{name:20} {kind:12} {time.monotonic() - start:4.0f} s  {text}", flush=True)
        return noticed

    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = dict(zip(chosen, pool.map(measure, chosen)))
        controls = list(pool.map(measure, [None] * arguments.controls))
    return summarize(results, controls)


def summarize(results: dict[Bug, Noticed | None], controls: list[Noticed | None]) -> int:
    """Print the bugs noticed by class, the lengths of counterexamples and the controls."""
    missed = [bug for bug, noticed in results.items() if not noticed]
    totals, lost = Counter(bug.kind for bug in results), Counter(bug.kind for bug in missed)
    for kind, total in totals.items():
        names = ", ".join(bug.name for bug in missed if bug.kind == kind)
        print(f"{kind:12} {total - lost[kind]} of {total}{': not ' if names else ''}{names}")
    lengths = [noticed.calls for noticed in results.values() if noticed and noticed.calls]
    if lengths:
        print(f"counterexamples: {statistics.median(lengths):g} calls in the median, at most {max(lengths)}")
    clean = len(controls) - sum(map(bool, controls))
    print(f"noticed {len(results) - len(missed)} of {len(results)}, controls clean {clean} of {len(controls)}")
    return int(clean < len(controls) or len(missed) * 20 > len(results))


if __name__ == "__main__":
    sys.exit(main())
