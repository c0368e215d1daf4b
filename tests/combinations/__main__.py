"""Draw projects for some time, and print the first one that breaks a rule, shrunk, as files.

Each seed draws the same projects. `--known=PATTERN` goes on after a failure that is known.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed as seeded, settings
from hypothesis.errors import Flaky

from tests.combinations import oracle
from tests.combinations.projects import Project, projects
from tests.combinations.sessions import Place, Ran
from tests.sessions import in_memory

#: Projects that are drawn from one seed. A failing one is shrunk before the next seed.
BATCH = 30
#: Seconds for shrinking one.
SHRINKING = 45.0


@dataclass
class Tally:
    """What was drawn, and what did not hold."""

    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)


class RuleError(AssertionError):
    """A project that breaks a rule: the rule, and the evidence with the files."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule


def check(project: Project, place: Place, tally: Tally, known: Sequence[str] = ()) -> None:
    """Run the sessions of a project. Raises AssertionError with the first rule that it breaks."""
    with place.project(project) as path:
        standin = place.standin(project, path)
        ran = place.real(project, path)
        again = place.again(project, path) if project.ends in ("--sw", "--lf") else None
        tally.counts += _features(project, ran)
        for broken in oracle.rules(project, standin, ran, again):
            if not any(re.search(pattern, "\n".join(broken)) for pattern in known):
                files = {
                    **project.files(place.below),
                    "command": f"pytest {' '.join([*project.common_words, *project.words(place.below)])}",
                }
                text = "\n".join(f"--- {name}\n{content}" for name, content in files.items())
                raise RuleError(broken.rule, f"{broken.rule}\n{broken.evidence}\n{text}")


def _features(project: Project, ran: Ran) -> Counter[str]:
    counts = Counter({"projects": 1, "tests": len(ran.terminal), f"exit {ran.code}": 1})
    counts.update({name: 1 for name in ("strict", "ends", "order", "broken", "workers") if getattr(project, name)})
    counts.update(outcome for outcomes in ran.terminal.values() for outcome in outcomes)
    return counts


def draw(seed: str, seconds: float, most: float = math.inf, known: Sequence[str] = (), device: str = "") -> Tally:
    """Check projects from a seed, until the time is over or there are enough. Without a device, it is a directory."""
    tally, deadline = Tally(), time.monotonic() + seconds
    with in_memory() as directory:
        (directory / "device").mkdir()
        place = Place(directory, device or f"dir:{directory}/device")
        numbers = random.Random(seed)
        while time.monotonic() < deadline and tally.counts["projects"] < most:
            count = int(min(BATCH, most - tally.counts["projects"]))
            if complaint := _batch(numbers.randrange(2**32), count, deadline, place, tally, known):
                tally.complaints.append(complaint)
                print(complaint, "=" * 100, sep="\n", flush=True)
    return tally


def _batch(number: int, count: int, deadline: float, place: Place, tally: Tally, known: Sequence[str]) -> str:
    """Check projects from one seed. Return the complaint about the first that fails, shrunk."""
    errors: dict[Project, RuleError] = {}
    over: list[float] = []

    @seeded(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(projects())
    def batch(project: Project) -> None:
        if project not in errors and time.monotonic() < (over[0] if over else deadline):
            try:
                check(project, place, tally, known)
            except RuleError as error:
                over[:] = over or [time.monotonic() + SHRINKING]
                errors[project] = error
        # A smaller project that breaks another rule is not the same failure.
        if (known_error := errors.get(project)) and known_error.rule == next(iter(errors.values())).rule:
            raise RuleError(known_error.rule, str(known_error))

    try:
        batch()
    except RuleError as error:
        return str(error)
    except Flaky as error:
        if not errors:
            raise
        return f"{error}\n{next(iter(errors.values()))}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.combinations", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="draw the same projects again")
    parser.add_argument("--processes", type=int, default=2, help="how many sessions run at a time (default: 2)")
    parser.add_argument(
        "--loops", type=int, default=0, metavar="N", help="then run N projects on loop devices, as root"
    )
    parser.add_argument(
        "--known", action="append", default=[], help="a regular expression of failures to go on after; repeat it"
    )
    words = parser.parse_args()
    if words.loops and os.geteuid():
        parser.error("--loops needs root")
    seed = random.randrange(2**32) if words.seed is None else words.seed
    print(f"--seed={seed}", flush=True)
    started, total = time.monotonic(), Tally()
    seeds = [f"{seed} {number}" for number in range(words.processes)]
    with ProcessPoolExecutor(words.processes) as pool:
        jobs = [pool.submit(draw, one, words.seconds, math.inf, words.known) for one in seeds]
        if words.loops:
            share = math.ceil(words.loops / words.processes)
            jobs += [pool.submit(draw, one, math.inf, share, words.known, "loop") for one in seeds]
        for job in jobs:
            total.counts += job.result().counts
            total.complaints += job.result().complaints
    minutes = (time.monotonic() - started) / 60
    print(", ".join(f"{count} {name}" for name, count in sorted(total.counts.items())))
    print(f"{total.counts['projects'] / minutes:.0f} projects a minute, {len(total.complaints)} broke a rule")
    return 1 if total.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
