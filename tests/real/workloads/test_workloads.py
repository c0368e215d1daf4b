"""Workloads on block devices and filesystems of their own: what they need of a real device, and what they notice."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.devices import DiskDevice, LoopDevice, RamDevice
from pytest_fsstack.machine import commands, guard, signals
from pytest_fsstack.measuring import timed
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.workloads.data.corpus import payload
from pytest_fsstack.workloads.direct import DirectIO, differing
from pytest_fsstack.workloads.fiojob import Pattern
from tests.real.conftest import LoopDevice as MakeLoop, built, image_of, run

pytestmark = pytest.mark.root

SIZE = 256 << 20
MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropping the caches of a machine that others use takes as long as they write."""
    monkeypatch.setattr(timed, "drop_caches", lambda: None)


def figures(step: Callable[[Timed], object], stack: Built) -> dict[str, float]:
    """What a step measures; each has a timed block of its own."""
    clock = Timed(stack)
    step(clock)
    assert clock.sample is not None
    return dict(clock.sample.values)


STACKS = ["raw", "dmcrypt", "ext4 | loop(size='128M')", "ext4"]


@pytest.mark.parametrize(
    ("text", "block", "direct"), [*((text, 4096, True) for text in STACKS), ("raw", MIB, False), ("ext4", MIB, False)]
)
def test_dd_writes_and_reads(text: str, block: int, direct: bool, context: BuildContext, tmp_path: Path) -> None:
    source = payload(tmp_path, 4 * MIB, 1)
    write = partial(workloads.dd_write, block=block, direct=direct)
    read = partial(workloads.dd_read, block=block, direct=direct)
    with built(text, LoopDevice(SIZE), context) as stack:
        values = figures(partial(write, fsstack=stack, payload=source, size=4 * MIB, sync="fdatasync"), stack)
        assert values["written_bytes"] >= 4 * MIB
        assert values["dd_rate"] > 0
        values = figures(partial(read, fsstack=stack, payload=source, size=4 * MIB, prepare=False), stack)
        assert values["dd_rate"] > 0
        if text == "raw" and direct:
            assert values["read_amplification"] >= 1
        figures(partial(read, fsstack=stack, size=2 * MIB), stack)
        figures(partial(write, fsstack=stack, size=2 * MIB, sync="dsync"), stack)
        written = stack.path if stack.path.is_block_device() else stack.path / "dd.bin"
        assert differing(written, Path("/dev/zero"), 2 * MIB, 4096) is None


