"""Unpack kernel packages. Their authors are not trusted.

The tool of the package format decompresses a package as an unprivileged user, in namespaces of its own. This module
reads the archive. It writes members without privileges, relative to descriptors, through no link, and only below the
given directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import stat
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from pytest_fsstack.machine import commands, confined, reading
from pytest_fsstack.machine.descriptors import opened

#: Commands that print the archive in a package, by suffix: tar for .deb, cpio for .rpm.
TOOLS: Mapping[str, tuple[str, ...]] = {".deb": ("dpkg-deb", "--fsys-tarfile", "-"), ".rpm": ("rpm2cpio", "-")}

#: The maximum size of an unpacked package in bytes. Those of distributions have less than a tenth of it.
MAX_BYTES = 16 << 30

#: Links beside the modules to the kernel's headers, which are in another package. They are not needed.
_HEADERS = ("build", "source")


class PackageError(Exception):
    """An error in a package: damaged, unsafe, or with files that no kernel needs. The message has the reason."""


@dataclass(frozen=True)
class Member:
    """A member of an archive. `target` is that of a link, `content` that of a file."""

    name: str
    kind: int
    mode: int
    size: int = 0
    target: str = ""
    content: IO[bytes] | None = None


def unpack(package: Path, directory: Path) -> None:
    """Write the files of a package to an empty directory. All files belong to this user afterwards.

    Raises `PackageError`, `CommandError`, OSError.
    """
    with _archive(package) as archive:
        read = read_tar if package.suffix == ".deb" else _cpio
        user = _unprivileged_user()
        if user:
            os.chown(directory, user.pw_uid, user.pw_gid)
        try:
            with opened(directory, os.O_RDONLY | os.O_DIRECTORY) as top, _acting_as(user):
                write_all(read(archive), top)
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise PackageError(f"its archive is damaged: {error}") from None
    _check(directory)


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Return an unprivileged user for root to act as, or None if this process is not root. Raises `PackageError`."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise PackageError(
            "root needs the user `nobody` to unpack a package, and this machine has none; create it"
        ) from None


@contextlib.contextmanager
def _acting_as(user: pwd.struct_passwd | None) -> Iterator[None]:
    """Create and open files in this thread with the privileges of a user (setfsuid(2)). Raises `PackageError`."""
    if user is None:
        yield
        return
    libc = ctypes.CDLL(None)
    group, mask = os.getegid(), os.umask(0o022)
    libc.setfsgid(user.pw_gid)
    libc.setfsuid(user.pw_uid)
    try:
        if libc.setfsuid(-1) != user.pw_uid:
            raise PackageError("root could not drop its privileges to unpack a package")
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(group)
        os.umask(mask)


@contextlib.contextmanager
def _archive(package: Path) -> Iterator[IO[bytes]]:
    """Yield the archive in a package, decompressed to a file without a name.

    The tool writes to a pipe, because other processes of its user must not reach the file.
    """
    with reading.opened(package) as source, tempfile.TemporaryFile(dir="/var/tmp") as archive:
        reader, writer = os.pipe()
        with ThreadPoolExecutor(1) as pool:
            copying = pool.submit(_copy_all, reader, archive)
            try:
                _run_confined(*TOOLS[package.suffix], stdin=source.fileno(), stdout=writer)
            except commands.CommandError:
                if isinstance(copying.exception(), PackageError):
                    copying.result()
                raise
        copying.result()
        archive.seek(0)
        yield archive


def _copy_all(reader: int, target: IO[bytes]) -> None:
    """Copy from a pipe until all writers have closed it. Raises `PackageError` if it yields too much."""
    with os.fdopen(reader, "rb") as source:
        total = 0
        while data := source.read(1 << 20):
            total += len(data)
            if total > MAX_BYTES:
                raise PackageError(f"it holds more than {MAX_BYTES >> 30} GiB")
            target.write(data)


def _run_confined(tool: str, *arguments: str, stdin: int, stdout: int) -> None:
    """Run a command with root's rights dropped, and close `stdout`. Raises `CommandError`, `PackageError`."""
    try:
        user, path = _unprivileged_user(), commands.which(tool)
        if path is None:
            raise commands.not_installed((tool, *arguments))
        rights = [sys.executable, "-I", "-S", confined.__file__, str(user.pw_uid), str(user.pw_gid)] if user else []
        commands.run(*rights, path, *arguments, stdin=stdin, stdout=stdout, cwd=Path("/"))
    except commands.CommandError as error:
        raise commands.CommandError((tool, *arguments), error.returncode, error.stderr, error.how) from None
    finally:
        os.close(stdout)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_tar(archive: IO[bytes]) -> Iterator[Member]:
    """Yield the members of a tar archive. The content of one must be read before the next. Raises `PackageError`."""
    kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK, tarfile.LNKTYPE: 0}
    with tarfile.open(fileobj=archive, mode="r:", errors="surrogateescape") as members:
        for member in members:
            if member.isreg() and not member.issparse():
                content = members.extractfile(member)
                yield Member(member.name, stat.S_IFREG, member.mode, member.size, content=content)
            elif member.type in kinds:
                yield Member(member.name, kinds[member.type], member.mode, target=member.linkname)
            else:
                raise PackageError(f"{quoted(member.name)} is not a file, directory or link")
        # tarfile accepts archives that are cut off or have garbage between members.
        archive.seek(members.offset)
        if archive.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise PackageError("its archive is damaged: it is cut off")


