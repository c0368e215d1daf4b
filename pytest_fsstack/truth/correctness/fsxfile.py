"""fsx: random reads, writes, mappings and truncations of one file. Each read is compared with a copy in memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_fsstack.machine.needs import Crate, Tool
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.truth.correctness.posix import OVER, letting_go
from pytest_fsstack.truth.correctness.verdict import damage_of
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Completed, Timed
    from pytest_fsstack.stack.build import Built

FSX = Crate("fsx")

#: Weights of operations beside the defaults of fsx, and the limit that leaves an operation out. sendfile and
#: copy_file_range are not among them, because fsx crashes if a filesystem such as eCryptfs refuses these.
_WEIGHTS: Mapping[str, tuple[float, Limit | None]] = {
    "close_open": (2, None),
    "invalidate": (1, None),
    "fsync": (1, None),
    "fdatasync": (1, None),
    "mapwrite": (10, Limit.MAPPED_WRITES),
    "posix_fallocate": (2, Limit.ALLOCATION),
    "punch_hole": (2, Limit.HOLES),
    "posix_fadvise": (1, None),
}


class FsxError(AssertionError):
    """A failure of fsx that is no difference of the file."""


@workload(FSX, Tool("timeout", "coreutils"))
def fsx(
    timed: Timed,
    fsstack: Built,
    *,
    seed: int,
    operations: int = 1000,
    spoiled: bool = False,
    patience: float = 600.0,
) -> str:
    """Run fsx on a new file of up to 256 KiB, with `operations` drawn from `seed`. Return the difference, or "".

    Operations that the stack lacks are left out. Recorded are ``contents_calls`` and ``contents_differences`` (0 or 1,
    because fsx ends at the first). With `spoiled`, for a control, bytes of the
    file are changed meanwhile. If fsx has not ended after `patience` seconds, it is killed, and so is a FUSE server
    that does not answer. A stack that ends, hangs or takes no writes is different. Raises `FsxError` otherwise.
    """
    try:
        fsstack.complete()
    except BuildError as error:
        if spoiled:
            raise
        return str(error)
    limits, path = fsstack.stack.limits, fsstack.path / "fsx.data"
    with fsstack.scratch() as directory:
        settings = directory / "fsx.toml"
        settings.write_text(settings_for(limits))
        words = ["timeout", f"{patience:g}", FSX.path or FSX.name, "-N", str(operations), "-S", str(seed % 2**32)]
        words += ["-f", str(settings), "-P", str(directory)]
        with (
            timed(cold=False),
            letting_go(fsstack, fsstack.path, patience + 1.0) as let_go,
            altering(path) if spoiled else contextlib.nullcontext(),
        ):
            # Without a backtrace, the message of the panic is the end of the output.
            result = timed.run(*words, path, check=False, env={"RUST_BACKTRACE": "0"})
            # The end of the block syncs the stack.
            damage = damage_of(fsstack) or (_refused(path) if result.returncode else "")
    try:
        if let_go.is_set() or result.returncode == OVER:
            server = ", and the FUSE server, which did not answer, was killed" * let_go.is_set()
            raise FsxError(f"fsx: it did not end within {patience:g} s{server}")
        wrong = difference(result, limits) or ("" if spoiled else damage)
    except FsxError as error:
        # That a server has ended, hangs or refuses everything is a fault of the stack.
        if spoiled or not (damage or let_go.is_set()):
            raise
        wrong = "; ".join(filter(None, [str(error), damage]))
    timed.record("contents_calls", operations if not wrong else done_before(result), better="higher", exact=True)
    timed.record("contents_differences", int(bool(wrong)), exact=True)
    if not wrong:
        path.unlink()
    return wrong


def _refused(path: Path) -> str:
    """Return the error of writing a byte to a file, or ""."""
    try:
        with path.open("ab", buffering=0) as file:
            file.write(b"1")
            os.fsync(file.fileno())
    except OSError as error:
        return f"writing a byte: {error.strerror}"
    return ""


def settings_for(limits: Mapping[Limit, str]) -> str:
    """Return the configuration of fsx, without operations that the limits of a stack exclude.

    Each operation has at least one byte, because posix_fallocate(3) of none fails with EINVAL on every filesystem.
    """
    weights = {name: 0 if limit in limits else weight for name, (weight, limit) in _WEIGHTS.items()}
    lines = ["[weights]", *(f"{name} = {float(weight)}" for name, weight in weights.items()), "[opsize]", "min = 1", ""]
    return "\n".join(lines)


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: A line of the log of operations, which fsx prints at the end.
_OPERATION = re.compile(r"\] +(\d+) [A-Z]")


def kind_of(difference: str) -> str:
    """Return the kind of a difference of the file."""
    if re.search("did not end|killed by|remounted|writing a byte", difference):
        return "fsx: unusable"
    if match := re.search("E[A-Z]{3,}", difference):
        return f"fsx: {match[0]}"
    return "fsx: size" if re.search("size", difference, re.I) else "fsx: content"


def difference(result: Completed, limits: Mapping[Limit, str] = MappingProxyType({})) -> str:
    """Return the difference of the file, empty if there is none. Raises `FsxError` for any other error."""
    if result.returncode == 0:
        return ""
    lines = [line.strip() for line in _COLOUR.sub("", result.stderr + result.stdout).splitlines() if line.strip()]
    message = next((line for line in lines if re.search(r"miscompare|file size|Size error|corrupt", line, re.I)), "")
    if not message:
        # Then it prints its last operations.
        said = [*itertools.takewhile(lambda line: "Using seed" not in line, lines)]
        cause = f"{_ended(result.returncode)}: {' / '.join(said[-3:]) or 'nothing said'}"
        if re.search("EOPNOTSUPP|ENOSYS", cause):
            undeclared = [limit for _, limit in _WEIGHTS.values() if limit and limit not in limits]
            names = " or ".join(f"Limit.{limit.name}" for limit in undeclared)
            cause += f". If this is by design, declare {names}" if names else ""
        raise FsxError(f"fsx: {cause}")
    return re.sub(r"^\[[^\]]*\] *", "", message)


def _ended(code: int) -> str:
    """Describe the exit code of a command."""
    if code != -signal.SIGBUS:
        return f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
    return "it was killed by SIGBUS: a mapped page of the file could not be read or written"


def done_before(result: Completed) -> int:
    """Return the number of operations up to the error."""
    return max(
        (int(number) for number in _OPERATION.findall(_COLOUR.sub("", result.stderr + result.stdout))), default=0
    )


@contextlib.contextmanager
def altering(path: Path) -> Iterator[None]:
    """Change bytes of a file all the time, once it exists."""
    over = threading.Event()

    def alter() -> None:
        at = 0
        while not over.wait(0.001):
            with contextlib.suppress(OSError), path.open("r+b", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size:
                    at = (at + 7919) % size
                    byte = os.pread(file.fileno(), 1, at) or b"\0"
                    os.pwrite(file.fileno(), bytes([byte[0] ^ 0xFF]), at)

    thread = threading.Thread(target=alter, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10.0)
