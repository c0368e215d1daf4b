"""Time and memory of `fsstack pool` for 50, 100 and 200 hosts.

    python -m benchmarks pool [hosts ...]
    python -m benchmarks pool earlier [hosts]       beside the CPU time of an earlier build

Each host has one file as `--fsstack-json` writes it: 20 kernels, 8 steps on 5 stacks, 8 rounds, a budget for each
stack. The target is 30 s and 1 GiB for 200 hosts, and half of the CPU time of the earlier build, which reads files of
its own format.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from math import exp
from pathlib import Path

import msgspec
from tabulate import tabulate

from benchmarks.earlier import COMMIT, ROOT, earlier_tree
from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.judging.readings import dumps
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results, StackInfo
from pytest_fsstack.records.sample import METRICS, Sample
from pytest_fsstack.records.verdicts import Looks

KERNELS, STEPS, STACKS, ROUNDS = 20, 8, 5, 8
HOSTS = (50, 100, 200)
SECONDS, BYTES = 30.0, 1 << 30
#: The largest share of the CPU time of the earlier build.
SHARE = 0.5
#: A program that runs `fsstack`, and prints its peak memory in KiB as the last line.
_PROGRAM = (
    "import resource, sys; from pytest_fsstack.command import main; code = main(); "
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
)
#: The metrics of a real sample of a writing step, without those of its workload.
_METRICS = tuple(METRICS)


def session(rng: random.Random, host: int) -> Results:
    """Return the results of a session with random costs."""
    names = [f"stack{number}" for number in range(STACKS)]
    kernels = [f"6.{number}" for number in range(KERNELS)]
    chain = ChainResults(
        "scenarios/test_it.py::TestIt", ["/dev/sdb"], f"{names[0]}:{kernels[0]}", Looks.fixed(ROUNDS), host
    )
    chain.steps = [f"step{number}" for number in range(STEPS)]
    for kernel in kernels:
        for name in names:
            stack = f"{name}:{kernel}"
            commands = [f"mkfs.{name} -q /dev/sdb", f"mount -t {name} /dev/sdb /tmp/fsstack-1/{name}"]
            mounts = [f"/dev/sdb on /tmp/fsstack-1/{name} type {name} (rw,relatime)"]
            chain.stacks[stack] = StackInfo(stack, name, mounts, kernel, commands=commands, name=name)
            chain.against[stack] = f"{names[0]}:{kernel}"
    factors = {(stack, step): exp(rng.gauss(0.1, 0.03)) for stack in chain.stacks for step in chain.steps}
    for number in range(ROUNDS):
        chain.orders.append(list(chain.stacks))
        chain.conditions.append({"load": 0.1, "steal": 0.0})
        for (stack, step), factor in factors.items():
            cost = 1.0 if chain.against[stack] == stack else factor
            values = {name: cost * exp(rng.gauss(0, 0.05)) * 1e6 for name in _METRICS}
            chain.add(step, stack, Sample(values), number)
    for stack in chain.stacks:
        for step in chain.steps if chain.against[stack] != stack else ():
            judge_all(chain, step, stack, Budget(overhead=0.15))
    environment = {
        "machine_id": f"{host:032x}",
        "devices": [{"spec": "/dev/sdb", "model": f"disk {host % 7}"}],
        "kernel": {"release": "6.1"},
    }
    return Results(environment, [chain], start=f"2026-01-01T00:00:00+00:{host % 60:02}", stop="later", scale="small")


def write(directory: Path, hosts: int) -> int:
    """Write a file for each host: one session, with ratios shifted by the host. Return the size of a file in bytes."""
    content = msgspec.json.decode(dumps(session(random.Random(1), 0)))
    rng = random.Random(2)
    for host in range(hosts):
        shift = rng.gauss(0, 0.02)
        content["environment"]["machine_id"] = f"{host:032x}"
        for chain in content["chains"]:
            for by_stack in chain["derived"].values():
                for derived in by_stack.values():
                    for reading in derived["readings"].values():
                        if estimate := reading["estimate"]:
                            estimate["overhead"] = (1 + estimate["overhead"]) * exp(shift) - 1
                            reading["first_ratios"]["typical"] += shift
        text = msgspec.json.encode(content)
        (directory / f"host{host}.json").write_bytes(text)
    return (directory / "host0.json").stat().st_size


def main(words: Sequence[str]) -> int:
    """Print a table. Return 1 if the largest number of hosts misses the target."""
    if words[:1] == ["earlier"]:
        return _beside_earlier(words[1] if len(words) > 1 else str(HOSTS[-1]))
    numbers = sorted(map(int, words)) or list(HOSTS)
    rows, code = [], 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        size = write(directory, numbers[-1])
        for number in numbers:
            wall, cpu, memory = _measured(directory, number)
            rows.append([number, f"{wall:.1f} s", f"{cpu:.1f} s", f"{memory / 2**20:.0f} MiB"])
            code = int(wall > SECONDS or memory > BYTES)
    print(f"{KERNELS} kernels, {STEPS} steps on {STACKS} stacks, {ROUNDS} rounds: a file has {size / 2**20:.1f} MiB\n")
    print(tabulate(rows, ["hosts", "time", "CPU", "memory"], tablefmt="github"))
    return code


def _beside_earlier(hosts: str) -> int:
    """Print the CPU time of both builds. Return 1 if the target is missed."""
    seconds = []
    with earlier_tree() as tree:
        for place in (tree, ROOT):
            command = [sys.executable, "-m", "benchmarks", "pool", hosts]
            # The exit code 1 only says that it took longer than 30 s.
            table = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, text=True, check=False).stdout
            seconds.append(float(table.splitlines()[-1].split("|")[3].removesuffix(" s ")))
    share = seconds[1] / seconds[0]
    print(f"{hosts} hosts take {seconds[1]} s of CPU time, and {seconds[0]} s with {COMMIT}: {share:.2f} of it")
    print(f"at most {SHARE} wanted")
    return int(share > SHARE)


def _measured(directory: Path, hosts: int) -> tuple[float, float, int]:
    """Pool the files of some hosts. Return the seconds, the CPU seconds and the peak memory in bytes."""
    files = [str(directory / f"host{host}.json") for host in range(hosts)]
    words = ["--html", str(directory / "page.html"), "--json", str(directory / "pool.out")]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-c", _PROGRAM, "pool", *files, *words]
    process = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in (0, 1):
        raise RuntimeError(process.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, int(process.stderr.splitlines()[-1]) * 1024
