"""Devices that are somebody else's: whatever is on them and whoever uses them, not a byte of them changes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from pytest_fsstack.machine import commands, guard
from pytest_fsstack.machine.descriptors import opened
from tests import guarding
from tests.real.conftest import Loop, run
from tests.real.machine.test_foreign_contents import BY_HAND, TOOLS
from tests.real.machine.test_groups import behind_a_loop, read_only
from tests.real.machine.test_hidden_users_of_devices import DESCRIPTORS_OF_ITS_OWN, MAIN_THREAD_ENDED, MAPPING, running
from tests.torture.place import HUNG, MIRROR, Figures, Place, code_of, loop as loop_device

_MIB = 1 << 20
_SIZE = 320 * _MIB

#: How a session may be told of the device, besides by its name.
_UNHEARD = ("", "", "addopts = --fsstack-overwrite={device}", "fsstack_overwrite = {device}")

_FLIP = """
import os

left = [{after}]

def pytest_runtest_setup(item):
    if left[0] == 0:
        os.symlink({other!r}, "new")
        os.replace("new", {link!r})
    left[0] -= 1
"""


_FLIP_LATER = """
import threading

def flip():
    os.symlink({other!r}, {link!r} + ".new")
    os.replace({link!r} + ".new", {link!r})

timer = threading.Timer({moment}, flip)
timer.daemon = True
timer.start()
"""


def wrong_device(place: Place) -> Figures:
    """A device that is not given over, alone or one of two: something is on it, or somebody uses it, or both."""
    with _foreign(place) as (loop, on_it):
        name = place.random.choice(sorted(_USES))
        if name == "mounted" and on_it not in ("ext4", "xfs", "btrfs"):
            name = "open"
        with ExitStack() as using:
            using.enter_context(_USES[name](loop, place))
            what = f"{on_it}, {name}"
            path = _named(place, loop.path, using)
            # Nobody gives over what is in use, not even with the flag.
            flag = place.random.random() < 0.5 and name != "idle"
            before = _blocks(loop)
            figures = _guarded(place, what, path, flag)
            unheard = place.random.choice(_UNHEARD).format(device=path)
            names = [str(path), str(place.device)][: place.random.randint(1, 2)]
            device = "+".join(place.random.sample(names, len(names)))
            code = _session(place, device, *([f"--fsstack-overwrite={path}"] if flag else []), ini=unheard)
            # An ini may not hold the flag at all, which is said before a device is looked at.
            refused = "will not be overwritten" in place.output or (unheard and "overwrite" in place.output)
            if code != 4 or not refused:
                figures += place.wrong(
                    "not refused", f"{what}, by {device}, flag {flag}, ini {unheard!r}: exit code {code}"
                )
            figures += _written(place, what, before, _blocks(loop))
        if not place.controlled or place.random.random() < 0.2:
            place.controlled = True
            figures += _control(place, loop)
        figures += place.unlabelled()
    return figures + Counter({"cases": 1})


def exchanged(place: Place) -> Figures:
    """Between two tests of a session its device's name comes to lead to another device, blank or not."""
    with _foreign(place, blank=place.random.random() < 0.3) as (other, on_it):
        link = place.directory / "link"
        link.symlink_to(place.device)
        after = place.random.randint(0, 3)
        before = _blocks(other)
        place.write("ext4", "ext2", "ext3")
        conftest = place.directory / "conftest.py"
        conftest.write_text(conftest.read_text() + _FLIP.format(after=after, other=str(other.path), link=str(link)))
        with place.session("--fsstack-rounds=2", device=str(link)) as process:
            code = process.wait(HUNG)
        link.unlink()
        what = f"exchanged for {on_it} before test {after + 1}"
        figures: Figures = _written(place, what, before, _blocks(other))
        if code != 1 or "is not the device any more that it was at first" not in place.output:
            figures += place.wrong("not refused", f"{what}: exit code {code}")
        figures += place.tracebacks(what)
        figures += place.figures_of_what_is_left(process.pid, what=what)
        figures += place.unlabelled()
    return figures + Counter({"cases": 1})


