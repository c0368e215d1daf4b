"""A directory, a real block device, and sessions in them: what scenarios of the torture share."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, guard, needs
from pytest_fsstack.stack.model import Stack
from tests.real.conftest import Loop, left_of, run
from tests.sessions import FEW_PLUGINS

#: Small, quick to build, and as unlike each other as these can be.
STACKS = (
    *("ext4", "ext4 | gocryptfs", "ext4 | encfs", "btrfs", "xfs", "ext4 | bind", "ext4 | loop(size='16M') | ext2"),
    *("ext3", "luks | ext4", "lvm | ext4", "raid | ext4", "integrity | ext4", "linear | xfs", "f2fs", "ntfs3g"),
    *("ext4 | securefs", "ext4 | fscrypt", "ext4 | ecryptfs", "ext4 | overlay(lower='app:base')"),
    *("bcachefs(encrypted=True)", "zfs(encryption='aes-256-gcm')"),
)
#: These take many seconds to build, or to take down.
SLOW = ("zfs", "ext4 | cryfs")
#: A stack of two devices.
MIRROR = "pool(2) | btrfs(data='raid1', metadata='raid1')"
#: The smallest device that all of them fit on: XFS needs 300 MB.
SIZE = 304 << 20
#: Seconds after which a session counts as hung.
HUNG = 150.0

_TEST = """
import time
import pytest

@pytest.mark.fsstack({stacks})
class TestIt:
    @pytest.mark.benchmark
    def test_write(self, fsstack, timed):
        with timed(cold=False):
            timed.run("sh", "-c", f"dd if=/dev/zero of={{fsstack.path}}/file bs=64k count=16 2>&1; sleep 0.2")

    def test_python(self, fsstack):
        (fsstack.path / "other").write_bytes(bytes(1 << 16))
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            pass
"""

_CONFTEST = """
import contextlib
import os
import pytest
from pytest_fsstack.layers import BUILT_IN

def noting(name, opened):
    @contextlib.contextmanager
    def note(self, below, context):
        with open({order!r}, "a") as order, contextlib.ExitStack() as undo:
            with opened(self, below, context) as place:
                print("+", context.depth, name, file=order, flush=True)
                undo.callback(print, "-", context.depth, name, file=order, flush=True)
                yield place
    return note

for name, layer, opened in [(name, layer, layer.opened) for name, layer in BUILT_IN.items()]:
    layer.opened = noting(name, opened)

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    # It takes no descriptor, of which there may be none. A second session may be here.
    with contextlib.suppress(FileExistsError):
        os.mknod(session.config.rootpath / "begun")

@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config):
    with contextlib.suppress(FileExistsError):
        os.mknod(config.rootpath / "over")
