"""The subcommands `pool` and `lab` of the command `fsstack`, which finds them by their entry point."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_fsstack.command import add, as_option

_LABORATORY = "pytest_fsstack.fleet.laboratory.command"


def add_all(group: Any) -> None:
    """Add the subcommands to a group of argparse."""
    _add_pool(group)
    _add_laboratory(group)


def _add_pool(group: Any) -> None:
    text = "show what each stack costs on several hosts together, from the saved results or logs of their sessions"
    pool = add(group, "pool", "pytest_fsstack.fleet.pooling.command:pool", text)
    pool.set_defaults(lost={}, complete=False)
    pool.add_argument(
        "runs", nargs="+", metavar="RUN.json", help="files or directories; sessions of a machine are one host"
    )
    limit, alpha = as_option("max-regression"), as_option("alpha")
    text = "the budget of all series, in place of those of the sessions; exit code 1 if a stack costs more than that"
    pool.add_argument("--limit", type=limit, metavar="PERCENT", help=text)
    pool.add_argument("--alpha", type=alpha, default="0.05", metavar="P", help="error rate of a verdict over hosts")
    text = "judge by the verdicts of the hosts' own sessions, for fewer than five hosts"
    pool.add_argument("--each", action="store_true", help=text)
    pool.add_argument("--anyway", action="store_true", help="pool sessions at another scale or of other work, too")
    text = "fail what is undecided, and hosts whose file is unreadable, unfinished or lacks a figure"
    pool.add_argument("--strict", action="store_true", help=text)
    for report in "html", "markdown", "json":
        pool.add_argument(f"--{report}", metavar="FILE", help=f"write it as {report} too")


def _add_laboratory(group: Any) -> None:
    text = "run a session on each host of a laboratory by Slurm, and pool the results"
    commands = add(group, "lab", f"{_LABORATORY}:run", text).add_subparsers(metavar="COMMAND", required=True)
    text = (
        "submit the sessions, wait for them, fetch their files and pool them; again with the same DIR, go on with that"
    )
    run = add(commands, "run", f"{_LABORATORY}:run", text)
    run.add_argument("--directory", type=Path, metavar="DIR", help="for all of the run (default: lab-DATE-TIME)")
    text = "check each host: whether it answers, who has it, and what the doctor says of it"
    check = add(commands, "check", f"{_LABORATORY}:check", text)
    for parser in run, check:
        parser.add_argument("laboratory", type=Path, metavar="LAB.toml")
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- ...", help="pytest options and tests")
    for name, text in {
        "status": "show where each session of a run is",
        "stop": "end the sessions of a run; they take their stacks down first",
        "fetch": "fetch what has ended since, and pool all of it",
    }.items():
        parser = add(commands, name, f"{_LABORATORY}:{name}", text)
        parser.add_argument("directory", type=Path, metavar="DIR")
    text = "write a commented LAB.toml into the current directory"
    add(commands, "new", f"{_LABORATORY}:new", text)
