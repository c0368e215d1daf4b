"""fio's JSON, as recorded from fio 3.33, and the workload on a directory. Devices are in tests/real."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack import workloads
from pytest_fsstack.machine import needs
from pytest_fsstack.workloads.direct import DirectIO
from pytest_fsstack.workloads.fiojob import FioError, parse_fio, sweeps
from tests.toolkit import DATA, NotedStack, NotedTimed, block, flip

WRITE = (DATA / "fio-3.33-write.json").read_text()
MIXED = (DATA / "fio-3.33-randrw.json").read_text()
MIB = 1 << 20


def test_what_one_job_measured() -> None:
    side = json.loads(WRITE)["jobs"][0]["write"]
    percentiles = side["clat_ns"]["percentile"]
    figures = parse_fio(WRITE)
    assert {name: value for name, (_, value) in figures.items()} == {
        "fio_write_bandwidth": side["bw_bytes"],
        "fio_write_iops": side["iops"],
        "fio_write_latency_mean": pytest.approx(side["clat_ns"]["mean"] / 1e9),
        "fio_write_submission_mean": pytest.approx(side["slat_ns"]["mean"] / 1e9),
        "fio_write_latency_p50": pytest.approx(percentiles["50.000000"] / 1e9),
        "fio_write_latency_p95": pytest.approx(percentiles["95.000000"] / 1e9),
        "fio_write_latency_p99": pytest.approx(percentiles["99.000000"] / 1e9),
        "fio_write_latency_p99_9": pytest.approx(percentiles["99.900000"] / 1e9),
    }
    described = {name: (metric.unit, metric.better, metric.resolution) for name, (metric, _) in figures.items()}
    assert described["fio_write_bandwidth"] == ("B/s", "higher", 0)
    assert described["fio_write_iops"] == ("1/s", "higher", 0)
    assert described["fio_write_latency_p99_9"] == ("s", "lower", 1e-9)
    assert all(name == metric.name for name, (metric, _) in figures.items())


def test_what_several_jobs_measured_together() -> None:
    jobs = json.loads(MIXED)["jobs"]
    assert len(jobs) == 2
    figures = {name: value for name, (_, value) in parse_fio(MIXED).items()}
    for direction in "read", "write":
        sides = [job[direction] for job in jobs]
        count = sum(side["total_ios"] for side in sides)
        mean = sum(side["clat_ns"]["mean"] * side["total_ios"] for side in sides) / count
        assert figures[f"fio_{direction}_bandwidth"] == sum(side["bw_bytes"] for side in sides)
        assert figures[f"fio_{direction}_iops"] == pytest.approx(sum(side["iops"] for side in sides))
        assert figures[f"fio_{direction}_latency_mean"] == pytest.approx(mean / 1e9)
    assert len(figures) == 6


def test_trims_are_figures() -> None:
    document = json.loads(WRITE)
    (job,) = document["jobs"]
    job["trim"] = {**job["write"], "iops": 7.0}
    figures = parse_fio(json.dumps(document))
    assert figures["fio_trim_iops"][1] == 7.0
    assert {name.replace("_trim_", "_write_") for name in figures} == {name for name in figures if "_write_" in name}


def test_latencies_that_were_not_measured_are_no_figures() -> None:
    document = json.loads(WRITE)
    # As fio prints it with gtod_reduce=1.
    document["jobs"][0]["write"]["clat_ns"] = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    document["jobs"][0]["write"]["slat_ns"] = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    assert parse_fio(json.dumps(document)).keys() == {"fio_write_bandwidth", "fio_write_iops"}


def test_warnings_before_the_json_are_passed_over() -> None:
    assert parse_fio("fio: note {this}\nfio: and that\n" + WRITE) == parse_fio(WRITE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "[^:]*JSON [^:]*''$"),
        ("fio: bad option\n", "[^:]*JSON [^:]*'fio: bad option"),
        (WRITE[: len(WRITE) // 2], r"[^:]*JSON: .*\(char \d+\)$"),
        ("{}", r"[^:]*\bjobs\b[^:]*$"),
        ('{"jobs": []}', r"[^:]*\bjobs\b[^:]*$"),
        ('{"jobs": [1]}', r"[^:]*\bjobs\b[^:]*$"),
        ('{"jobs": [{"mixed": {"total_ios": 1}}]}', ".*unified_rw_reporting"),
        ('{"jobs": [{"read": {}}]}', r"[^:]*JSON .*: KeyError\('total_ios'\)$"),
        ((DATA / "fio-3.33-verify-failed.txt").read_text(), "1 .*1 jobs .*fsstack.* 84$"),
    ],
)
def test_what_cannot_be_trusted_is_refused(text: str, message: str) -> None:
    with pytest.raises(FioError, match=f"^fio: {message}"):
        parse_fio(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["jobs", "read", "write", "total_ios"]), inner),
)


@given(st.text() | JSON.map(lambda value: json.dumps({"jobs": [value]})))
def test_anything_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(FioError):
        parse_fio(text)


def paths(value: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return [way for key, child in inner for way in [(*so_far, key), *paths(child, (*so_far, key))]]


@given(st.sampled_from(paths(json.loads(WRITE)["jobs"][0])), JSON)
def test_a_document_that_differs_in_one_place_is_understood_or_refused(path: tuple[Any, ...], other: Any) -> None:
    document = json.loads(WRITE)
    place = document["jobs"][0]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = other
    with contextlib.suppress(FioError):
        parse_fio(json.dumps(document))


@pytest.fixture
def stack(tmp_path: Path) -> NotedStack:
    # A colon separates file names in fio's options.
    (tmp_path / "a:stack").mkdir()
    return NotedStack(tmp_path / "a:stack")


def options(clock: NotedTimed) -> dict[str, str]:
    (words,) = clock.inside
    return dict(word.removeprefix("--").split("=", 1) for word in words[1:] if "=" in word)


class TestSteps:
    @pytest.mark.parametrize(
        ("rw", "numjobs"), [("write", 1), ("read", 2), ("randwrite", 2), ("randread", 1), ("rw", 1), ("randrw", 2)]
    )
    def test_works_verifies_and_removes(self, clock: NotedTimed, stack: NotedStack, rw: Any, numjobs: int) -> None:
        workloads.fio(clock, stack, rw=rw, size=MIB, block=4096, numjobs=numjobs, direct=False)
        assert stack.remounts == 1
        assert list(stack.path.iterdir()) == []
        mixed = rw in ("rw", "randrw")
        reading = rw in ("read", "randread")
        assert clock.blocks == [block(bytes=None if mixed else MIB * numjobs, direction="read" if reading else "write")]
        directions = ["read", "write"] if mixed else ["read" if reading else "write"]
        assert {name.split("_")[1] for name in clock.recorded} == set(directions)
        assert clock.recorded[f"fio_{directions[0]}_bandwidth"][1:] == ("B/s", "higher")
        assert clock.kept["fio"]["jobs"][0]["jobname"] == "fsstack"

    def test_tells_fio(self, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(DirectIO, "missing", lambda self: None)
        clock.instead = lambda: WRITE
        with pytest.raises(AssertionError, match=r"^fio: .* 16,777,216 bytes.* 4194304$"):
            workloads.fio(clock, stack, size=MIB, numjobs=4, iodepth=8, seed=7, options={"rate_iops": 100})
        settings = options(clock)
        assert settings["filename"] == f"{stack.path}/fio-write-65536.bin".replace(":", "\\:")
        assert (settings["size"], settings["offset_increment"], settings["numjobs"]) == (str(MIB), str(MIB), "4")
        assert (settings["direct"], settings["iodepth"], settings["ioengine"], settings["randseed"]) == (
            "1",
            "8",
            "libaio",
            "7",
        )
        assert (settings["bs"], settings["rate_iops"], settings["verify"], settings["do_verify"]) == (
            "65536",
            "100",
            "crc32c",
            "0",
        )
        assert "end_fsync" not in settings

    @pytest.mark.parametrize(("iodepth", "engine", "expected"), [(1, "", "psync"), (2, "", "libaio"), (2, "x", "x")])
    def test_chooses_an_engine(
        self, clock: NotedTimed, stack: NotedStack, iodepth: int, engine: str, expected: str
    ) -> None:
        clock.instead = lambda: ""
        with pytest.raises(FioError):
            workloads.fio(clock, stack, iodepth=iodepth, ioengine=engine, direct=False, verify=False)
        settings = options(clock)
        assert settings["ioengine"] == expected
        assert settings["end_fsync"] == "1"
        assert "verify" not in settings

    @pytest.mark.parametrize("rw", ["write", "read", "randwrite", "randread"])
    def test_notices_an_altered_block(self, clock: NotedTimed, stack: NotedStack, rw: Any) -> None:
        name = f"fio-{rw}-65536.bin"
        stack.broken = lambda: flip(stack.path / name, 700_000)
        with pytest.raises(AssertionError, match=r"(?s)^fio: .*offset 655360"):
            workloads.fio(clock, stack, rw=rw, size=MIB, direct=False)

    def test_without_verification_does_not(self, clock: NotedTimed, stack: NotedStack) -> None:
        stack.broken = lambda: flip(stack.path / "fio-write-65536.bin", 700_000)
        workloads.fio(clock, stack, size=MIB, direct=False, verify=False)

    def test_notices_a_lost_or_short_file(self, clock: NotedTimed, stack: NotedStack) -> None:
        file = stack.path / "fio-write-65536.bin"
        stack.broken = lambda: os.truncate(file, 1000)
        with pytest.raises(AssertionError, match=r"^fio: .*fio-write-65536\.bin .*1,000 bytes.* 1,048,576$"):
            workloads.fio(clock, stack, size=MIB, direct=False)
        stack.broken = file.unlink
        with pytest.raises(AssertionError, match=r"^fio: \D*fio-write-65536\.bin\D*$"):
            workloads.fio(clock.another(), stack, size=MIB, direct=False)

    def test_ends_by_the_clock(self, clock: NotedTimed, stack: NotedStack) -> None:
        workloads.fio(clock, stack, rw="randwrite", size=MIB, runtime=1, direct=False)
        assert clock.blocks[0]["bytes"] is None
        assert options(clock)["time_based"] == "1"
        assert list(stack.path.iterdir()) == []

    def test_is_skipped_without_direct_io(
        self, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lack = needs.MissingRequirement(needs.Missing.PERMISSION, "this stack cannot", "say direct=False")
        monkeypatch.setattr(DirectIO, "missing", lambda self: lack)
        with pytest.raises(pytest.skip.Exception, match="say direct=False"):
            workloads.fio(clock, stack)


class TestJobFile:
    def test_runs_where_the_stack_is(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        job = tmp_path / "job.fio"
        job.write_text(
            "[global]\nsize=1M\nioengine=psync\n"
            "[here]\nfilename=relative\nrw=write\n"
            "[there]\nstonewall\ndirectory=${FSSTACK}\nrw=randread\nbs=64k\n"
        )
        workloads.fio_job(clock, stack, job)
        assert {path.name for path in stack.path.iterdir()} == {"relative", "there.0.0"}
        assert {"fio_read_latency_p99", "fio_write_latency_p99"} <= set(clock.recorded)
        assert clock.blocks == [block(cold=True)]
        assert len(clock.kept["fio"]["jobs"]) == 2

    def test_that_does_nothing_is_noticed(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        idle = json.loads(WRITE)
        for direction in "read", "write":
            idle["jobs"][0][direction] = {"total_ios": 0, "io_bytes": 0}
        clock.instead = lambda: json.dumps(idle)
        (tmp_path / "job.fio").write_text("[idle]\nrw=read\n")
        with pytest.raises(AssertionError, match=r"^fio: .*\b0 bytes\b"):
            workloads.fio_job(clock, stack, tmp_path / "job.fio")

    def test_that_leads_out_is_not_run(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        job = tmp_path / "job.fio"
        job.write_text("[here]\nfilename=x\nsize=1M\nrw=write\nexec_prerun=touch ran\n")
        with pytest.raises(ValueError, match=r"job\.fio:5:13: exec_prerun "):
            workloads.fio_job(clock, stack, job)
        assert list(stack.path.iterdir()) == []


class TestSweeps:
    @staticmethod
    def swept(*options: dict[str, str], common: dict[str, str] | None = None) -> list[tuple[str, list[str]]]:
        jobs = [{"jobname": f"s-{number}", "job options": of_job} for number, of_job in enumerate(options)]
        document = {"jobs": jobs, "global options": common or {}}
        metrics = [f"fio_s_{number}_read_iops" for number in range(len(options))]
        return [(sweep["parameter"], [text for text, _ in sweep["points"]]) for sweep in sweeps(document, metrics)]

    def test_sections_that_differ_in_one_number_are_in_its_order(self) -> None:
        sections = [{"bs": bs, "name": bs} for bs in ("64k", "4k", "1M", "512")]
        assert self.swept(*sections, common={"rw": "randread"}) == [("bs", ["512", "4k", "64k", "1M"])]

    def test_other_options_make_sweeps_of_their_own(self) -> None:
        sections = [{"rw": rw, "iodepth": depth} for rw in ("read", "randread") for depth in ("1", "16", "4")]
        assert self.swept(*sections) == [("iodepth", ["1", "4", "16"])] * 2

    def test_no_number_no_sweep(self) -> None:
        assert self.swept({"rw": "read"}, {"rw": "randread"}) == []
        assert self.swept({"bs": "4k"}) == []
        assert self.swept({"bs": "4k,8k"}, {"bs": "8k,4k"}) == []
