"""Slurm, by its commands: which hosts there are, jobs, and programs that run on a host at once."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

#: Slurm knows nothing of the job any more.
FORGOTTEN = "FORGOTTEN"
#: States of a job that has ended, or is taken off its host.
ENDED = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"),
    *("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", FORGOTTEN),
}
#: What the short states of a node that runs nothing begin with, besides those marked as not responding.
_LOST = ("down", "drain", "drng", "fail", "unk", "inval", "maint", "boot", "reboot", "power")
#: Seconds within which Slurm's controller answers.
_ANSWER = 120.0
#: Seconds between two looks at a host that a program waits for.
_LOOK = 10.0


class SlurmError(Exception):
    """A command of Slurm's failed; the message has it and its stderr."""


class HostError(Exception):
    """A host is lost, or what ran on it failed; the message says what."""


def _run(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_ANSWER)
    except FileNotFoundError:
        raise SlurmError(f"{words[0]} is not installed: on Debian, apt install slurm-client") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]} did not answer in {_ANSWER:.0f} s") from None
    if done.returncode:
        raise SlurmError(f"`{shlex.join(words[:6])}` failed (exit code {done.returncode}): {done.stderr.strip()}")
    return done.stdout


def hosts_named(expression: str) -> list[str]:
    """Return the hosts of an expression such as ``node[1-4]``."""
    return _run("scontrol", "show", "hostnames", expression).split()


def hosts_with(feature: str, partition: str) -> list[str]:
    """Return all hosts that have a feature."""
    nodes = _nodes("%N|%f", partition)
    return list(dict.fromkeys(name for name, features in nodes if feature in features.split(",")))


def lost(hosts: Iterable[str]) -> dict[str, str]:
    """Return the states of the hosts that run nothing: down, drained or unknown to Slurm."""
    states = {name: (state, reason) for name, state, reason in _nodes("%N|%t|%E")}
    problems = {}
    for host in hosts:
        state, reason = states.get(host, ("not a host of this Slurm", "none"))
        if state.startswith(_LOST) or state.endswith("*") or host not in states:
            problems[host] = state if reason == "none" else f"{state}: {reason}"
    return problems


def _nodes(columns: str, partition: str = "") -> list[list[str]]:
    where = [f"--partition={partition}"] if partition else []
    lines = _run("sinfo", "--noheader", "--Node", *where, f"--format={columns}").splitlines()
    return [line.split("|", columns.count("|")) for line in lines]


def jobs(name: str) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the state and the host of all tasks of jobs with this name; of ended ones only for some minutes."""
    columns = "--format=%F|%K|%T|%n"
    lines = _run("squeue", "--noheader", "--states=all", "--array", f"--name={name}", columns).splitlines()
    rows = (line.split("|") for line in lines)
    return {(job, int(index)): (state, host) for job, index, state, host in rows if index.isdecimal()}


def holders(host: str) -> list[str]:
    """Return the jobs that a host runs, each with its user."""
    return _run("squeue", "--noheader", f"--nodelist={host}", "--format=%j of %u (job %A)").splitlines()


def submit(name: str, host: str, tasks: int, options: Sequence[str], script: Path, words: Sequence[str]) -> str:
    """Submit an array of tasks that run on a host one after the other, alone there; return the job's number.

    Slurm sends the script, and passes the words to it as they are. Nothing of this environment goes with them.
    """
    own = [f"--job-name={name}", f"--nodelist={host}", f"--array=0-{tasks - 1}%1", "--exclusive", "--no-requeue"]
    always = ["--parsable", "--export=NONE", "--chdir=/", "--output=/dev/null", "--error=/dev/null"]
    printed = _run("sbatch", *always, *own, *options, str(script), *words)
    return printed.strip().partition(";")[0]


def cancel(name: str, *options: str) -> None:
    """Send a signal to the jobs with this name, or take them from the queue."""
    _run("scancel", f"--name={name}", *options)


def on_host(
    host: str,
    script: Path,
    words: Sequence[str],
    *,
    name: str,
    partition: str = "",
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.PIPE,
) -> bytes:
    """Run a script of this package on a host once it is free, and return what it wrote unless that goes elsewhere.

    Raises `HostError`, also if the host goes down meanwhile.
    """
    where = [f"--partition={partition}"] if partition else []
    options = ["--quiet", f"--job-name={name}", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--export=NONE"]
    command = ["srun", *options, *where, "--chdir=/", "/bin/sh", "-c", script.read_text(), script.name, *words]
    with subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=_LOOK)
                break
            except subprocess.TimeoutExpired:
                if problem := _lost_meanwhile(host):
                    process.kill()
                    raise HostError(problem) from None
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise HostError("; ".join(lines[-4:]) or f"{script.name} ended with exit code {process.returncode}")
    return output or b""


def _lost_meanwhile(host: str) -> str:
    try:
        return lost([host]).get(host, "")
    except SlurmError:
        # The controller is started again, perhaps.
        return ""
