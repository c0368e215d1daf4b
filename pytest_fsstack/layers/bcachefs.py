"""The filesystem bcachefs, on one device or on several, with its own encryption."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers.filesystems import Filesystem
from pytest_fsstack.layers.kernel_encryption import KEYCTL, in_keyring
from pytest_fsstack.layers.mapper import Key
from pytest_fsstack.machine.needs import Need, Tool
from pytest_fsstack.stack.layer import OptionError, PoolLayer, option
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Directory
from pytest_fsstack.stack.words import FLAG, KEYWORD, MOUNT, OUTSIDE, SIZE, TEXT, CommandLine

_BCACHEFS = Tool("bcachefs", "bcachefs-tools")
#: Arguments: the passphrase file, bcachefs, a device, and a command that needs the key.
_UNLOCK = '"$2" unlock -k session "$3" <"$1"; shift 3; exec "$@"'


@dataclass(frozen=True)
class Bcachefs(PoolLayer, Filesystem):
    """The copy-on-write filesystem bcachefs, on one device or on a pool of them, if kernel and tools support it.

    With `encrypted`, the passphrase is random. The key is in a keyring of the mount command alone, which ends with it.
    """

    name: ClassVar = "bcachefs"
    example: ClassVar = "bcachefs(compress='zstd:3')"
    tool: ClassVar = Tool("mkfs.bcachefs", "bcachefs-tools")
    #: The kernel initialises it at the first mount. The tool of version 1.13 crashes at that at times.
    always: ClassVar = ("-q", "-f", "--no_initialize")
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-f --force -q --quiet -v --verbose -h --help --encrypted --no_passphrase --no_initialize": FLAG,
                "-L --fs_label -l --label": TEXT,
                "-U --uuid --compression --background_compression --data_checksum --metadata_checksum": KEYWORD,
                "--str_hash --errors --data_allowed --foreground_target --background_target": KEYWORD,
                "--metadata_target --promote_target": KEYWORD,
                "--bucket --bucket_size --block_size --btree_node_size --superblock_size --fs_size --size": SIZE,
                "--replicas --data_replicas --metadata_replicas --durability --discard": SIZE,
                "--source --passphrase_file": OUTSIDE,
            }
        ),
        "mount": MOUNT
        | {
            "compression background_compression data_checksum metadata_checksum str_hash": KEYWORD,
            "foreground_target background_target metadata_target promote_target": KEYWORD,
            "journal_flush_delay journal_reclaim_delay replicas data_replicas metadata_replicas": SIZE,
        },
    }

    compress: str | None = option(
        None, "compression, such as zstd:3", levels={"lz4": range(1, 16), "gzip": range(1, 10), "zstd": range(1, 16)}
    )
    encrypted: bool = option(False, "encrypt and authenticate all data and metadata, by ChaCha20 and Poly1305")
    replicas: int = option(1, "copies of data and metadata, each on another device of the pool", least=1)

    def needs(self) -> list[Need]:
        return [*super().needs(), self.beside(_BCACHEFS), *([KEYCTL] if self.encrypted else [])]

    def check_members(self, count: int) -> None:
        if count < self.replicas:
            raise OptionError("replicas", f"{self.replicas} need as many devices: put pool({self.replicas}) below it")

    def has_checksums(self) -> bool:
        # Encrypted data are authenticated instead.
        without = re.search(r"\bdata[_-]checksum[= ]+none\b", f"{self.mkfs} {self.mount}") and not self.encrypted
        return not without and "nocow" not in self.mount.split(",")

    def is_encrypting(self) -> bool:
        return self.encrypted

    def mkfs_choices(self) -> list[str]:
        compress = [f"--compression={self.compress}"] if self.compress else []
        encrypted = ["--encrypted"] if self.encrypted else []
        replicas = [f"--replicas={self.replicas}"] if self.replicas > 1 else []
        return [*compress, *encrypted, *replicas]

    def mount_choices(self) -> list[str]:
        # The default of mkfs depends on its version, and so do the forms of its option.
        return [] if "discard" in f"{self.mkfs} {self.mount}" else ["nodiscard"]

    def create(self, below: Block, context: BuildContext) -> None:
        with context.secret.passphrase() if self.encrypted else contextlib.nullcontext() as passphrase:
            below.overwrite(self.program.command, *self.mkfs_words(), stdin=passphrase)

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Directory]:
        source, options = ":".join(str(part.path) for part in below.parts), ",".join(self.mount_words())
        with contextlib.ExitStack() as undo:
            with self._unlocked(below, context) as unlock:
                # mount.bcachefs, if installed, would ask for the passphrase.
                mount = [*unlock.words, "mount", "-i"]
                place = context.mounted(self.name, source, self.name, options, by=mount, fds=unlock.fds)
                directory = undo.enter_context(place)
            yield directory

    def fsck(self, below: Block, context: BuildContext) -> CheckResult | None:
        with self._unlocked(below, context) as unlock:
            check = [*unlock.words, self.beside(_BCACHEFS).command, "fsck", "-n"]
            return CheckResult.of(*context.machine.ended(*check, *(part.path for part in below.parts), fds=unlock.fds))

    @contextlib.contextmanager
    def _unlocked(self, below: Block, context: BuildContext) -> Iterator[Key]:
        """Yield the prefix for a command that needs the key, and the passphrase descriptor."""
        if not self.encrypted:
            yield Key([])
            return
        with context.secret.passphrase() as fd:
            words = f"/proc/self/fd/{fd}", self.beside(_BCACHEFS).command, str(below.path)
            yield Key(in_keyring(_UNLOCK, *words), (fd,))
