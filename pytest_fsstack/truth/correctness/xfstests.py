"""xfstests: its group generic/quick, run on a stack and on the filesystem below it.

The tests see two mounts of the type fuse, each of a directory of the stack. They run in a mount namespace of their own,
where `mount`, `umount`, `df` and `findmnt` are scripts that show these two mounts. So no test gets a device, and none
can format, check or unmount one.
"""

from __future__ import annotations

import contextlib
import random
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from pytest_fsstack.machine import commands, directories, reading
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Root, Tool, require
from pytest_fsstack.truth.correctness.posix import ALL_PASS, OVER, Cases, SuiteError, letting_go
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

#: Excluded tests and groups, with the reasons. The groups would affect the filesystem below.
EXCLUDED: Mapping[str, str] = {
    "shutdown": "shuts down the filesystem, and with it all that stands on it",
    "freeze": "freezes the filesystem, and with it each sync of the machine",
    "swap": "has the kernel swap to the stack, which then cannot be unmounted",
    "dangerous": "may crash the kernel",
    "generic/504": "looks for its process in /proc/locks, which has the numbers of another namespace",
}
_MOUNT = """\
#!/bin/sh
for last; do :; done
case $last in
{test}|{scratch}) ;;
*) exec {mount} "$@" ;;
esac
case $* in
*remount*) exec {mount} -o "$(echo "$*" | grep -o 'remount[^ ]*' | sed s/remount/remount,bind/)" "$last" ;;
esac
{mount} --bind {place}/"${{last##*/}}" "$last" || exit
case " $*" in
*" -r "*|*[\\ ,]ro[\\ ,]*) exec {mount} -o remount,bind,ro "$last" ;;
esac
"""
_UMOUNT = """\
#!/bin/sh
for last; do :; done
case $last in
fsstack-*) last={top}/${{last#fsstack-}} ;;
esac
case $last in
{test}|{scratch}) sync -f {place} && echo 3 >/proc/sys/vm/drop_caches && exec {umount} "$last" ;;
esac
exec {umount} "$@"
"""
_DF = """\
#!/bin/sh
{df} "$@" | awk 'NF < 7 || ($NF != "{test}" && $NF != "{scratch}")'
for name in test scratch; do
    at={top}/$name
    case "$* " in
    "-T -P "|"-T -P "*" $at "*|"-T -P $at"*) mountpoint -q $at || continue ;;
    *) continue ;;
    esac
    {df} -P $at | awk -v at=$at -v name=fsstack-$name 'NR == 2 {{ print name, "fuse", $2, $3, $4, $5, at }}'
done
"""
_FINDMNT = """\
#!/bin/sh
case $* in
*"-S fsstack-"*) ;;
*) exec {findmnt} "$@" ;;
esac
for name in test scratch; do
    case $* in
    *"-S fsstack-$name "*) mountpoint -q {top}/$name && echo fsstack-$name {top}/$name ;;
    esac
done
"""
_COMMANDS = {"mount": _MOUNT, "umount": _UMOUNT, "df": _DF, "findmnt": _FINDMNT}
_SETTINGS = """\
export TEST_DEV=fsstack-test TEST_DIR={test} SCRATCH_DEV=fsstack-scratch SCRATCH_MNT={scratch}
export FSTYP=fuse RESULT_BASE={top}/results
"""
#: Tests act as several users, so the temporary directory is writable for all. Only their own namespace shows it.
_SUITE = """\
PATH=$0:$PATH
mount -t tmpfs -o mode=1777,nosuid,nodev fsstack "$1/tmp" && mount "$1/test" && shift && exec ./check "$@"
"""
#: Namespaces in which the mounts and all processes of the tests end with the command.
_APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")


@workload(Root("mounting"), *(Tool(name, "util-linux") for name in ("unshare", "mountpoint")), Tool("bc", "bc"))
def xfstests(
    timed: Timed, fsstack: Built, *, checkout: Path, seed: int, count: int | None = None, patience: float = 3600.0
) -> dict[str, str]:
    """Run xfstests on the stack. If a layer stands on a directory, also run it on the filesystem below.

    `checkout` is a directory in which xfstests was compiled. `count` tests of the group generic/quick are drawn from
    `seed`, by default all. `patience` is the time limit in seconds for each of the two places.

    A *difference* is a test that fails here but not on the filesystem below. Without a filesystem below, every failure
    is one. Recorded are the numbers ``xfstests_run``, ``xfstests_passed`` and ``xfstests_differences``. Kept are the
    failures as ``xfstests_failed``, and the reasons of tests that did not run as ``xfstests_not_run``. Returns the
    differences with their messages. Raises `SuiteError`.
    """
    require(Checkout(checkout))
    tests = quick_tests(checkout)
    tests = tests if count is None else sorted(random.Random(seed).sample(tests, min(count, len(tests))))
    with timed(cold=False):
        below = ALL_PASS
        if fsstack.stored != fsstack.path:
            below = run(timed, fsstack, fsstack.stored, checkout, tests, patience)
        results = run(timed, fsstack, fsstack.path, checkout, tests, patience)
    different = results.differ_from(below)
    timed.record("xfstests_run", len(results.passed) + len(results.failed), better="higher", exact=True)
    timed.record("xfstests_passed", len(results.passed), better="higher", exact=True)
    timed.record("xfstests_differences", len(different), exact=True)
    timed.keep("xfstests_failed", dict(results.failed))
    timed.keep("xfstests_not_run", {**results.skipped, **EXCLUDED})
    timed.keep("xfstests", sorted(different))
    return different


