"""bonnie++, with a parser of its CSV output."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.records.sample import Better, Metric
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

_MEBIBYTE = 1 << 20
#: The unit in which bonnie++ counts files.
_MANY = 1024


@workload(Tool("bonnie++", "bonnie++"))
def bonnie(
    timed: Timed,
    fsstack: Built,
    *,
    size: int = 64 * _MEBIBYTE,
    memory: int | None = None,
    files: int = 4 * _MANY,
    concurrency: int = 1,
    characters: bool = True,
    seed: int = 1,
    cold: bool = True,
) -> None:
    """Run ``bonnie++`` in a new directory: `size` bytes of data, then `files` empty files, `concurrency` at once.

    Data that fits into the machine's memory measures the memory. To measure the disk, use twice as much, which
    ``bonnie++`` normally requires. `memory` (by default half of `size`) replaces the memory size that it would detect,
    so that smaller sizes are possible. Without `characters`, it skips its per-character tests. They make a system call
    per byte, which takes a minute per MiB in an emulated guest. The metrics are those of `parse_bonnie`. Its CSV is
    recorded as ``bonnie_csv``, and its report as ``bonnie``. It verifies what it reads. Afterwards, its CSV must be
    complete, and its directory empty. Raises `ValueError` if the sizes are no whole MiB, or `files` is no multiple of
    1024, and `NotADirectoryError` if the stack ends in a block device.
    """
    memory = size // 2 if memory is None else memory
    if size <= 0 or size % _MEBIBYTE or memory < _MEBIBYTE:
        raise ValueError(f"bonnie: size ({size} bytes) and memory ({memory} bytes) must be whole MiB")
    if files < 0 or files % _MANY or concurrency < 1:
        raise ValueError(
            f"bonnie: files must be a multiple of {_MANY}, and concurrency at least 1 (got {files} and {concurrency})"
        )
    if not fsstack.path.is_dir():
        raise NotADirectoryError(f"bonnie: {fsstack.path} is not a directory. It needs a filesystem")
    scratch = fsstack.path / "bonnie"
    scratch.mkdir()
    # As root, it only runs with an explicit user.
    user = ["-u", "root"] if os.geteuid() == 0 else []
    data = ["-d", scratch, "-s", f"{size // _MEBIBYTE}M", "-r", memory // _MEBIBYTE]
    others = ["-n", files // _MANY, "-c", concurrency, "-z", seed, "-m", "fsstack"]
    words = ["bonnie++", "-q", *data, *others, *user, *([] if characters else ["-f"])]
    with timed(cold=cold):
        result = timed.run(*map(str, words), env=commands.ENGLISH)
    timed.keep("bonnie", result.stderr)
    timed.keep("bonnie_csv", result.stdout)
    for name, (metric, value) in parse_bonnie(result.stdout).items():
        timed.record(name, value, unit=metric.unit, better=metric.better, resolution=metric.resolution)
    if leftovers := sorted(path.name for path in scratch.iterdir()):
        raise AssertionError(f"bonnie: it left behind {', '.join(leftovers[:3])}{' ...' if len(leftovers) > 3 else ''}")
    scratch.rmdir()


class BonnieError(AssertionError):
    """Invalid or incomplete CSV of bonnie++."""


@dataclass(frozen=True)
class _Field:
    """A field of the CSV: its metric, its unit, and the factor to our unit."""

    name: str
    unit: str
    better: Better
    factor: float = 1.0


def _rates(names: str, unit: str, factor: float = 1.0) -> list[_Field]:
    """Return fields for rates. Each is followed by the share of a CPU."""
    return [
        field
        for name in names.split()
        for field in (_Field(name, unit, "higher", factor), _Field(f"{name}_cpu", "%", "lower"))
    ]


_DATA, _SEEKS = "write_chars write_blocks rewrite read_chars read_blocks", "seeks"
_FILES = "create_sequential stat_sequential delete_sequential create_random stat_random delete_random"
#: bon_csv2html(1), format 1.98. Fields without a figure describe the run.
_FIELDS: list[_Field | None] = [
    *([None] * 9),
    *_rates(_DATA, "B/s", 1024.0),
    *_rates(_SEEKS, "1/s"),
    *([None] * 5),
    *_rates(_FILES, "1/s"),
    *(_Field(f"{name}_latency", "s", "lower") for name in f"{_DATA} {_SEEKS} {_FILES}".split()),
]
_FORMAT = "1.98"
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_bonnie(text: str) -> dict[str, tuple[Metric, float]]:
    """Parse bonnie++'s CSV into figures by name, ``bonnie_...``.

    Rates of data are in B/s, those of seeks and files in 1/s. Each has its CPU use in percent (``..._cpu``), and the
    longest latency of its test in seconds (``..._latency``). Tests that were skipped or too fast to measure (``+++++``)
    are left out. Raises `BonnieError`.
    """
    lines = text.strip().splitlines()
    if len(lines) != 1:
        raise BonnieError(f"bonnie: {len(lines)} lines of CSV instead of one: {text[:200]!r}")
    row = lines[0].split(",")
    if row[0] != _FORMAT:
        raise BonnieError(f"bonnie: its CSV is of format {row[0]!r}, not of {_FORMAT}, as bonnie++ 2.00 has it")
    if len(row) != len(_FIELDS):
        raise BonnieError(f"bonnie: its CSV has {len(row)} fields instead of {len(_FIELDS)}")
    figures = {}
    for field, word in zip(_FIELDS, row):
        if field is not None and word.strip("+"):
            metric = Metric(f"bonnie_{field.name}", field.unit, field.better, _resolution(field))
            figures[metric.name] = metric, _figure(field, word)
    return figures


def _resolution(field: _Field) -> float:
    """Return the resolution: bonnie++ prints whole numbers, and latencies in microseconds at best."""
    return 1e-6 if field.unit == "s" else field.factor


def _figure(field: _Field, word: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)?", word)
    if not match or (match[2] is None) == (field.unit == "s"):
        raise BonnieError(f"bonnie: its CSV has {word!r} for {field.name}")
    return float(match[1]) * (_UNITS[match[2]] if match[2] else field.factor)
