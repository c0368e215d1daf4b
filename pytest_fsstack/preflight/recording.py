"""A machine that only records, for `fsstack stacks explain`, dry runs and tests of layers."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pytest_fsstack.machine.commands import CommandError
from pytest_fsstack.machine.journal import Fact, Journal, Kind, OpenEntry
from pytest_fsstack.machine.port import Loop, Mount, Word
from pytest_fsstack.units import format_size

#: A command's stdout, or its error. A function is called for each run.
Answer = str | CommandError | Callable[[], str]

#: Outputs of tools that layers wait for.
_ANSWERS: Mapping[str, Answer] = {"": "", "dmsetup status": "0 1 raid raid6_zr 4 AAAA 1/1 idle 0 0 -"}

#: The default size of a device in sectors: 4 GiB.
_NOMINAL = 4 << 21

#: A number that no process can have.
_NO_PROCESS = 2**31 - 1


class RecordedDaemon:
    """A server that was never started, and always seems to run."""

    pid, alive = _NO_PROCESS, True

    def __init__(self, argv: tuple[str, ...]) -> None:
        self.argv = argv

    def error(self, when: str = "at once") -> CommandError:
        return CommandError(self.argv, 0, "", f"it ended {when}")

    def stop(self, patience: float = 10.0) -> None:
        """Do nothing, because there is no process."""

    def kill(self) -> None:
        """Do nothing, because there is no process."""


class RecordingMachine:
    """A machine that records actions, and answers from tables. `Machine` documents the methods.

    `lines` are shell commands, and comments for other actions. Devices appear as LOOP, DM and so on, and secret
    descriptors as SECRET. Directories and files are only made below `directory`.
    """

    def __init__(self, directory: Path, answers: Mapping[str, Answer] | None = None, limit: float = 600.0) -> None:
        self.directory = directory
        #: By the first words of a command. The longest match applies.
        self.answers = {**_ANSWERS, **(answers or {})}
        self.limit = limit
        self.lines: list[str] = []
        #: The length of each secret that a command got.
        self.secrets: list[int] = []
        self.sysfs, self.sysctls = Path("/sys"), Path("/proc/sys")
        #: Contents of sysfs files and sysctls.
        self.settings: dict[Path, str] = {}
        #: Paths that were synced.
        self.synced: list[Path] = []
        #: In sectors. Devices without an entry have the last size.
        self.sizes: dict[Path, int] = {}
        #: Missing tools.
        self.lacks: set[str] = set()
        #: Filesystems of the kernel.
        self.filesystems: set[str] = set()
        #: The answer for every mount point.
        self.mount: Mount | None = Mount("0:0", "/", "-", "rw", "-", "-", "rw")
        self.daemons: frozenset[int] = frozenset()
        self._mappings: dict[str, Path | None] = {}
        self._lengths: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._inexact = self._has_tags = False

    @property
    def commands(self) -> list[str]:
        """Return the lines that are commands."""
        return [line for line in self.lines if not line.startswith("#")]

    def note(self, text: str) -> None:
        """Add a comment to the lines."""
        self.lines.append(f"# {text}")

    def device(self, kind: str, sectors: int | None = None) -> Path:
        """Name a new device: LOOP, LOOP2, and so on."""
        self._counts[kind] = count = self._counts.get(kind, 0) + 1
        path = Path(f"{kind}{count if count > 1 else ''}")
        if sectors is not None:
            self.sizes[path] = sectors
        return path

    # -- commands ------------------------------------------------------------------------------------------------------

    def run(
        self,
        *argv: Word,
        stdin: int | None = None,
        fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float | None = None,
    ) -> str:
        answer = self._record(argv, stdin, fds, env, cwd)
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def ended(self, *argv: Word, fds: Sequence[int] = (), env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        answer = self._record(argv, fds=fds, env=env)
        if isinstance(answer, CommandError):
            if answer.returncode is None:
                raise answer
            return answer.returncode, "", answer.stderr
        return 0, answer, ""

    def start(
        self,
        *argv: Word,
        stdin: int | None = None,
        fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> RecordedDaemon:
        self._record(argv, stdin, fds, env)
        self.lines[-1] += " &"
        return RecordedDaemon(tuple(os.fspath(word) for word in argv))

    def outlive(self, pid: int) -> RecordedDaemon:
        return self.start("tail", "--pid=PID-OF-THE-DAEMON", "-f", "/dev/null")

    def _record(
        self,
        argv: Sequence[Word],
        stdin: int | None = None,
        fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> str | CommandError:
        words = [re.sub(r"(^|=)/proc/self/fd/\d+$", r"\1/proc/self/fd/SECRET", os.fspath(word)) for word in argv]
        self.secrets += [os.fstat(fd).st_size for fd in [*([] if stdin is None else [stdin]), *fds]]
        variables = [f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()]
        line = " ".join([*variables, shlex.join(words)]) + (" <&SECRET" if stdin is not None else "")
        if words[:3] == ["dmsetup", "remove", "--deferred"]:
            self.note("held open; from here on they go by themselves with their last user")
        self.lines.append(f"(cd {shlex.quote(str(cwd))} && {line})" if cwd else line)
        if words[:3] == ["dmsetup", "remove", "--deferred"] and re.search(r"-(pool|snap)( |$)", line):
            self.note("and with them the hidden volumes that LVM made for them")
        self._learn(words)
        command = " ".join(words)
        answer = self.answers[max((start for start in self.answers if command.startswith(start)), key=len)]
        return answer() if callable(answer) else answer

    def _learn(self, words: Sequence[str]) -> None:
        """Record the mappings that a command creates, with their lengths."""
        tables = {}
        if words[:2] == ["lvm", "lvcreate"]:
            own = next((word for word in words if word.startswith("fsstack-")), "")
            group = own.partition("/")[0].replace("-", "--")
            for option, value in itertools.pairwise(words):
                if option in ("--name", "--thinpool"):
                    self._mappings.setdefault(f"{group}-{value}", None)
        elif words[:3] == ["dmsetup", "create", "--concise"]:
            tables = {table.split(",")[0]: table.split(",", 4)[4] for table in words[3].split(";")}
        elif "--table" in words:
            tables = {words[2]: words[words.index("--table") + 1]}
        elif "luksFormat" in words:
            self._has_tags = "--integrity" in words
        # All other tools that create mappings have the name as an argument.
        names = [*tables, *(word for word in words if re.fullmatch(r"fsstack-[\w-]+", word))]
        for name in names:
            if self._has_tags and name.endswith("-luks"):
                self._mappings.setdefault(f"{name}_dif", None)
            self._mappings.setdefault(name, None)
        self._lengths |= {name: int(table.split()[1]) for name, table in tables.items()}

    def which(self, tool: str) -> str | None:
        return None if tool in self.lacks else f"/usr/bin/{tool}"

    def mapper_environment(self) -> dict[str, str]:
        return {}

    def wait_until(
        self, condition: Callable[[], object], seconds: float, pause: Callable[[float], object] | None = None
    ) -> bool:
        condition()
        return True

    def limited(self, layer: str, step: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    # -- files and mounts ----------------------------------------------------------------------------------------------

    def mkdir(self, path: Path, *, parents: bool = False, exist_ok: bool = False, mode: int | None = None) -> None:
        self.lines.append(f"mkdir {'-p ' if parents or exist_ok else ''}{shlex.quote(str(path))}")
        if path.is_relative_to(self.directory):
            path.mkdir(parents=parents, exist_ok=exist_ok)

    def make_file(self, path: Path, content: bytes = b"", *, size: int = 0) -> None:
        self.note(f"{path}: a new file{f' of {format_size(size)}' if size else ''}")
        for line in content.decode(errors="replace").splitlines():
            self.note(f"    {line}")
        if path.is_relative_to(self.directory):
            with path.open("xb") as file:
                file.write(content)
                file.truncate(max(size, len(content)))

    def link(self, path: Path, target: Path) -> None:
        self.note(f"{path}: a link to {target}")
        if path.is_relative_to(self.directory):
            path.symlink_to(target)

    def set_attribute(self, path: Path, name: str, value: bytes) -> None:
        self.note(f"the attribute {name} of {path}: {value.decode(errors='replace')}")

    @contextlib.contextmanager
    def unnamed_file(self, directory: Path, size: int) -> Iterator[int]:
        descriptor = os.memfd_create("file")
        try:
            os.truncate(descriptor, size)
            yield descriptor
        finally:
            os.close(descriptor)

    def free(self, path: Path) -> int:
        return 0

    def sync(self, path: Path) -> None:
        self.synced.append(path)

    def ioctl(self, path: Path, request: int, argument: bytes | bytearray) -> None:
        self.note(f"ioctl {request:#x} of {path}")

    def setting(self, path: Path) -> str | None:
        return self.settings.get(path)

    def set(self, path: Path, text: str) -> None:
        self.lines.append(f"echo {shlex.quote(text)} >{path}")
        self.settings[path] = text

    def knows_filesystem(self, name: str) -> bool:
        return name in self.filesystems

    def mount_at(self, path: Path) -> Mount | None:
        return self.mount

    def has_private_mounts(self) -> bool:
        return True

    # -- block devices -------------------------------------------------------------------------------------------------

    def number(self, device: Path) -> str:
        return "0:0"

    def sectors(self, device: Path) -> int:
        if device not in self.sizes:
            if not self._inexact:
                self._inexact = True
                self.note("lengths are as if the layers below took no room: what they take shows when they are made")
            self.sizes[device] = next(reversed(self.sizes.values()), _NOMINAL)
        return self.sizes[device]

    def write(self, device: Path, extents: Iterable[tuple[int, bytes]]) -> None:
        self.note(f"{device}: written to by the layer itself")

    def flush(self, device: Path) -> None:
        """Do nothing, because nothing was written."""

    def forget_cache(self, device: Path) -> None:
        """Do nothing, because no device has a cache."""

    @contextlib.contextmanager
    def attached(self, image: int, *, direct_io: bool = True, sector: int = 0) -> Iterator[Loop]:
        file, size = os.readlink(f"/proc/self/fd/{image}"), os.fstat(image).st_size
        path = self.device("LOOP", size // 512 or None)
        of = f" of {format_size(size)}" if size else ""
        what = f"a sparse file without a name{of}" if file.endswith(" (deleted)") else f"{file}{of}"
        self.note(f"{path}: a loop device over {what}, attached by an ioctl; it is detached at its last close")
        yield Loop(path, True, nothing, nothing)

    def mappings(self, ours: Callable[[str], bool]) -> dict[str, Path]:
        return {name: self._mapping(name) for name in filter(ours, list(self._mappings))}

    def _mapping(self, name: str) -> Path:
        path = self._mappings[name]
        if path is None:
            path = self._mappings[name] = self.device("DM", self._lengths.get(name))
            self.note(f"{path}: the /dev/dm-N of {name}")
        return path

    def mapping_name(self, device: Path) -> str | None:
        return next((name for name, path in self._mappings.items() if path == device), None)

    def held_open(self, device: Path) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()


def nothing() -> None:
    """Accept any device."""


class RecordingJournal(Journal):
    """A journal in memory that undoes nothing."""

    def __init__(self, machine: RecordingMachine) -> None:
        super().__init__(Path(os.devnull), machine)
        #: The entries: the name of the kind, and the facts.
        self.entered: list[tuple[str, dict[str, Fact]]] = []

    @contextlib.contextmanager
    def entry(self, kind: Kind, **facts: Fact) -> Iterator[OpenEntry]:
        self.entered.append((kind.name, facts))
        yield OpenEntry(self, len(self.entered), kind, facts)

    def _write(self, line: Mapping[str, object]) -> None:
        """Write nothing."""
