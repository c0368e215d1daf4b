"""The CPU time of all reports of a large session, as a share of what an earlier build of the project takes.

    python -m benchmarks reports [rounds]

The session has 40 stacks, 12 steps and 80 rounds by default, with a budget on each. Both builds write all reports in
one process each. The earlier build is checked out from the repository's history.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.earlier import COMMIT, ROOT, earlier_tree, run_in

#: The largest share of the CPU time of the earlier build.
SHARE = 0.4
STACKS, STEPS, ROUNDS = 40, 12, 80

_PROGRAM = """
import random, time
stacks, steps, rounds = map(int, sys.argv[1:])
from math import exp
from pytest_fsstack.report import BUILT_IN, terminal
from pytest_fsstack.report.layouts import BUILT_IN as LAYOUTS
try:
    from pytest_fsstack.judging.judge import judge_all
    from pytest_fsstack.judging.readings import settle
    from pytest_fsstack.records.budget import Budget
    from pytest_fsstack.records.results import ChainResults, Results, StackInfo
    from pytest_fsstack.records.sample import Sample
    from pytest_fsstack.records.verdicts import Looks
    devices = ["loop"]
except ImportError:
    from pytest_fsstack.judging.budget import Budget
    from pytest_fsstack.judging.results import ChainResults, Results, StackInfo
    from pytest_fsstack.judging.sample import Sample
    from pytest_fsstack.judging.verdict import Looks
    judge_all, settle, devices = ChainResults.judge_all, lambda results: results, "loop"

rng, names = random.Random(1), ["ext4", *(f"stack{number}" for number in range(1, stacks))]
chain = ChainResults("test_it.py::TestIt", devices, "ext4", Looks(), 1, steps=[f"step{n}" for n in range(steps)])
chain.stacks = {name: StackInfo(name, name) for name in names}
factors = {(step, name): exp(rng.gauss(0.2, 0.1)) for step in chain.steps for name in names}
for number in range(rounds):
    chain.orders.append(rng.sample(names, stacks))
    for (step, name), factor in factors.items():
        seconds = (1 if name == "ext4" else factor) * exp(rng.gauss(0, 0.05))
        values = {"seconds": seconds, "user_seconds": seconds / 3, "system_seconds": seconds / 2}
        values |= {"cpu_seconds": seconds / 1.2, "machine_seconds": seconds, "written_bytes": 1e6 * seconds}
        values |= {"used_bytes": 1e6, "throughput": 1e8 / seconds}
        chain.add(step, name, Sample(values), number)
for step, name in factors:
    if name != "ext4":
        judge_all(chain, step, name, Budget(overhead=0.3))
results = Results({}, [chain])
results.table_layouts = LAYOUTS
start = time.process_time()
results = settle(results)
terminal.answer_lines(results)
terminal.lines(results, results.chains[0])
for report in BUILT_IN.values():
    report(results)
print(time.process_time() - start)
"""


def main(words: Sequence[str]) -> int:
    """Print both CPU times. Return 1 if the target is missed."""
    rounds = int(words[0]) if words else ROUNDS
    with earlier_tree() as tree:
        earlier, now = (float(run_in(place, _PROGRAM, STACKS, STEPS, rounds)) for place in (tree, ROOT))
    print(f"{STACKS} stacks, {STEPS} steps, {rounds} rounds: all reports take {now:.1f} s of CPU time")
    print(f"the build {COMMIT} takes {earlier:.1f} s: {now / earlier:.2f} of it, at most {SHARE} wanted")
    return int(now > SHARE * earlier)
