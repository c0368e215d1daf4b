"""Hostile inputs: many in a process that watches itself, and some in whole sessions."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.torture import hostile
from tests.torture.place import Figures, Place, code_of

#: Cases in one try: most of the time of a smaller one goes into starting Python.
CASES = 4000
#: Seconds for all of them.
_PATIENCE = 600.0


def inputs(place: Place) -> Figures:
    """One process with its cases, and one session."""
    count = CASES
    # pytest collects no directory with a dot, so what hostile packages leave here stops no other session.
    here = place.directory / ".hostile"
    here.mkdir(exist_ok=True)
    seed = str(place.random.getrandbits(40))
    what = f"python -m tests.torture.hostile {seed} {count} DIRECTORY"
    figures: Figures = Counter({"cases": count + 1})
    try:
        result = subprocess.run(
            [sys.executable, "-m", "tests.torture.hostile", seed, str(count), here],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        place.complaints.append(f"{what}: hangs")
        return figures + Counter({"hung": 1})
    if result.returncode:
        place.complaints.append(f"{what}: exit code {result.returncode}: {result.stderr[-2000:]}")
        return figures + Counter({"traceback": 1})
    for kind, why in json.loads(result.stdout)["wrong"]:
        figures[kind] += 1
        place.complaints.append(f"{what}: {why}")
    return figures + _session(place)


def _session(place: Place) -> Figures:
    """A whole session, whose ini, stack and directory are of that kind."""
    place.write("ext4")
    text = hostile.text_of(place.random).encode(errors="replace").decode().replace("\0", "")
    name = place.random.choice(("device", "size", "budget", "rounds", "timeout", "alpha", "label", "baseline", "seed"))
    (place.directory / "pytest.ini").write_text(f"[pytest]\nfsstack_{name} = {' '.join(text.split())}\n")
    stack = hostile.mutated(place.random, "ext4(mount='noatime')").encode(errors="replace").decode()
    if place.random.random() < 0.5:
        place.write("ext4")
        test = place.directory / "test_it.py"
        test.write_text(test.read_text().replace("'ext4'", repr(stack)))
    before = _files(place.directory)
    with place.session("--collect-only", device="loop") as process:
        code = code_of(process)
    what = f"fsstack_{name} = {text[:200]!r} with the stack {stack!r}"
    figures: Figures = Counter()
    if code is None:
        figures += place.wrong("hung", f"{what}: hangs")
    elif "Traceback" in place.output or "INTERNALERROR" in place.output or "pytest_fsstack/" in place.output:
        figures += place.wrong("traceback", f"{what}: a traceback")
    elif code not in (0, 2, 4):
        figures += place.wrong("wrong exit code", f"{what}: exit code {code}")
    own = {"output", "begun", "over", "order", "tmp", "__pycache__", ".benchmarks"}
    if made := _files(place.directory) - before - own:
        figures += place.wrong("outside", f"{what}: made {made}")
    return figures


def _files(directory: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return {path.name for path in directory.iterdir()}
    return set()
