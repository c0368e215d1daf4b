"""Sessions that run in guests of other kernels, ended by a signal: no machine of theirs goes on."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pytest_fsstack.machine import commands
from pytest_fsstack.workloads.data.corpus import cache_directory
from tests.kernel import boot
from tests.torture.place import HUNG, SIZE, Figures, Place, ended_by

#: Seconds: a guest boots in 15 to 25 without KVM.
_LIFE = 40.0


def guests(place: Place) -> Figures:
    """A signal, SIGKILL among them, to pytest or its process group, while a guest boots or works."""
    # A guest has a /tmp and a /var of its own.
    shared = cache_directory()
    shared.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="torture-", dir=shared) as directory:
        scenario = place.random.choice((_ended, _ended, _foreign_disk))
        return scenario(replace(place, directory=Path(directory)), boot.kernel())


#: What may be on the disk of a guest, and how a person might use it there.
_FOREIGN = ("mkfs.ext4 -q /dev/vda", "mkfs.btrfs -q -f /dev/vda", "mkswap -q /dev/vda", "printf data | dd of=/dev/vda")
_USES = ("true", "mount -o ro /dev/vda /mnt", "sleep 1000 </dev/vda &")


def _foreign_disk(place: Place, vmlinuz: Path) -> Figures:
    """A session in a guest is given a disk that holds something, also while it is in use and with the flag."""
    content, use = place.random.choice(_FOREIGN), place.random.choice(_USES)
    if use.startswith("mount") and "mkfs" not in content:
        use = "true"
    flag = "" if use == "true" else "--fsstack-overwrite=/dev/vda"
    place.write("ext4")
    session = " ".join(place.command("-c", "/dev/null", "--rootdir=.", "--fsstack-rounds=1", flag, device="/dev/vda"))
    (place.directory / "script").write_text(
        f"{content} >/dev/null 2>&1; sync; {use}\nsha256sum /dev/vda\n{session} test_it.py\necho exit code $?\n"
        "sync; echo 3 >/proc/sys/vm/drop_caches; sha256sum /dev/vda\n"
    )
    try:
        result = boot.run(
            vmlinuz, ["/bin/sh", "script"], disk_size=SIZE, directory=place.directory, env=place.environment()
        )
    except boot.GuestError as error:
        return place.wrong("not begun", f"a guest with a foreign disk: {error}")
    (place.directory / "output").write_text(result.stdout + result.stderr)
    what = f"a guest's disk after `{content}`, {use}, {flag or 'no flag'}"
    figures: Figures = Counter({"cases": 1})
    if "exit code 4\n" not in result.stdout or "will not be overwritten" not in result.stdout + result.stderr:
        figures += place.wrong("not refused", f"{what}: not refused")
    sums = {line.split()[0] for line in result.stdout.splitlines() if line.endswith("  /dev/vda")}
    if len(sums) != 1:
        figures += place.wrong("bytes written", f"{what}: the disk is another one after the session")
    return figures


def _ended(place: Place, vmlinuz: Path) -> Figures:
    number = place.random.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL))
    group, moment = place.random.random() < 0.5, place.random.uniform(0, _LIFE)
    place.write("ext4")
    # Guests boot before the test loop begins, and signals shall come meanwhile.
    (place.directory / "begun").touch()
    figures: Figures = Counter({"cases": 1})
    what = f"a session in a guest and {number.name} at {moment:.1f} s{' to its group' if group else ''}"
    words = "-p", "xdist", "--fsstack-rounds=1", f"--fsstack-kernel={vmlinuz}"
    with place.session(*words, device="loop") as process:
        commands.wait_until(lambda: _guests(place) or process.poll() is not None, HUNG)
        if process.poll() is not None:
            return figures + place.wrong("not begun", "the session in a guest did not begin")
        time.sleep(moment)
        late = process.poll() is not None
        code = ended_by(process, [number], 0, group=group)
    if code is None:
        figures += place.wrong("hung", f"{what}: hangs")
    elif late:
        figures["too late"] += 1
    elif number != signal.SIGKILL and code != 128 + number:
        figures += place.wrong("wrong exit code", f"{what}: exit code {code}")
    figures += place.tracebacks(what)
    if not commands.wait_until(lambda: not _guests(place), 10.0):
        figures += place.wrong("processes", f"{what}: left behind: {_guests(place)}")
    if number == signal.SIGKILL:
        place.clean_up()
    return figures + place.figures_of_what_is_left(process.pid, what=what)


def _guests(place: Place) -> list[str]:
    """The machines that run for sessions of this place: each names its directory, or one of its processes does."""
    guests = []
    mine = str(place.directory).encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes()
            if b"qemu-system" in words.split(b"\0")[0] and mine in words + (process / "environ").read_bytes():
                guests.append(process.name)
    return guests
