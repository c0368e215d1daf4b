"""Building a program from source: compiler work mixed with I/O on a tree of files."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pytest_fsstack.machine import commands, directories, needs, resident
from pytest_fsstack.machine.directories import HeldDirectory
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Need, Tool
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.data import corpus
from pytest_fsstack.workloads.data.archive import compressor

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

_CC = Tool("gcc", "gcc")
_MAKE = Tool("make", "make")
_LINUX_TOOLS = (Tool("flex", "flex"), Tool("bison", "bison"), Tool("bc", "bc"), Tool("perl", "perl"))
#: Without these, a build could use the results of another one, or put its own elsewhere.
_ENVIRONMENT = {"CCACHE_DISABLE": "1", "MAKEFLAGS": "", "KBUILD_OUTPUT": ""}


@dataclass(frozen=True)
class PyPI:
    """The source distribution of a project on PyPI, which ``pip download`` puts into the cache."""

    project: str
    version: str
    file: str
    sha256: str

    def path(self) -> Path:
        return corpus.cache_directory() / self.file

    def missing(self) -> MissingRequirement | None:
        """Download it if it is not in the cache. Return the reason for a failure, with a command to download it by
        hand.
        """
        cache = self.path().parent
        HeldDirectory.made(cache).__exit__()
        if self.path().is_file() and _sha256(self.path()) == self.sha256:
            return None
        with directories.scratch(cache) as directory:
            reason = self._download(directory)
        what = f"needs the source of {self.project} from PyPI ({reason})"
        return MissingRequirement(Missing.OTHER, what, f"pip {' '.join(self._words(cache))}") if reason else None

    def _words(self, directory: Path) -> list[str]:
        # The build requirements for reading a source distribution may be wheels.
        options = ["--no-deps", "--no-binary", self.project, "-d", str(directory)]
        return ["download", *options, f"{self.project}=={self.version}"]

    def _download(self, directory: Path) -> str:
        """Download the file to a directory, then move it to the cache. Return why that failed, or an empty text."""
        try:
            commands.run(sys.executable, "-m", "pip", "-q", *self._words(directory))
        except commands.CommandError as error:
            return (error.stderr or error.how).splitlines()[-1]
        file = directory / self.file
        if not file.is_file():
            return f"pip got no {self.file}"
        if (digest := _sha256(file)) != self.sha256:
            return f"the SHA-256 of {self.file} is {digest} instead of {self.sha256}"
        file.replace(self.path())
        return ""


@dataclass(frozen=True)
class LocalFile:
    """A requirement: an archive or directory on this machine."""

    file: Path
    how: str

    def path(self) -> Path:
        return self.file

    def missing(self) -> MissingRequirement | None:
        return None if self.file.exists() else MissingRequirement(Missing.OTHER, f"needs {self.file}", self.how)


@dataclass(frozen=True)
class Header:
    """A requirement: a header for the C compiler, with its package. Without a compiler, it is missing as well."""

    header: str
    package: str

    def missing(self) -> MissingRequirement | None:
        words = ["gcc", "-fsyntax-only", "-include", self.header, "-x", "c", "/dev/null"]
        try:
            commands.run(*words)
        except commands.CommandError:
            return needs.not_installed(f"needs the C header {self.header}", self.package)
        return None


#: Debian's gcc only recommends it.
LIBC = Header("stdio.h", "libc6-dev")


@dataclass(frozen=True)
class Source:
    """The source of a C program, and how to build it."""

    name: str
    archive: PyPI | LocalFile
    #: The top directory of the source in the archive.
    top: str
    #: Commands to run there before the clock starts.
    configure: tuple[tuple[str, ...], ...]
    #: Targets of ``make``; by default its first one.
    targets: tuple[str, ...]
    #: The result: an ELF file of at least `product_bytes` bytes.
    product: str
    product_bytes: int
    needs: tuple[Need, ...] = ()


#: An interpreter of 33 C files, which builds in seconds without configuration. lupa contains its source.
LUA = Source(
    "lua",
    PyPI("lupa", "2.6", "lupa-2.6.tar.gz", "9a770a6e89576be3447668d7ced312cd6fd41d3c13c2462c9dc2c2ab570e45d9"),
    top="lupa-2.6/third-party/lua51/src",
    configure=(),
    targets=("generic",),
    product="lua",
    product_bytes=100_000,
)

#: A library of a hundred C files, which takes two CPUs 15 seconds. PyNaCl contains its source.
LIBSODIUM = Source(
    "libsodium",
    PyPI(
        "pynacl",
        "1.5.0",
        "PyNaCl-1.5.0.tar.gz",
        "8ac7448f09ab85811607bdd21ec2464495ac8b7c66d146bf545b0f08fb9220ba",
    ),
    top="PyNaCl-1.5.0/src/libsodium",
    configure=(("./configure", "--quiet", "--disable-dependency-tracking", "--disable-static"),),
    targets=(),
    product="src/libsodium/.libs/libsodium.so",
    product_bytes=200_000,
)


def linux(archive: Path | None = None, *, config: str | Path = "tinyconfig") -> Source:
    """Return the source of the Linux kernel, from an archive whose top directory has the archive's name.

    The default is the newest of Debian's packages ``linux-source-*``. `config` is one of the kernel's own targets, such
    as tinyconfig (a minute with two CPUs) or defconfig. With "distribution", it is that of Debian's package
    ``linux-config-*``, or of the running kernel. It can also be a file, optionally compressed by xz or gzip. Of such a
    file, the distribution's keys and BTF are switched off, because they need files and tools of the distribution. With
    the debug information of distributions, a build takes some 20 GB.
    """
    path = archive or _newest(Path("/usr/src").glob("linux-source-*.tar.*"))
    source = LocalFile(path or Path("/usr/src/linux-source.tar.xz"), needs.install_command(["linux-source"]))
    top = re.sub(r"\.tar(\.\w+)?$", "", source.file.name)
    required: tuple[Need, ...] = _LINUX_TOOLS
    if config != "tinyconfig":
        required += (
            Header("gelf.h", "libelf-dev"),
            Header("openssl/opensslv.h", "libssl-dev"),
            Tool("openssl", "openssl"),
        )
    if config == "distribution":
        config = _distribution_config()
    if isinstance(config, Path):
        package = top.replace("source", "config") if top.startswith("linux-source-") else "linux-config"
        required += (LocalFile(config, needs.install_command([package])),)
        reader = {".xz": "xz -dc", ".gz": "gzip -dc"}.get(config.suffix, "cat")
        keys = [word for key in ("SYSTEM_TRUSTED_KEYS", "SYSTEM_REVOCATION_KEYS") for word in ("--set-str", key, "")]
        configure: tuple[tuple[str, ...], ...] = (
            ("sh", "-c", f'{reader} "$0" > .config', str(config)),
            ("scripts/config", *keys, "--disable", "DEBUG_INFO_BTF"),
            ("make", "-s", "olddefconfig"),
        )
        label = config.name
    else:
        configure, label = (("make", "-s", config),), config
    return Source(f"linux {label}", source, top, configure, (), "vmlinux", product_bytes=500_000, needs=required)


@workload(_CC, LIBC, _MAKE, Tool("tar", "tar"))
def compile_source(
    timed: Timed,
    fsstack: Built,
    source: Source = LIBSODIUM,
    *,
    tree: str = "source",
    jobs: int | None = None,
    cold: bool = True,
) -> None:
    """Build `source` with ``make -j`` in the directory `tree` of the stack, with `jobs` in parallel (by default one per
    CPU).

    If an earlier step has unpacked the source into `tree` (`extract` with the same archive), that is built. Otherwise
    it is unpacked before the clock starts. It is also configured before that, and the compiler is in memory. Compiler
    caches are off. The tree stays, for `delete`. Afterwards, the product is read from the device. It must be a complete
    ELF file of plausible size. Without the source, the test is skipped with instructions. Raises `FileExistsError` if
    the tree is already built.
    """
    needs.require(*source.needs, source.archive)
    directory = fsstack.path / tree
    if not directory.is_dir():
        _unpack(source, directory)
    top = directory / source.top
    if not top.is_dir():
        raise AssertionError(f"compile_source: {tree} holds no {source.top}; is it the source of {source.name}?")
    product = top / source.product
    if product.exists():
        raise FileExistsError(f"compile_source: {product} is there already: nothing would be left to build")
    for words in source.configure:
        # `env -C` sets the working directory.
        commands.run("env", "-C", top, *words, env=_ENVIRONMENT, timeout=commands.DAY)
    for program in ("cc1", "as", "collect2", "ld"):
        resident.keep(commands.run("gcc", f"-print-prog-name={program}").strip())
    count = jobs or len(os.sched_getaffinity(0))
    with timed(cold=cold):
        timed.run("make", "-s", f"-j{count}", *source.targets, cwd=top, env=_ENVIRONMENT)
    fsstack.remount()
    _verify(product, source)


def _newest(archives: Iterable[Path]) -> Path | None:
    def version(path: Path) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", str(path))))

    return max(archives, key=version, default=None)


def _distribution_config() -> Path:
    machine = platform.machine()
    name = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    running = Path(f"/boot/config-{platform.release()}")
    packaged = _newest(Path("/usr/src").glob(f"linux-config-*/config.*_none_{name}.xz"))
    return packaged or running


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def _unpack(source: Source, directory: Path) -> None:
    archive = source.archive.path()
    part = [source.top]
    if archive.is_dir():
        archive, part = corpus.users_corpus(archive, corpus.cache_directory()).tar, []
    elif tool := compressor(archive):
        needs.require(tool)
    directory.mkdir()
    commands.run("tar", "--no-same-owner", "-xf", archive, "-C", directory, *part, timeout=commands.DAY)


def _verify(product: Path, source: Source) -> None:
    if not product.is_file():
        raise AssertionError(f"compile_source: after a remount there is no {source.product}")
    size = product.stat().st_size
    if size < source.product_bytes:
        raise AssertionError(
            f"compile_source: after a remount {source.product} has {size:,} bytes; "
            f"{source.name} has {source.product_bytes:,} at least"
        )
    with product.open("rb") as file:
        end = _elf_end(file)
    if end is None:
        raise AssertionError(f"compile_source: after a remount {source.product} is not an ELF file")
    if end > size:
        raise AssertionError(
            f"compile_source: after a remount {source.product} has {size:,} bytes, and by its own header {end:,}"
        )


def _elf_end(file: BinaryIO) -> int | None:
    """Return the end of the section table, which linkers put last. None if it is not an ELF file."""
    header = file.read(64)
    if len(header) < 64 or header[:4] != b"\x7fELF" or header[4] not in (1, 2) or header[5] not in (1, 2):
        return None
    # e_shoff, e_shentsize and e_shnum of elf(5), in files of 32 and of 64 bits.
    layout = "32xI10xHH" if header[4] == 1 else "40xQ10xHH"
    start, entry, count = struct.unpack_from(("<" if header[5] == 1 else ">") + layout, header)
    return int(start + entry * count)
