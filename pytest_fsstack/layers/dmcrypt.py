"""Encryption in the device-mapper: LUKS and plain dm-crypt."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.layers.mapper import Key, KeyedLayer
from pytest_fsstack.machine.needs import DeviceMapper, KernelCipher, Need, Tool
from pytest_fsstack.stack.layer import OptionError, option
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Place
from pytest_fsstack.stack.words import FLAG, KEYWORD, OUTSIDE, SIZE, TEXT, CommandLine, Value

CRYPTSETUP = Tool("cryptsetup", "cryptsetup-bin", {"dnf": "cryptsetup", "zypper": "cryptsetup", "pacman": "cryptsetup"})

#: Options of cryptsetup, except those for keys, which the layer sets.
_OPTIONS = CommandLine(
    {
        "--allow-discards --batch-mode -q --debug --debug-json --disable-external-tokens --disable-keyring": FLAG,
        "--disable-locks --force-password --integrity-legacy-padding --integrity-no-journal --perf-high_priority": FLAG,
        "--integrity-no-wipe --iv-large-sectors --perf-no_read_workqueue --perf-no_write_workqueue": FLAG,
        "--perf-same_cpu_crypt --perf-submit_from_crypt_cpus --persistent --progress-json -r --readonly": FLAG,
        "--serialize-memory-hard-pbkdf --shared --test-args --use-random --use-urandom -v --verbose": FLAG,
        "--verify-passphrase -y --tcrypt-backup --tcrypt-hidden --tcrypt-system --veracrypt": FLAG,
        "--align-payload --device-size -i --iter-time -s --key-size -S --key-slot --keyslot-key-size": SIZE,
        "--luks2-keyslots-size --luks2-metadata-size -o --offset --pbkdf-force-iterations --pbkdf-memory": SIZE,
        "--pbkdf-parallel --progress-frequency --sector-size -b --size -p --skip -t --timeout -T --tries": SIZE,
        "-c --cipher -h --hash -I --integrity --keyslot-cipher --pbkdf --priority -M --type --uuid": KEYWORD,
        "--label --subsystem": TEXT,
        "-d --key-file --header --header-backup-file --volume-key-file --master-key-file --new-keyfile": OUTSIDE,
        "--json-file --external-tokens-path --link-vk-to-keyring --volume-key-keyring --token-id": OUTSIDE,
        "--token-only --token-type --key-description --new-key-description --active-name --refresh": OUTSIDE,
        # They change the whole self-encrypting disk, not only the partition.
        "--hw-opal --hw-opal-only --hw-opal-factory-reset": OUTSIDE,
    }
)
#: Ciphers in dm-crypt's notation, which may contain commas: xchacha12,aes-adiantum-plain64.
_CIPHER = Value(r"\w[\w:,()-]*")
_WORKQUEUES = ("no_read_workqueue", "no_write_workqueue", "same_cpu_crypt", "submit_from_crypt_cpus")


@dataclass(frozen=True)
class _Crypt(KeyedLayer):
    """The base of LUKS and plain dm-crypt."""

    target: ClassVar = "crypt"
    encrypts: ClassVar = True
    kernel_cipher: ClassVar = True
    tool: ClassVar = CRYPTSETUP
    grammar: ClassVar = {"open": _OPTIONS, "cipher": _CIPHER}

    cipher: str = option("aes-xts-plain64", "a value of `cryptsetup --cipher`, such as aes-cbc-essiv:sha256")
    key_size: int = option(512, "bits of the key. XTS halves it")
    sector_size: int | None = option(
        None, "bytes of an encryption sector. Default: cryptsetup's choice", choices=(512, 1024, 2048, 4096)
    )
    no_read_workqueue: bool = option(False, "decrypt where the read ends, without dm-crypt's workqueue")
    no_write_workqueue: bool = option(False, "encrypt where the write begins, without dm-crypt's workqueue")
    same_cpu_crypt: bool = option(False, "encrypt on the CPU that submitted the request")
    submit_from_crypt_cpus: bool = option(False, "submit writes from the CPUs that encrypted them, out of order")
    open: str = option("", "further options of `cryptsetup open`, verbatim")

    def needs(self) -> list[Need]:
        return [*super().needs(), *_in_kernel(self.cipher)]

    def check_options(self) -> None:
        if self.key_size <= 0 or self.key_size % 8:
            raise OptionError("key_size", f"must be a number of bits such as 256 or 512 (got {self.key_size})")

    @property
    def _cipher(self) -> list[str]:
        sector = ["--sector-size", str(self.sector_size)] if self.sector_size else []
        return ["--cipher", self.cipher, "--key-size", str(self.key_size), *sector]

    @property
    def _opening(self) -> list[str]:
        return [*(f"--perf-{name}" for name in _WORKQUEUES if getattr(self, name)), *shlex.split(self.open)]


@dataclass(frozen=True)
class Luks(_Crypt):
    """LUKS on dm-crypt, with a random passphrase and a cheap, fast key derivation.

    With `integrity`, dm-integrity is below dm-crypt. The whole device is written once when the stack is set up, which
    takes as long as filling it. Otherwise reading a sector that was never written would fail.
    """

    name: ClassVar = "luks"
    grammar: ClassVar = {**_Crypt.grammar, "format": _OPTIONS, "integrity": KEYWORD}
    example: ClassVar = "luks(cipher='serpent-xts-plain64', key_size=256) | ext4"

    type: str = option("luks2", "version of the header", choices=("luks1", "luks2"))
    integrity: str = option(
        "",
        "authenticate each sector, with a value of `cryptsetup --integrity`: hmac-sha256, aead (with the `cipher` "
        "aes-gcm-random) or poly1305 (with chacha20-random), the last two with `key_size` 256",
    )
    journal: bool = option(True, "write data to a journal first. Sectors and their tags then agree after a crash")
    wipe: bool = option(True, "write the whole device once. Without it, only sectors that were written can be read")
    format: str = option("", "further options of `cryptsetup luksFormat`, verbatim")

    def least_sizes(self, count: int) -> tuple[int, ...]:
        return (self._header + (1 << 20),) * count

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        return tuple(size - self._header for size in below)

    @property
    def _header(self) -> int:
        """Return the bytes of the header. 0 if an option may change them."""
        changing = ("--align-payload", "--luks2", "--offset", "-o")
        if any(word.startswith(changing) for word in shlex.split(self.format)):
            return 0
        return (16 if self.type == "luks2" else 2) << 20

    def needs(self) -> list[Need]:
        return [*super().needs(), *([DeviceMapper("integrity")] if self.integrity else [])]

    def has_checksums(self) -> bool:
        return bool(self.integrity)

    def check_options(self) -> None:
        super().check_options()
        if self.type == "luks1":
            for name in "sector_size", "integrity":
                if getattr(self, name):
                    raise OptionError(name, "needs luks2: luks1 has none")
        if not self.integrity:
            for name in "journal", "wipe":
                if not getattr(self, name):
                    raise OptionError(name, "needs the option `integrity`")

    def create(self, below: Block, context: BuildContext) -> None:
        pbkdf = ["--pbkdf", "pbkdf2"] if self.type == "luks2" else []
        with self.key(context) as key:
            below.overwrite(
                *(self.program.command, "--batch-mode", "luksFormat", "--type", self.type),
                *(*pbkdf, "--pbkdf-force-iterations", "1000", *self._cipher),
                *(["--integrity", self.integrity] if self.integrity else []),
                *([] if self.wipe else ["--integrity-no-wipe"]),
                *(*shlex.split(self.format), *key.words),
                fds=key.fds,
            )

    @contextlib.contextmanager
    def key(self, context: BuildContext) -> Iterator[Key]:
        with context.secret.passphrase() as fd:
            yield Key(["--key-file", f"/proc/self/fd/{fd}"], (fd,))

    def opening(self, key: list[str]) -> list[str]:
        journal = [] if self.journal else ["--integrity-no-journal"]
        return ["--type", "luks", *journal, *self._opening, *key]

    def parts(self, name: str) -> list[str]:
        # The name that cryptsetup uses.
        return [f"{name}_dif"] if self.integrity else []

    def scrub(self, place: Place, below: Block, context: BuildContext) -> CheckResult | None:
        return scrubs.readable(place.path) if self.integrity and self.wipe else None


@dataclass(frozen=True)
class Dmcrypt(_Crypt):
    """Plain dm-crypt, without a header, with a random key. Its sectors have 512 bytes by default."""

    name: ClassVar = "dmcrypt"
    example: ClassVar = "dmcrypt(cipher='aes-cbc-essiv:sha256', key_size=256) | ext4"

    @contextlib.contextmanager
    def key(self, context: BuildContext) -> Iterator[Key]:
        size = self.key_size // 8
        with context.secret.key(size) as fd:
            yield Key(["--key-file", f"/proc/self/fd/{fd}", "--keyfile-size", str(size)], (fd,))

    def opening(self, key: list[str]) -> list[str]:
        return ["--type", "plain", *self._cipher, *self._opening, *key]


def _in_kernel(cipher: str) -> list[KernelCipher]:
    """Return the kernel requirements of a dm-crypt cipher. Empty for an unknown notation."""
    if parts := re.fullmatch(r"(\w+)-(\w+)-[\w:]+|(\w+,\w+)(?:,\w+)?-(adiantum)-[\w:]+", cipher):
        name = f"{parts[2] or parts[4]}({parts[1] or parts[3]})"
    elif parts := re.fullmatch(r"capi:(.+\))-[\w:]+", cipher):
        name = parts[1]
    else:
        return []
    # Authenticated ciphers are of another type, with an interface of its own.
    if cipher.endswith("-random") or "authenc" in name:
        return []
    words = re.findall(r"\w+", name)
    # The kernel's options are named after the cipher, except for modes that are algorithms of their own.
    return [KernelCipher(name, f"CRYPTO_{(words[0] if words[0] in ('adiantum', 'hctr2') else words[-1]).upper()}")]
