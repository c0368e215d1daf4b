"""Counterexamples as Python scripts that anybody can run without this project."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_fsstack.correctness import calls
from pytest_fsstack.correctness.calls import shown
from pytest_fsstack.correctness.drawing import REMOUNT, Call

_MAIN = '''

def main() -> int:
    """Make the calls in a new directory. Return 1 if an answer or the state of a file is not the expected one."""
    if len(sys.argv) < 2:
        print(f"usage: {sys.argv[0]} DIRECTORY [COMMAND THAT REMOUNTS IT]")
        return 2
    root = f"{sys.argv[1]}/counterexample-{os.getpid()}"
    os.umask(0o022)
    os.mkdir(root)
    os.chmod(root, 0o777)
    side, wrong = Side(root), 0
    for name, arguments, user, expected in CALLS:
        if name == "remount":
            side.let_go()
            subprocess.run(sys.argv[2], shell=True, check=True) if sys.argv[2:] else input("remount it, then Enter")
            continue
        found = shown(answer(side, name, arguments, user))
        wrong += found != expected
        print(f"{name}{arguments}: {found}" + (f" instead of {expected}" if found != expected else ""))
    for path, parts in STATE.items():
        try:
            states_ = states(side, "mtime" in parts)
        except OSError as error:
            states_ = {path: {"error": error}}
        for part, expected in parts.items():
            found = shown(states_.get(path, {}).get(part))
            wrong += found != expected
            instead = f" instead of {expected}" if found != expected else ""
            print(f"{path or 'the directory'}: {part} {found}{instead}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
'''


def python(way: Sequence[Call], answers: Sequence[str], path: str, state: Mapping[str, Any], title: str) -> str:
    """Return a script that makes calls in a directory, and compares the answers and the state of a path in the end.

    It has the functions of `calls` that these calls need, and nothing else.
    """
    source = inspect.getsource(calls)
    head, _, rest = source.partition("class Side:")
    methods = re.split(r"(?m)^(?=    (?:@|def ))(?<!@contextlib\.contextmanager\n)", rest)
    wanted = {call.name for call in way if call != REMOUNT} | {"__init__", "let_go", "readdir", "listxattr", "mtime"}
    bodies = {re.search(r"def (\w+)", method)[1]: method for method in methods[1:]}  # type: ignore[index]
    last = [*bodies][-1]
    bodies[last], tail = re.split(r"(?m)^(?=# -- )", bodies[last], maxsplit=1)
    while more := {name for kept in wanted for name in re.findall(r"\.(\w+)\(", bodies[kept])} & {*bodies} - wanted:
        wanted |= more
    kept = "".join(method for name, method in bodies.items() if name in wanted)
    kept = re.sub(r"(?m)^    # -- .*\n\n?", "", kept)
    calls_ = "".join(
        f"    ({call.name!r}, {call.arguments!r}, {call.user}, {expected!r}),\n" for call, expected in zip(way, answers)
    )
    states = {path: {part: shown(value) for part, value in state.items() if part != "number"}} if state else {}
    head = head.replace("import struct\n", "import struct\nimport subprocess\nimport sys\n")
    words = title.replace("\\", "\\\\").replace('"', "'")
    head = re.sub(r'\A"""(?s:.*?)"""', lambda _: f'"""{words}"""', head)
    return (
        f"{head}class Side:{methods[0]}{kept.rstrip()}\n\n\n{tail.rstrip()}\n\n\n"
        f"#: Calls, their arguments, the user and the expected answers.\nCALLS = [\n{calls_}]\n"
        f"#: The expected state of a path afterwards.\nSTATE: dict[str, dict[str, str]] = {states!r}\n{_MAIN}"
    )
