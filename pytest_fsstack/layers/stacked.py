"""Encryption on top of a directory, by FUSE daemons."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import commands, mounts, signals
from pytest_fsstack.machine.needs import FUSE, Tool
from pytest_fsstack.machine.orphans import DAEMON
from pytest_fsstack.machine.port import Daemon, Machine
from pytest_fsstack.stack.layer import DirectoryLayer, Limit, OptionError, option
from pytest_fsstack.stack.places import BuildContext, CheckResult, Directory, Secret
from pytest_fsstack.stack.program import ToolLayer
from pytest_fsstack.stack.words import (
    FLAG,
    FUSE_MOUNT,
    KEYWORD,
    NUMBER,
    OUTSIDE,
    SIZE,
    TEXT,
    UNMOUNTS,
    CommandLine,
    Grammar,
    Refused,
)

FUSERMOUNT = Tool("fusermount", "fuse", {"pacman": "fuse2"})


@contextlib.contextmanager
def served(
    target: Path,
    context: BuildContext,
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    fds: tuple[int, ...] = (),
    env: Mapping[str, str] | None = None,
    patience: float = 60.0,
    on_block: bool = False,
) -> Iterator[Directory]:
    """Run a FUSE daemon until `target` is unmounted. Yield once it is mounted, within `patience` seconds.

    `on_block` is for daemons that mount a block device (fuseblk). The last process of a mount namespace unmounts it in
    the kernel, and waits for the daemon. If the daemon itself were that process, it would wait forever, and block every
    sync of the machine (seen on Linux 6.18).

    Raises `CommandError`, also if it was unmounted during the block. The unexpected end of a daemon is reported. A
    daemon that does not release its mount is killed, and all calls that wait for it fail.
    """
    machine = context.machine
    with context.journal.entry(mounts.MOUNT, target=str(target)), mounts.FuseWatch(machine, target) as watch:
        with context.journal.entry(DAEMON, target=str(target)) as entry:
            daemon = machine.start(*argv, stdin=stdin, fds=fds, env=env)
            last, stood = None, False
            try:
                entry.update(pid=daemon.pid)
                last = machine.outlive(daemon.pid) if on_block else None
                with mounts.changes() as pause:
                    has_begun = machine.wait_until(
                        lambda: machine.mount_at(target) or not daemon.alive, patience, pause
                    )
                if not has_begun:
                    raise commands.CommandError(daemon.argv, None, "", f"not mounted within {patience:g} s")
                # Some mount before they can serve, and may still fail. If they unmount, the directory below answers.
                answer, gone = watch.answer(patience), not machine.mount_at(target)
                if gone or answer in mounts.DISCONNECTED:
                    machine.wait_until(lambda: not daemon.alive, 2.0 if watch.aborted else patience)
                if not daemon.alive:
                    raise daemon.error()
                if gone or answer in (None, *mounts.DISCONNECTED):
                    how = "its connection is gone" if gone or answer else f"no answer within {patience:g} s"
                    raise commands.CommandError(daemon.argv, None, "", how)
                stood = True
                yield Directory(target)
            finally:
                unmounted, dead = not machine.mount_at(target), not daemon.alive
                grace = 10.0 if stood else 0.0
                with signals.during(signals.State.UNDOING), contextlib.ExitStack() as undo:
                    if last:
                        undo.callback(last.stop, patience=0)
                    undo.callback(lambda: daemon.kill() if watch.aborted else daemon.stop(grace))
                    if not unmounted:
                        undo.callback(_unmount, machine, target, daemon, watch)
                    watch.abort_if_hanging(machine.limit if stood else 1.0)
                    # After an abort, some wait forever for another of their threads.
                    if watch.answer() in mounts.DISCONNECTED:
                        grace = min(grace, 2.0)
                if watch.aborted:
                    # Printed at once, because pytest shows no errors after a signal has ended the session.
                    context.notify(str(error := mounts.aborted(daemon.argv)))
                    raise error
                if unmounted and stood:
                    raise mounts.unmounted_by_others(daemon.argv)
                if dead and stood:
                    context.notify(str(daemon.error("while its filesystem was in use")))


def _unmount(machine: Machine, target: Path, daemon: Daemon, watch: mounts.FuseWatch) -> None:
    try:
        mounts.unmount(machine, target, served=True)
    except commands.CommandError as error:
        daemon.kill()
        if watch.aborted:
            return
        if machine.mount_at(target):
            mounts.unmount(machine, target)
        text = f"{error.stderr}; its server, {os.path.basename(daemon.argv[0])}, was killed"
        raise commands.CommandError(error.argv, error.returncode, text, error.how) from None


@dataclass(frozen=True)
class _Fuse(ToolLayer, DirectoryLayer):
    """A FUSE daemon that stores its data in a directory below, encrypted with a passphrase."""

    leaves: ClassVar = (mounts.MOUNT, DAEMON)
    requires: ClassVar = (FUSE, FUSERMOUNT)
    caches: ClassVar = True
    encrypts: ClassVar = True
    #: Whether the daemon reads the passphrase from stdin instead of a file.
    asks: ClassVar[bool] = False
    #: Seconds for the mount to appear.
    patience: ClassVar[float] = 60.0

    def command(self, below: Directory, passphrase: str) -> list[str]:
        """Return the daemon's command up to the mount point. `passphrase` is a file that contains it."""
        raise NotImplementedError

    def environment(self, below: Directory) -> dict[str, str]:
        """Return environment variables for the daemon."""
        return {}

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Directory]:
        target, env = context.mountpoint(self.name), self.environment(below)
        with contextlib.ExitStack() as undo:
            with context.secret.passphrase() as fd:
                words = [self.program.command, *self.command(below, f"/proc/self/fd/{fd}"), str(target)]
                stdin, fds = (fd, ()) if self.asks else (None, (fd,))
                daemon = served(target, context, *words, stdin=stdin, fds=fds, env=env, patience=self.patience)
                directory = undo.enter_context(daemon)
            yield directory


