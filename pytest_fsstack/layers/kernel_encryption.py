"""Encryption of files by the kernel: eCryptfs, and fscrypt in ext4 and f2fs.

Both need a key in the kernel while the directory is open. It does not stay longer, even after SIGKILL.
"""

from __future__ import annotations

import contextlib
import hmac
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import commands, journal, mounts, processes
from pytest_fsstack.machine.journal import Facts, Kind, UndoError
from pytest_fsstack.machine.needs import (
    KernelCipher,
    KernelFilesystem,
    MissingRequirement,
    Need,
    Root,
    Tool,
    load_module,
    not_in_kernel,
)
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.layer import DirectoryLayer, Limit, OptionError, option
from pytest_fsstack.stack.places import BuildContext, Directory
from pytest_fsstack.stack.words import KEYWORD, MOUNT, NUMBER, OUTSIDE, CommandLine

KEYCTL = Tool("keyctl", "keyutils")
XFS_IO = Tool("xfs_io", "xfsprogs")


# -- eCryptfs ----------------------------------------------------------------------------------------------------------

#: Arguments: description and file of each key, `--`, and the words of mount. The mount keeps the keys.
_MOUNT = 'while [ "$1" != -- ]; do keyctl padd user "$1" @s <"$2"; shift 2; done >/dev/null; shift; exec mount "$@"'


def in_keyring(script: str, *words: str) -> list[str]:
    """Return the command that runs a shell script in its own keyring, which ends with the script.

    Tools put keys into the user's keyring by default, where they would stay until the user's last process ends.
    """
    return ["keyctl", "session", "-", "sh", "-euc", script, "sh", *words]


def _token(key: memoryview, signature: str) -> tuple[contextlib.AbstractContextManager[int], str]:
    """Return a descriptor of a ``struct ecryptfs_auth_tok`` (linux/ecryptfs.h), and its signature.

    Its key needs no derivation.
    """
    version, password, sha512, key_set = 0x0004, 0, 10, 0x02
    head = struct.pack("=HHI", version, password, 0)
    session_key = bytes(3 * 4 + 512 + 64)
    reserved = bytes(32)
    # Three bytes of padding: the inner struct is not packed, the outer one is.
    token = struct.pack("=IiIII", 0, sha512, 0, len(key), key_set)
    tail = struct.pack("=17s8s3x", signature.encode(), b"")
    return commands.secret_fd(head + session_key + reserved + token, key, tail), signature


def _xfs_io(machine: Machine, command: str, directory: str | Path, stdin: int | None = None) -> str:
    return machine.run("xfs_io", "-c", command, directory, stdin=stdin)


# -- after a kill ------------------------------------------------------------------------------------------------------


def _key_added(machine: Machine, facts: Facts) -> bool:
    # The identifier is a hash of a random key, so it is unique to that session.
    target, key = journal.text(facts, "target"), journal.text(facts, "key")
    if not Path(target).is_dir():
        return False
    try:
        return "Absent" not in _xfs_io(machine, f"enckey_status {key}", target)
    except commands.CommandError:
        return False  # the filesystem that had it is not mounted there any more


def _key_removed(machine: Machine, facts: Facts) -> str:
    target = journal.text(facts, "target")
    if "busy" in _xfs_io(machine, f"rm_enckey {journal.text(facts, 'key')}", target):
        holders = ", ".join(processes.users(Path(target), machine.daemons))
        raise UndoError(f"its files are still open{f'; in use by: {holders}' if holders else ''}")
    return f"removed the encryption key of {target}"