@pytest.mark.parametrize("rw", ["write", "randwrite"])
def test_a_device_that_was_written_before_does_not_pass_for_written(
    rw: Pattern, context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere, inside = tmp_path / "nowhere", Timed.run

    def elsewhere(self: Timed, *words: str, **options: Any) -> Any:
        other = {f"{option}={stack.path}": f"{option}={nowhere}" for option in ("of", "--filename")}
        return inside(self, *(other.get(word, word) for word in words), **options)

    with built("raw", LoopDevice(SIZE), context) as stack:
        workloads.fio(Timed(stack), stack, rw=rw, size=MIB, block=4096)
        monkeypatch.setattr(Timed, "run", elsewhere)
        with pytest.raises(AssertionError, match=r"fio: .*verify"):
            workloads.fio(Timed(stack), stack, rw=rw, size=MIB, block=4096)
        with pytest.raises(AssertionError, match=rf"dd_write: .*\b0\b.*\b{stack.path.name}\b"):
            workloads.dd_write(Timed(stack), stack, size=MIB)
        assert nowhere.stat().st_size == MIB


@pytest.mark.parametrize("text", STACKS)
def test_fio(text: str, context: BuildContext) -> None:
    patterns: list[tuple[Pattern, int, int, int]] = [("write", 65536, 1, 1), ("randrw", 4096, 4, 1)]
    if text == "raw":
        patterns += [("read", 4096, 1, 1), ("randwrite", 4096, 8, 2), ("randread", 4096, 8, 2)]
    with built(text, LoopDevice(SIZE), context) as stack:
        for rw, block, iodepth, numjobs in patterns:
            step = partial(workloads.fio, rw=rw, size=2 * MIB, block=block, iodepth=iodepth, numjobs=numjobs)
            values = figures(partial(step, fsstack=stack), stack)
            for direction in ("read", "write") if rw == "randrw" else (rw.removeprefix("rand"),):
                assert values[f"fio_{direction}_bandwidth"] > 0
                assert values[f"fio_{direction}_latency_p50"] <= values[f"fio_{direction}_latency_p99_9"]
        if stack.path.is_dir():
            assert [path.name for path in stack.path.iterdir() if path.name != "lost+found"] == []


def test_fio_through_the_page_cache_and_by_the_clock(context: BuildContext) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        values = figures(lambda clock: workloads.fio(clock, stack, size=MIB, direct=False), stack)
        assert values["written_bytes"] >= MIB
        values = figures(lambda clock: workloads.fio(clock, stack, rw="randread", size=MIB, runtime=1), stack)
        assert "throughput" not in values
        assert values["seconds"] >= 1


def test_fio_notices_a_block_that_changed(context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with built("raw", LoopDevice(SIZE), context) as stack:

        def broken() -> None:
            with stack.path.open("r+b") as device:
                device.seek(700_000)
                device.write(b"other")
                os.fsync(device.fileno())

        monkeypatch.setattr(stack, "remount", broken)
        with pytest.raises(AssertionError, match=r"fio: .*verify failed at .* offset 655360"):
            workloads.fio(Timed(stack), stack, size=MIB)


def test_the_jobs_of_a_fio_that_a_limit_ends_end_with_it(context: BuildContext, tmp_path: Path) -> None:
    lines: list[str] = []
    context.notify = lines.append
    job = tmp_path / "long.fio"
    job.write_text("[long]\nrw=write\nsize=1M\ntime_based\nruntime=600\nnumjobs=2\n")
    with built("ext4", LoopDevice(SIZE), context) as stack:
        # Each job is in a session of its own, so that no signal to the process group reaches it.
        with pytest.raises(TimeoutError), signals.limited("a step", 2.0):
            workloads.fio_job(Timed(stack), stack, job)
        (line,) = lines
        assert len(re.findall(r"\bfio \(\D*\d+\)", line)) == 2


def test_a_fio_job_file(context: BuildContext, tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text("[global]\nfilename=${FSSTACK}\nsize=1M\nbs=4k\n[first]\nrw=write\n[second]\nstonewall\nrw=read\n")
    with built("raw", LoopDevice(SIZE), context) as stack:
        values = figures(lambda clock: workloads.fio_job(clock, stack, job), stack)
        assert values["fio_read_latency_p99"] > 0
        assert values["fio_write_latency_p99"] > 0


def test_bonnie(context: BuildContext) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        clock = Timed(stack)
        workloads.bonnie(clock, stack, size=32 * MIB, files=1024, concurrency=2)
        assert clock.sample is not None
        for figure in "bonnie_write_chars", "bonnie_rewrite_latency", "bonnie_delete_random_latency":
            assert clock.sample.values[figure] > 0
        assert "------Sequential Output------" in clock.sample.kept["bonnie"]


def test_tmpfs_and_a_device_can_do_direct_io_or_say_so(context: BuildContext) -> None:
    with built("raw", LoopDevice(SIZE), context) as stack:
        assert DirectIO(stack.path).missing() is None
    with built("tmpfs(mount='size=16M')", LoopDevice(SIZE), context) as stack:
        reason = DirectIO(stack.path).missing()
        # tmpfs has it since Linux 6.6 (e88e0d366f9c).
        assert reason is None or "(Invalid argument): " in str(reason)
        assert list(stack.path.iterdir()) == []


def test_a_device_in_use_by_the_stack_itself_may_be_written_to(
    context: BuildContext, loop_device: MakeLoop, locks: Path
) -> None:
    disk = loop_device(size=SIZE).path
    with built("ext4 | loop(size='64M')", DiskDevice(disk, overwrite=False), context) as stack:
        workloads.dd_write(Timed(stack), stack, size=MIB)


def fio_job(clock: Timed, stack: Built, *, cold: bool) -> None:
    with stack.scratch() as directory:
        (directory / "job.fio").write_text("[job]\nfilename=${FSSTACK}\nsize=1M\nrw=write\n")
        workloads.fio_job(clock, stack, directory / "job.fio", cold=cold)


@pytest.mark.parametrize(
    ("step", "cold"),
    [
        (partial(workloads.dd_write, size=MIB), True),
        (partial(workloads.dd_write, size=MIB), False),
        (partial(workloads.dd_read, size=MIB), True),
        (partial(workloads.fio, size=MIB), True),
        (partial(workloads.fio, size=MIB, rw="read"), True),
        (fio_job, True),
    ],
    ids=["dd_write", "dd_write warm", "dd_read", "fio write", "fio read", "fio_job"],
)
def test_a_device_that_comes_back_under_another_name_is_followed(
    step: Callable[..., None], cold: bool, context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    with other.open("wb") as file:
        file.truncate(SIZE)
    with built("ext4 | loop(size='64M')", LoopDevice(SIZE), context) as stack:
        close, first = stack._close, stack.path

        def taken(down_to: int = 0) -> None:
            """Meanwhile somebody takes the number that gets free."""
            close(down_to)
            # Another session may be faster, and may let go of the number. Only this test's own file keeps it.
            commands.wait_until(
                lambda: not subprocess.run(["losetup", first, other], stderr=subprocess.PIPE).returncode, 10
            )

        monkeypatch.setattr(stack, "_close", taken)
        if cold:
            # As with a daemon below the device, whose caches are dropped by mounting all of it anew.
            monkeypatch.setattr(stack, "release_caches", stack.remount)
        try:
            step(Timed(stack), stack, cold=cold)
            assert stack.path != first
        finally:
            monkeypatch.undo()
            if image_of(first) == f"{other}\n":
                run("losetup", "-d", first)
    assert other.stat().st_blocks == 0, "a device of somebody else was written to"


def test_a_device_that_somebody_else_uses_is_not_written_to(
    context: BuildContext, loop_device: MakeLoop, locks: Path
) -> None:
    disk = loop_device(size=SIZE).path
    with built("raw", DiskDevice(disk, overwrite=False), context) as stack:
        workloads.dd_write(Timed(stack), stack, size=MIB)
        other = loop_device(on=disk).path
        for step in (workloads.dd_write, workloads.fio):
            with pytest.raises(guard.Refused, match=f"`losetup -d {other}`"):
                step(Timed(stack), stack, size=MIB)
        run("losetup", "-d", other)
        assert commands.wait_until(lambda: not Path("/sys/block", other.name, "loop/backing_file").exists(), 60)


def test_on_memory(context: BuildContext) -> None:
    with built("raw", RamDevice(32 * MIB), context) as stack:
        with pytest.raises(ValueError, match=r"\b33554432\b.*\b67108864\b"):
            workloads.dd_write(Timed(stack), stack, size=64 * MIB)
        with pytest.raises(ValueError, match=r"\b33554432\b.* 2 x 33554432\b"):
            workloads.fio(Timed(stack), stack, size=32 * MIB, numjobs=2)
        workloads.dd_write(Timed(stack), stack, size=32 * MIB, direct=False)
