"""Encryption in the device-mapper: LUKS and plain dm-crypt.

A mapping is marked for deferred removal as soon as it is held open here: when this process dies, also by SIGKILL, the
kernel unmounts what stands on it and then removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack import host
from pytest_fsstack.needs import DMSETUP, DeviceMapper, Need, Root, Tool
from pytest_fsstack.stack import Block, Layer, OptionError, Place, Site, option

CRYPTSETUP = Tool("cryptsetup", "cryptsetup-bin", {"dnf": "cryptsetup", "zypper": "cryptsetup", "pacman": "cryptsetup"})


@contextlib.contextmanager
def mapping(name: str, site: Site, *create: str | os.PathLike[str], fds: tuple[int, ...] = ()) -> Iterator[Block]:
    """Make the mapping `name` with the command `create`, and yield its block device."""
    env = host.mapper_environment()
    with site.journal.entry("dm", name=name), contextlib.ExitStack() as hold:
        try:
            host.run(*create, fds=fds, env=env)
            device = _device(name)
            hold.callback(os.close, os.open(device, os.O_RDONLY | os.O_CLOEXEC))
            host.run("dmsetup", "remove", "--deferred", name, env=env)
        except BaseException:
            hold.close()
            # The command may have been interrupted, or have failed, after it had made the mapping.
            with contextlib.suppress(FileNotFoundError):
                _device(name)
                host.run("dmsetup", "remove", "--retry", name, env=env)
            raise

        def check() -> None:
            if _name(device) != name:
                raise OSError(f"{device} is not this session's {name} any more; nothing was written to it")

        try:
            yield Block(device, check)
        finally:
            hold.close()
            if not host.wait_until(lambda: _name(device) not in (name, _ENDING), 15.0):
                holders = ", ".join(host.users(device)) or "nobody that shows"
                raise OSError(f"{device} ({name}) is still in use by: {holders}")


_ENDING = ""


def _name(device: Path) -> str | None:
    """The name of the mapping that is /dev/dm-N now: `_ENDING` while the kernel takes one apart, None without one."""
    try:
        return Path("/sys/block", device.name, "dm/name").read_text().strip()
    except OSError as error:
        # drivers/md/dm-sysfs.c: what is below is still in use then. The file goes after that.
        return _ENDING if error.errno == errno.EINVAL else None


def _device(name: str) -> Path:
    """The /dev/dm-N of a mapping. Raises FileNotFoundError."""
    for shown in Path("/sys/block").glob("dm-*"):
        device = Path("/dev", shown.name)
        if _name(device) == name:
            return device
    raise FileNotFoundError(errno.ENOENT, "there is no such mapping", name)


@dataclass(frozen=True)
class Luks(Layer):
    """LUKS on dm-crypt, with a random passphrase; its key derivation is made cheap, so that setting up is fast."""

    name: ClassVar = "luks"
    example: ClassVar = "luks(cipher='serpent-xts-plain64', key_size=256) | ext4"
    takes: ClassVar = (Block,)
    gives: ClassVar = Block

    cipher: str = option("aes-xts-plain64", "cipher, as `cryptsetup --cipher` takes it")
    key_size: int = option(512, "bits of the key; XTS halves it")
    sector_size: int | None = option(None, "bytes of an encryption sector, 512 to 4096; by default cryptsetup's choice")
    format: str = option("", "further options of `cryptsetup luksFormat`, verbatim")
    open: str = option("", "further options of `cryptsetup open`, verbatim")

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper("crypt"), DMSETUP, CRYPTSETUP]

    def check_options(self) -> None:
        _check(self.key_size, self.sector_size)

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        sector = ["--sector-size", str(self.sector_size)] if self.sector_size else []
        with site.secret.passphrase() as fd:
            below.overwrite(
                *("cryptsetup", "--batch-mode", "luksFormat", "--type", "luks2"),
                *("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"),
                *("--cipher", self.cipher, "--key-size", str(self.key_size), *sector),
                *(*shlex.split(self.format), "--key-file", f"/proc/self/fd/{fd}"),
                fds=(fd,),
            )

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Block]:
        name = site.name(f"{depth}-luks")
        with contextlib.ExitStack() as undo:
            with site.secret.passphrase() as fd:
                words = ["--type", "luks", *shlex.split(self.open), "--key-file", f"/proc/self/fd/{fd}"]
                command = ["cryptsetup", "--batch-mode", "open", *words, str(below.path), name]
                block = undo.enter_context(mapping(name, site, *command, fds=(fd,)))
            yield block


@dataclass(frozen=True)
class Dmcrypt(Layer):
    """Plain dm-crypt, without a header, with a random key."""

    name: ClassVar = "dmcrypt"
    example: ClassVar = "dmcrypt(cipher='aes-cbc-essiv:sha256', key_size=256) | ext4"
    takes: ClassVar = (Block,)
    gives: ClassVar = Block

    cipher: str = option("aes-xts-plain64", "cipher, as `cryptsetup --cipher` takes it, such as aes-cbc-essiv:sha256")
    key_size: int = option(512, "bits of the key; XTS halves it")
    sector_size: int | None = option(None, "bytes of an encryption sector, 512 to 4096; by default 512")
    open: str = option("", "further options of `cryptsetup open --type plain`, verbatim")

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper("crypt"), DMSETUP, CRYPTSETUP]

    def check_options(self) -> None:
        _check(self.key_size, self.sector_size)

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        below.wipe()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Block]:
        name, size = site.name(f"{depth}-dmcrypt"), self.key_size // 8
        sector = ["--sector-size", str(self.sector_size)] if self.sector_size else []
        with contextlib.ExitStack() as undo:
            with site.secret.key(size) as fd:
                words = ["--cipher", self.cipher, "--key-size", str(self.key_size), *sector, *shlex.split(self.open)]
                keys = ["--key-file", f"/proc/self/fd/{fd}", "--keyfile-size", str(size)]
                command = [
                    "cryptsetup",
                    "--batch-mode",
                    "open",
                    "--type",
                    "plain",
                    *words,
                    *keys,
                    str(below.path),
                    name,
                ]
                block = undo.enter_context(mapping(name, site, *command, fds=(fd,)))
            yield block


def _check(key_size: int, sector_size: int | None) -> None:
    if key_size <= 0 or key_size % 8:
        raise OptionError("key_size", f"key_size is a number of bits such as 256 or 512, not {key_size}")
    if sector_size not in (None, 512, 1024, 2048, 4096):
        raise OptionError("sector_size", f"sector_size must be 512, 1024, 2048 or 4096, not {sector_size}")
