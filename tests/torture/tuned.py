"""Settings of stacks: whatever ends the session, and whoever writes to them meanwhile, they are set back or told."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

from pytest_fsstack.machine import commands
from tests.torture.place import HUNG, Figures, Place, ended_by

#: Of the place's own disk, since what is global to the machine would be another scenario's too.
STACK = "tuned = ext4 @ queue/read_ahead_kb=64, queue/nomerges=1, queue/scheduler=none"
FOREIGN = "96"


def settings(place: Place) -> Figures:
    """A signal, SIGKILL and a clean-up, or a foreign writer, while a stack with settings stands."""
    queue = Path("/sys/block", place.device.name, "queue")
    values = {name: (queue / name).read_text() for name in ("read_ahead_kb", "nomerges", "scheduler")}
    read_ahead, figures = queue / "read_ahead_kb", Counter[str]()
    how = place.random.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM, None))
    moment = place.random.uniform(0, 0.5)
    place.write(STACK)
    with place.session("--fsstack-rounds=4") as process:
        commands.wait_until(lambda: read_ahead.read_text() == "64\n" or process.poll() is not None, HUNG)
        time.sleep(moment)
        if how:
            code = ended_by(process, [how], 0)
        else:
            # Before the session has the last word, or has none left.
            written = read_ahead.read_text() == "64\n" and read_ahead.write_text(f"{FOREIGN}\n")
            code = ended_by(process, [], 0)
    if how is None and read_ahead.read_text() == f"{FOREIGN}\n":
        # Between the last block and the end of the last round nothing is measured any more.
        is_reported = f"{read_ahead} is {FOREIGN}, not 64" in place.output
        figures["controls"] += is_reported
        if not is_reported and code:
            figures += place.wrong("wrong report", "a foreign change of a setting is not told")
        read_ahead.write_text(values["read_ahead_kb"])
    elif how is None and written and code not in (0, 1):
        figures += place.wrong("wrong exit code", f"a foreign change of a setting: exit code {code}")
    if how is signal.SIGKILL:
        place.clean_up()
    elif code is None:
        figures += place.wrong("hung", f"hangs after {how}")
    changed = {name: text for name, value in values.items() if (text := (queue / name).read_text()) != value}
    if changed:
        figures += place.wrong("left", f"settings are not set back: {changed}, which were {values}")
    if how is not signal.SIGKILL:
        return figures + place.put_in_order(f"settings, {how}")
    # What the dead session had formatted, a person must give over again.
    for journal in place.journals():
        journal.unlink()
    place.give_over()
    return figures
