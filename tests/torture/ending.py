"""Ends of sessions: by signals at random moments of their lives, and by themselves on a busy machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.torture.place import HUNG, Figures, Place, ended_by, stacks

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Seconds that a session of this length takes, roughly: the moments are drawn from these.
_LIFE = 2.5


def one_signal(place: Place) -> Figures:
    """One signal; sometimes a second one, of the same kind, that hurries."""
    chosen = place.random.sample(stacks(), 2)
    number = place.random.choice(ENDING)
    count = place.random.choice((1, 1, 1, 2))
    moment, pause = place.random.uniform(0, _LIFE), place.random.uniform(0, 0.5)
    place.write(*chosen)
    found: Figures = Counter()
    with place.session("--fsstack-rounds=4", "--fsstack-json=out.json") as process:
        if not place.begun:
            place.complain("the session did not begin")
            return Counter({"not begun": 1})
        time.sleep(moment)
        late = place.over
        code = ended_by(process, [number] * count, pause)
    if code is None:
        place.complain(f"hangs after {count} {number.name} at {moment:.3f} s")
        found["hung"] += 1
    elif late or (place.over and code == -number):
        # It came when all was over, so it ended the interpreter, or nothing.
        found["too late"] += 1
    elif code != 128 + number:
        place.complain(f"{count} {number.name} at {moment:.3f} s: exit code {code}")
        found["wrong exit code" if code else "swallowed"] += 1
    elif "Traceback" in place.output:
        place.complain("a traceback")
        found["traceback"] += 1
    found += place.figures_of_what_is_left(process.pid)
    found += place.unlabelled()
    if found["unlabelled"]:
        place.give_over()
    return found


def teardowns(place: Place) -> Figures:
    """Every stack is built and taken down, by a session that gets less of the processors than others do."""
    chosen = place.random.sample(stacks(), len(stacks()))
    place.write(*chosen)
    found: Figures = Counter()
    with busy_processors(), place.session("--fsstack-rounds=1", "-k", "python", before=["nice", "-n", "19"]) as process:
        try:
            code: int | None = process.wait(HUNG)
        except subprocess.TimeoutExpired:
            code = None
    if code is None:
        place.complain("a session that nothing ended hangs")
        found["hung"] += 1
    elif code:
        place.complain(f"a session that nothing ended: exit code {code}")
        found["wrong exit code"] += 1
    found["teardowns"] += len(chosen)
    found += place.figures_of_what_is_left(process.pid)
    found += place.unlabelled()
    if found["unlabelled"]:
        place.give_over()
    return found


@contextlib.contextmanager
def busy_processors() -> Iterator[None]:
    """One process for each, that leaves others what they need but the session of a scenario little."""
    loop = ["nice", "-n", "15", "sh", "-c", "while :; do :; done"]
    processes = [subprocess.Popen(loop) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def killed(place: Place) -> Figures:
    """SIGKILL: the kernel takes away what stands, and no child goes on."""
    chosen = place.random.sample(stacks(), 2)
    moment = place.random.uniform(0, _LIFE)
    place.write(*chosen)
    with place.session("--fsstack-rounds=4") as process:
        if not place.begun:
            place.complain("the session did not begin")
            return Counter({"not begun": 1})
        time.sleep(moment)
        process.kill()
        process.wait()
    found: Figures = Counter()
    # These are for the clean-up.
    found += place.figures_of_what_is_left(process.pid, allowed=("journals", "directories"))
    with place.session("--fsstack-cleanup") as cleaning:
        cleaning.wait()
    if f"left alone: disk {place.device}" in place.output:
        # Killed before it could write down what it had formatted: a person must say that nobody needs the contents.
        found["unproved"] += 1
        for journal in place.left(process.pid)["journals"]:
            Path(journal).unlink()
    found += place.figures_of_what_is_left(process.pid)
    place.give_over()
    return found
