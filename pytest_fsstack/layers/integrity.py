"""Checksums in the device-mapper."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.layers.mapper import Key, KeyedLayer
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.stack.layer import option
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Place
from pytest_fsstack.stack.words import FLAG, KEYWORD, OUTSIDE, SIZE, CommandLine

INTEGRITYSETUP = Tool("integritysetup", "cryptsetup-bin", {"dnf": "integritysetup", "pacman": "cryptsetup"})

#: Options of integritysetup.
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
#: The key size in bytes of a keyed checksum.
_KEY = 32


@dataclass(frozen=True)
class Integrity(KeyedLayer):
    """dm-integrity: a checksum for each sector. Reading a corrupted sector fails.

    The whole device is written once when the stack is set up, which takes as long as filling it. Otherwise reading a
    sector that was never written would fail, and mkfs reads before it writes. `--integrity-recalculate` is no
    alternative, because the kernel would compute checksums during measurements.
    """

    name: ClassVar = "integrity"
    checksums: ClassVar = True
    tool: ClassVar = INTEGRITYSETUP
    grammar: ClassVar = {"integrity": KEYWORD, "format": _OPTIONS, "open": _OPTIONS}

    integrity: str = option("crc32c", "a value of `integritysetup --integrity`: sha256, xxhash64, hmac-sha256")
    tag_size: int | None = option(None, "stored bytes of each checksum. The default is all", least=1)
    sector_size: int | None = option(
        None, "bytes with a checksum of their own. The default is 512", choices=(512, 1024, 2048, 4096)
    )
    mode: str = option(
        "journal",
        "how sectors and checksums agree after a crash: everything is written twice, current writes are marked and "
        "computed anew, or not at all",
        choices=("journal", "bitmap", "none"),
    )
    wipe: bool = option(True, "write the whole device once. Without it, only sectors that were written can be read")
    format: str = option("", "further options of `integritysetup format`, verbatim")
    open: str = option("", "further options of `integritysetup open`, verbatim")

    def create(self, below: Block, context: BuildContext) -> None:
        with self.key(context) as key:
            below.overwrite(
                *(self.program.command, "--batch-mode", "format", "--progress-frequency", "0", *key.words),
                *(["--tag-size", str(self.tag_size)] if self.tag_size else []),
                *(["--sector-size", str(self.sector_size)] if self.sector_size else []),
                *([] if self.wipe else ["--no-wipe"]),
                *shlex.split(self.format),
                fds=key.fds,
            )

    def opening(self, key: list[str]) -> list[str]:
        return [*key, *_MODES[self.mode], *shlex.split(self.open)]

    def scrub(self, place: Place, below: Block, context: BuildContext) -> CheckResult | None:
        # Without the wipe, sectors that were never written cannot be read.
        return scrubs.readable(place.path) if self.wipe else None

    @contextlib.contextmanager
    def key(self, context: BuildContext) -> Iterator[Key]:
        """Return the options for the checksum and its key, which is not stored on the device."""
        words = ["--integrity", self.integrity]
        if not self.integrity.startswith(("hmac", "cmac")):
            yield Key(words)
            return
        with context.secret.key(_KEY) as fd:
            words += ["--integrity-key-file", f"/proc/self/fd/{fd}", "--integrity-key-size", str(_KEY)]
            yield Key(words, (fd,))