def _given(options: Mapping[str, object]) -> list[str]:
    """Return the words for options with a value."""
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]


def _padded(length: int, block: int) -> int:
    """Return the length after padding (PKCS#7): up to the next multiple of a block, and at least one byte."""
    return length + block - length % block


def _encoded(length: int, bits: int) -> int:
    """Return the length of so many bytes as characters with that many bits each: 6 in base64, 5 in base32."""
    return -(-length * 8 // bits)


#: Options of gocryptfs, which are also allowed in its -o.
_GOCRYPTFS: Mapping[str, Grammar] = {
    "-acl -aessiv -allow_other -d -debug -deterministic-names -dev -nodev -devrandom -exec -noexec -f -fg": FLAG,
    "-forcedecode -fusedebug -h -help -hh -hkdf -kernel_cache -longnames -nofail -nonempty -noprealloc": FLAG,
    "-nosuid -nosyslog -one-file-system -openssl -plaintextnames -q -quiet -raw64 -reverse -ro -rw": FLAG,
    "-serialize_reads -sharedstorage -suid -version -wpanic -xchacha -zerokey": FLAG,
    "-force_owner -longnamemax -scryptn": SIZE,
    "-i -idle": UNMOUNTS,
    "-badname -context -e -exclude -ew -exclude-wildcard -fsname": TEXT,
    "-ko": FUSE_MOUNT,
    "-config -cpuprofile -ctlsock -exclude-from -ef -extpass -fido2 -fsck -info -init -masterkey": OUTSIDE,
    "-memprofile -notifypid -passfile -passwd -speed -trace": OUTSIDE,
}
#: Those that only affect a new volume. A volume of -zerokey has no file with its settings.
_GOCRYPTFS_NEW = re.compile("aessiv|deterministic-names|hkdf|longnamemax|plaintextnames|raw64|scryptn|xchacha")
_GOCRYPTFS_LIST = FUSE_MOUNT | {names.replace(" -", " ")[1:]: form for names, form in _GOCRYPTFS.items()}


def _gocryptfs_options(text: str) -> dict[str, str]:
    """Return the options in a text of gocryptfs, also those in its -o, with their values. A flag has ``true``."""
    words = re.sub(r"(^|\s)--?o=", r"\1-o ", text).split()
    options: dict[str, str] = {}
    for before, word, after in zip(["", *words], words, [*words[1:], "-"]):
        if word.startswith("-") or before == "-o":
            for item in word.lstrip("-").split(","):
                name, _, value = item.partition("=")
                # Only numbers are separated from their names by a blank.
                options[name] = value or (after if after.isdigit() else "true")
    return options


def _is_true(value: str) -> bool:
    """Parse a boolean as Go does (strconv.ParseBool)."""
    return value in ("1", "t", "T", "true", "TRUE", "True")


@dataclass(frozen=True)
class Gocryptfs(_Fuse):
    """gocryptfs: file contents in AES-GCM, names in AES-EME.

    With `reverse` it is a read-only, encrypted view of the directory below. Write the files to encrypt to
    `fsstack.below`.
    """

    name: ClassVar = "gocryptfs"
    stores: ClassVar = "gocryptfs.ciphertext"
    example: ClassVar = "ext4 | gocryptfs(xchacha=True)"
    tool: ClassVar = Tool("gocryptfs", "gocryptfs")
    limits: ClassVar = {
        Limit.HOLES: "gocryptfs, internal/fusefrontend/file_allocate_truncate.go: only modes 0 and 1 of fallocate",
        Limit.NAME_CHECKSUMS: "nuetzlich.net/gocryptfs/forward_mode_crypto: names in EME, without authentication",
    }

    grammar: ClassVar = dict.fromkeys(("init", "mount"), CommandLine({**_GOCRYPTFS, "-o": _GOCRYPTFS_LIST}))

    aessiv: bool = option(False, "AES-SIV instead of AES-GCM. `reverse` always has it")
    xchacha: bool = option(False, "XChaCha20-Poly1305 instead of AES-GCM, not with `reverse`")
    plaintextnames: bool = option(False, "leave file names unencrypted")
    reverse: bool = option(False, "show the plain directory below as an encrypted one, read-only")
    init: str = option("", "further options of `gocryptfs -init`, verbatim")
    mount: str = option("", "further options of the mounting `gocryptfs`, verbatim")

    def check_options(self) -> None:
        if self.xchacha and (self.reverse or self.aessiv):
            other = "reverse" if self.reverse else "aessiv"
            raise OptionError("xchacha", f"cannot be combined with {other}, which means AES-SIV")
        mounted = _gocryptfs_options(self.mount)
        if "zerokey" not in mounted and (new := min(filter(_GOCRYPTFS_NEW.fullmatch, mounted), default="")):
            raise OptionError("mount", f"{new} has no effect on a volume that exists: put -{new} into `init`")
        if "longnames" in _gocryptfs_options(self.init):
            raise OptionError("init", "longnames has no effect on a new volume: put it into `mount`")

    def stored_names(self, length: int) -> Collection[int]:
        """Return the lengths of encrypted names. From a limit on, names are hashes, with the name in a second file."""
        new, mounted = _gocryptfs_options(self.init), _gocryptfs_options(self.mount)
        options = {**new, **mounted}
        if self.plaintextnames or self.reverse or _is_true(options.get("plaintextnames", "false")):
            return (length,)
        raw = _is_true(options.get("raw64", "true"))

        def encoded(size: int) -> int:
            return _encoded(size, 6) if raw else -(-size // 3) * 4

        name = encoded(_padded(length, 16))
        if name <= int(options.get("longnamemax") or 255) or not _is_true(mounted.get("longnames", "true")):
            return (name,)
        hashed = len("gocryptfs.longname.") + encoded(32)
        return hashed, hashed + len(".name")

    def create(self, below: Directory, context: BuildContext) -> None:
        if not self.reverse:
            super().create(below, context)
        flags = [f"-{name}" for name in ("aessiv", "xchacha", "plaintextnames") if getattr(self, name)]
        with context.secret.passphrase() as fd:
            words = [*flags, *shlex.split(self.init), "-passfile", f"/proc/self/fd/{fd}", *self._source(below)]
            context.machine.run(self.program.command, "-q", "-init", "-scryptn", "10", *words, fds=(fd,))

    def command(self, below: Directory, passphrase: str) -> list[str]:
        return ["-q", "-fg", *shlex.split(self.mount), "-passfile", passphrase, *self._source(below)]

    def fsck(self, below: Directory, context: BuildContext) -> CheckResult | None:
        if self.reverse:
            return None
        machine = context.machine
        with context.secret.passphrase() as fd:
            key = ["-zerokey"] if "zerokey" in _gocryptfs_options(self.mount) else ["-passfile", f"/proc/self/fd/{fd}"]
            words = [self.program.command, "-fsck", *key, *self._source(below)]
            try:
                # If it finds damage, it leaves its temporary directory behind.
                return CheckResult.of(*machine.ended(*words, fds=(fd,), env={"TMPDIR": str(context.directory)}))
            finally:
                # If its only try to unmount fails, it leaves its mount too.
                for left in filter(machine.mount_at, context.directory.glob("gocryptfs.fsck.*")):
                    mounts.unmount(machine, left, served=True)

    def _source(self, below: Directory) -> list[str]:
        return ["-reverse", str(below.path)] if self.reverse else [str(self.own_directory(below))]


@dataclass(frozen=True)
class Encfs(_Fuse):
    """EncFS, by default in its standard mode: AES-192 and block-encrypted names."""

    name: ClassVar = "encfs"
    stores: ClassVar = "encfs.ciphertext"
    example: ClassVar = "ext4 | encfs(mode='paranoia')"
    #: It caches one block of each open file, and nothing of closed ones.
    caches: ClassVar = False
    tool: ClassVar = Tool("encfs", "encfs")
    asks: ClassVar = True
    limits: ClassVar = dict.fromkeys((Limit.ALLOCATION, Limit.HOLES), "encfs/main.cpp: no fallocate") | {
        Limit.NAME_CHECKSUMS: "encfs(1): a name has 16 bits of checksum, and is passed over if they are wrong"
    }
    grammar: ClassVar = {
        "mount": CommandLine(
            {
                "-d --fuse-debug -f -H -s --anykey --forcedecode --insecure --no-default-flags --nocache": FLAG,
                "--nodatacache --noattrcache --public --require-macs --standard": FLAG,
                "--reverse --reversewrite": Refused(reason="shows plain files encrypted, and refuses to write"),
                "--paranoia -S --stdinpass -v --verbose -V --version": FLAG,
                "-i --idle": UNMOUNTS,
                "-t --syslogtag": TEXT,
                "-o": FUSE_MOUNT,
                "-c --config --extpass -m --ondemand --delaymount -u --unmount": OUTSIDE,
            }
        )
    }

    mode: str = option("standard", "the preset of a new filesystem", choices=("standard", "paranoia"))
    mount: str = option("", "further options of encfs, verbatim")

    def limited(self) -> Mapping[Limit, str]:
        """Return the limits. In paranoia mode, the encryption of a file depends on its path, and blocks have a MAC."""
        if self.mode == "paranoia":
            return {**self.limits, Limit.HARD_LINKS: "encfs(1), External IV Chaining"}
        return {**self.limits, Limit.CHECKSUMS: "encfs(1), Block MAC headers: not in the standard mode"}

    def stored_names(self, length: int) -> Collection[int]:
        """Return the length of a block-encrypted name: padding, two bytes of checksum, base64 (BlockNameIO.cpp)."""
        return (_encoded(_padded(length, 16) + 2, 6),)

    def create(self, below: Directory, context: BuildContext) -> None:
        """Create the directory. From the second time on, copy the previous volume, with a new passphrase.

        A new volume spends half a second on key derivation at each mount. `encfsctl` uses the duration in the file.
        """
        super().create(below, context)
        if (volume := _volumes.get(self)) is None:
            return
        content, secret = volume
        file = self.own_directory(below) / _VOLUME
        copied = _DURATION.sub(b"<desiredKDFDuration>1<", content)
        context.machine.make_file(file, copied)
        with context.secret.replacing(secret) as fd:
            context.machine.run(self.beside(_CONTROL).command, "autopasswd", self.own_directory(below), stdin=fd)
        # A dry run leaves the old passphrase in the file.
        if (changed := file.read_bytes()) != copied:
            _volumes[self] = changed, context.secret

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Directory]:
        with super().opened(below, context) as directory:
            # Only when it is new, because a test may change it later.
            if self not in _volumes and (file := self.own_directory(below) / _VOLUME).exists():
                _volumes[self] = file.read_bytes(), context.secret
            yield directory

    def command(self, below: Directory, passphrase: str) -> list[str]:
        # The preset applies when encfs first sees the empty directory. Later, it reads its own configuration.
        return [f"--{self.mode}", "--stdinpass", "-f", *shlex.split(self.mount), str(self.own_directory(below))]


_CONTROL = Tool("encfsctl", "encfs")
#: The configuration with a volume's encrypted key.
_VOLUME = ".encfs6.xml"
_DURATION = re.compile(rb"<desiredKDFDuration>\d+<")
#: The last volume of each layer in this process, and its passphrase.
_volumes: dict[Encfs, tuple[bytes, Secret]] = {}


@dataclass(frozen=True)
class Cryfs(_Fuse):
    """CryFS: everything, directories included, in encrypted blocks of one size.

    Its key derivation cannot be made cheaper. It takes several seconds and half a gigabyte of memory at each mount. For
    up to a second after a sync, the daemon holds back up to 1000 blocks. The figures of a writing step do not include
    them.
    """

    name: ClassVar = "cryfs"
    stores: ClassVar = "cryfs.ciphertext"
    example: ClassVar = "ext4 | cryfs(blocksize=32768)"
    #: Every 0.5 s, it drops everything unused for 0.5 s (cryfs, blockstore/implementations/caching/cache/Cache.h).
    caches: ClassVar = False
    forgets_after: ClassVar = 2.0
    tool: ClassVar = Tool("cryfs", "cryfs")
    asks: ClassVar = True
    patience: ClassVar = 300.0
    limits: ClassVar = {
        Limit.HARD_LINKS: "its issue 44",
        Limit.ATTRIBUTES: "its issue 113",
        Limit.ALLOCATION: "src/fspp/fuse/Fuse.cpp: no fallocate",
        Limit.HOLES: "src/fspp/fuse/Fuse.cpp: no fallocate",
        Limit.SPARSE: "src/blobstore/implementations/onblocks/datatreestore: the blocks of a gap are stored",
    }
    #: It has no limit of its own, and FUSE has this one.
    name_max: ClassVar = 1024

    grammar: ClassVar = {
        "cipher": KEYWORD,
        "mount": CommandLine(
            {
                "-f --foreground -h --help --allow-integrity-violations --allow-filesystem-upgrade": FLAG,
                "--allow-replaced-filesystem --create-missing-basedir --create-missing-mountpoint": FLAG,
                "--show-ciphers --version": FLAG,
                "--blocksize": NUMBER,
                "--unmount-idle": UNMOUNTS,
                "--cipher --missing-block-is-integrity-violation": KEYWORD,
                "-o --fuse-option": FUSE_MOUNT,
                "-c --config --logfile": OUTSIDE,
            }
        ),
    }

    cipher: str | None = option(None, "a cipher of `cryfs --show-ciphers`. The default is cryfs's choice")
    blocksize: int | None = option(None, "bytes of a block of ciphertext. The default is cryfs's choice")
    mount: str = option("", "further options of cryfs, verbatim")

    def stored_names(self, length: int) -> Collection[int]:
        """Return the lengths of the names of blocks: a directory for three digits, and the other digits."""
        return 3, 29

    def environment(self, below: Directory) -> dict[str, str]:
        return {
            "CRYFS_FRONTEND": "noninteractive",
            "CRYFS_NO_UPDATE_CHECK": "true",
            # It remembers each filesystem, by default in the user's home. Here that state is part of the stack.
            "CRYFS_LOCAL_STATE_DIR": str(below.path / "cryfs.state"),
        }

    def command(self, below: Directory, passphrase: str) -> list[str]:
        # The cipher and the size apply when it first sees the empty directory. Later, they must be the same.
        words = _given({"--cipher": self.cipher, "--blocksize": self.blocksize})
        return ["-f", *words, *shlex.split(self.mount), str(self.own_directory(below))]


@dataclass(frozen=True)
class Securefs(_Fuse):
    """securefs: contents in AES-GCM, names in AES-SIV, with a random key file and a cheap key derivation."""

    name: ClassVar = "securefs"
    stores: ClassVar = "securefs.ciphertext"
    example: ClassVar = "ext4 | securefs(format=2)"
    tool: ClassVar = Tool("securefs", "securefs")
    limits: ClassVar = {
        Limit.ATTRIBUTES: "its issue 188: on macOS only, before 2.0",
        Limit.ALLOCATION: "sources/operations.cpp: no fallocate",
        Limit.HOLES: "sources/operations.cpp: no fallocate",
        Limit.NAME_CHECKSUMS: "names that cannot be decrypted are passed over",
    }
    grammar: ClassVar = {
        "init": CommandLine(
            {
                "--store_time --uid-override -h --help --version": FLAG,
                "--max-padding --block-size --format -r --rounds --iv-size --argon2-t --argon2-m-mb --argon2-p": NUMBER,
                "--pbkdf --case --uninorm": KEYWORD,
                "--askpass --keyfile --pass --config --ignore_rest": OUTSIDE,
            }
        ),
        "mount": CommandLine(
            {
                "--skip-dot-dot --noflock -s --single --trace -v --verbose -x --noxattr --insecure --help": FLAG,
                "--attr-timeout": NUMBER,
                "--fsname --fssubtype": TEXT,
                "--normalization": KEYWORD,
                "-o --opt": FUSE_MOUNT,
                "--askpass --keyfile --pass --config --log -b --background --ignore_rest": OUTSIDE,
            }
        ),
    }

    format: int | None = option(
        None,
        "version of the format: 1 and 2 hide the directories, 3 also keeps times, 4 (default) stores file by file",
        choices=(1, 2, 3, 4),
    )
    block_size: int | None = option(None, "bytes of a block of ciphertext. The default is 4096")
    init: str = option("", "further options of `securefs create`, verbatim")
    mount: str = option("", "further options of `securefs mount`, verbatim")

    def stored_names(self, length: int) -> Collection[int]:
        """Return the length of a name in AES-SIV and base32 (its issue 84). Older formats store names in files."""
        return (_encoded(length + 16, 5),) if self.format in (None, 4) else (62,)

    def create(self, below: Directory, context: BuildContext) -> None:
        super().create(below, context)
        words = _given({"--format": self.format, "--block-size": self.block_size})
        with context.secret.passphrase() as fd:
            context.machine.run(
                *(self.program.command, "create", "--pbkdf", "pkcs5-pbkdf2-hmac-sha256", "--rounds", "1000", *words),
                *(*shlex.split(self.init), "--keyfile", f"/proc/self/fd/{fd}", str(self.own_directory(below))),
                fds=(fd,),
            )

    def command(self, below: Directory, passphrase: str) -> list[str]:
        return ["mount", *shlex.split(self.mount), "--keyfile", passphrase, str(self.own_directory(below))]
