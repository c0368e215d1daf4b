"""Stacks of two devices, some with settings: whatever ends the session, both devices are put in order."""

from __future__ import annotations

import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.torture.place import MIRROR, Figures, Place, ended_by, loop

STACKS = (
    MIRROR,
    "ext4(external_log=True)",
    "xfs(external_log=True)",
    f"tuned = {MIRROR} @ queue/read_ahead_kb=64, queue/nomerges=1",
    "ext4 @ queue/read_ahead_kb=96",
)


def two_devices(place: Place) -> Figures:
    """A signal, SIGKILL and a clean-up, or nothing, while stacks of two devices and of one take turns."""
    number = place.random.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL, None))
    moment = place.random.uniform(0, 4)
    with tempfile.TemporaryDirectory(dir=place.directory) as name, loop(Path(name)) as disk:
        path, second = disk.path, Place(Path(name), disk.path, place.random)
        queues = [Path("/sys/block", device.name, "queue") for device in (place.device, path)]
        values = {file: file.read_text() for queue in queues for file in (queue / "read_ahead_kb", queue / "nomerges")}
        place.write(*place.random.sample(STACKS, 2))
        with place.session("--fsstack-rounds=2", device=f"{place.device}+{path}") as process:
            if not place.begun:
                return place.wrong("not begun", "the session did not begin")
            time.sleep(moment)
            late = place.over
            code = ended_by(process, [number] if number else [], 0)
        figures, what = Counter[str](), f"two devices, {number} at {moment:.3f} s"
        if code is None:
            figures += place.wrong("hung", f"hangs after {what}")
        elif late or (number and place.over and code == -number):
            figures["too late"] += 1
        elif code != (128 + number if number and number != signal.SIGKILL else -number if number else 0):
            figures += place.wrong("wrong exit code", f"{what}: exit code {code}")
        if number is signal.SIGKILL:
            place.clean_up()
            for journal in place.journals():
                # What the dead session had formatted, a person must give over again.
                figures["unproved"] = 1
                journal.unlink()
            place.give_over()
        else:
            figures += place.out_of_order(what) if not late else Counter()
            figures += place.unlabelled() + second.unlabelled()
            place.complaints += second.complaints
        figures += place.figures_of_what_is_left(process.pid, what=what)
        changed = {str(file): text for file, value in values.items() if (text := file.read_text()) != value}
        if changed:
            figures += place.wrong("left", f"{what}: settings are not set back: {changed}")
    return figures