class Checkout:
    """A directory in which xfstests was compiled."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def missing(self) -> MissingRequirement | None:
        if (self.directory / "check").is_file() and (self.directory / "ltp" / "fsstress").is_file():
            return None
        what = f"needs xfstests, compiled, which {self.directory} does not hold"
        return MissingRequirement(Missing.OTHER, what, "run make there, then --fsstack-xfstests=DIRECTORY")


def quick_tests(checkout: Path) -> list[str]:
    """Return the names of the tests in the group generic/quick, without excluded groups. Raises OSError."""
    lines = reading.read_text(checkout / "tests" / "generic" / "group.list").splitlines()
    tests = {f"generic/{words[0]}": words[1:] for line in lines if (words := line.split())}
    return [name for name, groups in tests.items() if "quick" in groups and not EXCLUDED.keys() & {name, *groups}]


def run(timed: Timed, fsstack: Built, place: Path, checkout: Path, tests: list[str], patience: float) -> Cases:
    """Run tests in two directories of a place. Raises `SuiteError`."""
    with directories.scratch(directories.safe_place()) as top, _directories(place):
        prepare(top, place)
        suite = [*_APART, "timeout", f"{patience:g}", "sh", "-c", _SUITE, str(top / "bin"), str(top), "-R", "xunit"]
        suite += tests
        with letting_go(fsstack, place, patience + 10) as let_go:
            # The names of its temporary files are process numbers, which repeat in another pid namespace.
            env = {"HOST_OPTIONS": str(top / "settings"), "TMPDIR": str(top / "tmp")}
            result = timed.run(*suite, cwd=checkout, env=env, check=False)
        if let_go.is_set():
            with fsstack.taken_down():
                pass
        report = top / "results" / "result.xml"
        if result.returncode == OVER or not report.exists():
            lines = (result.stderr.strip() or result.stdout.strip()).splitlines() or ["nothing"]
            raise SuiteError(f"xfstests: it ended with exit code {result.returncode} and without a report: {lines[-1]}")
        return cases_of(reading.read_text(report))


@contextlib.contextmanager
def _directories(place: Path) -> Iterator[None]:
    created = [place / "test", place / "scratch"]
    for directory in created:
        directory.mkdir(mode=0o777)
        directory.chmod(0o777)
    yield
    for directory in created:
        directories.remove(directory)


def prepare(top: Path, place: Path) -> None:
    """Write the settings, the mount points and the commands."""
    texts = {"top": top, "place": place, "test": top / "test", "scratch": top / "scratch"}
    words = {name: shlex.quote(str(path)) for name, path in texts.items()}
    words |= {name: commands.which(name) or name for name in _COMMANDS}
    for name in ("test", "scratch", "results", "bin", "tmp"):
        (top / name).mkdir()
    (top / "settings").write_text(_SETTINGS.format(**words))
    for name, text in _COMMANDS.items():
        script = top / "bin" / name
        script.write_text(text.format(**words))
        script.chmod(0o755)
    top.chmod(0o755)


def cases_of(report: str) -> Cases:
    """Parse the result of each test. Raises `SuiteError` if no test has run."""
    passed, failed, skipped = set(), dict[str, str](), dict[str, str]()
    tests = list(ElementTree.fromstring(report).iter("testcase"))
    for test in tests:
        name = test.attrib["name"]
        if (failure := test.find("failure")) is not None:
            failed[name] = failure.attrib.get("message", "")
        elif (skip := test.find("skipped")) is not None:
            skipped[name] = skip.attrib.get("message", "")
        else:
            passed.add(name)
    if not passed and not failed:
        raise SuiteError(
            f"xfstests: none of {len(tests)} tests could run; the first: {next(iter(skipped.items()), '')}"
        )
    return Cases(frozenset(passed), failed, skipped, tuple(test.attrib["name"] for test in tests))
