"""The output of pjdfstest, and test cases that hang."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.port import Mount
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Completed
from pytest_fsstack.stack.places import Directory
from pytest_fsstack.truth.correctness import posix
from pytest_fsstack.truth.correctness.posix import Cases, SuiteError, all_of, by_group, cases_of
from tests.toolkit import NotedStack, NotedTimed

BLUE, GREEN, RED, YELLOW, OFF = "\x1b[34m", "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


def said(*cases: tuple[str, str], summary: bool = True, code: int = 0) -> Completed:
    """The output of a run: names, and how they ended."""
    colour = {"ok": GREEN, "FAILED": RED, "skipped": YELLOW}
    lines = []
    for name, how in cases:
        lines.append(f"{BLUE}{name}{OFF}{'':40}{colour[how]}{how}{OFF}")
        if how == "FAILED":
            lines += ["\tcalled `Result::unwrap()` on an `Err` value: EPERM", "Backtrace:", "   0: main", "\tat x.rs:1"]
        if how == "skipped":
            lines.append(f"\t{YELLOW}requires features: chflags{OFF}")
    ends = [how for _, how in cases]
    counts = ", ".join(
        f"{ends.count(how)} {RED}{word}{OFF}"
        for how, word in (("FAILED", "failed"), ("skipped", "skipped"), ("ok", "passed"))
    )
    if summary:
        lines += ["", f"{RED}Summary{OFF}: {counts}, 0 {GREEN}expected failures{OFF}, {len(ends)} total"]
    return Completed(("pjdfstest",), code, "\n".join(lines) + "\n", "")


RUN = (("link::eperm", "ok"), ("link::exists::fifo", "FAILED"), ("chflags::set", "skipped"), ("rmdir::eexist", "ok"))


def test_how_each_test_case_ended() -> None:
    cases = cases_of(said(*RUN, code=1))
    assert cases.passed == {"link::eperm", "rmdir::eexist"}
    assert cases.failed == {"link::exists::fifo": "called `Result::unwrap()` on an `Err` value: EPERM"}
    assert cases.skipped == {"chflags::set": "requires features: chflags"}
    assert cases.order == tuple(name for name, _ in RUN)


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "words"),
    [
        (1, "", "thread 'main' panicked\n", r"exit code 1\b.*: thread 'main' panicked"),
        (-9, "", "", r"exit code -9\b.*: \S"),
        # A summary of something else.
        (0, re.sub(".*rmdir.*\n", "", said(*RUN).stdout), "", ": Summary: 1 failed, 1 skipped"),
    ],
)
def test_what_ends_without_its_summary_is_an_error(code: int, stdout: str, stderr: str, words: str) -> None:
    with pytest.raises(SuiteError, match=f"^pjdfstest: .*{words}"):
        cases_of(Completed(("pjdfstest",), code, stdout, stderr))


def test_a_difference_is_what_fails_here_and_not_below() -> None:
    here = Cases(frozenset(), {"a::x": "EPERM", "b::y": "ENOSYS"}, {})
    below = Cases(frozenset({"a::x"}), {"b::y": "EIO"}, {})
    assert here.differ_from(below) == {"a::x": "EPERM"}
    assert here.differ_from(posix.ALL_PASS) == here.failed


def test_groups_stand_in_the_order_of_their_numbers() -> None:
    assert by_group(["rmdir::a", "link::a", "link::b", "chmod::c::fifo"]) == ["link 2", "chmod 1", "rmdir 1"]
    assert by_group([]) == []


ORDER = [name for name, _ in RUN]


def test_a_test_case_that_hangs_has_failed_and_the_others_run() -> None:
    asked: list[Sequence[str]] = []

    def run(*chosen: str) -> Completed:
        asked.append(chosen)
        return said(*RUN[:1], summary=False, code=124) if len(asked) == 1 else said(*RUN[2:])

    cases = all_of(run, ("link", "rmdir"), ORDER, 60)
    assert asked == [
        ("link", "rmdir"),
        ("--exact", "pjdfstest::tests::chflags::set", "pjdfstest::tests::rmdir::eexist"),
    ]
    assert cases.passed == {"link::eperm", "rmdir::eexist"}
    assert list(cases.failed) == ["link::exists::fifo"]
    assert re.search(r"\b60 s$", cases.failed["link::exists::fifo"])
    assert list(cases.skipped) == ["chflags::set"]


def test_the_last_one_may_hang_too() -> None:
    cases = all_of(lambda *chosen: said(*RUN[:3], summary=False, code=124), (), ORDER, 60)
    assert cases.passed == {"link::eperm"}
    assert set(cases.failed) == {"link::exists::fifo", "rmdir::eexist"}


def test_the_case_in_which_the_server_was_killed_is_named() -> None:
    runs = [said(*RUN[:1], summary=False, code=124), said(*RUN[2:])]
    cases = all_of(lambda *chosen: runs.pop(0), (), ORDER, 60, lambda: True)
    assert list(cases.failed) == ["link::exists::fifo"]
    assert re.search(r"\b60 s\b.*FUSE", cases.failed["link::exists::fifo"])


@pytest.mark.parametrize(("ended", "where"), [(RUN[:1], " 60 s.* link::eperm$"), ((), " 60 s$")])
def test_where_nobody_knows_which_one_hangs_it_is_an_error(ended: tuple[tuple[str, str], ...], where: str) -> None:
    with pytest.raises(SuiteError, match=rf"^pjdfstest: .*\b{len(ended)} .*{where}"):
        all_of(lambda *chosen: said(*ended, summary=False, code=124), (), (), 60)


def test_it_acts_as_two_users_with_groups_of_their_own() -> None:
    users = posix.two_users()
    assert len(users) == len({group for _, group in users}) == 2
    assert f'entries = [["{users[0][0]}", "{users[0][1]}"], ["{users[1][0]}"' in posix.settings_for(users, 0.01)
    with pytest.raises(SuiteError, match=r"^pjdfstest: .*root, no-such-user$"):
        posix.two_users(["root", "no-such-user"])


def test_what_is_recorded(stack: NotedStack, clock: NotedTimed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fsstack.workloads.base.require", lambda *needs: None)
    below = said(("link::eperm", "FAILED"), *RUN[1:], code=1).stdout
    here = said(*[(name, "FAILED" if how == "ok" else how) for name, how in RUN], code=1).stdout
    outputs = iter([below, here])
    clock.instead = lambda: next(outputs)
    assert set(posix.pjdfstest(clock, stack, cases=["link"])) == {"rmdir::eexist"}
    places = [words[words.index("-p") + 1 :] for words in clock.inside]
    assert places == [(str(stack.stored), "link"), (str(stack.path), "link")]
    assert clock.recorded == {
        "posix_run": (3, "", "higher"),
        "posix_passed": (0, "", "higher"),
        "posix_differences": (1, "", "lower"),
    }
    assert clock.kept["posix_groups"] == ["rmdir 1"]
    assert set(clock.kept["posix_failed"]) == {"link::eperm", "link::exists::fifo", "rmdir::eexist"}


@pytest.mark.parametrize("ran", [(), RUN[2:3]])
def test_a_suite_of_which_no_case_ran_is_an_error(
    ran: tuple[tuple[str, str], ...], stack: NotedStack, clock: NotedTimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fsstack.workloads.base.require", lambda *needs: None)
    clock.instead = lambda: said(*ran).stdout
    with pytest.raises(SuiteError, match=rf"^pjdfstest: none of {len(ran)} "):
        posix.pjdfstest(clock, stack, cases=["renam::"])


def test_each_fuse_mount_up_to_a_place_is_aborted(stack: NotedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind mount may show a FUSE filesystem of the user, so it is left alone."""
    asked: list[Path] = []

    def abort(machine: object, target: Path) -> bool:
        asked.append(target)
        return True

    low, high, bind = (stack.path / name for name in ("low", "high", "bind"))
    roots = {low: "/", high: "/", bind: "/directory"}
    monkeypatch.setattr(
        RealMachine, "mount_at", lambda self, path: Mount("", roots[path], *[""] * 5) if path in roots else None
    )
    monkeypatch.setattr(mounts, "abort_fuse", abort)
    for target in roots:
        target.mkdir()
        stack._places.append(Directory(target))
    for top, aborted in (low, [low]), (bind, [high, low]):
        asked.clear()
        with posix.letting_go(stack, top, 0.0) as let_go:
            assert let_go.wait(60.0)
        assert asked == aborted
