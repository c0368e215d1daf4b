"""Results that are built by hand, for tests of reports."""

from __future__ import annotations

from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results, StackInfo, View
from pytest_fsstack.records.sample import METRICS, Metric, Sample
from pytest_fsstack.records.verdicts import Looks

STEPS = ["write", "extract", "du", "rsync", "delete"]
#: Each stack with what it costs: one is equal, one far above its budget, one is not there, one is lost on the way.
FACTORS = {"ext4": 1.0, "same": 1.0, "luks+ext4": 1.5, "ext4+gocryptfs": 4.5, "absent": 0.0, "lossy": 1.2}
MISSING = "needs no-such-tool: apt install no-such-package"


def made(rounds: int = 10, steps: list[str] = STEPS) -> Results:
    """Results whose samples wobble by 1 % a round, the same for all stacks but for one more percent on `same`."""
    chain = ChainResults("test_it.py::TestIt", ["loop"], "ext4", Looks(), 42, steps=list(steps))
    for name in FACTORS:
        chain.stacks[name] = StackInfo(name, name.replace("+", " | "), [f"ext4 /dev/loop0 rw,{name}"])
    for index in range(rounds):
        chain.orders.append([name for name in FACTORS if name != "absent"])
        for step in steps:
            for name, factor in FACTORS.items():
                if name == "absent":
                    chain.notes.setdefault(step, {})[name] = MISSING
                elif name == "lossy" and index > 1:
                    chain.notes.setdefault(step, {})[name] = "failed in round 2"
                else:
                    sign = (-1) ** index * (name == "same")
                    chain.add(step, name, sample(factor * (1 + index % 3 / 100 + sign / 100), step))
    for step in steps:
        for name, limit in (("luks+ext4", 2.0), ("same", 0.0001), ("ext4+gocryptfs", 0.3)):
            judge_all(chain, step, name, Budget(overhead=limit))
    return Results({"kernel": {"release": "6.1.0"}, "devices": [{"spec": "loop", "size": 2**32}]}, [chain])


def sample(seconds: float, step: str) -> Sample:
    values = {"seconds": seconds, "written_bytes": 4096.0 * seconds, "machine_seconds": seconds / 2}
    metrics = METRICS
    if step == "extract":
        values["throughput"] = 100 * 2**20 / seconds
    if step == "du":
        values["du_bytes"] = 8192.0
        metrics = {**METRICS, "du_bytes": Metric("du_bytes", "B")}
    return Sample(values, metrics)


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
    """Results in which each stack costs these ratios, and ext4 is the baseline. Times wobble from round to round."""
    steps = list(dict.fromkeys(step for ratios in costs.values() for step in ratios))
    chain = ChainResults("t.py::TestIt", ["loop"], "ext4", Looks.fixed(rounds), 1, steps=steps)
    for name in costs:
        encrypts = any(word in name for word in ("crypt", "luks"))
        chain.stacks[name] = StackInfo(
            name, name.replace("+", " | "), encrypts=encrypts, kernel_cipher=encrypts and "gocryptfs" not in name
        )
    for index in range(rounds):
        chain.orders.append(list(costs))
        for stack, ratios in costs.items():
            for step, ratio in ratios.items():
                chain.add(step, stack, Sample({"seconds": ratio * (1 + index % 3 / 10)}))
    for stack, ratios in costs.items():
        for step in chain.steps if not ratios else ():
            chain.notes.setdefault(step, {})[stack] = NO_MAPPER
    return Results({}, [chain])


def on_kernels(within: bool = False, growth: tuple[float, float] = (1.1, 1.1)) -> ChainResults:
    """A comparison of two kernels: with the first one, or with the baseline on the same kernel.

    `growth` is how many times as long ext4 and luks take on the second one.
    """
    view: View = "within" if within else "between"
    chain = ChainResults("t.py::TestIt", ["loop"], "ext4:6.1", Looks.fixed(8), 1, steps=["write"], view=view)
    for kernel in ("6.1", "6.12"):
        for number, name in enumerate(("ext4", "luks")):
            stack = f"{name}:{kernel}"
            chain.stacks[stack] = StackInfo(stack, name, kernel=kernel, name=name)
            chain.against[stack] = f"ext4:{kernel}" if within else f"{name}:6.1"
            for index in range(8):
                cost = (1 + number) * (growth[number] if kernel == "6.12" else 1) * (1 + index / 100)
                chain.add("write", stack, Sample({"seconds": cost}), index)
    chain.orders = [list(chain.stacks)] * 8
    return chain