"""

Figures = Counter[str]

#: What a session can leave behind.
LEFT = ("journals", "directories", "loops", "mounts", "processes")


@functools.cache
def _buildable(texts: tuple[str, ...]) -> list[str]:
    return [text for text in texts if not needs.missing(Stack.parse(text, BUILT_IN).needs())]


def stacks() -> list[str]:
    """Those that this machine can build."""
    return _buildable(STACKS + SLOW)


def quick_stacks() -> list[str]:
    """Those of them that a session builds and takes down within seconds."""
    return _buildable(STACKS)


#: What the sessions of all places have said: each undoes at its start what dead ones of any place have left.
SAID: deque[str] = deque(maxlen=100)


@dataclass
class Place:
    """Where a scenario runs its sessions, and what it draws its moments from."""

    directory: Path
    device: Path
    random: random.Random
    #: What was wrong, in words.
    complaints: list[str] = field(default_factory=list)
    #: Whether a device that was given over has been written to here, as it must.
    controlled: bool = False
    #: It starts blank, too.
    _given_over: bool = True

    def write(self, *stacks: str) -> None:
        """The test file of the next session."""
        (self.directory / "test_it.py").write_text(_TEST.format(stacks=", ".join(map(repr, stacks))))
        (self.directory / "conftest.py").write_text(_CONFTEST.format(order=str(self.directory / "order")))
        (self.directory / "pytest.ini").write_text("[pytest]\n")
        for name in "begun", "over", "output", "out.json", "order":
            (self.directory / name).unlink(missing_ok=True)

    def command(self, *arguments: str, device: str = "") -> list[str]:
        where = [f"--basetemp={self.directory / 'tmp'}", f"--fsstack-device={device or self.device}"]
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *where, *arguments]

    def environment(self) -> dict[str, str]:
        """Of a session."""
        return {**os.environ, **FEW_PLUGINS, "TORTURE": str(self.directory)}

    @contextlib.contextmanager
    def session(
        self, *arguments: str, before: Sequence[str] = (), device: str = ""
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A session that runs its first test soon, or has ended before; `before` its command stand others' words.

        It has the place's disk if no other device is named.
        """
        with (self.directory / "output").open("wb") as output:
            process = subprocess.Popen(
                [*before, *self.command(*arguments, device=device)],
                cwd=self.directory,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=self.environment(),
            )
            try:
                commands.wait_until(lambda: self.begun or process.poll() is not None, HUNG)
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                SAID.append(self.output)

    @property
    def begun(self) -> bool:
        return (self.directory / "begun").exists()

    @property
    def over(self) -> bool:
        """Whether there is nothing left to tear down or to report."""
        return (self.directory / "over").exists()

    @property
    def output(self) -> str:
        """What the session printed, if it was begun."""
        path = self.directory / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def complain(self, what: str) -> None:
        self.complaints.append(f"{what}:\n{self.output}")

    def wrong(self, kind: str, what: str) -> Figures:
        """Complain, and return one of that kind."""
        self.complain(what)
        return Counter({kind: 1})

    def tracebacks(self, what: str) -> Figures:
        """Whether a session has printed one."""
        return self.wrong("traceback", f"{what}: a traceback") if "Traceback" in self.output else Counter()

    def clean_up(self) -> None:
        with self.session("--fsstack-cleanup") as process:
            process.wait()

    def left(self, pid: int) -> dict[str, list[str]]:
        """Everything that a session has left behind, by what it is."""
        return {
            "journals": list(map(str, Path("/run/pytest-fsstack").glob(f"{pid}-*"))),
            "directories": list(map(str, (self.directory / "tmp").rglob("fsstack-*"))),
            **left_of(self.directory),
        }

    def figures_of_what_is_left(
        self, pid: int, *, what: str = "", allowed: Sequence[str] = (), seconds: float = 5.0
    ) -> Figures:
        """One for each kind of thing, but those `allowed`, that is still there after so many seconds."""

        def found() -> dict[str, list[str]]:
            return {kind: things for kind, things in self.left(pid).items() if things and kind not in allowed}

        commands.wait_until(lambda: not found(), seconds)
        leftovers = found()
        if leftovers:
            self.complain(f"{what}: left behind: {leftovers}")
        return Counter(leftovers.keys())

    def out_of_order(self, what: str = "") -> Figures:
        """Whether a layer was taken down before one that stood on it, or not at all."""
        order = self.directory / "order"
        standing: list[str] = []
        for line in order.read_text().splitlines() if order.exists() else []:
            sign, _, layer = line.partition(" ")
            if sign == "+":
                standing.append(layer)
            elif not standing or standing.pop() != layer:
                standing.append(f"{layer} before its time")
                break
        if not standing:
            return Counter()
        return self.wrong("out of order", f"{what}: not taken down, or in another order: {standing}")

    def put_in_order(self, what: str = "", *, admitted: bool = False, dead: int = 0) -> Figures:
        """Have what the session could not undo undone by the next one; the disk has its label, or it was said why not.

        `admitted`: the session had a reason to say so. Of one that is `dead`, a clean-up of any place may have said it.
        """
        figures: Figures = Counter()
        output = self.output
        if not guard.labelled(self.device) and not self._blank():
            reason = f"disk {self.device} of the session of process {dead}:"
            if admitted and (str(self.device) in output or any(reason in other for other in SAID)):
                figures["admitted"] += 1
            else:
                figures += self.wrong("unlabelled", f"{what}: the device has no label")
            self.give_over()
        else:
            figures += self.unlabelled()
        if self.journals():
            figures["admitted"] = 1
            self.clean_up()
            for journal in self.journals():
                journal.unlink()
        return figures

    def journals(self) -> list[Path]:
        """Those that sessions of this place have left."""
        mine = f"{self.directory}/".encode(), str(self.device).encode() + b'"'
        devices = []
        for journal in Path("/run/pytest-fsstack").glob("*"):
            with contextlib.suppress(OSError):
                content = journal.read_bytes()
                if any(word in content for word in mine) and not Path("/proc", journal.name.split("-")[0]).exists():
                    devices.append(journal)
        return devices

    def unlabelled(self) -> Figures:
        """Whether the device does not carry the scratch label, as it must after every orderly end. Then give it over.

        It may be blank if no session has come to it since it was given over.
        """
        if guard.labelled(self.device):
            self._given_over = False
            return Counter()
        if self._blank():
            return Counter()
        self.give_over()
        return self.wrong("unlabelled", "the device has no label")

    def _blank(self) -> bool:
        """Whether nothing was written to where each session writes its label and each filesystem its own."""
        with self.device.open("rb", buffering=0) as device:
            return self._given_over and not any(device.read(1 << 20))

    def give_over(self) -> None:
        """Make the device one that needs no flag, whatever is on it now."""
        self._given_over = True
        subprocess.run(["wipefs", "-aq", self.device], check=True)
        with self.device.open("r+b", buffering=0) as device:
            for offset in 0, SIZE - (16 << 20):
                device.seek(offset)
                device.write(bytes(16 << 20))
        subprocess.run(["blkdiscard", "-f", self.device], capture_output=True, check=False)


@contextlib.contextmanager
def loop(directory: Path, name: str = "disk", size: int = SIZE) -> Iterator[Loop]:
    """A loop device, as a disk that sessions are given."""
    image = directory / name
    with image.open("wb") as file:
        file.truncate(size)
    device = Path(run("losetup", "-f", "--show", image))
    try:
        yield Loop(device, image)
    finally:
        run("losetup", "-d", device)
        image.unlink()


Scenario = Callable[[Place], Figures]


def ended_by(
    process: subprocess.Popen[bytes], numbers: Sequence[signal.Signals], pause: float, *, group: bool = False
) -> int | None:
    """Send these signals, `pause` seconds after each other; the exit code, or None if the session hangs."""
    for index, number in enumerate(numbers):
        if index:
            time.sleep(pause)
        with contextlib.suppress(ProcessLookupError):
            # Not waited for, so that the number is still its own.
            (os.killpg if group else os.kill)(process.pid, number)
    return code_of(process)


def code_of(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a session once it has ended, or None if it hangs."""
    try:
        return process.wait(HUNG)
    except subprocess.TimeoutExpired:
        return None
