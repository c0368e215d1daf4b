"""A backup archive of hard links: a pool of files named by hash, and trees of machines whose files are links into it.

The archive is written as a stream, member by member, in constant memory. A few numbers describe it, and every part can
be computed from them. So its 490 GiB are never stored, and an extracted archive can still be checked.

This file also runs as a program. Its only argument is the description as JSON, and it writes the archive to stdout.
It imports nothing but the standard library, so it starts quickly and without the plugin.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Literal, get_args

Contents = Literal["zeros", "noise"]

#: The version of the format. It is part of all hashes. Raise it if the same description gives other bytes.
_FORMAT = 1
_MTIME = 1_300_000_000
_CHUNK = 1 << 20
_RECORD = 10240
#: The largest file size that a ustar header can hold.
_LARGEST = (8 << 30) - 1
#: Directories of the pool that hold files: three hexadecimal digits, one directory level each.
_POOL_LEAVES = 16**3
_FILES_PER_DIRECTORY = 12
_DIRECTORIES_PER_DIRECTORY = 64
#: The mean of the weights that `Backup.size` draws, in units of 2 ** -20.
_MEAN_WEIGHT = 4_285_000


@dataclass(frozen=True)
class Backup:
    """The numbers of an archive. The defaults of the last fields are those of the published measurement.

    The members are ``pool/f/1/d/f1d2...`` and ``machines/0/...``. Raises `ValueError` for impossible numbers.
    """

    #: The number of regular files in the pool. Their sizes are log-normal.
    pool_files: int
    #: The number of names in the trees that are hard links to files of the pool.
    links: int
    #: The number of empty regular files in the trees.
    empty_files: int = 0
    #: The mean size of a file of the pool in bytes.
    mean_size: int = 1_150_000
    seed: int = 1
    #: The maximum number of links to a file, besides its name in the pool. Filesystems have limits: 65,000 names of a
    #: file on ext4, 32,000 on nilfs2.
    max_links_per_file: int = 40_000
    machines: int = 10
    #: The contents of files. The published measurement used zeros, on stacks without compression and deduplication.
    #: Noise can be neither compressed nor deduplicated.
    contents: Contents = "zeros"

    def __post_init__(self) -> None:
        if self.pool_files < 1 or self.machines < 1 or min(self.links, self.empty_files, self.mean_size) < 0:
            raise ValueError(f"a backup needs files and machines, and no number may be negative: {self}")
        if self.contents not in get_args(Contents):
            raise ValueError(f"the contents of a backup are zeros or noise (got {self.contents!r})")
        if self.links > self.pool_files * self.max_links_per_file:
            raise ValueError(
                f"{self.links:,} links do not go to {self.pool_files:,} files with at most "
                f"{self.max_links_per_file:,} each"
            )

    @property
    def names(self) -> int:
        """Return the number of names of regular files: of the pool, links, and empty files."""
        return self.pool_files + self.tree_files

    @property
    def tree_files(self) -> int:
        """Return the number of names of regular files outside of the pool."""
        return self.links + self.empty_files

    @functools.cached_property
    def pool_bytes(self) -> int:
        """Return the sum of the sizes of the pool's files. The first call takes some microseconds a file."""
        return sum(map(self.size, range(self.pool_files)))

    # -- the pool: files 0 to pool_files - 1, in the archive's order

    def pool_path(self, file: int) -> str:
        """Return the path of a file of the pool. Its directories are the first digits of its name."""
        leaf = file * _POOL_LEAVES // self.pool_files
        digits = f"{leaf:03x}{self._noise(15, 'pool', file).hex()[:29]}"
        return f"pool/{digits[0]}/{digits[1]}/{digits[2]}/{digits}"

    def size(self, file: int) -> int:
        """Return the size of a file of the pool in bytes. Sizes are log-normal. The median is a quarter of the mean."""
        # Integers only, because C libraries differ in the last bits of logarithms and exponentials. The sum of twelve
        # uniform numbers is nearly normal, and exp(x) is nearly (1 + x / 1024) ** 1024.
        normal: int = sum(struct.unpack("<12H", self._noise(24, "size", file))) - 6 * 65536
        weight: int = (1 << 40) + (17 * normal << 24) // (10 * 1024)
        for _ in range(10):
            weight = weight * weight >> 40
        return min(_LARGEST, (weight >> 20) * self.mean_size // _MEAN_WEIGHT)

    def content(self, file: int) -> Iterator[bytes]:
        """Yield the contents of a file of the pool, in pieces of at most 1 MiB."""
        for start in range(0, size := self.size(file), _CHUNK):
            count = min(_CHUNK, size - start)
            if self.contents == "zeros":
                yield _ZEROS[:count]
            else:
                # Making noise takes longer than writing it, so all files share some. Pieces from different offsets
                # have no block in common.
                place = int.from_bytes(self._noise(4, "content", file, start), "little") % _CHUNK
                yield self._base[place : place + count]

    def links_to(self, file: int) -> int:
        """Return the number of links in the trees to this file of the pool."""
        rank = self._popularity.at(file)
        return self._links_below(rank + 1) - self._links_below(rank)

    # -- the trees: names 0 to tree_files - 1, in the archive's order

    def tree_directory(self, name: int) -> str:
        per_machine = -(-self.tree_files // self.machines)
        machine, within = divmod(name, per_machine)
        upper, lower = divmod(within // _FILES_PER_DIRECTORY, _DIRECTORIES_PER_DIRECTORY)
        return f"machines/{machine}/{upper:x}/{lower:02x}"

    def tree_path(self, name: int) -> str:
        noise = self._noise(9, "name", name)
        return f"{self.tree_directory(name)}/{noise.hex()[: 4 + noise[8] % 12]}-{name:x}"

    def target(self, name: int) -> int | None:
        """Return the file of the pool to which a name in the trees is a link, or None for an empty file."""
        # Empty files are spread evenly. So many of the names below this one are empty.
        empty_below = name * self.empty_files // self.tree_files
        if (name + 1) * self.empty_files // self.tree_files > empty_below:
            return None
        slot = self._order.at(name - empty_below)
        low, high = 0, self.pool_files
        while high - low > 1:
            middle = (low + high) // 2
            if self._links_below(middle) <= slot:
                low = middle
            else:
                high = middle
        return self._popularity.of(low)

    def _links_below(self, rank: int) -> int:
        """Return the number of links to all files with a lower rank. The most popular file has rank 0.

        Half of the links are shared equally by all files. The first r of n files get the share r (1 + h) / (r + h n)
        of the other half. h is chosen so that the first file gets `max_links_per_file`.
        """
        alike = self.links // (2 * self.pool_files)
        remaining, limit = self.links - alike * self.pool_files, self.max_links_per_file - alike
        # h is a fraction, over / under, so all results are exact.
        over, under = max(0, remaining - limit), limit * self.pool_files - remaining
        if over == 0:
            return alike * rank + (remaining if rank else 0)
        return alike * rank + remaining * rank * (under + over) // (rank * under + over * self.pool_files)

    @functools.cached_property
    def _base(self) -> bytes:
        return self._noise(2 * _CHUNK, "base")

    @functools.cached_property
    def _popularity(self) -> _Shuffle:
        """Map files to their ranks by popularity."""
        return _Shuffle(self.pool_files, self._noise(16, "popularity"))

    @functools.cached_property
    def _order(self) -> _Shuffle:
        """Map links in the archive's order to links in the order of their targets."""
        return _Shuffle(self.links, self._noise(16, "order"))

    def _noise(self, count: int, *label: object) -> bytes:
        return hashlib.shake_128(repr((_FORMAT, self.seed, *label)).encode()).digest(count)


class _Shuffle:
    """A permutation of 0 to count - 1 that takes no memory: index * factor + offset, modulo count."""

    def __init__(self, count: int, noise: bytes) -> None:
        self._count = max(1, count)
        # A factor near the golden ratio maps neighbours far from each other, and their neighbours too.
        factor = self._count * 618034 // 1_000_000 + noise[0]
        while math.gcd(factor, self._count) != 1:
            factor += 1
        self._factor, self._offset = factor, int.from_bytes(noise[1:], "little") % self._count
        self._inverse = pow(factor, -1, self._count)

    def at(self, index: int) -> int:
        return (index * self._factor + self._offset) % self._count

    def of(self, image: int) -> int:
        """Return the index of an image."""
        return (image - self._offset) * self._inverse % self._count


_ZEROS = bytes(_CHUNK)


def write_tar(backup: Backup, out: IO[bytes]) -> None:
    """Write the archive, uncompressed. The same description gives the same bytes everywhere. Raises OSError."""
    size = 0
    for piece in _pieces(backup):
        out.write(piece)
        size += len(piece)
    # The end of the archive, and the padding of its last record.
    out.write(bytes(1024 + -(size + 1024) % _RECORD))


def _pieces(backup: Backup) -> Iterator[bytes]:
    before = ""
    for file in range(backup.pool_files):
        path, size = backup.pool_path(file), backup.size(file)
        yield from _directories(before, before := path.rpartition("/")[0])
        yield header(path, b"0", size=size)
        yield from backup.content(file)
        yield bytes(-size % 512)
    for name in range(backup.tree_files):
        path, target = backup.tree_path(name), backup.target(name)
        yield from _directories(before, before := path.rpartition("/")[0])
        yield header(path, b"0") if target is None else header(path, b"1", backup.pool_path(target))


def _directories(before: str, directory: str) -> Iterator[bytes]:
    """Yield the headers of a directory and its parents, without those that also contain the previous directory."""
    if directory == before:
        return
    parts, previous = directory.split("/"), before.split("/")
    for depth in range(1, len(parts) + 1):
        if parts[:depth] != previous[:depth]:
            yield header("/".join(parts[:depth]) + "/", b"5")


_FIELDS = struct.Struct("100s8s8s8s12s12s8sc100s8s32s32s183x")
_OWNER = b"0000000\0"


def header(path: str, kind: bytes, target: str = "", size: int = 0, owner: bytes = b"") -> bytes:
    """Return a ustar header. `tarfile` takes ten times as long, and its bytes may differ between versions."""
    name = path.encode()
    if len(name) > 100:
        raise AssertionError(f"{path} does not fit a ustar header")
    fields = _FIELDS.pack(
        name,
        b"0000755\0" if kind == b"5" else b"0000644\0",
        _OWNER,
        _OWNER,
        b"%011o\0" % size,
        b"%011o\0" % _MTIME,
        b" " * 8,
        kind,
        target.encode(),
        b"ustar\00000",
        owner,
        owner,
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]


def describe(backup: Backup) -> str:
    """Return the argument for this file as a program."""
    return json.dumps(dataclasses.asdict(backup))


def sample(count: int, limit: int, seed: int) -> list[int]:
    """Return about `limit` of the numbers below `count`, ascending. The first and the last are among them."""
    numbers = random.Random(seed).sample(range(count), min(count, limit))
    return sorted({0, count - 1, *numbers}) if count else []


def main(description: str) -> int:
    try:
        with open(sys.stdout.fileno(), "wb", buffering=_CHUNK, closefd=False) as out:
            write_tar(Backup(**json.loads(description)), out)
    except BrokenPipeError:
        # The reader has stopped, and reports the reason.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
