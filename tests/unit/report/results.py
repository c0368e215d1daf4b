"""Results that are built by hand, for tests of reports."""

from __future__ import annotations

from functools import partial

import msgspec

from pytest_fsstack.records.results import Note, Results, View
from pytest_fsstack.records.sample import Metric
from pytest_fsstack.records.verdicts import Looks
from tests.chains import AChain, a_chain, wobbling

STEPS = ["write", "extract", "du", "rsync", "delete"]
#: Each stack with what it costs: one is equal, one far above its budget, one is not there, one is lost on the way.
FACTORS = {"ext4": 1.0, "same": 1.0, "luks+ext4": 1.5, "ext4+gocryptfs": 4.5, "absent": 0.0, "lossy": 1.2}
MISSING = "needs no-such-tool: apt install no-such-package"


def made(rounds: int = 10, steps: list[str] = STEPS) -> Results:
    """Return results whose figures wobble by 1 % a round, alike for all stacks but for one more percent on `same`."""

    def series(step: str, name: str, number: int) -> dict[str, float] | None:
        if name == "absent" or (name == "lossy" and number > 1):
            return None
        sign = (-1) ** number * (name == "same")
        return figures(FACTORS[name] * (1 + number % 3 / 100 + sign / 100), step)

    costs = {step: {name: partial(series, step, name) for name in FACTORS} for step in steps}
    notes = {
        step: {"absent": Note("cannot run", MISSING)} | ({"lossy": Note("failed", round=1)} if rounds > 2 else {})
        for step in steps
    }
    chain = a_chain(costs, rounds, Looks(), id="test_it.py::TestIt", seed=42, notes=notes)
    for name in FACTORS:
        chain = chain.with_stack(name, mounts=[f"ext4 /dev/loop0 rw,{name}"])
    for step in steps:
        for name, limit in (("luks+ext4", 2.0), ("same", 0.0001), ("ext4+gocryptfs", 0.3)):
            chain = chain.with_budget(step, name, overhead=limit)
    chain = chain.with_metrics(Metric("du_bytes", "B"))
    return chain.results({"kernel": {"release": "6.1.0"}, "devices": [{"spec": "loop", "size": 2**32}]})


def figures(seconds: float, step: str) -> dict[str, float]:
    values = {"seconds": seconds, "written_bytes": 4096.0 * seconds, "machine_seconds": seconds / 2}
    if step == "extract":
        values["throughput"] = 100 * 2**20 / seconds
    if step == "du":
        values["du_bytes"] = 8192.0
    return values


def emulated(results: Results, *stacks: str) -> Results:
    """Mark stacks as emulated, by default all."""
    for chain in results.chains:
        for name in stacks or chain.stacks:
            chain.stacks[name] = msgspec.structs.replace(chain.stacks[name], emulated=True)
    return results


NO_MAPPER = "this kernel (6.1) has no device-mapper: boot a kernel that has it"
COSTS = {
    "ext4": {"write": 1.0, "delete": 1.0},
    "ext4+fscrypt": {"write": 6.4, "delete": 1.06},
    "ext4+gocryptfs": {"write": 9.0, "delete": 2.0},
    "xfs": {"write": 1.5, "delete": 1.5},
    "btrfs": {"write": 2.5, "delete": 2.5},
    "luks+ext4": {},
}


def measured(costs: dict[str, dict[str, float]] = COSTS, rounds: int = 8) -> Results:
    """Return results in which each stack costs these ratios, and ext4 is the baseline. Times wobble by round."""
    steps = list(dict.fromkeys(step for ratios in costs.values() for step in ratios))
    series = {
        step: {name: wobbling(ratios[step], 0.1) if step in ratios else None for name, ratios in costs.items()}
        for step in steps
    }
    notes = {
        step: {name: Note("cannot run", NO_MAPPER) for name, ratios in costs.items() if not ratios} for step in steps
    }
    chain = a_chain(series, rounds, id="t.py::TestIt", notes=notes, orders=[list(costs)] * rounds)
    for name in costs:
        encrypts = any(word in name for word in ("crypt", "luks"))
        chain = chain.with_stack(name, encrypts=encrypts, kernel_cipher=encrypts and "gocryptfs" not in name)
    return chain.results()


def on_kernels(view: View = "between", growth: tuple[float, float] = (1.1, 1.1)) -> AChain:
    """Return a chain on two kernels. `growth` is how many times as long ext4 and luks take on the second one."""
    costs = {"ext4:6.1": 1.0, "luks:6.1": 2.0, "ext4:6.12": growth[0], "luks:6.12": 2 * growth[1]}
    series = {stack: [cost * (1 + number / 100) for number in range(8)] for stack, cost in costs.items()}
    return a_chain({"write": series}, id="t.py::TestIt").on_kernels(view)
