"""Waits of the package and the tests: each has a limit that is not too short, or a reason in the list below."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pytest_fsstack

PACKAGE = Path(pytest_fsstack.__file__).parent
#: Methods that wait for ever without an argument.
METHODS = {"acquire", "communicate", "join", "result", "wait"}
#: Functions that wait for ever without a flag.
FUNCTIONS = {"os.wait", "os.wait3", "os.wait4", "os.waitid", "os.waitpid", "signal.sigwait", "signal.pause"}
RUNNING = {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "getoutput")}

ALLOWED = {
    (
        "workloads/data/archive.py",
        "subprocess.Popen",
    ): "reads or writes a regular file beside the stack, for as long as it takes",
    ("workloads/data/archive.py", "process.wait"): "has ended: the block of its Popen is over",
    ("kernels/packages.py", "copying.result"): "its pipe is closed: the tool that wrote to it has ended, with a limit",
    (
        "fleet/laboratory/slurm.py",
        "subprocess.Popen",
    ): "waits for a free host as long as it takes, unless Slurm loses it",
    ("machine/commands.py", "child.wait"): "has just been killed",
    ("machine/commands.py", "self.running.wait"): "has ended: its pidfd says so",
    ("machine/confined.py", "os.waitpid"): "is a command of its own, which its caller ends after a time",
    ("machine/reaper.py", "select.select"): "its work is to wait for the end of the session",
    ("machine/shell.py", "self.process.wait"): "has just been killed",
    ("measuring/timed.py", "os.waitpid"): "has closed its output, which sync does at its end",
    ("measuring/timed.py", "process.wait"): "a workload takes as long as it takes; a signal raises here",
    ("workloads/checks.py", "pending.popleft().result"): "reads a stack for as long as it takes; a signal raises here",
    ("workloads/hardlinks.py", "os.wait4"): "writes to a pipe that has no reader any more",
}


def without_limit(source: str) -> list[str]:
    """Return the calls that wait without a limit."""
    tree = ast.parse(source)
    managed = [item.context_expr for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    return [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for name in [ast.unparse(node.func)]
        if _waits(node, name) or (name == "subprocess.Popen" and node in managed)
    ]


def _waits(call: ast.Call, name: str) -> bool:
    if name in RUNNING:
        return "timeout" not in {keyword.arg for keyword in call.keywords}
    if name in FUNCTIONS:
        return "os.WNOHANG" not in ast.unparse(call)
    if name == "select.select":
        return len(call.args) < 4
    return isinstance(call.func, ast.Attribute) and call.func.attr in METHODS and not (call.args or call.keywords)


def test_all_waits_have_a_limit_or_a_reason_to_have_none() -> None:
    waits = {
        (path.relative_to(PACKAGE).as_posix(), call)
        for path in PACKAGE.rglob("*.py")
        for call in without_limit(path.read_text())
    }
    assert waits == set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "limited"),
    [
        ("process.wait()", False),
        ("process.wait(5.0)", True),
        ("thread.join(timeout=1)", True),
        ("', '.join(words)", True),
        ("process.communicate()[0]", False),
        ("subprocess.run(words, check=True)", False),
        ("subprocess.run(words, timeout=9)", True),
        ("process = subprocess.Popen(words)", True),
        ("with subprocess.Popen(words) as process: pass", False),
        ("os.waitpid(pid, 0)", False),
        ("os.waitpid(pid, os.WNOHANG)", True),
        ("select.select([fd], [], [])", False),
        ("select.select([fd], [], [], 0)", True),
    ],
)
def test_waits_are_known_by_their_calls(source: str, limited: bool) -> None:
    assert (without_limit(source) == []) == limited


# -- tests: the machine's load decides none ----------------------------------------------------------------------------

TESTS = Path(__file__).parents[1]
#: Seconds that a busy machine may add to anything.
LOAD = 10
_CLOCK = re.compile(r"\b(monotonic|perf_counter|time\.time)\(")


def decided_by_load(source: str) -> list[str]:
    """Return what is expected to end within seconds that a busy machine may take for it."""
    calls = list[ast.expr]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and _CLOCK.search(ast.unparse(node)):
            if isinstance(node.ops[-1], (ast.Lt, ast.LtE)) and _is_short(node.comparators[-1]):
                calls.append(node)
        elif isinstance(node, (ast.Assert, ast.IfExp)):
            condition = [call for call in ast.walk(node.test) if isinstance(call, ast.Call)]
            calls += [call for call in condition if _is_awaited(call) and any(map(_is_short, _arguments(call)))]
    return [ast.unparse(node) for node in calls]


def _is_awaited(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] in ("wait", "wait_until", "join", "result")


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_short(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and 0 < node.value < LOAD


def test_no_test_is_decided_by_seconds_that_load_can_take() -> None:
    places = {path.relative_to(TESTS).as_posix(): decided_by_load(path.read_text()) for path in TESTS.rglob("*.py")}
    assert "unit/test_waits.py" in places
    assert {place: expected for place, expected in places.items() if expected} == {}


@pytest.mark.parametrize(
    ("source", "decided"),
    [
        ("assert ended.wait(5)", True),
        ("assert ended.wait(timeout=5)", True),
        ("assert ended.wait(60)", False),
        ("code = 1 if ended.wait(1.0) else 2", True),
        ("assert commands.wait_until(ends, 2.0)", True),
        ("assert time.monotonic() - start < 2", True),
        ("assert 0 < time.perf_counter() - start <= 9.5", True),
        ("assert time.monotonic() - start < 300", False),
        ("assert time.monotonic() - start > 2", False),
        ("ended.wait(1.0)", False),
        ("assert len(names) < 3", False),
    ],
)
def test_expectations_that_load_decides_are_known(source: str, decided: bool) -> None:
    assert bool(decided_by_load(source)) is decided
