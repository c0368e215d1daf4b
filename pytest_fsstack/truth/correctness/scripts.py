"""Counterexamples as Python scripts and C programs that run without this package."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fsstack.truth.correctness import calls
from pytest_fsstack.truth.correctness.calls import shown
from pytest_fsstack.truth.correctness.drawing import REMOUNT, Call
from pytest_fsstack.truth.correctness.findings import KEPT

if TYPE_CHECKING:
    from pytest_fsstack.records.results import Results

_MAIN = '''

def attempt(root: str, others: list[Any]) -> int:
    """Make the calls in a new directory. Return the number of unexpected answers and parts of states."""
    os.umask(0o022)
    os.mkdir(root)
    os.chmod(root, 0o777)
    for other in others:
        other.enter(root)
    side, wrong = Side(root), 0
    for name, arguments, user, process, expected in CALLS:
        if any("ctime" in parts for parts in STATE.values()):
            states(side, True)
            time.sleep(0.011)
        if name == "remount":
            side.let_go()
            [other.enter("") for other in others]
            subprocess.run(sys.argv[2], shell=True, check=True) if sys.argv[2:] else input("remount it, then Enter")
            [other.enter(root) for other in others]
            continue
        if process:
            others[process - 1].start([(name, arguments, user)])
            actual = shown(others[process - 1].answers()[0][0])
        else:
            actual = shown(answer(side, name, arguments, user))
        wrong += actual != expected
        print(f"{name}{arguments}: {actual}" + (f" instead of {expected}" if actual != expected else ""))
    for path, parts in STATE.items():
        try:
            states_ = states(side, "mtime" in parts)
        except OSError as error:
            states_ = {path: {"error": error}}
        for part, expected in parts.items():
            actual = shown(states_.get(path, {}).get(part))
            wrong += actual != expected
            instead = f" instead of {expected}" if actual != expected else ""
            print(f"{path or 'the directory'}: {part} {actual}{instead}")
    if any(AT_ONCE):
        begin = time.monotonic_ns() + 200_000
        for other, calls in zip(others, AT_ONCE):
            other.start(calls, begin)
        actual = [*(shown(result) for other in others for result, *_ in other.answers()), summary(states(side))]
        wrong += actual not in POSSIBLE
        print(f"at once, {AT_ONCE}: {actual}" + " instead of any that is possible" * (actual not in POSSIBLE))
    return wrong


def main() -> int:
    """Attempt it once, or up to 100 times if calls are made at once. Return 1 if there was a difference."""
    if len(sys.argv) < 2:
        print(f"usage: {sys.argv[0]} DIRECTORY [COMMAND THAT REMOUNTS IT]")
        return 2
    others = [Other() for _ in range(PROCESSES)]
    root = f"{sys.argv[1]}/counterexample-{os.getpid()}"
    return int(any(attempt(f"{root}-{number}", others) for number in range(100 if any(AT_ONCE) else 1)))


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["serve"] else main())
'''


def counterexamples(results: Results) -> dict[str, str]:
    """Return the scripts in Python, and if possible in C, of all findings of calls, by file name."""
    scripts: dict[str, str] = {}
    for chain in results.chains:
        samples = (chain.of(step, stack) for step in chain.steps for stack in chain.stacks)
        for finding in (
            each for by_round in samples for sample in by_round.values() for each in sample.kept.get(KEPT, ())
        ):
            if "program" in finding:
                name, (python_, c_) = os.path.basename(finding["script"]), programs(finding["program"])
                scripts |= {name: python_} | ({f"{name.removesuffix('.py')}.c": c_} if c_ else {})
    return scripts


def programs(text: str) -> tuple[str, str]:
    """Return the programs in Python and in C that a finding is described by."""
    program = ast.literal_eval(text)
    way = [Call(*call) for call in program["calls"]]
    answers, path, state, title = (program[key] for key in ("answers", "path", "state", "title"))
    return python(way, answers, path, state, title, program["possible"]), c(way, answers, path, state, title)


def python(
    way: Sequence[Call],
    answers: Sequence[str],
    path: str,
    state: Mapping[str, Any],
    title: str,
    possible: Sequence[Sequence[str]] = (),
) -> str:
    """Return a Python script that makes calls in a directory, and compares the answers and finally the state of a path.

    If two processes make calls at once, `possible` has the allowed answers and states. The script contains only those
    functions of `calls` that it needs.
    """
    source = inspect.getsource(calls)
    head, _, body = source.partition("class Side:")
    body, tail = re.split(r"(?m)^(?=# -- )", body, maxsplit=1)
    methods = re.split(r"(?m)^(?=    (?:@|def ))(?<!@contextlib\.contextmanager\n)", body)
    selected = {"__init__", "let_go", "readdir", "listxattr", "mtime", "ctime"}
    selected |= {call.name for call in way if call != REMOUNT}
    bodies = {re.search(r"def (\w+)", method)[1]: method for method in methods[1:]}  # type: ignore[index]
    tail = tail.partition("\n\nif __name__")[0]
    processes = max((call.process for call in way), default=0)
    if not processes:
        tail = tail.partition("# -- other processes")[0]
    while (
        more := {name for method in selected for name in re.findall(r"\.(\w+)\(", bodies[method])}
        & {*bodies} - selected
    ):
        selected |= more
    code = "".join(method for name, method in bodies.items() if name in selected)
    code = re.sub(r"(?m)^    # -- .*\n\n?", "", code)
    in_order = [(call, expected) for call, expected in zip(way, answers) if not call.at_once]
    calls_ = "".join(
        f"    ({call.name!r}, {call.arguments!r}, {call.user}, {call.process}, {expected!r}),\n"
        for call, expected in in_order
    )
    at_once = [
        [(call.name, call.arguments, call.user) for call in way if call.at_once and call.process == process]
        for process in (1, 2)
    ]
    states = {path: {part: shown(value) for part, value in state.items() if part != "inode"}} if state else {}
    words = title.replace("\\", "\\\\").replace('"', "'")
    head = re.sub(r'\A"""(?s:.*?)"""', lambda _: f'"""{words}"""', head)
    possible_ = "".join(f"    {list(answers)!r},\n" for answers in possible)
    return (
        f"{head}class Side:{methods[0]}{code.rstrip()}\n\n\n{tail.rstrip()}\n\n\n"
        f"#: Calls, their arguments, the user, the process and the expected answers.\nCALLS = [\n{calls_}]\n"
        f"#: The expected state of a path afterwards.\nSTATE: dict[str, dict[str, str]] = {states!r}\n"
        f"#: How many other processes make calls, which at once, and what these may answer and lead to.\n"
        f"PROCESSES = {processes}\nAT_ONCE: list[list[Any]] = {at_once!r}\n"
        f"POSSIBLE: list[list[str]] = [\n{possible_}]\n{_MAIN}"
    )


def c(way: Sequence[Call], answers: Sequence[str], path: str, state: Mapping[str, Any], title: str) -> str:
    """Return a C program that does the same as the script of `python`, empty if several processes make calls.

    It contains only those functions of `calls.c` that it needs.
    """
    source = Path(__file__).with_name("calls.c").read_text()
    if any(call.process or (call != REMOUNT and f"*call_{call.name}(" not in source) for call in way):
        return ""
    usage = '\tif (count < 2)\n\t\treturn puts("usage: DIRECTORY [COMMAND THAT REMOUNTS IT]"), 2;'
    lines = [usage, "\tbegin(words[1]);"]
    for call, expected in zip(way, answers):
        if call == REMOUNT:
            lines.append("\tremount(count > 2 ? words[2] : NULL);")
            continue
        expression = f"call_{call.name}({', '.join(_literal(argument) for argument in call.arguments)})"
        line = f"expect({_literal(str(call))}, {expression}, {_literal(expected)});"
        lines.append(f"\tas_user({call.user});\n\t{line}\n\tas_user(0);" if call.user else f"\t{line}")
    for part, value in state.items():
        if part not in ("inode", "ctime"):
            expression = f"state({_literal(path)}, {_literal(part)})"
            lines.append(f"\texpect({_literal(f'{path}: {part}')}, {expression}, {_literal(shown(value))});")
    main = "\n".join(["int main(int count, char **words)", "{", *lines, "\treturn wrong > 0;", "}"])
    head, *functions = re.split(r"\n\n(?=\S)", source.strip())
    selected: list[str] = []
    words = set(re.findall(r"\w+", main))
    for function in reversed(functions):
        names = re.findall(r"(\w+)\(", function.partition("\n{")[0].partition(" { ")[0])[-1:]
        if not names or names[0] in words:
            selected.append(function)
            words |= {*re.findall(r"\w+", function)} if names else set()
    return "\n\n".join([f"/* {title.replace('*/', '* /')} */", head, *reversed(selected), main, ""])


def _literal(value: Any) -> str:
    """Return a number or a string as a C literal."""
    if not isinstance(value, str):
        return str(value)
    return '"' + "".join(chr(byte) if chr(byte) in _PLAIN else f"\\{byte:03o}" for byte in os.fsencode(value)) + '"'


_PLAIN = {*map(chr, range(32, 127))} - {*'"\\?'}