_CPIO_FIELDS = ("ino", "mode", "uid", "gid", "nlink", "mtime", "filesize", "major", "minor", "_", "_", "namesize")


def _cpio(archive: IO[bytes]) -> Iterator[Member]:
    """Yield the members of a "newc" archive (cpio(5)), as rpm2cpio writes it. The last hard link has the content."""
    links: dict[int, str] = {}
    while True:
        head = _read_exactly(archive, 110)
        if head[:6] not in (b"070701", b"070702"):
            raise PackageError("its archive is damaged: a header of a cpio member is missing")
        try:
            numbers = [int(head[at : at + 8], 16) for at in range(6, 102, 8)]
        except ValueError:
            raise PackageError("its archive is damaged: a number in a cpio header is invalid") from None
        fields = dict(zip(_CPIO_FIELDS, numbers))
        name = os.fsdecode(_read_padded(archive, min(fields["namesize"], 1 << 16), 110).rstrip(b"\0"))
        if name == "TRAILER!!!":
            return
        kind, size = stat.S_IFMT(fields["mode"]), fields["filesize"]
        start = archive.tell()
        if kind == stat.S_IFLNK:
            yield Member(name, kind, 0, target=os.fsdecode(_read_exactly(archive, min(size, 1 << 16))))
        elif kind == stat.S_IFREG and fields["nlink"] > 1 and links.setdefault(fields["ino"], name) != name:
            yield Member(name, 0, fields["mode"], size, links[fields["ino"]], archive)
        elif kind in (stat.S_IFREG, stat.S_IFDIR):
            yield Member(name, kind, fields["mode"], size, content=archive)
        else:
            raise PackageError(f"{quoted(name)} is not a file, directory or link")
        archive.seek(start + size + -size % 4)


def _read_exactly(archive: IO[bytes], size: int) -> bytes:
    data = archive.read(size)
    if len(data) != size:
        raise PackageError("its archive is damaged: it is cut off")
    return data


def _read_padded(archive: IO[bytes], size: int, before: int) -> bytes:
    return _read_exactly(archive, size + -(before + size) % 4)[:size]


# -- writing -----------------------------------------------------------------------------------------------------------


