"""Agreement of the judge with that of an earlier build, on random chains.

    python -m benchmarks agreement [chains [seed]]

Both builds judge the same chains by the same plan, which is that of the earlier one: looks after 8, 16, ..., 80 rounds,
or a single look. There are rounds of one or several boots, lost rounds, incomplete work, discarded rounds, several
metrics, budgets of all kinds, and fresh rounds that confirm a failure. Compared are all estimates, verdicts, outcomes,
and effects of the previous run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from benchmarks.earlier import COMMIT, ROOT, earlier_tree, run_in

CHAINS = 2000

_PROGRAM = """
import json, random
from math import exp, isfinite
import msgspec
try:
    from pytest_fsstack.judging import judge as judging
    from pytest_fsstack.judging.readings import Readings
    from pytest_fsstack.records.budget import Budget
    from pytest_fsstack.records.results import ChainResults, Confirmation, StackInfo
    from pytest_fsstack.records.sample import Metric, Sample
    from pytest_fsstack.records.verdicts import Looks
    devices = ["loop"]
    judge_all, find_carry_over = judging.judge_all, judging.find_carry_over
    readings_of = Readings
    add = ChainResults.add
except ImportError:
    from pytest_fsstack.judging.budget import Budget
    from pytest_fsstack.judging.results import ROUNDS_OF_A_BOOT, ChainResults, Confirmation, StackInfo
    from pytest_fsstack.judging.sample import Metric, Sample
    from pytest_fsstack.judging.verdict import Looks
    devices = "loop"
    judge_all, find_carry_over = ChainResults.judge_all, ChainResults.find_carry_over
    readings_of = lambda chain: chain
    add = lambda chain, step, stack, sample, number, boot: chain.add(
        step, stack, sample, boot * ROUNDS_OF_A_BOOT + number
    )

OWN = Metric("items", "1/s", "higher")
METRICS = ("seconds", "cpu_seconds", "written_bytes", "throughput", "items", "missing")

def chain_of(rng):
    stacks = ["ext4", *(f"stack{number}" for number in range(rng.randint(1, 4)))]
    steps = [f"step{number}" for number in range(rng.randint(1, 3))]
    boots = rng.choice((1, 1, 1, 2, 4, 8))
    rounds = rng.randint(1, 80) if boots == 1 else rng.randint(1, 4)
    alpha = rng.choice((0.05, 0.05, 0.01, 0.2))
    # The usual plans of the builds differ, so both get that of the earlier one.
    planned = Looks(tuple(range(8, 81, 8)), alpha)
    looks = rng.choice((planned, Looks.fixed(rounds, alpha))) if boots == 1 else Looks.fixed(boots, alpha)
    chain = ChainResults("test_it.py::TestIt", devices, "ext4", looks, rng.randrange(1000), steps=steps)
    chain.stacks = {name: StackInfo(name, name) for name in stacks}
    chain.boots, chain.paired = boots, boots == 1 or rng.random() < 0.5
    if boots == 1 and rounds > 24 and rng.random() < 0.4:
        chain.confirmation = Confirmation(rng.randrange(8, rounds - 7), rng.choice((0.05, 0.01, 0.001)))
    if rng.random() < 0.2:
        chain.controls = stacks[-1:]
    noise, lost, broken = rng.choice((0.0, 0.01, 0.05, 0.3)), rng.choice((0, 0, 0.1)), rng.choice((0, 0, 0, 0.002))
    scale = rng.choice((1.0, 1e-6, 1e-3))
    shift = {stack: rng.gauss(0.2, 0.3) for stack in stacks[1:]}
    own = rng.random() < 0.7
    for number in range(rounds):
        chain.orders.append(rng.sample(stacks, len(stacks)))
        chain.conditions.append({})
        for boot in range(boots):
            for step in steps:
                for stack in stacks:
                    if rng.random() < lost:
                        continue
                    cost = scale * exp(shift.get(stack, 0.0) + rng.gauss(0, noise))
                    values = {"seconds": cost, "cpu_seconds": round(cost / 2, 3), "throughput": 1e8 / cost}
                    values["written_bytes"] = float(rng.choice((0, 4096)) if scale < 1 else 4096 * round(1000 * cost))
                    if own and (stack == "ext4" or rng.random() < 0.95):
                        values["items"] = float(round(10 / cost)) if scale == 1 else 1 / cost
                    reason = "it stopped" if rng.random() < broken else ""
                    sample = Sample(values, {"items": OWN} if own else {}, incomplete=reason)
                    add(chain, step, stack, sample, number, boot)
        if boots == 1 and rng.random() < 0.03 and number + 1 < rounds and chain.confirmation is None:
            chain.conditions.pop()
            chain.discard("load>2", {"load": 3.0})
            chain.orders.append(rng.sample(stacks, len(stacks)))
            chain.conditions.append({})
    for step in steps:
        for stack in stacks:
            if stack != "ext4" and rng.random() < 0.8 or rng.random() < 0.1:
                judge_all(chain, step, stack, *(budget_of(rng, scale) for _ in range(rng.randint(1, 3))))
    chain.carry_over = find_carry_over(chain) if boots == 1 else []
    return chain

