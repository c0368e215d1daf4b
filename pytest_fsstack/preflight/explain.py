"""The commands of a stack, as its layers give them, none of them run.

The stack is built, remounted and taken down by the code that does so in a session, in a scratch directory, with a
recorder in place of what touches the machine. While that goes on, this process cannot start another one, and cannot
write outside of the scratch directory: a layer that tries is an error.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from pytest_fsstack.layers import devices, loopback, lvm, mapper, raid
from pytest_fsstack.machine import commands, directories, mounts, needs, processes, signals
from pytest_fsstack.machine.journal import Kind
from pytest_fsstack.stack.build import BuildError, build
from pytest_fsstack.stack.model import Block, Device, Directory, Place, Site, Stack
from pytest_fsstack.units import format_size

#: What names in the commands stand for, because it is known only when they run.
LEGEND = {
    "DIR": "a directory that the session makes, for mount points",
    "PID": "the number of the session's process",
    "SECRET": "a descriptor from which a random passphrase or key is read; it never is in a file",
    "KEYID": "the public name of a random key",
}

#: Bytes of a device of which nobody can know how large it is.
_NOMINAL = 4 << 30


@dataclass
class Explanation:
    """The lines to show, and why there are no more of them, if not all could be had."""

    lines: list[str] = field(default_factory=list)
    problem: str = ""


def explained(stack: Stack, device: Device) -> Explanation:
    """What a session would run for the stack on the device. Nothing is run, and root is not needed."""
    with directories.scratch(Path(tempfile.gettempdir()).resolve()) as scratch:
        recorder = _Recorder(scratch, device, stack)
        problem = ""
        with _sandbox(recorder), recorder.in_place():
            try:
                recorder.section("build")
                with build(stack, device, recorder.site) as built:
                    recorder.section("remount, so that what is read next comes from the device")
                    built.remount()
                    recorder.section("take down")
            except (BuildError, OSError) as error:
                problem = recorder.with_names(str(error))
        return Explanation(recorder.text(), problem)


# -- what must not happen ----------------------------------------------------------------------------------------------

#: Events of Python (docs of sys.addaudithook) that start a process.
_STARTS = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"))
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

#: The recorder while something is explained; an audit hook cannot be taken away.
_active: list[_Recorder] = []
_hooked: list[Callable[..., None]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _active:
        return
    recorder = _active[0]
    if event in _STARTS:
        raise PermissionError(f"a layer starts a process past this plugin ({event}), which nobody can show")
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
        # Descriptors were opened before.
        if isinstance(arguments[0], int):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        recorder.touched(path)
        if not Path(path).is_relative_to(recorder.scratch):
            raise PermissionError(f"a layer writes to {path}, which nobody can show")


@contextlib.contextmanager
def _sandbox(recorder: _Recorder) -> Iterator[None]:
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked.append(_audit)
    _active.append(recorder)
    try:
        yield
    finally:
        _active.clear()


# -- what happens instead ----------------------------------------------------------------------------------------------


class _Site(Site):
    """Names hold the number of the process, which is another one in each session."""

    def name(self, layer: str) -> str:
        return f"fsstack-PID-{layer}"


class _Process:
    """A command that is not run: it ends at once and well, or stays for as long as it is needed."""

    pidfd, alive = None, True

    def __init__(self, argv: tuple[str, ...], answer: str) -> None:
        self.argv, self._answer = argv, answer
        self.running = self
        self.pid = "PID-OF-THE-DAEMON"

    def send(self, number: int) -> None:
        """There is nothing to end."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def ended(self) -> tuple[int, str, str]:
        return 0, self._answer, ""


#: What code reads from tools before it goes on.
_ANSWERS = {"dmsetup status": "0 1 raid raid6_zr 4 AAAA 1/1 idle 0 0 -"}


