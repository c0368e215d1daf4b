"""Kernels that boot, from an image, a build tree, a package or a directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_fsstack.kernels import packages
from pytest_fsstack.machine import commands, directories, reading
from pytest_fsstack.stack import keys, spec
from pytest_fsstack.units import reason_of

HOST = "host"
_WRITTEN = re.compile(
    rf"\s*(?:(?P<name>{spec.NAME.pattern})\s*=\s+)?(?P<kernel>\S.*?)(?:\s+@\s+(?P<words>\S.*?))?\s*", re.DOTALL
)


class KernelError(Exception):
    """An error in the name of a kernel. The message has the possible forms."""


@dataclass(frozen=True)
class Kernel:
    """A kernel and its name in test ids. `image` is None for the running kernel. `tree` is the top of a build tree.

    `words` are added to its command line.
    """

    name: str
    image: Path | None = None
    tree: Path | None = None
    words: tuple[str, ...] = ()

    @property
    def in_vm(self) -> bool:
        return self.image is not None

    @property
    def can_boot(self) -> bool:
        """Whether it can boot again for another figure. The running kernel cannot."""
        return self.in_vm

    def arguments(self) -> list[str]:
        """Return the arguments for virtme-run, which finds modules beside the image or in the tree."""
        place = ["--kimg", str(self.image)] if self.tree is None else ["--kdir", str(self.tree)]
        return [*place, "--mods", "auto", *(argument for word in self.words for argument in ("--kopt", word))]


def resolve(text: str, cache: Path) -> Kernel:
    """Return the kernel of ``[NAME =] KERNEL [@ WORD, ...]``. The words are added to its command line.

    KERNEL is ``host``, a vmlinuz or bzImage, a .deb or .rpm, a build tree or a directory. Packages are unpacked to
    `cache`, never installed. Raises `KernelError`.
    """
    match = None if os.path.lexists(text) else _WRITTEN.fullmatch(text)
    if match is None:
        return _of(text, cache)
    words = tuple(re.split(r",?\s+", match["words"])) if match["words"] else ()
    for word in words:
        if problem := keys.why_no_boot_word(word):
            raise KernelError(f"{text}: {problem}")
    kernel = _of(match["kernel"], cache)
    if words and not kernel.in_vm:
        raise KernelError(
            f"{text}: cannot change the command line of the running kernel; name a kernel that boots in a VM"
        )
    name = match["name"] or "-".join([kernel.name, *map(_safe, words)])
    return replace(kernel, name=_safe(name), words=words)


def is_host(text: str) -> bool:
    """Whether a kernel of the command line is the running one."""
    match = None if os.path.lexists(text) else _WRITTEN.fullmatch(text)
    return (match["kernel"] if match else text) == HOST


def _of(text: str, cache: Path) -> Kernel:
    if text == HOST:
        return Kernel(f"host-{_safe(platform.release())}")
    path = Path(text).absolute()
    if not os.path.exists(path):  # Path.exists raises for names that are too long
        raise KernelError(f"{text} does not exist; name a vmlinuz, a kernel build tree, a .deb or .rpm, or `host`")
    if path.is_dir():
        return _in_directory(path)
    if path.suffix in (".deb", ".rpm"):
        return _in_directory(_unpacked(path, cache))
    return Kernel(_release(path), path)


def _in_directory(directory: Path) -> Kernel:
    if (directory / "arch/x86/boot/bzImage").exists():
        image = (directory / "arch/x86/boot/bzImage").resolve()
        return Kernel(_release(image), image, directory)
    images = sorted(
        path for pattern in ("vmlinuz*", "boot/vmlinuz*", "lib/modules/*/vmlinuz") for path in directory.glob(pattern)
    )
    if not images:
        raise KernelError(f"{directory} has no kernel: neither arch/x86/boot/bzImage nor boot/vmlinuz-*")
    if len(images) > 1:
        raise KernelError(f"{directory} has several kernels; name one: {', '.join(map(str, images))}")
    return Kernel(_release(images[0]), images[0])


def _release(image: Path) -> str:
    """Return the release in an image (header field kernel_version, Documentation/arch/x86/boot.rst)."""
    try:
        with reading.opened(image) as file:
            head = file.read(0x8000)
    except OSError as error:
        raise KernelError(f"{image} cannot be read: {reason_of(error)}") from None
    if b"HdrS" not in head[:0x400]:
        raise KernelError(f"{image} is not a kernel image for this machine (x86 bzImage)")
    offset = int.from_bytes(head[0x20E:0x210], "little") + 0x200
    version = head[offset : offset + 256].split(b"\0")[0].decode(errors="replace")
    return _safe(version.split(" ")[0] or image.name.removeprefix("vmlinuz-"))


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)


def _unpacked(package: Path, cache: Path) -> Path:
    """Unpack a package into the cache with an index of its modules, unless it is there. Return the directory."""
    status = package.stat()
    key = hashlib.sha256(f"{package.resolve()} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:16]
    home = cache / "kernels" / f"{package.stem}-{key}"
    # From here on, only root and this user may change what is there.
    directories.HeldDirectory.made(home.parent).__exit__()
    if home.exists():
        return home
    with directories.scratch(home.parent, ".unpack-") as scratch:
        root = scratch / "root"
        root.mkdir()
        try:
            packages.unpack(package, root)
            _index(root)
        except (packages.PackageError, commands.CommandError, OSError) as error:
            reason = " ".join(reason_of(error).split())
            raise KernelError(f"cannot unpack {package}: {reason}") from None
        root.chmod(0o755)
        with contextlib.suppress(OSError):  # another session was faster, and its files are the same
            os.rename(root, home)
    return home


def _index(root: Path) -> None:
    """Move the image to /boot, and make the index of modules, as the installation of the package would."""
    # virtme-ng expects modules in /lib. Packages for a merged /usr have them in /usr/lib.
    if (root / "usr/lib/modules").is_dir() and not os.path.lexists(root / "lib"):
        (root / "lib").symlink_to("usr/lib")
    _place_image(root)
    for modules in (root / "lib/modules").glob("*"):
        if _safe(modules.name) != modules.name or modules.name.startswith("-"):
            raise packages.PackageError(f"{modules.name!r} is not a valid kernel release")
        commands.run("depmod", "-b", root, modules.name)


def _place_image(root: Path) -> None:
    """Move the image to /boot. Packages of Fedora have it beside the modules."""
    if not any(root.glob("boot/vmlinuz*")):
        for image in root.glob("lib/modules/*/vmlinuz"):
            (root / "boot").mkdir(exist_ok=True)
            shutil.move(image, root / "boot" / f"vmlinuz-{image.parent.name}")
