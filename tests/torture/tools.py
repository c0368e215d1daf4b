"""Commands in front of the system's own: they note what a session runs, or go wrong where they are told to."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pytest_fsstack.machine import commands

#: How a call can go wrong: before or after it has done its work, or without doing it.
FAULTS = {
    "failing": "echo {said} >&2; exit 1",
    "failing after its work": "{real}; echo {said} >&2; exit 1",
    "failing without a word": "exit 1",
    "saying what is no text": "printf '\\377\\033[31m%s\\n\\n' {said} >&2; exit 3",
    "hanging": "exec sleep 1000",
    "hanging after its work": "{real}; exec sleep 1000",
    "stopped": "kill -STOP $$; {exec}",
    "killed": "kill -KILL $$",
    "killed after its work": "{real}; kill -KILL $$",
    "printing garbage": "cat {garbage}; exit 0",
    "printing garbage after its work": "{real} >{null}; cat {garbage}; exit 0",
    "printing nothing": "exit 0",
    "flooding": "head -c 30000000 /dev/zero; {exec}",
    "vanished": 'rm -f -- "$0"; {exec}',
}
#: What runs on in the foreground while its layer stands does its work for as long, and has no moment after it.
DAEMONS = frozenset({"gocryptfs", "encfs", "cryfs", "securefs", "ntfs-3g", "zfs-fuse"})

_NOTING = """#!/bin/sh
# One write, so that those of two commands do not mix.
{{ printf '%s' "${{0##*/}}"; printf '\\037%s' "$@"; printf '\\n'; }} >>{log}
PATH={path}
{environ}
exec "${{0##*/}}" "$@"
"""

_FAULTY = """#!/bin/sh
read count 2>{null} <{count} || count=0
count=$((count + 1))
echo $count >{count}
PATH={path}
if [ $count -eq {number} ]; then
    echo {name} >{fired}
    {fault}
fi
exec {name} "$@"
"""


def installed() -> set[str]:
    """The names of all commands that a session could find."""
    names: set[str] = set()
    for directory in commands.search_path().split(os.pathsep):
        if os.path.isdir(directory):
            names.update(os.listdir(directory))
    return names


class Noting:
    """A directory of commands, to stand first in PATH, that note their names and arguments, and their environment."""

    def __init__(self, directory: Path, *, environment: bool = False, names: Iterable[str] = ()) -> None:
        self.directory, self._log = directory / "noting", directory / "calls"
        self.environments = directory / "environments"
        self._log.unlink(missing_ok=True)
        self.environments.unlink(missing_ok=True)
        self.directory.mkdir(exist_ok=True)
        script = directory / "noting.sh"
        script.write_text(
            _NOTING.format(
                log=shlex.quote(str(self._log)),
                environ=f"cat /proc/$$/environ >>{shlex.quote(str(self.environments))}" if environment else "",
                path=shlex.quote(commands.search_path()),
            )
        )
        script.chmod(0o755)
        for name in names or installed():
            if not (link := self.directory / name).is_symlink():
                link.symlink_to(script)

    @property
    def path(self) -> str:
        return f"{self.directory}{os.pathsep}{commands.search_path()}"

    def calls(self) -> list[list[str]]:
        """Each command with its arguments, in order."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return [line.split("\037") for line in text.splitlines()]

    def counts(self) -> Counter[str]:
        """How often each was called."""
        return Counter(words[0] for words in self.calls())


class Faulty:
    """One command, to stand first in PATH, whose call of that number goes wrong; the others do what they should."""

    def __init__(self, directory: Path, name: str, number: int, fault: str, garbage: bytes) -> None:
        self.directory, self._fired, count = directory / "faulty", directory / "fired", directory / "count"
        self.said = f"torture: {fault}"
        self.directory.mkdir()
        for path in self._fired, count:
            path.unlink(missing_ok=True)
        (directory / "garbage").write_bytes(garbage)
        text = FAULTS[fault].format(
            said=shlex.quote(self.said),
            real=f'{shlex.quote(name)} "$@"',
            exec=f'exec {shlex.quote(name)} "$@"',
            garbage=shlex.quote(str(directory / "garbage")),
            null="/dev/null",
        )
        script = self.directory / name
        script.write_text(
            _FAULTY.format(
                count=shlex.quote(str(count)),
                path=shlex.quote(commands.search_path()),
                number=number,
                name=shlex.quote(name),
                fired=shlex.quote(str(self._fired)),
                fault=text,
                null="/dev/null",
            )
        )
        script.chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self.directory}{os.pathsep}{commands.search_path()}"

    @property
    def fired(self) -> bool:
        return self._fired.exists()

    def remove(self) -> None:
        for path in self.directory.iterdir():
            path.unlink()
        self.directory.rmdir()
