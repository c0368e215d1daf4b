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

from pytest_fsstack.machine import commands
from tests.torture.place import HUNG, SAID, Figures, Place, code_of, ended_by, quick_stacks, stacks

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Seconds that a session of this length takes, roughly: the moments are drawn from these.
_LIFE = 2.5


def one_signal(place: Place) -> Figures:
    """One signal; sometimes a second one, of the same kind, that hurries; to pytest or to its whole process group."""
    chosen = place.random.sample(stacks(), 2)
    group = place.random.random() < 0.3
    number = place.random.choice(ENDING)
    count = place.random.choice((1, 1, 1, 2))
    moment, pause = place.random.uniform(0, _LIFE), place.random.uniform(0, 0.5)
    place.write(*chosen)
    figures: Figures = Counter()
    with place.session("--fsstack-rounds=4", "--fsstack-json=out.json") as process:
        if not place.begun:
            return place.wrong("not begun", "the session did not begin")
        time.sleep(moment)
        late = place.over
        code = ended_by(process, [number] * count, pause, group=group)
    what = f"{count} {number.name} at {moment:.3f} s{' to its group' if group else ''}"
    if code is None:
        figures += place.wrong("hung", f"hangs after {what}")
    elif late or (place.over and code == -number):
        # It came when all was over, so it ended the interpreter, or nothing.
        figures["too late"] += 1
    elif code != 128 + number:
        figures += place.wrong("wrong exit code" if code else "swallowed", f"{what}: exit code {code}")
    else:
        figures += place.tracebacks(what)
    figures += place.figures_of_what_is_left(process.pid)
    if not late:
        figures += place.out_of_order(what)
    return figures + place.unlabelled()


def teardowns(place: Place) -> Figures:
    """Some stacks are built and taken down, by a session that gets less of the processors than others do."""
    chosen = place.random.sample(quick_stacks(), min(7, len(quick_stacks())))
    place.write(*chosen)
    figures: Figures = Counter()
    with busy_processors(), place.session("--fsstack-rounds=1", "-k", "python", before=["nice", "-n", "19"]) as process:
        code = code_of(process)
    if code is None:
        figures += place.wrong("hung", "a session that nothing ended hangs")
    elif code:
        figures += place.wrong("wrong exit code", f"a session that nothing ended: exit code {code}")
    figures["teardowns"] += len(chosen)
    figures += place.figures_of_what_is_left(process.pid)
    return figures + place.unlabelled()


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
    """SIGKILL, to pytest or to its whole process group: the kernel takes away what stands, and no child goes on.

    What it cannot take away, the next session does, or else a clean-up that was asked for.
    """
    chosen = place.random.sample(stacks(), 2)
    moment = place.random.uniform(0, _LIFE)
    group = place.random.random() < 0.5
    place.write(*chosen)
    with place.session("--fsstack-rounds=4") as process:
        if not place.begun:
            return place.wrong("not begun", "the session did not begin")
        time.sleep(moment)
        (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
    # These are for the clean-up.
    figures = place.figures_of_what_is_left(process.pid, allowed=("journals", "directories"))
    if place.random.random() < 0.5:
        figures += _next_session(place, process.pid)
    place.clean_up()
    if f"left alone: disk {place.device}" in place.output:
        # Killed before it could write down what it had formatted: a person must say that nobody needs the contents.
        figures["unproved"] += 1
        for journal in place.left(process.pid)["journals"]:
            Path(journal).unlink()
    figures += place.figures_of_what_is_left(process.pid)
    place.give_over()
    return figures


def _next_session(place: Place, pid: int) -> Figures:
    """It undoes what proves to be the dead one's, but for what a disk holds, and says so in one line."""
    leftovers = place.left(pid)
    place.write("ext2")
    with place.session("--fsstack-rounds=1", device="loop") as process:
        code = process.wait(HUNG)
    figures: Figures = Counter()
    if code:
        figures += place.wrong("wrong exit code", f"the session after one that was killed: exit code {code}")
    lines = [line for line in place.output.splitlines() if f"of process {pid}" in line or "left alone" in line]
    elsewhere = leftovers["directories"] and not lines and not place.left(pid)["directories"]
    # Another session has come first then, and says it, if it is not killed before.
    if elsewhere and not commands.wait_until(lambda: any(f"of process {pid}" in text for text in list(SAID)), HUNG):
        figures["unsaid"] += 1
    if len(lines) > 1:
        figures += place.wrong("wrong report", f"the session after one that was killed says more than a line: {lines}")
    # Directories with files are for the clean-up too.
    allowed = "journals", "directories"
    return figures + place.figures_of_what_is_left(pid, what="after the next session", allowed=allowed)
