"""The commands of layers on several devices, recorded instead of run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.journal import Unproved
from pytest_fsstack.machine.recording import RecordingJournal
from pytest_fsstack.stack.model import BuildContext, OptionError, Pool, Stack
from pytest_fsstack.stack.spec import SpecError
from pytest_fsstack.volumes import md
from tests.unit.layers.conftest import LayerMachine, only

WIPED = ["wipefs -aq /dev/a", "wipefs -aq /dev/b"]


def first(pool: Pool, count: int) -> Pool:
    return Pool.of(pool.devices[:count])


# -- what a stack needs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "members", "id"),
    [
        ("md | ext4", 2, "md-assume-clean+ext4"),
        ("md(level=5, initial='sync') | ext4", 3, "md-level.5-sync+ext4"),
        ("md(level=10, devices=6) | ext4", 6, "md-level.10-devices.6-assume-clean+ext4"),
        ("ext4(external_log=True)", 2, "ext4-external_log"),
        ("zfs(vdev='mirror', devices=2)", 2, "zfs-devices.2-mirror"),
        ("btrfs(devices=4, data='raid10')", 4, "btrfs-devices.4-raid10"),
        ("ext4", 1, "ext4"),
    ],
)
def test_a_layer_says_how_many_devices_it_takes(text: str, members: int, id: str) -> None:
    stack = Stack.parse(text, BUILT_IN)
    assert (stack.members, stack.id) == (members, id)
    assert Stack.parse(str(stack), BUILT_IN) == stack


@pytest.mark.parametrize(
    ("text", "facts", "under"),
    [
        ("md(level=5, devices=2)", "at least 3", "devices=2"),
        ("md(level=4)", "0, 1, 5, 6, 10", "level=4"),
        ("md(chunk_size=65536)", "no chunks", "chunk_size=65536"),
        ("md(level=0, chunk_size=65535)", "power of 2", "chunk_size=65535"),
        ("md(level=0, initial='sync')", "synchronise", "initial='sync'"),
        ("md(level=0, bitmap=True)", "synchronise", "bitmap=True"),
        ("zfs(vdev='mirror', devices=1)", "at least 2", "devices=1"),
        ("pool(2) | zfs(devices=2)", "lowest", "zfs(devices=2)"),
        ("luks | md", "lowest", "md"),
        ("luks | xfs(external_log=True)", "lowest", "xfs(external_log=True)"),
    ],
)
def test_it_is_refused_where_it_is_wrong(text: str, facts: str, under: str) -> None:
    with pytest.raises(SpecError, match=facts) as caught:
        Stack.parse(text, BUILT_IN)
    assert text[caught.value.start : caught.value.end] == under


# -- md ----------------------------------------------------------------------------------------------------------------

CREATE = "mdadm --create /dev/md/fsstack-PID-1-md --config=FILE --homehost=any --run --metadata=1.2"
STOP = ["mdadm --stop /dev/md_fsstack-PID-1-md", "udevadm settle"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("md", "--level=1 --raid-devices=2 --assume-clean"),
        ("md(initial='sync', bitmap=True)", "--level=1 --raid-devices=2 --bitmap=internal"),
        ("md(level=0, chunk_size=65536)", "--level=0 --raid-devices=2 --chunk=64K"),
    ],
)
def test_md_is_made_and_stopped_again(
    text: str, words: str, machine: LayerMachine, pool: Pool, context: BuildContext, journal: RecordingJournal
) -> None:
    only(text).create(first(pool, 2), context)
    assert machine.taken() == [*WIPED, f"{CREATE} {words} /dev/a /dev/b", *STOP]
    assert journal.entered == [("md", {"name": context.name("md")})]


@pytest.mark.parametrize(("lost", "words"), [(None, "/dev/a /dev/b"), (0, "--run /dev/b"), (1, "--run /dev/a")])
def test_md_is_assembled_of_the_devices_that_it_has(
    lost: int | None, words: str, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    with only("md").opened(first(pool, 2), dataclasses.replace(context, lost=lost)) as place:
        assert str(place.path) == f"/dev/md_{context.name('md')}"
        assembled = f"mdadm --assemble /dev/md/fsstack-PID-1-md --config=FILE {words}"
        assert machine.taken() == ["udevadm settle", assembled]
    assert machine.taken() == STOP


@pytest.mark.parametrize(("mismatches", "clean"), [("0", True), ("128", False)])
def test_md_compares_its_copies(
    mismatches: str, clean: bool, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    with only("md").opened(pool, context) as place:
        directory = machine.sysfs / "block" / place.path.name / "md"
        machine.settings[directory / "mismatch_cnt"] = mismatches
        checked = only("md").scrub(place, pool, context)
    assert checked
    assert checked.clean is clean
    assert f"echo check >{directory / 'sync_action'}" in machine.commands


def test_arrays_of_a_dead_session_are_stopped_whatever_udev_calls_them(machine: LayerMachine, tmp_path: Path) -> None:
    machine.sysfs, facts = tmp_path, {"name": "fsstack-1-1-md"}
    names = {"md_fsstack-1-1-md": "", "md127": "MD_LEVEL=raid1\nMD_NAME=any:fsstack-1-1-md", "md0": "MD_NAME=home:data"}
    for name, details in names.items():
        (tmp_path / "block" / name).mkdir(parents=True)
        machine.answers[f"mdadm --detail --export /dev/{name}"] = details
        machine.answers[f"mdadm --stop /dev/{name}"] = gone(tmp_path / "block" / name)
    machine.wait_until = until  # type: ignore[method-assign]
    assert md.ARRAY.present(machine, facts)
    assert "fsstack-1-1-md" in md.ARRAY.undo(machine, facts)
    assert [path.name for path in (tmp_path / "block").iterdir()] == ["md0"]
    assert not md.ARRAY.present(machine, facts)
    with pytest.raises(Unproved):
        md.ARRAY.present(machine, {"name": "data"})


def gone(directory: Path) -> Callable[[], str]:
    def remove() -> str:
        directory.rmdir()
        return ""

    return remove


def until(condition: Callable[[], object], seconds: float) -> bool:
    return any(condition() for _ in range(3))


# -- a device that is lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("md(level=0)", "level"),
        ("md(level=5)", "initial"),
        ("btrfs(data='raid1')", None),
        ("btrfs(data='raid0', metadata='raid1')", "data"),
        ("btrfs(data='raid1', metadata='dup')", "metadata"),
        ("btrfs", "data"),
        ("md(level=5, initial='sync')", None),
        ("md(level=10)", None),
        ("ext4", ""),
    ],
)
def test_what_has_no_second_copy_stands_no_loss(text: str, option: str | None) -> None:
    layer = only(f"pool(2) | {text}" if "btrfs" in text else text)
    if option is None:
        layer.check_loss()
        return
    with pytest.raises(OptionError) as caught:
        layer.check_loss()
    assert caught.value.option == option


def test_a_device_is_given_back_through_the_guard(machine: LayerMachine, pool: Pool, context: BuildContext) -> None:
    pair = first(pool, 2)
    with only("md").opened(pair, context) as place:
        machine.taken()
        only("md").regain(place, pair, context, 1)
        assert machine.taken() == ["wipefs -aq /dev/b", "mdadm --add /dev/md_fsstack-PID-1-md /dev/b"]


# -- logs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "commands", "mount"),
    [
        (
            "ext4(external_log=True, mkfs='-I 512 -b 1024')",
            [
                "wipefs -aq /dev/b",
                "mkfs.ext4 -q -F -b 1024 -O journal_dev /dev/b",
                "wipefs -aq /dev/a",
                "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard -I 512 -b 1024 -J device=/dev/b "
                "/dev/a",
            ],
            "journal_path=/dev/b",
        ),
        (
            "xfs(external_log=True)",
            [*WIPED, "mkfs.xfs -q -f -K -l logdev=/dev/b /dev/a"],
            "logdev=/dev/b",
        ),
    ],
)
def test_a_log_has_the_second_device(
    text: str, commands: list[str], mount: str, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    layer, pair = only(text), first(pool, 2)
    layer.create(pair, context)
    assert machine.taken() == commands
    with layer.opened(pair, context):
        assert any(line.startswith("mount ") and mount in line for line in machine.taken())
    layer.fsck(pair, context)
    assert machine.taken()[-1].endswith("/dev/b /dev/a")