KEY = Kind("fscrypt key", _key_added, _key_removed, mounts.real_target)


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ecryptfs(DirectoryLayer):
    """eCryptfs: the kernel encrypts each file into a file of the directory below, by default with AES-128.

    Encrypted names leave 143 bytes for a name.
    """

    leaves: ClassVar = (mounts.MOUNT,)
    name: ClassVar = "ecryptfs"
    requires: ClassVar = (Root("mounting"), KernelFilesystem("ecryptfs"), KEYCTL)
    stores: ClassVar = "ecryptfs.ciphertext"
    example: ClassVar = "ext4 | ecryptfs(key_bytes=32)"
    limits: ClassVar = {
        **dict.fromkeys((Limit.ALLOCATION, Limit.HOLES), "fs/ecryptfs/file.c of Linux: no fallocate"),
        Limit.SPARSE: "fs/ecryptfs/read_write.c of Linux: a gap is filled with encrypted zeros",
        **dict.fromkeys((Limit.CHECKSUMS, Limit.NAME_CHECKSUMS), "Documentation/filesystems/ecryptfs.rst of Linux"),
    }
    encrypts: ClassVar = True
    kernel_cipher: ClassVar = True
    grammar: ClassVar = {
        "cipher": KEYWORD,
        "mount": MOUNT | {"passphrase_passwd_file passwd_file key keyfile": OUTSIDE, "ecryptfs*": KEYWORD},
    }

    cipher: str = option("aes", "a value of the mount option ecryptfs_cipher: aes, blowfish, des3_ede, ...")
    key_bytes: int = option(16, "bytes of a file's key, such as 16, 24 or 32 for aes", least=1)
    fnek: bool = option(True, "encrypt file names too, with a key of their own")
    passthrough: bool = option(False, "allow reading and writing unencrypted files of the directory below")
    mount: str = option("", "further mount options, verbatim, such as ecryptfs_xattr")

    def check_options(self) -> None:
        if self.key_bytes > 64:
            raise OptionError("key_bytes", f"must be at most 64 (got {self.key_bytes})")

    def stored_names(self, length: int) -> Collection[int]:
        """Return the length of an encrypted name (fs/ecryptfs/keystore.c, ecryptfs_write_tag_70_packet).

        17 bytes before the name, in blocks of 16. Then a packet with 9 more bytes after its tag and size, in base64 of
        whole groups, behind a prefix.
        """
        if not self.fnek:
            return (length,)
        content = 9 + -(-(17 + length) // 16) * 16
        packet = 1 + (1 if content < 192 else 2) + content
        return (len("ECRYPTFS_FNEK_ENCRYPTED.") + -(-packet // 3) * 4,)

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Directory]:
        with contextlib.ExitStack() as undo:
            with contextlib.ExitStack() as keys:
                signatures, words, fds = [], [], []
                for token, signature in self._tokens(context):
                    fds.append(keys.enter_context(token))
                    words += [signature, f"/proc/self/fd/{fds[-1]}"]
                    signatures.append(signature)
                # mount.ecryptfs, if installed, would ask questions.
                mount, options = in_keyring(_MOUNT, *words, "--", "-i"), ",".join(self._options(signatures))
                place = context.mounted(self.name, self.own_directory(below), "ecryptfs", options, by=mount, fds=fds)
                directory = undo.enter_context(place)
            yield directory

    def _tokens(self, context: BuildContext) -> list[tuple[contextlib.AbstractContextManager[int], str]]:
        """Return descriptors of the keys for contents and names, each with its public identifier."""
        starts = (0, 72) if self.fnek else (0,)
        return [_token(context.secret.part(start, 64), context.secret.part(start + 64, 8).hex()) for start in starts]

    def _options(self, signatures: list[str]) -> list[str]:
        return [
            *(f"{name}={signature}" for name, signature in zip(("ecryptfs_sig", "ecryptfs_fnek_sig"), signatures)),
            f"ecryptfs_cipher={self.cipher}",
            f"ecryptfs_key_bytes={self.key_bytes}",
            *(["ecryptfs_passthrough"] if self.passthrough else []),
            *([self.mount] if self.mount else []),
        ]


# -- fscrypt -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mode:
    """An encryption mode: its number (linux/fscrypt.h), its cipher, and the compatible modes for names."""

    number: int
    cipher: KernelCipher
    names: tuple[str, ...] = ()


# Numbers, because an older xfs_io does not know every name.
_MODES = {
    "AES-256-XTS": _Mode(1, KernelCipher("xts(aes)", "CRYPTO_XTS"), ("AES-256-CTS", "AES-256-HCTR2")),
    "AES-256-CTS": _Mode(4, KernelCipher("cts(cbc(aes))", "CRYPTO_CTS")),
    "AES-128-CBC": _Mode(5, KernelCipher("essiv(cbc(aes),sha256)", "CRYPTO_ESSIV"), ("AES-128-CTS",)),
    "AES-128-CTS": _Mode(6, KernelCipher("cts(cbc(aes))", "CRYPTO_CTS")),
    "Adiantum": _Mode(9, KernelCipher("adiantum(xchacha12,aes)", "CRYPTO_ADIANTUM"), ("Adiantum",)),
    "AES-256-HCTR2": _Mode(10, KernelCipher("hctr2(aes)", "CRYPTO_HCTR2")),
}
_FOR_CONTENTS = tuple(name for name, mode in _MODES.items() if mode.names)
#: Seconds for which the kernel may keep a file open after its key is removed.
_PATIENCE = 3.0
_FOR_NAMES = tuple(dict.fromkeys(name for mode in _MODES.values() for name in mode.names))


@dataclass(frozen=True)
class FileEncryption:
    """A requirement: a filesystem of the running kernel that can encrypt files."""

    feature: ClassVar = "encryption in ext4 or f2fs"

    def missing(self) -> MissingRequirement | None:
        for kind in "ext4", "f2fs":
            feature = Path("/sys/fs", kind, "features/encryption")
            if feature.exists() or (load_module(kind) and feature.exists()):
                return None
        return not_in_kernel(self.feature)


@dataclass(frozen=True)
class Fscrypt(DirectoryLayer):
    """fscrypt: a directory of ext4 or f2fs that the filesystem itself encrypts, names included.

    mkfs of the filesystem below enables encryption automatically. On `dir:/a/directory` it must be enabled already.
    """

    leaves: ClassVar = (KEY,)
    name: ClassVar = "fscrypt"
    example: ClassVar = "ext4 | fscrypt"
    wants: ClassVar = ("encryption",)
    encrypts: ClassVar = True
    kernel_cipher: ClassVar = True
    limits: ClassVar = dict.fromkeys(
        (Limit.CHECKSUMS, Limit.NAME_CHECKSUMS), "Documentation/filesystems/fscrypt.rst of Linux, Offline attacks"
    )
    grammar: ClassVar = {"policy": CommandLine({"-v": NUMBER, "-c -f -n -s": KEYWORD})}

    contents: str = option("AES-256-XTS", "encryption of contents", choices=_FOR_CONTENTS)
    filenames: str | None = option(
        None, "encryption of names. The default is the first that fits `contents`", choices=_FOR_NAMES
    )
    policy: str = option("", "further options of xfs_io's `set_encpolicy`, verbatim, such as -f 0x8")

    def needs(self) -> list[Need]:
        ciphers = [_MODES[name].cipher for name in (self.contents, self._names)]
        return [Root("encrypting a directory"), FileEncryption(), *ciphers, XFS_IO]

    def check_options(self) -> None:
        possible = _MODES[self.contents].names
        if self._names not in possible:
            raise OptionError("filenames", f"{self.contents} goes with {' or '.join(possible)} (got {self._names})")

    def create(self, below: Directory, context: BuildContext) -> None:
        machine, key = context.machine, self._identifier(context)
        try:
            _xfs_io(machine, f"enckey_status {key}", below.path)
        except commands.CommandError as error:
            kind = machine.run("findmnt", "-n", "-o", "FSTYPE", "-T", below.path).strip()
            raise OSError(
                f"{below.path} is on {kind} that was not made for encryption; `ext4 | fscrypt` and `f2fs | fscrypt` "
                "make one (an ext4 that is there already gets it by `tune2fs -O encrypt`)"
            ) from error
        super().create(below, context)
        modes = f"-c {_MODES[self.contents].number} -n {_MODES[self._names].number}"
        policy = " ".join(f"set_encpolicy -v 2 {modes} {self.policy} {key}".split())
        _xfs_io(machine, policy, self.own_directory(below))

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Directory]:
        key = self._identifier(context)
        with context.journal.entry(KEY, target=str(below.path), key=key):
            try:
                with context.secret.key(64) as fd:
                    _xfs_io(context.machine, "add_enckey", below.path, stdin=fd)
                yield Directory(self.own_directory(below))
            finally:
                self._remove_key(context.machine, below, key)

    def _remove_key(self, machine: Machine, below: Directory, key: str) -> None:
        def is_removed() -> bool:
            # An interruption may have come before the key was added.
            if "Absent" in _xfs_io(machine, f"enckey_status {key}", below.path):
                return True
            return "busy" not in _xfs_io(machine, f"rm_enckey {key}", below.path)

        # The kernel itself holds files for a moment, for example when another process drops caches.
        if not machine.wait_until(is_removed, _PATIENCE):
            directory = self.own_directory(below)
            raise OSError(f"{directory} can still be read, since it is {mounts.in_use(machine, directory)}")

    @property
    def _names(self) -> str:
        return self.filenames or _MODES[self.contents].names[0]

    def _identifier(self, context: BuildContext) -> str:
        """Return the kernel's public identifier of the key.

        `add_enckey` prints the same (fs/crypto/hkdf.c), but the journal needs it before that.
        """
        extracted = hmac.digest(bytes(64), context.secret.part(0, 64), "sha512")
        return hmac.digest(extracted, b"fscrypt\0\x01\x01", "sha512")[:16].hex()
