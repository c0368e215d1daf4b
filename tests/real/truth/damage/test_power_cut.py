"""Power cuts on real stacks: the log is true, the controls lose, and a filesystem with a journal does not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers.recorded import RecordedBlock
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.records.results import ChainResults
from pytest_fsstack.stack.places import Block, BuildContext
from pytest_fsstack.truth.damage.databases import NEEDS
from pytest_fsstack.truth.damage.writelog import Cut, Entry, Image, Kind, LogReader, left_by
from tests.real.conftest import built
from tests.real.test_scenarios import smoke

pytestmark = pytest.mark.root

SIZE = 32 << 20


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("mount", "flushes"), [("barrier=1", True), ("barrier=0", False)])
def test_an_fsync_arrives_as_a_flush_behind_what_it_is_for_unless_barriers_are_off(
    mount: str, flushes: bool, context: BuildContext
) -> None:
    with built(f"recorded | ext4(mount='{mount}')", LoopDevice(SIZE), context) as stack:
        with stack.taken_down("ext4") as device:
            assert isinstance(device, RecordedBlock)
        log = LogReader(device.log)
        assert log.sector == 4096
        log.new()
        (stack.path / "file").write_bytes(b"the content" * 1000)
        device.mark("synced from here")
        sync(stack.path / "file")
        device.mark("to here")
        entries = log.new()
        marks = [index for index, entry in enumerate(entries) if entry.kind is Kind.MARK]
        between = entries[marks[0] + 1 : marks[1]]
        kinds = [entry.kind for entry in between]
        (content,) = [index for index, entry in enumerate(between) if b"the content" in entry.data]
        assert (Kind.FLUSH in kinds[content:]) is flushes
        assert (kinds[-1] is Kind.FLUSH) is flushes


@pytest.mark.parametrize("text", ["recorded | ext4", "recorded(sector=512) | ext4 | gocryptfs"])
def test_the_log_replayed_is_the_device(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        for number in range(20):
            (stack.path / f"file{number}").write_bytes(bytes([number + 1]) * 5000 * number)
            if number % 3 == 0:
                sync(stack.path / f"file{number}")
        (stack.path / "file7").unlink()
        recorded = Image()
        with stack.taken_down("ext4") as device:
            assert isinstance(device, RecordedBlock)
            log = LogReader(device.log)
            entries = log.new()
            recorded.apply(entries)
            shown = device.path.read_bytes()
            assert recorded.read(0, SIZE) == shown
            ((_, everything),) = left_by([Cut(len(entries), 1.0, "")], entries, log.sector)
            assert list(everything.towards(recorded)) == []
            # And it follows what is written while the stack is down, and then is the device below as well.
            device.write([(0, b"x" * 4096)])
            recorded.apply(log.new())
            device.write([(0, shown[:4096])])
            recorded.apply(log.new())
        assert (stack.path / "file6").read_bytes() == b"\7" * 30000
        with stack.taken_down() as bottom:
            assert isinstance(bottom, Block)
            recorded.apply(log.new())
            assert recorded.read(0, SIZE) == bottom.path.read_bytes()


def test_what_is_zeroed_is_an_entry_of_its_own(context: BuildContext) -> None:
    with built("recorded | raw", LoopDevice(SIZE), context) as stack:
        with stack.taken_down("raw") as device:
            assert isinstance(device, RecordedBlock)
        log = LogReader(device.log)
        log.new()
        device.write([(8192, b"x" * 8192)])
        commands.run("blkdiscard", "--zeroout", "--offset", "8192", "--length", "4096", stack.path)
        assert Entry(Kind.ZERO, 8192, 4096) in log.new()
        assert stack.path.read_bytes()[8192:16384] == bytes(4096) + b"x" * 4096


def session(directory: Path, names: str) -> tuple[list[ChainResults], str]:
    """Run part of the scenario, and return its chains and its output."""
    return smoke("test_power_cut", directory, "--fsstack-size=384M", "--fsstack-seed=1", "-k", names)


def test_the_controls_lose_and_a_journal_does_not(tmp_path: Path) -> None:
    """The baseline of the scenario is ext4, with its journal."""
    controls = ["ext4-nobarrier"]
    if commands.which("eatmydata"):
        controls.append("ext4-eatmydata")
    chains, output = session(tmp_path, f"({' or '.join(controls)}) and not test_database")
    assert [chain.steps for chain in chains] == [["power_cut"], ["sync_of_all"]]
    whole = ("cuts", "mounted", "checked", "clean", "synced_there", "nothing_invented", "all_readable", "survived")
    for chain, cuts in zip(chains, (4, 2)):
        (step,) = chain.steps

        def count(stack: str, what: str, chain: ChainResults = chain, step: str = step) -> float:
            (figure,) = chain.series(step, stack, what)
            return figure

        assert [count("ext4", what) for what in whole] == [cuts] * len(whole)
        for control in controls:
            assert count(control, "cuts") == cuts
            assert count(control, "synced_there") < cuts
            assert count(control, "survived") < cuts
            there = f"{count(control, 'synced_there'):.0f} of {cuts}"
            assert re.search(rf"^{control} .*\b{there}\b", output, re.MULTILINE), output


@pytest.mark.skipif(commands.which("eatmydata") is None, reason="needs eatmydata: apt install eatmydata")
def test_a_database_keeps_what_was_committed_unless_fsync_does_nothing(tmp_path: Path) -> None:
    # The programs of the others are in `unit/truth/damage/test_power_databases.py`.
    available = [name for name in ("sqlite-wal", "rocksdb") if not needs.missing(NEEDS[name])]
    chains, _ = session(tmp_path, f"test_database and eatmydata and ({' or '.join(available)})")
    assert len(chains) == len(available)
    for chain in chains:
        (step,) = chain.steps
        (kept,), (lost,) = (chain.series(step, stack, "survived") for stack in ("ext4", "ext4-eatmydata"))
        assert kept == 4
        assert lost < 4
