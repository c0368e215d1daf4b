"""Sessions of which one call of one command goes wrong, each command that they run in its turn."""

from __future__ import annotations

import re
import threading
from collections import Counter

from tests.torture.place import HUNG, Figures, Place, code_of, quick_stacks
from tests.torture.tools import DAEMONS, FAULTS, Faulty, Noting

#: What --fsstack-timeout is in these sessions, in seconds.
LIMIT = 10
#: Of the faults, those that a session is told of by the command's end: it has to say so.
_TOLD = ("failing", "failing after its work", "saying what is no text", "killed", "killed after its work")

#: What the test itself runs may take as long as it likes; and the others are asked by pytest-benchmark and Python's
#: `platform` as well, which wait for ever.
_WITHOUT_LIMIT = frozenset({"sh", "file", "git", "hg", "uname"})

_recorded: dict[tuple[str, str], Counter[str]] = {}
_recording = threading.Lock()


def fault(place: Place) -> Figures:
    """One call, of any command, goes wrong."""
    stack, device = place.random.choice(quick_stacks()), place.random.choice(("loop", str(place.device)))
    counts = recorded(place, stack, device)
    name = place.random.choice(sorted(counts))
    number = place.random.randint(1, counts[name])
    kinds = [kind for kind in FAULTS if not (name in DAEMONS and kind.endswith("after its work"))]
    if name in _WITHOUT_LIMIT:
        kinds = [kind for kind in kinds if not kind.startswith(("hanging", "stopped"))]
    kind = place.random.choice(kinds)
    place.write(stack)
    faulty = Faulty(place.directory, name, number, kind, place.random.randbytes(3000))
    what = f"`{stack}` on {device}, call {number} of {name} {kind}"
    figures: Figures = Counter({"cases": 1})
    try:
        with place.session(
            *("--fsstack-rounds=1", f"--fsstack-timeout={LIMIT}", "--fsstack-json=out.json", "-ra"),
            device=device,
            before=["env", f"PATH={faulty.path}"],
        ) as process:
            code = code_of(process)
        figures += judged(place, what, code)
        if faulty.fired and code == 1 and kind in _TOLD and name not in (first := first_failure(place.output)):
            figures += place.wrong("wrong report", f"{what}: the first failure is not that one: {first}")
    finally:
        faulty.remove()
    figures += place.figures_of_what_is_left(process.pid, what=what, allowed=admitted(place))
    figures += place.out_of_order(what)
    # A tool that fails while the disk is emptied leaves it so.
    figures += place.put_in_order(what, admitted=bool(code))
    return figures


def recorded(place: Place, stack: str, device: str) -> Counter[str]:
    """What a session runs that nothing happens to, and how often."""
    key = stack, "loop" if device == "loop" else "disk"
    with _recording:
        if key not in _recorded:
            place.write(stack)
            noting = Noting(place.directory)
            with place.session(
                "--fsstack-rounds=1", "--fsstack-json=out.json", device=device, before=["env", f"PATH={noting.path}"]
            ) as process:
                process.wait(HUNG)
            if process.returncode:
                raise AssertionError(f"{stack}: {place.output}")
            _recorded[key] = noting.counts()
    return _recorded[key]


def judged(place: Place, what: str, code: int | None) -> Figures:
    """What a session made of it that something was wrong: it ended, told, and told no lie."""
    output = place.output
    if code is None:
        return place.wrong("hung", f"{what}: hangs")
    if "Traceback (most recent call last)" in output or "INTERNALERROR" in output:
        return place.wrong("traceback", f"{what}: a traceback")
    if re.search(r"^\S*/pytest_fsstack/\S+:\d+: ", output, re.MULTILINE):
        return place.wrong("traceback", f"{what}: an error with lines of the plugin's code")
    if code == 0:
        # Both tests of the one stack have passed, or were skipped for a reason that is shown.
        if re.search(r"\b2 passed", output) or re.search(r"SKIPPED .*: .+", output):
            return Counter({"not needed": 1})
        return place.wrong("swallowed", f"{what}: exit code 0")
    if code not in (1, 4):
        return place.wrong("wrong exit code", f"{what}: exit code {code}")
    failures = re.findall(r"^E +(\S.*)", output, re.MULTILINE)
    repeated = [line for line, count in Counter(failures).items() if count > 2 and len(line) > 40]
    if repeated:
        return place.wrong("wrong report", f"{what}: said again and again: {repeated[0]}")
    return Counter()


def admitted(place: Place) -> tuple[str, ...]:
    """What a session has said that it could not undo may be there until the next one."""
    return ("journals", "directories", "mounts", "loops") if "--fsstack-cleanup" in place.output else ()


def first_failure(output: str) -> str:
    """What a session shows of its first failure, or all that it says if it shows none."""
    failure = re.search(r"^_{3,} .* _{3,}$(.*?)(?=^(_{3,}|={3,}) )", output, re.MULTILINE | re.DOTALL)
    return failure[1] if failure else output
