"""Jobs of fio, the flexible I/O tester, with a parser of its JSON."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_fsstack.machine import commands, needs
from pytest_fsstack.machine.descriptors import size_of_device
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.records.sample import Metric
from pytest_fsstack.workloads import jobfile
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import verify_size
from pytest_fsstack.workloads.direct import DirectIO, spoil

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

#: The access pattern: sequential or random, reading, writing, or half of each.
Pattern = Literal["read", "write", "randread", "randwrite", "rw", "randrw"]

_DIRECTIONS = ("read", "write", "trim")
_READS, _MIXED = ("read", "randread"), ("rw", "randrw")
_CHECKSUMS: dict[str, str | int] = {"verify": "crc32c", "verify_state_save": 0}
_PERCENTILES = ("50", "95", "99", "99.9")
_PERCENTILE_LIST = f"--percentile_list={':'.join(_PERCENTILES)}"
_NANOSECOND = 1e-9


@workload(Tool("fio", "fio"))
def fio(
    timed: Timed,
    fsstack: Built,
    *,
    rw: Pattern = "write",
    size: int = 100 << 20,
    block: int = 64 << 10,
    direct: bool = True,
    iodepth: int = 1,
    numjobs: int = 1,
    ioengine: str = "",
    runtime: int | None = None,
    verify: bool = True,
    seed: int = 1,
    options: Mapping[str, str | int] | None = None,
    cold: bool = True,
) -> None:
    """Run one job of fio: `numjobs` processes, each over `size` bytes of its own, `block` bytes at a time.

    It uses a new file that is removed afterwards, or the block device if the stack ends in one. Data to read is written
    first, untimed. `iodepth` is the number of concurrent requests. The default engine is ``psync`` for one and
    ``libaio`` for more; `ioengine` names another. `direct` bypasses the page cache. The test is skipped if the stack
    does not support that. With `runtime`, the job takes exactly so many seconds, and repeats if necessary. `options`
    are other options of fio, such as ``{"rate_iops": 100}``. The same `seed` gives the same offsets.

    The metrics are those of `parse_fio`. The whole JSON is recorded as ``fio``. Checked afterwards: no errors, and the
    number of bytes. With `verify`, each block's checksum is read after a remount. For that, fio computes a checksum for
    each block during the measured time. Mixed jobs and those with a `runtime` are only checked by their figures. Raises
    `ValueError` if `size` is no multiple of `block`, a number is not positive, the device is too small, or `options`
    contains an option that the step sets.
    """
    _check_numbers(size, block, iodepth, numjobs, runtime)
    device = fsstack.path.is_block_device()
    if device and (room := size_of_device(fsstack.path)) < size * numjobs:
        raise ValueError(f"fio: {fsstack.path} has only {room} of {numjobs} x {size} bytes")
    if direct:
        needs.require(DirectIO(fsstack.path))
    file = "" if device else f"fio-{rw}-{block}.bin"
    reads, mixed = rw in _READS, rw in _MIXED
    place = _place(size, block, numjobs, seed) | {"direct": int(direct)}
    writing = {**place, **_CHECKSUMS, "rw": "randwrite" if rw == "randwrite" else "write"}
    job = {**place, "rw": rw, "iodepth": iodepth, "ioengine": ioengine or ("psync" if iodepth == 1 else "libaio")}
    if runtime is not None:
        job |= {"runtime": runtime, "time_based": 1}
    if not reads and not direct:
        # Otherwise its figures would be those of the page cache.
        job["end_fsync"] = 1
    checked = verify and (reads or (not mixed and runtime is None))
    if checked and not reads:
        job |= {**_CHECKSUMS, "do_verify": 0}
    if clash := sorted({*(options or {})} & {*job, "filename"}):
        raise ValueError(f"fio: {', '.join(clash)} cannot be among the options: the step itself sets it")
    if device:
        fsstack.check()
        # An earlier run with the same seed has written the same.
        spoil(fsstack.path, Path("/dev/zero"), size * numjobs, block)
    else:
        # Overwriting an older file would be another workload.
        (fsstack.path / file).unlink(missing_ok=True)
    if reads or mixed:
        _untimed(fsstack.path / file, {**writing, "do_verify": 0, "end_fsync": 1}, "it cannot write what is to be read")
    total = None if runtime else size * numjobs
    # In a mixed job, neither direction transfers everything.
    with timed(bytes=None if mixed else total, direction="read" if reads else "write", cold=cold):
        # Called each time, because a remount may change the device's name.
        result = timed.run(*_words(fsstack.path / file, {**job, **(options or {})}), env=commands.ENGLISH)
    _report(timed, result.stdout, total)
    fsstack.remount()
    if not device:
        verify_size(fsstack.path / file, total, "fio: after a remount")
    if checked:
        _untimed(
            fsstack.path / file,
            {**writing, "verify_only": 1},
            "after a remount, a block is not the one that was written",
        )
    if not device:
        (fsstack.path / file).unlink()


@workload(Tool("fio", "fio"))
def fio_job(timed: Timed, fsstack: Built, job: Path, *, cold: bool = True, sections: bool = False) -> None:
    """Run the job file `job` in the directory of the stack. ``${FSSTACK}`` in it is that path, or the block device.

    The file is checked first. `jobfile.JobFileError` reports, with line and column, what is not allowed: files or
    devices outside of the stack, commands, and engines that use the network.

    The metrics are those of `parse_fio` for all jobs together, and the whole JSON is recorded as ``fio``. They add up
    the rates of all sections, even of those that run one after another (``stonewall``). With `sections`, each section
    also has its own metrics, ``fio_SECTION_{read,write,trim}_...``. If sections only differ in one number, such as
    ``bs`` or ``iodepth``, reports plot their figures over it. Checked afterwards: no errors, and something was
    transferred. For checksums, use ``verify=`` in the job file.
    """
    device = fsstack.path.is_block_device()
    if device:
        fsstack.check()
    place, (env, content) = fsstack.path, _checked(job, fsstack.path, sections)
    # Other files that fio writes, such as the state of a verification, are not needed.
    with fsstack.scratch() as scratch:
        # A copy, because another user may change the file after the check.
        copy = scratch / job.name
        copy.write_bytes(content)
        with timed(cold=cold):
            if fsstack.path != place:
                # The cold start has changed the device's name, and the file may contain the old one.
                env, now = _checked(job, fsstack.path, sections)
                if now != content:
                    raise jobfile.JobFileError(f"{job}: it was changed since it was checked")
            directory = scratch if device else fsstack.path
            result = timed.run("fio", "--output-format=json", copy, cwd=directory, env=env)
    document = _report(timed, result.stdout, None)
    if sections:
        _report_sections(timed, document)
    fsstack.remount()


def _checked(job: Path, path: Path, sections: bool) -> tuple[dict[str, str], bytes]:
    """Check a job file for a stack with this path. Return its variables and its content."""
    env = {**commands.ENGLISH, "FSSTACK": _escaped(path)}
    return env, jobfile.check(job, path, {**os.environ, **env}, sections=sections)


class FioError(AssertionError):
    """Unreadable output of fio, or errors in it."""


def parse_fio(text: str) -> dict[str, tuple[Metric, float]]:
    """Parse fio's JSON into figures by name, ``fio_{read,write,trim}_...``, for each direction with data.

    They are ``bandwidth`` in B/s, ``iops``, and the latency from submission to completion in seconds: ``latency_mean``
    and ``latency_p50``, ``_p95``, ``_p99``, ``_p99_9``, if fio measured it. Asynchronous engines also have
    ``submission_mean``. Several jobs without group_reporting give sums, and means over all requests, but no
    percentiles. Raises `FioError`.
    """
    return _figures_of(_jobs(_document(text)), "fio")


def _figures_of(jobs: list[dict[str, Any]], name: str) -> dict[str, tuple[Metric, float]]:
    figures: dict[str, tuple[Metric, float]] = {}
    with _understood():
        for direction in _DIRECTIONS:
            sides = [side for job in jobs for side in _sides(job, direction) if side["total_ios"]]
            if sides:
                figures.update(_figures(f"{name}_{direction}", sides))
    return figures


def _sides(job: Mapping[str, Any], direction: str) -> list[dict[str, Any]]:
    """Return the figures of one direction. Only newer versions of fio report trims."""
    return [job[direction]] if direction in job or direction != "trim" else []


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FioError(f"fio: its JSON has an unknown format: {error!r}") from error


def _document(text: str) -> dict[str, Any]:
    # Warnings precede it on the same stream.
    start = re.search(r"^\{", text, re.MULTILINE)
    if not start:
        raise FioError(f"fio: no JSON in its output {text[:200]!r}")
    try:
        document: dict[str, Any] = json.loads(text[start.start() :])
    except ValueError as error:
        raise FioError(f"fio: cannot read its JSON: {error}") from error
    return document


def _jobs(document: dict[str, Any]) -> list[dict[str, Any]]:
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
        raise FioError("fio: there are no jobs in its JSON")
    if errors := [job for job in jobs if job.get("error") or job.get("total_err")]:
        name, number = errors[0].get("jobname"), errors[0].get("error")
        raise FioError(f"fio: {len(errors)} of {len(jobs)} jobs failed, the first, {name}, with error {number}")
    if any("mixed" in job and "read" not in job for job in jobs):
        raise FioError("fio: there are no figures by direction: leave out unified_rw_reporting, or set it to both")
    return jobs


def _figures(name: str, sides: list[dict[str, Any]]) -> dict[str, tuple[Metric, float]]:
    count = sum(int(side["total_ios"]) for side in sides)
    mean = sum(side["clat_ns"]["mean"] * side["total_ios"] for side in sides) / count
    figures = [
        (Metric(f"{name}_bandwidth", "B/s", "higher"), sum(side["bw_bytes"] for side in sides)),
        (Metric(f"{name}_iops", "1/s", "higher"), sum(side["iops"] for side in sides)),
    ]
    # With gtod_reduce or disable_clat, fio measures no latencies, and prints 0.
    if mean:
        figures.append((_latency(f"{name}_latency_mean"), mean * _NANOSECOND))
    if len(sides) == 1:
        if submission := sides[0].get("slat_ns", {}).get("mean"):
            figures.append((_latency(f"{name}_submission_mean"), submission * _NANOSECOND))
        percentiles = {f"{float(key):g}": value for key, value in sides[0]["clat_ns"].get("percentile", {}).items()}
        figures += [
            (_latency(f"{name}_latency_p{percentile.replace('.', '_')}"), percentiles[percentile] * _NANOSECOND)
            for percentile in _PERCENTILES
            if percentile in percentiles
        ]
    return {metric.name: (metric, float(value)) for metric, value in figures}


def _latency(name: str) -> Metric:
    return Metric(name, "s", resolution=_NANOSECOND)


def _escaped(path: Path) -> str:
    """Escape colons in a path, which separate file names for fio."""
    return str(path).replace(":", "\\:")


def _check_numbers(size: int, block: int, iodepth: int, numjobs: int, runtime: int | None) -> None:
    if min(size, block, iodepth, numjobs) <= 0 or size % block:
        raise ValueError(f"fio: {numjobs} x {size} bytes must be whole blocks of {block} bytes, {iodepth} at a time")
    if runtime is not None and runtime <= 0:
        raise ValueError(f"fio: runtime must be above 0 (got {runtime})")


def _place(size: int, block: int, numjobs: int, seed: int) -> dict[str, str | int]:
    """Return the options for offsets, which are the same for the timed job, its preparation and its check."""
    return {
        "name": "fsstack",
        "size": size,
        "bs": block,
        "numjobs": numjobs,
        # Each process has its own range, because two in one would overwrite each other's blocks.
        "offset_increment": size,
        "randseed": seed,
        # Without preallocation by fio, like dd and tar.
        "fallocate": "none",
    }


def _words(target: Path, job: Mapping[str, str | int]) -> list[str]:
    options = [f"--{name}={value}" for name, value in {**job, "filename": _escaped(target)}.items()]
    return ["fio", "--output-format=json", "--group_reporting", _PERCENTILE_LIST, *options]


def _untimed(target: Path, job: Mapping[str, str | int], otherwise: str) -> None:
    try:
        output = commands.run(*_words(target, job), timeout=commands.DAY)
    except commands.CommandError as error:
        raise AssertionError(f"fio: {otherwise}: {error.stderr}") from error
    _jobs(_document(output))


def _record(timed: Timed, figures: Mapping[str, tuple[Metric, float]]) -> None:
    for name, (metric, value) in figures.items():
        timed.record(name, value, unit=metric.unit, better=metric.better, resolution=metric.resolution)


def _report_sections(timed: Timed, document: dict[str, Any]) -> None:
    """Record the figures of each section, and the sweeps of an option among them."""
    metrics: set[str] = set()
    for name, jobs in _sections(document).items():
        figures = _figures_of(jobs, name)
        if not figures and not any(_engine(document, job) == "cpuio" for job in jobs):
            raise AssertionError(f"fio: its section [{jobs[0].get('jobname')}] transferred nothing")
        _record(timed, figures)
        metrics.update(figures)
    if swept := list(sweeps(document, metrics)):
        timed.keep("sweeps", swept)


def _engine(document: dict[str, Any], job: dict[str, Any]) -> str | None:
    """Return the engine that a job names."""
    return {**(document.get("global options") or {}), **(job.get("job options") or {})}.get("ioengine")


def _sections(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the jobs of each section, by the prefix of its metrics."""
    sections: dict[str, list[dict[str, Any]]] = {}
    titles: dict[str, str] = {}
    for job in _jobs(document):
        title = str(job.get("jobname"))
        word = re.sub(r"\W+", "_", title).strip("_") or "job"
        slug = f"fio_{word}"
        while titles.setdefault(slug, title) != title:
            slug += "_"  # another section's name differs only in punctuation
        sections.setdefault(slug, []).append(job)
    return sections