def write_all(members: Iterator[Member], top: int) -> None:
    """Write members below the open directory, through no link. Raises `PackageError`, OSError."""
    for member in members:
        if member.mode & (stat.S_ISUID | stat.S_ISGID) and member.kind != stat.S_IFDIR:
            raise PackageError(f"{quoted(member.name)} would run as another user (setuid or setgid)")
        *parents, name = _parts(member.name) or (None,)
        if name is None:
            continue
        with _directory(top, parents) as place:
            _write(member, place, name, top)


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a member's name, empty for the top. Raises `PackageError` if it leads out of the package."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts:
        raise PackageError(f"{quoted(name)} leads out of the package")
    if not name.isprintable():
        raise PackageError(f"{quoted(name)} is not a valid name for a file of a kernel")
    return parts


@contextlib.contextmanager
def _directory(top: int, parts: list[str]) -> Iterator[int]:
    """Yield a descriptor of a directory below the top. Create missing ones, and follow no link."""
    place = os.dup(top)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=place)
            try:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
            except OSError:
                raise PackageError(f"{quoted(part)} is a directory and something else as well") from None
            os.close(place)
            place = inner
        yield place
    finally:
        os.close(place)


def _write(member: Member, place: int, name: str, top: int) -> None:
    try:
        if member.kind == stat.S_IFDIR:
            with _directory(place, [name]):
                pass
        elif member.kind == stat.S_IFLNK:
            if not _leads_to_headers(member):
                _check_link(member)
                os.symlink(member.target, name, dir_fd=place)
        elif member.kind == stat.S_IFREG:
            _fill(member, os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=place))
        else:
            _link(member, place, name, top)
    except FileExistsError:
        raise PackageError(f"{quoted(member.name)} is in it twice") from None


def _leads_to_headers(link: Member) -> bool:
    path = PurePosixPath(link.name)
    return path.name in _HEADERS and path.parent.parent.name == "modules"


def _check_link(link: Member) -> None:
    target = os.path.normpath(os.path.join(os.path.dirname(link.name), link.target))
    if link.target.startswith("/") or target.split("/")[0] == ".." or not link.target.isprintable():
        raise PackageError(f"the link {quoted(link.name)} leads out of the package, to {quoted(link.target)}")


def _fill(member: Member, fd: int) -> None:
    with os.fdopen(fd, "wb") as file:
        if member.content is not None:
            _copy(member.content, file, member.size)
        os.fchmod(file.fileno(), (member.mode & 0o755) | 0o600)


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size:
        data = source.read(min(size, 1 << 20))
        if not data:
            raise PackageError("its archive is damaged: it is cut off")
        target.write(data)
        size -= len(data)


def _link(member: Member, place: int, name: str, top: int) -> None:
    """Make a hard link to a file that was written before. Write its content if the link has it."""
    *parents, first = _parts(member.target) or ("",)
    with _directory(top, parents) as other:
        try:
            if not stat.S_ISREG(os.stat(first, dir_fd=other, follow_symlinks=False).st_mode):
                raise PackageError(f"the hard link {quoted(member.name)} leads to no file")
            os.link(first, name, src_dir_fd=other, dst_dir_fd=place, follow_symlinks=False)
        except FileNotFoundError:
            raise PackageError(f"the hard link {quoted(member.name)} leads to no file of the package") from None
    if member.size:
        _fill(member, os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place))


# -- checking ----------------------------------------------------------------------------------------------------------


def _check(directory: Path) -> None:
    """Check the written files again, independently of the archive, and change their owner to this user."""
    top = directory.resolve()
    for place, directories, files, fd in os.fwalk(top, follow_symlinks=False):
        for name in [".", *directories, *files]:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            path = Path(place, name)
            if stat.S_ISLNK(status.st_mode):
                if not Path(os.path.realpath(path)).is_relative_to(top):
                    raise PackageError(f"the link {quoted(path.relative_to(top))} leads out of the package")
            elif not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise PackageError(f"{quoted(path.relative_to(top))} is not a file, directory or link")
            elif status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                raise PackageError(f"{quoted(path.relative_to(top))} would run as another user")
            os.chown(name, os.geteuid(), os.getegid(), dir_fd=fd, follow_symlinks=False)


def quoted(name: str | os.PathLike[str]) -> str:
    """Return a name of any characters as one line of text."""
    text = os.fspath(name)
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
