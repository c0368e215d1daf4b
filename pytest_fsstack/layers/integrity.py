"""Checksums in the device-mapper."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.layers.mapper import MAPPING, mapping
from pytest_fsstack.machine.needs import DMSETUP, DeviceMapper, Need, Root, Tool
from pytest_fsstack.stack.model import Block, Checked, OptionError, Place, Site, option
from pytest_fsstack.stack.program import ToolLayer
from pytest_fsstack.stack.words import FLAG, KEYWORD, OUTSIDE, SIZE, CommandLine

INTEGRITYSETUP = Tool("integritysetup", "cryptsetup-bin", {"dnf": "integritysetup", "pacman": "cryptsetup"})

#: Of integritysetup.
_OPTIONS = CommandLine(
    {
        "--allow-discards --batch-mode -q --debug --integrity-legacy-padding --integrity-legacy-hmac": FLAG,
        "--integrity-legacy-recalculate --integrity-no-journal -D --integrity-bitmap-mode -B --no-wipe": FLAG,
        "--integrity-recalculate --integrity-recalculate-reset --integrity-recovery-mode -R --integrity-inline": FLAG,
        "--progress-json -v --verbose --wipe": FLAG,
        "--bitmap-flush-time --bitmap-sectors-per-bit --buffer-sectors --device-size --integrity-key-size": SIZE,
        "--interleave-sectors --journal-commit-time --journal-crypt-key-size --journal-integrity-key-size": SIZE,
        "--journal-size -j --journal-watermark --progress-frequency --sector-size -s --size -b --tag-size -t": SIZE,
        "--integrity -I --journal-integrity --journal-crypt": KEYWORD,
        "--data-device --integrity-key-file --journal-integrity-key-file --journal-crypt-key-file": OUTSIDE,
    }
)
_MODES = {"journal": [], "bitmap": ["--integrity-bitmap-mode"], "none": ["--integrity-no-journal"]}
#: Bytes of the random key of a keyed checksum.
_KEY = 32


@dataclass(frozen=True)
class Integrity(ToolLayer):
    """dm-integrity: a checksum for each sector, so that reading what has decayed fails.

    Everything is written once when the stack is set up, which takes as long as filling the device does: reading a
    sector that never was written fails, and what makes a filesystem reads before it writes. Checksums that the kernel
    computes by and by (`--integrity-recalculate`) would be work behind a measurement.
    """

    leaves: ClassVar = (MAPPING,)
    name: ClassVar = "integrity"
    takes: ClassVar = (Block,)
    gives: ClassVar = Block
    tool: ClassVar = INTEGRITYSETUP
    grammar: ClassVar = {"integrity": KEYWORD, "format": _OPTIONS, "open": _OPTIONS}

    integrity: str = option(
        "crc32c", "checksum, as `integritysetup --integrity` takes it: sha256, xxhash64, hmac-sha256"
    )
    tag_size: int | None = option(None, "bytes that are kept of each checksum; by default all")
    sector_size: int | None = option(None, "bytes that have a checksum of their own, 512 to 4096; by default 512")
    mode: str = option(
        "journal",
        "what makes sectors and checksums agree after a crash: all is written twice, or what was being written is "
        "marked and computed anew, or nothing does",
        choices=("journal", "bitmap", "none"),
    )
    wipe: bool = option(True, "write everything once; without it, only what was written before can be read")
    format: str = option("", "further options of `integritysetup format`, verbatim")
    open: str = option("", "further options of `integritysetup open`, verbatim")

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper("integrity"), DMSETUP, self.program]

    def check_options(self) -> None:
        if self.tag_size is not None and self.tag_size <= 0:
            raise OptionError("tag_size", f"must be a number of bytes such as 4 or 32 (got {self.tag_size})")
        if self.sector_size not in (None, 512, 1024, 2048, 4096):
            raise OptionError("sector_size", f"must be 512, 1024, 2048 or 4096 (got {self.sector_size})")

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        with self._checksum(site) as (words, fds):
            below.overwrite(
                *(self.program.command, "--batch-mode", "format", "--progress-frequency", "0", *words),
                *(["--tag-size", str(self.tag_size)] if self.tag_size else []),
                *(["--sector-size", str(self.sector_size)] if self.sector_size else []),
                *([] if self.wipe else ["--no-wipe"]),
                *shlex.split(self.format),
                fds=fds,
            )

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Block]:
        name = site.name(f"{depth}-integrity")
        with contextlib.ExitStack() as undo:
            with self._checksum(site) as (words, fds):
                command = [
                    self.program.command,
                    "--batch-mode",
                    "open",
                    *words,
                    *_MODES[self.mode],
                    *shlex.split(self.open),
                ]
                block = undo.enter_context(mapping(name, site, *command, str(below.path), name, fds=fds))
            yield block

    def scrub(self, place: Place, below: Place, site: Site) -> Checked | None:
        # Without the wipe, sectors that never were written cannot be read.
        return scrubs.readable(place.path) if self.wipe else None

    @contextlib.contextmanager
    def _checksum(self, site: Site) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        """The options that name it and its key, and the descriptor of the key; it is not kept on the device."""
        words = ["--integrity", self.integrity]
        if not self.integrity.startswith(("hmac", "cmac")):
            yield words, ()
            return
        with site.secret.key(_KEY) as fd:
            key = ["--integrity-key-file", f"/proc/self/fd/{fd}", "--integrity-key-size", str(_KEY)]
            yield [*words, *key], (fd,)
