"""pjdfstest: a POSIX test suite, run on a stack and on the filesystem below it."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.descriptors import opened
from pytest_fsstack.machine.needs import CAP_SETUID, Crate, Root, Tool
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Completed, Timed
    from pytest_fsstack.stack.build import Built

PJDFSTEST = Crate("pjdfstest")

#: The configuration. Other features of pjdfstest (flags of files, ACLs of NFSv4, times of birth in `stat`) exist on
#: FreeBSD only. Cases with a remount are left out, because the directory need not be a mount point.
_SETTINGS = """\
[features]
posix_fallocate = {{}}
rename_ctime = {{}}
utime_now = {{}}
utimensat = {{}}
[settings]
naptime = {nap}
allow_remount = false
[dummy_auth]
entries = [{users}]
"""
#: Users for the test cases. The first two that exist are taken. Debian always has them.
_USERS = ("nobody", "daemon", "bin", "games", "man", "lp", "mail", "news")
#: Exit code of `timeout` after it has ended a command.
OVER = 124
#: Seconds from the end of the time limit until a FUSE server that does not answer is killed.
_GRACE = 10.0
#: The beginning of a full name of a test case. The output leaves it out.
_FULL_NAME = "pjdfstest::tests::"
#: With this umask, other users reach the directory of the suite.
_WITH_UMASK = ("sh", "-c", 'umask 022; exec "$@"', "sh")


class SuiteError(AssertionError):
    """A run of a test suite that did not finish, or whose output cannot be parsed."""


@dataclass(frozen=True)
class Cases:
    """The names of test cases by result, with the reasons of those that failed or were skipped."""

    passed: frozenset[str]
    failed: dict[str, str]
    skipped: dict[str, str]
    #: All names, in the order of the run.
    order: tuple[str, ...] = ()

    def differ_from(self, below: Cases) -> dict[str, str]:
        """Return the cases that failed here but not on the filesystem below, with the reasons."""
        return {name: why for name, why in self.failed.items() if name not in below.failed}


#: Stands for the filesystem below if there is none: POSIX itself.
ALL_PASS = Cases(frozenset(), {}, {})


@workload(Root("acting as other users", CAP_SETUID), PJDFSTEST, Tool("timeout", "coreutils"))
def pjdfstest(
    timed: Timed, fsstack: Built, *, cases: Sequence[str] = (), nap: float = 0.01, patience: float = 60.0
) -> dict[str, str]:
    """Run pjdfstest on the stack. If a layer stands on a directory, also run it on the filesystem below.

    `cases` are parts of the names of test cases, by default all. `nap` is the wait in seconds between two changes whose
    times must differ. `patience` is the time limit in seconds for all test cases. If it ends, the case that ran then
    has failed, and the others start again with the same limit. If a FUSE server does not answer, it is killed, and the
    stack is opened again.

    A *difference* is a case that fails here but not on the filesystem below. Without a filesystem below, every failure
    is one. Recorded are the numbers ``posix_run``, ``posix_passed`` and ``posix_differences``. Kept are the differences
    by group as ``posix_groups``, such as "link 29", and all failures with their messages as ``posix_failed``. Returns
    the differences with their messages. Raises `SuiteError`.
    """
    with fsstack.scratch() as directory:
        settings = directory / "pjdfstest.toml"
        settings.write_text(settings_for(two_users(), nap))
        suite = [*_WITH_UMASK, "timeout", f"{patience:g}", PJDFSTEST.path or PJDFSTEST.name, "-c", str(settings), "-p"]

        server_killed = threading.Event()

        def run(place: Path, *names: str) -> Completed:
            with letting_go(fsstack, place, patience + _GRACE) as let_go:
                # The exit code is not 0 if a test case fails.
                result = timed.run(*suite, place, *names, check=False)
            server_killed.clear()
            if let_go.is_set():
                server_killed.set()
                with fsstack.taken_down():
                    pass
            return result

        with timed(cold=False):
            below = ALL_PASS
            if fsstack.stored != fsstack.path:
                below = cases_of(run(fsstack.stored, *cases))
            cases_here = all_of(
                lambda *names: run(fsstack.path, *names), cases, [*below.order], patience, server_killed.is_set
            )
    if not cases_here.passed and not cases_here.failed:
        chosen, first = " ".join(cases) or "all", next(iter(cases_here.skipped.items()), "")
        raise SuiteError(f"pjdfstest: none of {len(cases_here.skipped)} cases ({chosen}) could run; the first: {first}")
    different = cases_here.differ_from(below)
    timed.record("posix_run", len(cases_here.passed) + len(cases_here.failed), better="higher", exact=True)
    timed.record("posix_passed", len(cases_here.passed), better="higher", exact=True)
    timed.record("posix_differences", len(different), exact=True)
    timed.keep("posix_groups", by_group(different))
    timed.keep("posix_failed", dict(cases_here.failed))
    return different


@contextlib.contextmanager
def letting_go(fsstack: Built, place: Path, seconds: float) -> Iterator[threading.Event]:
    """Abort the FUSE connections of a stack up to a place after so many seconds, and set the event.

    A process that waits for a FUSE server cannot be killed. The server itself ends when the stack is taken down.
    """
    aborted, targets = threading.Event(), mount_points(fsstack, place)
    timer = threading.Timer(seconds, lambda: aborted.set() if abort(fsstack.machine, targets) else None)
    timer.daemon = True
    timer.start()
    try:
        yield aborted
    finally:
        timer.cancel()
        timer.join(_GRACE)


def mount_points(fsstack: Built, top: Path) -> list[Path]:
    """Return the mount points of a stack from `top` down.

    Bind mounts, which show a part of a filesystem, are left out: it may be a FUSE filesystem of the user.
    """
    paths = fsstack.places
    mounted = {path: fsstack.machine.mount_at(path) for path in paths[paths.index(top) :: -1]}
    return [path for path, mount in mounted.items() if mount and mount.root == "/"]


def abort(machine: Machine, targets: Iterable[Path]) -> bool:
    """Abort the connection of each FUSE mount. Return whether there was one."""
    aborted = False
    for target in targets:
        # Without fusectl, the abort also unmounts what is not in use, such as a mount below an overlay.
        with contextlib.suppress(OSError), opened(target, os.O_PATH):
            aborted |= mounts.abort_fuse(machine, target)
    return aborted


def all_of(
    run: Callable[..., Completed],
    cases: Sequence[str],
    order: Sequence[str],
    patience: float,
    server_killed: Callable[[], bool] = lambda: False,
) -> Cases:
    """Run test cases. If one hangs, go on with those after it.

    `order` has the names in the order of a complete run elsewhere, and identifies the case that hangs. `server_killed`
    returns True if the last run ended because the FUSE server was killed. Raises `SuiteError` if a case hangs that
    `order` does not have.
    """
    passed: frozenset[str] = frozenset()
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    names = list(cases)
    while (result := run(*names)).returncode == OVER:
        part = cases_of(result, complete=False)
        passed, failed, skipped = passed | part.passed, failed | part.failed, skipped | part.skipped
        remaining = [name for name in order if name not in passed and name not in failed and name not in skipped]
        if not remaining:
            last = f", the last of which was {part.order[-1]}" if part.order else ""
            raise SuiteError(f"pjdfstest: it had run {len(part.order)} test cases after {patience:g} s{last}")
        hung, *remaining = remaining
        failed[hung] = f"it did not end within {patience:g} s{', and the FUSE server was killed' * server_killed()}"
        if not remaining:
            return Cases(passed, failed, skipped)
        names = ["--exact", *(_FULL_NAME + name for name in remaining)]
    part = cases_of(result)
    return Cases(passed | part.passed, failed | part.failed, skipped | part.skipped)


def two_users(names: Iterable[str] = _USERS) -> list[tuple[str, str]]:
    """Return two ordinary users with different groups, each with its group. Raises `SuiteError`."""
    users = []
    for name in names:
        try:
            user = pwd.getpwnam(name)
            users.append((name, grp.getgrgid(user.pw_gid).gr_name))
        except KeyError:
            continue
    # Users with the same group would have each other's permissions.
    different = list({group: (name, group) for name, group in reversed(users)}.values())[::-1]
    if len(different) < 2:
        raise SuiteError(f"pjdfstest: it acts as two users, and this machine has fewer of {', '.join(names)}")
    return different[:2]


def settings_for(users: Iterable[tuple[str, str]], nap: float) -> str:
    """Return the configuration of pjdfstest. It is the same for each stack."""
    return _SETTINGS.format(nap=float(nap), users=", ".join(f'["{user}", "{group}"]' for user, group in users))


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CASE = re.compile(r"^(?P<name>[\w:]+) +(?P<how>ok|FAILED|skipped)$")
_SUMMARY = re.compile(r"^Summary: (\d+) failed, (\d+) skipped, (\d+) passed, .* (\d+) total$", re.M)


def cases_of(result: Completed, *, complete: bool = True) -> Cases:
    """Parse the result of each test case. Raises `SuiteError` if a `complete` run has no summary, or a wrong one."""
    text = _COLOUR.sub("", result.stdout)
    summary = _SUMMARY.search(text)
    if complete and not summary:
        last = (result.stderr.strip() or text.strip()).splitlines()[-1:] or ["nothing"]
        raise SuiteError(f"pjdfstest: it ended with exit code {result.returncode} and without a summary: {last[0]}")
    how: dict[str, str] = {}
    reasons: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if match := _CASE.match(line):
            name = match["name"]
            how[name], reasons[name] = match["how"], ""
        elif name and line.startswith("\t"):
            # The first line is the message. Further lines are the place in the suite.
            reasons[name] = reasons[name] or line.strip()
    ended = {word: {name: reasons[name] for name in how if how[name] == word} for word in ("FAILED", "skipped", "ok")}
    if summary and list(map(int, summary.groups())) != [*map(len, ended.values()), len(how)]:
        raise SuiteError(f"pjdfstest: its summary is not that of its test cases: {summary[0]}")
    return Cases(frozenset(ended["ok"]), ended["FAILED"], ended["skipped"], tuple(how))


def by_group(names: Iterable[str]) -> list[str]:
    """Count the cases of each group (the text before the first colons), the largest group first."""
    counts = Counter(name.partition("::")[0] for name in names)
    return [f"{group} {count}" for group, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
