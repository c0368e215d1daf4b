"""Commands of Slurm: hosts, jobs, and programs that run on a host."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

#: The state of a job that Slurm has forgotten.
FORGOTTEN = "FORGOTTEN"
#: States of a job that has ended or was taken off its host.
ENDED = {
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"),
    *("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", FORGOTTEN),
}
#: Prefixes of the short states of nodes that run nothing. Nodes that do not respond have a mark instead. Those that
#: have not yet responded to a new controller are unknown, and soon have another state.
_UNAVAILABLE = ("down", "drain", "drng", "fail", "inval", "maint", "boot", "reboot", "power")
#: Parts of the messages if the controller is down, or goes down (slurm_errno.c of Slurm, errno(3)).
_NO_ANSWER = (
    *("Unable to contact slurm controller", "Communication connection failure", "Zero Bytes were transmitted"),
    *("Socket timed out", "Connection refused", "Connection reset", "Transport endpoint is not connected"),
)
#: Seconds to wait for Slurm's controller.
_ANSWER_SECONDS = 120.0
#: Seconds between two checks of a host on which a program runs.
_CHECK_SECONDS = 10.0


class SlurmError(Exception):
    """A failed command of Slurm. The message has the command and its stderr."""


class NoAnswerError(SlurmError):
    """A controller of Slurm that does not answer. The same command may succeed later."""


class HostError(Exception):
    """A lost host, or a program that failed on it. The message has the reason."""


def _run(*words: str) -> str:
    try:
        result = subprocess.run(
            words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_ANSWER_SECONDS
        )
    except FileNotFoundError:
        raise SlurmError(f"{words[0]} is not installed: on Debian, apt install slurm-client") from None
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"{words[0]} did not answer in {_ANSWER_SECONDS:.0f} s") from None
    if result.returncode:
        kind = NoAnswerError if _has_no_answer(result.stderr) else SlurmError
        raise kind(f"`{shlex.join(words[:6])}` failed (exit code {result.returncode}): {result.stderr.strip()}")
    return result.stdout


def _has_no_answer(text: str) -> bool:
    return any(words in text for words in _NO_ANSWER)


def hosts_named(expression: str) -> list[str]:
    """Return the names of the hosts in an expression such as ``node[1-4]``. Raises `SlurmError`."""
    return _run("scontrol", "show", "hostnames", expression).split()


def hosts_with(feature: str, partition: str) -> list[str]:
    """Return the hosts of a partition (or of all) that have a feature. Raises `SlurmError`."""
    nodes = _nodes("%N|%f", partition)
    return list(dict.fromkeys(name for name, features in nodes if feature in features.split(",")))


def unavailable(hosts: Iterable[str]) -> dict[str, str]:
    """Return the states of hosts that run nothing: down, drained or unknown to Slurm. Raises `SlurmError`."""
    states = {name: (state, reason) for name, state, reason in _nodes("%N|%t|%E")}
    problems = {}
    for host in hosts:
        state, reason = states.get(host, ("not a host of this Slurm", "none"))
        lost = state.endswith("*") and not state.startswith("unk")
        if state.startswith(_UNAVAILABLE) or lost or host not in states:
            problems[host] = state if reason == "none" else f"{state}: {reason}"
    return problems


def _nodes(columns: str, partition: str = "") -> list[list[str]]:
    where = [f"--partition={partition}"] if partition else []
    lines = _run("sinfo", "--noheader", "--Node", *where, f"--format={columns}").splitlines()
    return [line.split("|", columns.count("|")) for line in lines]


def jobs(name: str) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the state and the host of each task of the jobs with this name, by job number and index.

    Slurm forgets ended jobs after some minutes.
    """
    columns = "--format=%F|%K|%T|%n"
    lines = _run("squeue", "--noheader", "--states=all", "--array", f"--name={name}", columns).splitlines()
    rows = (line.split("|") for line in lines)
    return {(job, int(index)): (state, host) for job, index, state, host in rows if index.isdecimal()}


def holders(host: str) -> list[str]:
    """Return the jobs on a host, each with its user."""
    return _run("squeue", "--noheader", f"--nodelist={host}", "--format=%j of %u (job %A)").splitlines()


def submit(name: str, host: str, tasks: int, options: Sequence[str], script: Path, words: Sequence[str]) -> str:
    """Submit an array of tasks that run on a host one after the other, and return the job number.

    Nothing else runs on the host meanwhile. Slurm sends the script, and passes the words to it as they are, without any
    variable of this environment.
    """
    own = [f"--job-name={name}", f"--nodelist={host}", f"--array=0-{tasks - 1}%1", "--exclusive", "--no-requeue"]
    always = ["--parsable", "--export=NONE", "--chdir=/", "--output=/dev/null", "--error=/dev/null"]
    printed = _run("sbatch", *always, *own, *options, str(script), *words)
    return printed.strip().partition(";")[0]


def cancel(name: str, *options: str) -> None:
    """Send a signal to the jobs with this name, or remove them from the queue."""
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
    """Run a script of this package on a host once the host is free, and return its output unless `stdout` gets it.

    Raises `HostError` if the script fails or the host goes down, `NoAnswerError`.
    """
    where = [f"--partition={partition}"] if partition else []
    options = ["--quiet", f"--job-name={name}", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--export=NONE"]
    command = ["srun", *options, *where, "--chdir=/", "/bin/sh", "-c", script.read_text(), script.name, *words]
    with subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=_CHECK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if problem := _problem_of(host):
                    _end(process)
                    raise HostError(problem) from None
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        text = "; ".join(lines[-4:]) or f"{script.name} ended with exit code {process.returncode}"
        own = "; ".join(line for line in lines if line.startswith("srun: "))
        raise NoAnswerError(text) if _has_no_answer(own) else HostError(text)
    return output or b""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program of Slurm, which cancels its job. If it was killed, its job would hold the host once it is back."""
    process.terminate()
    try:
        process.wait(_CHECK_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _problem_of(host: str) -> str:
    try:
        return unavailable([host]).get(host, "")
    except SlurmError:
        # The controller may be restarting.
        return ""