def redirected(place: Place) -> Figures:
    """The link that --fsstack-overwrite names leads to a foreign device from some moment of the start on."""
    with _foreign(place) as (other, on_it), ExitStack() as undo:
        link = place.directory / "link"
        undo.callback(link.unlink)
        link.symlink_to(place.device)
        before = _blocks(other)
        place.write("ext4", "ext2")
        moment = place.random.uniform(0, 3.0)
        # From conftest on: until the command line has been read, the name means whatever it leads to.
        conftest = place.directory / "conftest.py"
        flip = _FLIP_LATER.format(moment=moment, other=str(other.path), link=str(link))
        conftest.write_text(conftest.read_text() + flip)
        with place.session("--fsstack-rounds=2", f"--fsstack-overwrite={link}", device=str(link)) as process:
            code = process.wait(HUNG)
        what = f"{on_it} behind the flag's link after {moment:.2f} s"
        figures: Figures = Counter({"cases": 1}) + _written(place, what, before, _blocks(other))
        if code not in (0, 1, 4) or "Traceback" in place.output:
            figures += place.wrong("wrong exit code", f"{what}: exit code {code}")
        figures += place.figures_of_what_is_left(process.pid, what=what)
    return figures + place.unlabelled()


def aliases(place: Place) -> Figures:
    """A device is in use under another name, and the session is given it by this one, with the flag."""
    with _foreign(place) as (loop, on_it), ExitStack() as undo:
        alias = Loop(Path(run("losetup", "-f", "--show", loop.image)), loop.image)
        undo.callback(run, "losetup", "-d", str(alias.path))
        mounted = on_it in ("ext4", "xfs", "btrfs")
        undo.enter_context(_mounted(alias, place) if mounted else opened(alias.path, os.O_RDONLY | os.O_EXCL))
        before = _blocks(loop)
        code = _session(place, str(loop.path), f"--fsstack-overwrite={loop.path}")
        what = f"{on_it}, {'mounted' if mounted else 'open'} through {alias.path}"
        figures: Figures = Counter({"cases": 1})
        if code != 4 or "will not be overwritten" not in place.output:
            figures += place.wrong("not refused", f"{what}: exit code {code}")
        return figures + _written(place, what, before, _blocks(loop))


def two_sessions(place: Place) -> Figures:
    """A second session comes to a device at some moment of the first one's life."""
    place.write("ext4", "ext4 | bind")
    figures: Figures = Counter({"cases": 1})
    with place.session("--fsstack-rounds=3", "-v") as first:
        if not place.begun:
            return place.wrong("not begun", "the session did not begin")
        time.sleep(place.random.uniform(0, 2))
        second = subprocess.run(
            [*place.command("--fsstack-rounds=1"), f"--basetemp={place.directory / 'tmp2'}"],
            cwd=place.directory,
            capture_output=True,
            text=True,
            timeout=HUNG,
            env=place.environment(),
        )
        late = first.poll() is not None
        code = first.wait(HUNG)
    if code:
        figures += place.wrong("wrong exit code", f"the first of two sessions: exit code {code}")
    if late:
        figures["too late"] += 1
    elif second.returncode != 4 or "is testing it" not in second.stdout + second.stderr:
        # It may have ended in the moment between.
        if place.over and second.returncode == 0:
            figures["too late"] += 1
        else:
            output = f"{second.returncode}: {second.stdout + second.stderr}"
            figures += place.wrong("not refused", f"the second of two sessions: {output}")
    figures += place.figures_of_what_is_left(first.pid)
    return figures + place.unlabelled()


# -- what is on it -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _foreign(place: Place, *, blank: bool = False) -> Iterator[tuple[Loop, str]]:
    """A loop device with something on it, and what that is."""
    with loop_device(place.directory, "foreign", _SIZE) as device:
        kinds = [kind for kind, tool in TOOLS.items() if commands.which(tool[0])]
        # These need a driver that tells of them, or a second go.
        kinds = [kind for kind in kinds if kind not in ("md", "bcache")]
        kind = "blank" if blank else place.random.choice([*kinds, *BY_HAND, "noise"])
        if kind in BY_HAND:
            BY_HAND[kind](device)
        elif kind == "noise":
            _noise(place, device)
        elif kind != "blank":
            run(*TOOLS[kind], device.path, *(("77824",) if kind == "ext4 at 1 MiB" else ()), stdin="passphrase")
        yield device, kind