def budget_of(rng, scale):
    metric, xfail = rng.choice(METRICS), rng.choice((None, None, "known"))
    if rng.random() < 0.3:
        better = rng.choice((None, "lower", "higher"))
        return Budget(metric, limit=scale * rng.choice((0.5, 1.0, 1.2, 1e3)), xfail=xfail, better=better)
    return Budget(metric, overhead=rng.choice((-0.1, 0.0, 0.05, 0.2, 0.3, 1.0)), xfail=xfail)

def plain(value):
    return msgspec.to_builtins(value)

def facts(chain):
    readings = readings_of(chain)
    estimates, verdicts, outcomes = {}, {}, {}
    for step in chain.steps:
        for stack in chain.stacks:
            place = f"{step} on {stack}"
            estimates |= {f"{place}, {name}": plain(readings.estimate(step, stack, name)) for name in METRICS}
            for number, one in enumerate(chain.judgements_of(step, stack)):
                reason = one.unjudged and one.unjudged.name
                verdicts[f"{place}, {number}"] = [one.outcome, reason, plain(one.verdict), plain(one.confirmed)]
            expected = [chain.expected(step, stack, strict=strict) for strict in (False, True)]
            outcomes[place] = [chain.worst(step, stack), *expected]
    effects = {"chain": plain(chain.carry_over)}
    return {"estimate": estimates, "verdict": verdicts, "outcome": outcomes, "effects of the previous run": effects}

first, number = int(sys.argv[1]), int(sys.argv[2])
for seed in range(first, first + number):
    print(msgspec.json.encode(facts(chain_of(random.Random(seed)))).decode(), flush=True)
"""


def main(words: Sequence[str]) -> int:
    """Print the number of chains on which both agree, and the first differences. Return 1 if there are any."""
    number, seed = (int(words[place]) if place < len(words) else default for place, default in enumerate((CHAINS, 1)))
    with earlier_tree() as tree:
        earlier, now = (
            [json.loads(line) for line in run_in(place, _PROGRAM, seed, number).splitlines()] for place in (tree, ROOT)
        )
    differing = [place for place in range(number) if earlier[place] != now[place]]
    outcomes = Counter(verdict[0] for chain in now for verdict in chain["verdict"].values())
    estimates = sum(estimate is not None for chain in now for estimate in chain["estimate"].values())
    print(f"{number - len(differing)} of {number} chains agree with {COMMIT}: {estimates} estimates, verdicts:")
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))
    for place in differing[:5]:
        for kind, facts in earlier[place].items():
            for key, fact in facts.items():
                if fact != now[place][kind][key]:
                    print(f"chain {seed + place}, {kind}, {key}: {fact}, now {now[place][kind][key]}")
    return int(bool(differing))
