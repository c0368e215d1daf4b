"""Encryption on top of a directory, by FUSE daemons."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack import host
from pytest_fsstack.needs import FUSE, Need, Tool
from pytest_fsstack.stack import Directory, Layer, Place, Site, option

FUSERMOUNT = Tool("fusermount", "fuse", {"pacman": "fuse2"})


@contextlib.contextmanager
def served(
    target: Path,
    site: Site,
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    fds: tuple[int, ...] = (),
    patience: float = 60.0,
) -> Iterator[Directory]:
    """Run a FUSE daemon until `target` is unmounted; yield once it is mounted, within `patience` seconds."""
    with site.journal.entry("mount", target=str(target)):
        daemon = host.start(*argv, stdin=stdin, fds=fds)
        with site.journal.entry("daemon", pid=daemon.pid, target=str(target)):
            try:
                if not host.wait_until(lambda: host.mount_options(target) or not daemon.alive, patience):
                    raise host.CommandError(daemon.argv, None, "", f"not mounted within {patience:g} s")
                if not daemon.alive:
                    raise daemon.error()
                yield Directory(target)
            finally:
                if host.mount_options(target):
                    host.unmount(target)
                    daemon.stop()
                else:
                    daemon.stop(patience=0)


@dataclass(frozen=True)
class _Fuse(Layer):
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    caches: ClassVar = True
    tool: ClassVar[Tool]

    def needs(self) -> list[Need]:
        return [FUSE, FUSERMOUNT, self.tool, Tool("setpriv", "util-linux")]

    def ciphertext(self, below: Place) -> Path:
        return below.path / f"{self.name}.ciphertext"


@dataclass(frozen=True)
class Gocryptfs(_Fuse):
    """gocryptfs: file contents in AES-GCM, names in AES-EME."""

    name: ClassVar = "gocryptfs"
    tool: ClassVar = Tool("gocryptfs", "gocryptfs")

    aessiv: bool = option(False, "AES-SIV instead of AES-GCM")
    xchacha: bool = option(False, "XChaCha20-Poly1305 instead of AES-GCM")
    plaintextnames: bool = option(False, "leave file names unencrypted")
    init: str = option("", "further options of `gocryptfs -init`, verbatim")
    mount: str = option("", "further options of the mounting `gocryptfs`, verbatim")

    def create(self, below: Place, site: Site) -> None:
        self.ciphertext(below).mkdir()
        flags = [f"-{name}" for name in ("aessiv", "xchacha", "plaintextnames") if getattr(self, name)]
        with site.secret.passphrase() as fd:
            words = [*flags, *shlex.split(self.init), "-passfile", f"/proc/self/fd/{fd}"]
            host.run("gocryptfs", "-q", "-init", "-scryptn", "10", *words, self.ciphertext(below), fds=(fd,))

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        target = site.mountpoint(self.name, depth)
        with contextlib.ExitStack() as undo:
            with site.secret.passphrase() as fd:
                words = [*shlex.split(self.mount), "-passfile", f"/proc/self/fd/{fd}"]
                command = ["gocryptfs", "-q", "-fg", *words, str(self.ciphertext(below)), str(target)]
                directory = undo.enter_context(served(target, site, *command, fds=(fd,)))
            yield directory


@dataclass(frozen=True)
class Encfs(_Fuse):
    """EncFS, by default in its standard mode: AES-192 and block-encrypted names."""

    name: ClassVar = "encfs"
    #: It keeps one block of each open file and nothing of closed ones, and its mount derives a key for half a second.
    caches: ClassVar = False
    tool: ClassVar = Tool("encfs", "encfs")

    mode: str = option("standard", "the preset that a new filesystem gets", choices=("standard", "paranoia"))
    mount: str = option("", "further options of encfs, verbatim")

    def create(self, below: Place, site: Site) -> None:
        self.ciphertext(below).mkdir()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        # The preset takes effect when encfs first meets the empty directory; later it reads what it wrote then.
        target = site.mountpoint(self.name, depth)
        with contextlib.ExitStack() as undo:
            with site.secret.passphrase() as fd:
                words = [f"--{self.mode}", "--stdinpass", "-f", *shlex.split(self.mount)]
                command = ["encfs", *words, str(self.ciphertext(below)), str(target)]
                directory = undo.enter_context(served(target, site, *command, stdin=fd))
            yield directory