def _noise(place: Place, loop: Loop) -> None:
    """Some bytes anywhere in the first or last 16 MiB, where all is read, or long enough to meet one of the samples."""
    length = place.random.randint(1, 5000)
    start = place.random.choice((0, _SIZE - 16 * _MIB))
    offset = start + place.random.randrange(16 * _MIB - length)
    if place.random.random() < 0.3:
        length, offset = 4 * _MIB, place.random.randrange(20, 280) * _MIB
    loop.write(b"\x01" + place.random.randbytes(length - 1), offset)


def _blocks(loop: Loop) -> dict[int, int]:
    """A sum of each MiB that is not empty."""
    return {offset: zlib.crc32(data) for offset, data in loop.contents()}


def _written(place: Place, what: str, before: dict[int, int], after: dict[int, int]) -> Figures:
    changed = [offset for offset in before.keys() | after.keys() if before.get(offset) != after.get(offset)]
    if changed:
        place.complain(f"{what}: written to, in {len(changed)} blocks of 1 MiB from {min(changed)} on")
    return Counter({"bytes written": len(changed) * _MIB}) if changed else Counter()


# -- who uses it -------------------------------------------------------------------------------------------------------

Use = Callable[[Loop, Place], AbstractContextManager[object]]


@contextlib.contextmanager
def _mounted(loop: Loop, place: Place) -> Iterator[None]:
    target = place.directory / "mounted"
    target.mkdir(exist_ok=True)
    # Without writing: nothing that the kernel itself does shall be taken for the session's.
    run("mount", "-o", "ro", loop.path, target)
    try:
        yield
    finally:
        run("umount", target)


def _open(loop: Loop, place: Place) -> AbstractContextManager[int]:
    return opened(loop.path, place.random.choice((os.O_RDONLY, os.O_RDWR, os.O_RDONLY | os.O_EXCL)))


@contextlib.contextmanager
def _locked(loop: Loop, place: Place) -> Iterator[None]:
    with guard.held(guard.identify(loop.path), overwrite=True):
        yield


_USES: dict[str, Use] = {
    "idle": lambda loop, place: contextlib.nullcontext(),
    "mounted": _mounted,
    "open": _open,
    "held by another session": _locked,
    "behind a loop device": lambda loop, place: behind_a_loop(loop, place.directory),
    "read-only": lambda loop, place: read_only(loop, place.directory),
    "open in a thread whose process seems dead": lambda loop, place: running(MAIN_THREAD_ENDED, loop.path),
    "open in a thread with descriptors of its own": lambda loop, place: running(DESCRIPTORS_OF_ITS_OWN, loop.path),
    "mapped into memory": lambda loop, place: running(MAPPING, loop.path),
}


# -- how it is named, and what a session makes of it -------------------------------------------------------------------


def _named(place: Place, path: Path, undo: ExitStack) -> Path:
    """The device by its name, by a link, or by a node of its own."""
    how = place.random.choice(("name", "name", "link", "node"))
    if how == "name":
        return path
    name = place.directory / "other name"
    undo.callback(name.unlink)
    if how == "link":
        name.symlink_to(path)
    else:
        status = path.stat()
        os.mknod(name, status.st_mode, status.st_rdev)
    return name


def _guarded(place: Place, what: str, path: Path, flag: bool) -> Figures:
    """The guard itself, in this process."""
    try:
        with guarding.claimed(path, overwrite=flag):
            pass
    except guard.Refused:
        return Counter()
    return place.wrong("not refused", f"{what}: claimed by {path}")


def _session(place: Place, device: str, *arguments: str, ini: str = "") -> int | None:
    place.write(MIRROR if "+" in device else "ext4")
    (place.directory / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    with place.session("--fsstack-rounds=1", *arguments, device=device) as process:
        # Another try may hang in the same way, so the end of the block kills it.
        return code_of(process)


def _control(place: Place, loop: Loop) -> Figures:
    """The same device, idle and given over: it is written to, or the figures above would prove nothing."""
    before = _blocks(loop)
    code = _session(place, str(loop.path), f"--fsstack-overwrite={loop.path}")
    if code == 0 and before != _blocks(loop):
        return Counter({"controls": 1})
    return place.wrong("failed controls", f"given over, and not written to: exit code {code}")