#: Options that do not describe a section's workload.
_APART = frozenset(("name", "description", "stonewall", "wait_for_previous", "new_group", "filename", "directory"))
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)i?b?", re.IGNORECASE)


def sweeps(document: dict[str, Any], metrics: Container[str]) -> Iterator[dict[str, Any]]:
    """Yield options that alone differ between sections and are numbers, with the figures for each number.

    A sweep is ``{"parameter": "bs", "title": "randread: read iops", "points": [["4k", metric], ...]}``, ordered by the
    numbers, for available `metrics`.
    """
    common = document.get("global options") or {}
    options = {
        name: {
            key: value for key, value in {**common, **(jobs[0].get("job options") or {})}.items() if key not in _APART
        }
        for name, jobs in _sections(document).items()
    }
    for parameter in dict.fromkeys(key for values in options.values() for key in values):
        groups: dict[frozenset[tuple[str, str]], dict[float, tuple[str, str]]] = {}
        for name, values in options.items():
            if match := _NUMBER.fullmatch(values.get(parameter, "")):
                rest = frozenset(item for item in values.items() if item[0] != parameter)
                number = float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " ")
                groups.setdefault(rest, {})[number] = values[parameter], name
        for rest, sections in groups.items():
            if len(sections) > 1:
                pattern = dict(rest).get("rw", dict(rest).get("readwrite", "read"))
                yield from _sweep(parameter, pattern, [sections[number] for number in sorted(sections)], metrics)


def _sweep(
    parameter: str, pattern: str, sections: list[tuple[str, str]], metrics: Container[str]
) -> Iterator[dict[str, Any]]:
    for direction in _DIRECTIONS:
        for figure in "iops", "latency_mean":
            points = [(text, f"{name}_{direction}_{figure}") for text, name in sections]
            points = [(text, metric) for text, metric in points if metric in metrics]
            if len(points) > 1:
                title = f"{pattern}: {direction} {figure.replace('_', ' ')}"
                yield {"parameter": parameter, "title": title, "points": points}


def _report(timed: Timed, output: str, total: int | None) -> dict[str, Any]:
    """Record fio's figures, and check the number of bytes. Return its JSON."""
    document = _document(output)
    timed.keep("fio", document)
    jobs = _jobs(document)
    _record(timed, _figures_of(jobs, "fio"))
    with _understood():
        sides = [side for job in jobs for direction in _DIRECTIONS for side in _sides(job, direction)]
        moved = sum(int(side["io_bytes"]) for side in sides)
    if moved == 0 or total not in (None, moved):
        raise AssertionError(f"fio: it transferred {moved:,} bytes instead of {'more' if total is None else total}")
    return document