class _Recorder:
    """Stands in place of the machine, and keeps what it was asked for, as lines."""

    def __init__(self, scratch: Path, device: Device, stack: Stack) -> None:
        self.scratch, self.device, self.stack = scratch, device, stack
        (scratch / "site").mkdir()
        self.site = _Site(scratch / "site", self)  # type: ignore[arg-type]
        self._sections: list[tuple[str, list[str]]] = []
        self._names: dict[str, str] = {str(scratch / "site"): "DIR"}
        self._places: set[str] = set()
        #: Mappings by name, with the device of each that was seen.
        self._mappings: dict[str, Path | None] = {}
        self._sizes: dict[Path, int] = {}
        self._tables: dict[str, int] = {}
        self._volumes: dict[str, None] = {}
        self._background = False
        self._inexact = False

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Be the machine until the end of the block."""
        start, outlive = processes.start, processes.outlive

        def made(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
            self.say(f"mkdir {'-p ' if parents or exist_ok else ''}{self._quoted(str(path))}")
            if path.resolve().is_relative_to(self.scratch):
                if not parents and not exist_ok:
                    os.mkdir(path, mode)
                else:
                    os.makedirs(path, mode, exist_ok=exist_ok)

        def behind(function: Callable[..., Any]) -> Callable[..., Any]:
            def started(*words: Any, **keywords: Any) -> Any:
                self._background = True
                return function(*words, **keywords)

            return started

        def waited(condition: Callable[[], object], seconds: float) -> bool:
            condition()
            return True

        replaced: tuple[tuple[object, str, object], ...] = (
            (commands, "started", self.started),
            (commands, "wait_until", waited),
            (commands, "syncfs", lambda path: None),
            (processes, "start", behind(start)),
            (processes, "outlive", behind(outlive)),
            (mounts, "at", lambda path: mounts.Mount("0:0", "/", os.fspath(path), "rw", "-", "-", "rw")),
            (mounts, "private_namespace", lambda: True),
            (needs, "load_module", lambda name: False),
            (signals, "limited", self.limited),
            (mapper, "held", self.held),
            (mapper, "block", lambda name, device, written=None: Block(device, _nothing)),
            (mapper, "sectors", self.sectors),
            (raid, "sectors", self.sectors),
            (loopback, "attached", self.attached),
            (devices.DirectoryDevice, "opened", lambda device, site: self.directory(device)),
            (devices.DiskDevice, "opened", lambda device, site: self.disk(device)),
            # What is free on a filesystem that is not there.
            (os, "statvfs", lambda path: os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))),
            (Path, "mkdir", made),
        )
        with contextlib.ExitStack() as undo:
            for owner, name, stand_in in replaced:
                undo.enter_context(mock.patch.object(owner, name, stand_in))
            yield

    # -- lines ---------------------------------------------------------------------------------------------------------

    @property
    def _lines(self) -> list[str]:
        return self._sections[-1][1]

    def say(self, line: str) -> None:
        self._lines.append(line)

    def section(self, title: str) -> None:
        self._sections.append((title, []))

    def text(self) -> list[str]:
        """The sections in which there is anything, below a legend of the names in them."""
        lines = [line for title, lines in self._sections if lines for line in ("", f"## {title}", *lines)]
        words = set(re.findall(r"\b[A-Z]+\b", "\n".join(line for line in lines if not line.startswith("#"))))
        legend = [f"# {name}: {text}" for name, text in LEGEND.items() if name in words]
        return [f"# {self.stack.spec} on {self.device.spec}: what a session runs; nothing was run", *legend, *lines]

    def with_names(self, text: str) -> str:
        """Text with names in place of what is known only when it runs."""
        for path in sorted(self._names, key=len, reverse=True):
            text = text.replace(path, self._names[path])
        text = re.sub(r"/proc/self/fd/\d+", "/proc/self/fd/SECRET", text)
        text = re.sub(r"\blvm-[a-z0-9_]{8}\b", "lvm-XXXXXXXX", text)
        own = str(self.stack)
        return re.sub(r"(?<![0-9a-f])[0-9a-f]{16,}(?![0-9a-f])", lambda it: it[0] if it[0] in own else "KEYID", text)

    def _quoted(self, text: str) -> str:
        return shlex.quote(self.with_names(text))

    def touched(self, path: str) -> None:
        """A file is opened for writing: if it stands for a device, that is what a layer does without a command."""
        if path in self._places:
            self.say(f"# {self._names[path]}: written to by the layer itself")

    # -- commands ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def started(
        self,
        *argv: str | os.PathLike[str],
        stdin: int | None = None,
        fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        outlives: bool = False,
    ) -> Iterator[_Process]:
        """As `commands.started`."""
        words = tuple(os.fspath(word) for word in argv)
        self._look(words)
        line = " ".join(map(self._quoted, words))
        line = " ".join([*(f"{name}={self._quoted(value)}" for name, value in (env or {}).items()), line])
        line += " <&SECRET" if stdin is not None else ""
        line += " &" if self._background else ""
        self._background = False
        self.say(f"(cd {self._quoted(str(cwd))} && {line})" if cwd else line)
        yield _Process(words, _ANSWERS.get(" ".join(words[:2]), ""))

    def _look(self, words: tuple[str, ...]) -> None:
        """Learn from a command what it would make."""
        if words[:2] == ("lvm", "lvcreate"):
            for option, value in itertools.pairwise(words):
                if option in ("--name", "--thinpool"):
                    self._volumes[value] = None
        if words[:3] == ("dmsetup", "create", "--concise"):
            for table in words[3].split(";"):
                name, _, _, _, text = table.split(",", 4)
                self._tables[name] = int(text.split()[1])
        elif words[:2] == ("dmsetup", "create") and "--table" in words:
            self._tables[words[2]] = int(words[words.index("--table") + 1].split()[1])

    @contextlib.contextmanager
    def limited(self, what: str, seconds: float) -> Iterator[None]:
        """As `signals.limited`; it is told what is done with a layer."""
        if what != "closing it":
            layer = self.stack.layers[self.site.depth - 1]
            heading = f"# {layer.name}: {'make it' if what == 'making it' else 'open it'}"
            self.say(heading)
            before = len(self._lines)
            yield
            if len(self._lines) == before:
                self._lines.pop()
            return
        yield

    # -- the journal ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def entry(self, kind: Kind, **facts: object) -> Iterator[_Recorder]:
        """As `Journal.entry`; it is told what will be made."""
        if kind is mapper.MAPPING:
            self._mappings.setdefault(str(facts["name"]), None)
        elif kind is lvm.GROUP:
            for volume in self._volumes:
                self._mappings.setdefault(f"{str(facts['name']).replace('-', '--')}-{volume}", None)
        yield self

    def note(self, **facts: object) -> None:
        """As of an entry."""

    # -- devices -------------------------------------------------------------------------------------------------------

    def _place(self, name: str, size: int | None = None) -> Path:
        """A file that stands for a device, which is shown by this name."""
        path = self.scratch / f"place-{len(self._names)}"
        path.touch()
        self._names[str(path)] = name
        self._places.add(str(path))
        if size is not None:
            self._sizes[path] = size
        return path

    def _numbered(self, kind: str) -> str:
        count = sum(name.startswith(kind) for name in self._names.values())
        return f"{kind}{count + 1 if count else ''}"

    def sectors(self, place: Place) -> int:
        """As `mapper.sectors`: exact on the device, and otherwise as if what is between took no room."""
        if place.path in self._sizes:
            return self._sizes[place.path] // mapper.SECTOR
        if not self._inexact:
            self._inexact = True
            self.say("# lengths are as if the layers below took no room: what they take shows when they are made")
        return next(reversed(self._sizes.values()), _NOMINAL) // mapper.SECTOR

    @contextlib.contextmanager
    def attached(self, image: int, direct_io: bool = True, sector: int = 0) -> Iterator[Block]:
        """As `loopback.attached`, which asks the kernel and needs no command."""
        file, size = os.readlink(f"/proc/self/fd/{image}"), os.fstat(image).st_size
        name = self._numbered("LOOP")
        of = f" of {format_size(size)}" if size else ""
        what = f"a sparse file without a name{of}" if file.endswith(" (deleted)") else f"{self.with_names(file)}{of}"
        self.say(f"# {name}: a loop device over {what}, attached by an ioctl; it is detached at its last close")
        yield Block(self._place(name, size or None), _nothing, blank=True)

    @contextlib.contextmanager
    def directory(self, device: devices.DirectoryDevice) -> Iterator[Directory]:
        """As `DirectoryDevice.opened`."""
        path = self.scratch / "device"
        os.mkdir(path)
        self._names[str(path)] = f"{device.path}/fsstack-XXXXXXXX/data"
        self.say(f"mkdir -p {self._quoted(str(path))}")
        yield Directory(path)
        self.say(f"rm -r {shlex.quote(f'{device.path}/fsstack-XXXXXXXX')}")

    @contextlib.contextmanager
    def disk(self, device: devices.DiskDevice) -> Iterator[Block]:
        """As `DiskDevice.opened`."""
        self.say(f"# {device.path}: checked that nobody uses it and that it is given over, held, emptied and labelled")
        size = Path("/sys/class/block", device.path.resolve().name, "size")
        place = self._place(str(device.path), int(size.read_text()) * mapper.SECTOR if size.exists() else None)
        if device.discard:
            commands.run("blkdiscard", place)
        yield Block(place, _nothing)
        self.say(f"# {device.path}: emptied but for its label")

    @contextlib.contextmanager
    def held(self, ours: Callable[[str], bool], make: Callable[[], object]) -> Iterator[dict[str, Path]]:
        """As `mapper.held`: what it makes goes by itself once nobody uses it any more."""
        make()
        found: dict[str, Path] = {}
        for name in filter(ours, self._mappings):
            known = self._mappings[name]
            if known is None:
                length = self._tables.get(name)
                shown = self._numbered("DM")
                known = self._mappings[name] = self._place(shown, length * mapper.SECTOR if length else None)
                self.say(f"# {shown}: the /dev/dm-N of {name}")
            found[name] = known
        self.say("# held open; from here on they go by themselves with their last user")
        commands.run("dmsetup", "remove", "--deferred", *found, env=commands.mapper_environment())
        if any(volume in self._volumes for volume in ("pool", "snap")) and not found.keys() <= self._tables.keys():
            self.say("# and with them the hidden volumes that LVM made for them")
        yield found


def _nothing() -> None:
    """A check of a device that is not there."""
