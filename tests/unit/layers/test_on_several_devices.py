"""The commands of layers on several devices, recorded instead of run."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.volumes import caches, md
from pytest_fsstack.machine import guard, signals
from pytest_fsstack.machine.journal import UndoError
from pytest_fsstack.preflight.recording import RecordingJournal
from pytest_fsstack.stack.build import BuildError, build
from pytest_fsstack.stack.layer import OptionError, Rebuilds
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, BuildContext, Pool
from tests.unit.layers.conftest import SECTORS, LayerMachine, first, only

WIPED = ["wipefs -aq /dev/a", "wipefs -aq /dev/b"]


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
        ("lvm(kind='striped', devices=3) | ext4", 3, "lvm-devices.3-striped+ext4"),
        ("lvm(kind='raid1', devices=2, initial='sync') | ext4", 2, "lvm-devices.2-raid1-sync+ext4"),
        ("lvm(kind='striped') | ext4", 1, "lvm-striped+ext4"),
        ("bcache | xfs", 2, "bcache+xfs"),
        ("bcache(cache='ram:256M') | xfs", 1, "bcache-ram:256M+xfs"),
        ("writecache(cache='ram:1G') | ext4", 1, "writecache-ram:1G+ext4"),
        ("ext4", 1, "ext4"),
    ],
)
def test_a_layer_says_how_many_devices_it_takes(text: str, members: int, id: str) -> None:
    stack = Stack.parse(text, BUILT_IN)
    assert (stack.members, stack.id) == (members, id)
    assert Stack.parse(str(stack), BUILT_IN) == stack


# -- md ----------------------------------------------------------------------------------------------------------------

CREATE = "mdadm --create /dev/md/fsstack-ID-1-md --config=FILE --homehost=any --run --metadata=1.2"
STOP = ["mdadm --stop /dev/md_fsstack-ID-1-md", "udevadm settle"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Else mdadm would add a bitmap to an array of more than 100 GB.
        ("md", "--level=1 --raid-devices=2 --assume-clean --bitmap=none"),
        ("md(initial='sync', bitmap=True)", "--level=1 --raid-devices=2 --bitmap=internal"),
        ("md(level=0, chunk_size=65536)", "--level=0 --raid-devices=2 --chunk=64K"),
    ],
)
def test_md_is_made_and_stopped_again(
    text: str, words: str, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    only(text).create(first(pool, 2), context)
    assert machine.taken() == [*WIPED, f"{CREATE} {words} /dev/a /dev/b", *STOP]


def test_an_array_that_udev_assembles_is_stopped_before_each_write_and_its_devices_are_erased(
    machine: LayerMachine, pool: Pool, context: BuildContext, journal: RecordingJournal, tmp_path: Path
) -> None:
    machine.sysfs, own = tmp_path, f"md_{context.name('md')}"
    machine.wait_until = until  # type: ignore[method-assign]

    def assembled(name: str) -> Path:
        (tmp_path / "block" / name).mkdir(parents=True)
        machine.answers[f"mdadm --detail --export /dev/{name}"] = f"MD_NAME=any:{context.name('md')}"
        machine.answers[f"mdadm --stop /dev/{name}"] = gone(tmp_path / "block" / name)
        return tmp_path / "block" / name

    def check() -> None:
        """Udev assembles the devices at the moment of a check."""
        if delays and delays.pop():
            assembled("md126")
        if (tmp_path / "block/md126").exists():
            raise guard.Refused(Path("/dev/a"), "it is part of /dev/md126")

    delays: list[bool] = []
    members = [dataclasses.replace(part, check=check) for part in pool.devices[:2]]
    with only("md").bottom(Pool.of(members), context) as place:
        assert isinstance(place, Pool)
        assert journal.entered == [("md", {"name": context.name("md")})]
        ours = assembled(own)
        assembled("md127")
        delays += [True, True]
        place.parts[1].write([(0, b"x")])
        assert not delays
        assert [path.name for path in (tmp_path / "block").iterdir()] == [ours.name]
        machine.written.clear()
    assert not ours.exists()
    assert machine.written == [Path("/dev/a"), Path("/dev/b")]


@pytest.mark.parametrize(("lost", "words"), [(None, "/dev/a /dev/b"), (0, "--run /dev/b"), (1, "--run /dev/a")])
def test_md_is_assembled_of_the_devices_that_it_has(
    lost: int | None, words: str, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    with only("md").opened(first(pool, 2), dataclasses.replace(context, lost_device=lost)) as place:
        assert str(place.path) == f"/dev/md_{context.name('md')}"
        assembled = f"mdadm --assemble /dev/md/fsstack-ID-1-md --config=FILE {words}"
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
    with pytest.raises(UndoError):
        md.ARRAY.present(machine, {"name": "data"})


def gone(directory: Path) -> Callable[[], str]:
    def remove() -> str:
        directory.rmdir()
        return ""

    return remove


def until(condition: Callable[[], object], seconds: float, pause: object = None) -> bool:
    return any(condition() for _ in range(4))


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
        ("zfs(devices=2)", "vdev"),
        ("zfs(devices=3, vdev='mirror', log=True)", "vdev"),
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


@pytest.mark.parametrize("text", ["ext4", "bcache", "bcachefs(devices=2, replicas=2)", "lvm(kind='raid1', devices=2)"])
def test_other_layers_rebuild_nothing(text: str) -> None:
    assert not isinstance(only(text), Rebuilds)


def test_a_pool_without_a_layer_cannot_lose_a_device(machine: LayerMachine, context: BuildContext) -> None:
    machine.sizes |= {Path(loop): SECTORS for loop in ("LOOP", "LOOP2")}
    with build(Stack.parse("pool(2)", BUILT_IN), LoopDevice(SECTORS * 512), context) as built:
        with pytest.raises(BuildError, match=r"`pool\(2\)` .*\bpool\b"):
            built.take_away()


@pytest.mark.parametrize("lost", [0, 1])
def test_only_the_layer_on_the_devices_has_lost_one(lost: int, machine: LayerMachine, context: BuildContext) -> None:
    machine.sizes |= {Path(loop): SECTORS for loop in ("LOOP", "LOOP2")}
    with build(Stack.parse("md | ext4", BUILT_IN), LoopDevice(SECTORS * 512), context) as built:
        built.take_away(lost)
        first_mount, second_mount = (line for line in machine.commands if line.startswith("mount "))
        assert first_mount == second_mount


def test_a_device_is_given_back_through_the_guard(machine: LayerMachine, pool: Pool, context: BuildContext) -> None:
    pair = first(pool, 2)
    with only("md").opened(pair, context) as place:
        machine.taken()
        only("md").regain(place, pair, context, 1)
        assert machine.taken() == ["wipefs -aq /dev/b", "mdadm --add /dev/md_fsstack-ID-1-md /dev/b"]


@pytest.mark.parametrize(("lost", "checked", "scrubbed"), [(None, "a", 2), (0, "b", 1), (1, "a", 1)])
def test_btrfs_checks_the_devices_that_it_has(
    lost: int | None, checked: str, scrubbed: int, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    layer, pair = only("btrfs(data='raid1', devices=2)"), first(pool, 2)
    context = dataclasses.replace(context, lost_device=lost)
    layer.fsck(pair, context)
    assert machine.taken() == [f"btrfs check --readonly /dev/{checked}"]
    layer.scrub(pair, pair, context)
    assert len(machine.lines) == scrubbed


# -- LVM ---------------------------------------------------------------------------------------------------------------

PLAIN = "-Wn -Zn --name lv --extents"


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("linear", [f"lvcreate -qy -an {PLAIN} 100%FREE GROUP"]),
        ("striped", [f"lvcreate -qy -an --stripes 3 --stripesize 65536b {PLAIN} 100%FREE GROUP"]),
        (
            "raid1",
            [
                f"lvcreate -qy -ay --type raid1 --mirrors 2 --nosync {PLAIN} 100%FREE GROUP",
                "lvchange -qy --activate n GROUP/lv",
            ],
        ),
        (
            "cache",
            [
                f"lvcreate -qy -an {PLAIN} 100%PVS GROUP /dev/a /dev/b",
                "lvcreate -qy -an -Wn --name cache --extents 100%PVS GROUP /dev/c",
                "lvconvert -qy --type cache --cachevol cache --cachemode writethrough GROUP/lv",
            ],
        ),
    ],
)
def test_lvm_stands_on_all_devices_of_a_pool(
    text: str, commands: list[str], machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    only(f"pool(3) | lvm(kind='{text}')").create(first(pool, 3), context)
    group, paths = "fsstack-ID-1-lvm", ["/dev/a", "/dev/b", "/dev/c"]
    made = [line for path in paths for line in (f"wipefs -aq {path}", f"lvm pvcreate -qffy {path}")]
    made.append(f"lvm vgcreate -q --setautoactivation n {group} {' '.join(paths)}")
    lvm = [line for line in machine.taken() if not line.startswith("dmsetup status ")]
    assert lvm == [*made, *(f"lvm {command.replace('GROUP', group)}" for command in commands)]


def test_a_mirror_of_lvm_waits_for_its_copies(machine: LayerMachine, pool: Pool, context: BuildContext) -> None:
    states = ["aa 0/8 resync", "aa 4/8 resync", "AA 8/8 resync", "AA 8/8 idle"]
    machine.answers["dmsetup status"] = lambda: f"0 8 raid raid1 2 {states.pop(0)} 0 0 -"
    machine.wait_until = until  # type: ignore[method-assign]
    only("lvm(kind='raid1', initial='sync', devices=2)").create(first(pool, 2), context)
    assert states == []
    made = machine.taken()
    assert "--nosync" not in " ".join(made)
    assert made[-1].startswith("lvm lvchange -qy --activate n ")


def test_a_mirror_of_lvm_without_a_device_is_refused(machine: LayerMachine, pool: Pool, context: BuildContext) -> None:
    machine.answers["dmsetup status"] = "0 8 raid raid1 2 DA 8/8 idle 0 0 -"
    with pytest.raises(OSError, match=r"\b8/8\b.*\bDA\b"):
        only("lvm(kind='raid1', devices=2)").create(first(pool, 2), context)


class Ended(BaseException):
    """What ends a session."""


@pytest.mark.parametrize("text", ["md(initial='sync')", "lvm(kind='raid1', initial='sync', devices=2)"])
def test_a_signal_ends_the_wait_for_copies(text: str, machine: LayerMachine, pool: Pool, context: BuildContext) -> None:
    machine.answers["dmsetup status"] = "0 8 raid raid1 2 aa 0/8 resync 0 0 -"
    machine.wait_until = lambda condition, seconds, pause=None: bool(condition()) or True  # type: ignore[method-assign]
    with signals.caught(lambda number: Ended()):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Ended):
            only(text).create(first(pool, 2), context)


@pytest.mark.parametrize(("mismatches", "clean"), [("0", True), ("128", False)])
def test_a_mirror_of_lvm_compares_its_copies(
    mismatches: str, clean: bool, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    layer = only("lvm(kind='raid1', devices=2)")
    pair = first(pool, 2)
    layer.create(pair, context)
    machine.answers["dmsetup status"] = f"0 8 raid raid1 2 AA 8/8 idle {mismatches} 0 -"
    with layer.opened(pair, context) as place:
        checked = layer.scrub(place, pair, context)
    assert checked
    assert checked.clean is clean
    assert any(line.endswith("-lv 0 check") for line in machine.commands)


# -- caches ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def registered(machine: LayerMachine, tmp_path: Path) -> Path:
    """The kernel's directory of a disk with a cache, which is there as long as nothing stops it."""
    machine.sysfs = tmp_path / "sys"
    directory = machine.sysfs / "dev/block/0:0/bcache"
    directory.mkdir(parents=True)
    (directory / "dev").symlink_to("/sys/devices/virtual/block/bcache7")
    (directory / "cache").mkdir()
    return directory


def test_bcache_is_made_with_both_devices_and_stopped_again(
    machine: LayerMachine, pool: Pool, context: BuildContext, journal: RecordingJournal
) -> None:
    layer = only("bcache")
    with layer.bottom(first(pool, 2), context) as bottom:
        ((kind, facts),) = journal.entered
        assert kind == "bcache"
        layer.create(bottom, context)
        # Of 384 MiB, so that there are at least 1,024.
        made = f"make-bcache --cset-uuid {facts['uuid']} --bucket 262144 --cache /dev/b --bdev /dev/a"
        stopped = [f"echo 1 >/sys/fs/bcache/{facts['uuid']}/stop", "udevadm settle"]
        assert machine.taken() == [*WIPED, made, *stopped]
    # Udev finds no superblock that it would start.
    assert machine.written == [Path("/dev/a"), Path("/dev/b")]
    assert machine.taken() == stopped


def test_a_cache_that_udev_starts_is_stopped_before_a_write(
    machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    refusals = [guard.Refused(Path("/dev/a"), "it is part of bcache0")] * 2

    def check() -> None:
        if refusals:
            raise refusals.pop()

    origin, cache = pool.devices[:2]
    parts = [dataclasses.replace(origin, check=check), cache]
    with only("bcache").bottom(Pool.of(parts), context) as place:
        assert isinstance(place, Pool)
        place.parts[0].write([(0, b"x")])
        assert machine.written == [Path("/dev/a")]
        assert [line.startswith("echo 1 >") for line in machine.taken()] == [True, False] * 2
        refusals += [guard.Refused(Path("/dev/a"), "it is mounted")] * 4
        with pytest.raises(guard.Refused, match="mounted"):
            place.parts[0].write([(0, b"x")])


def test_bcache_has_the_cache_first_and_its_settings_each_time(
    machine: LayerMachine, pool: Pool, context: BuildContext, registered: Path
) -> None:
    text = "bcache(mode='writeback', sequential_cutoff='1M')"
    with only(text).opened(first(pool, 2), context) as place:
        assert place.path == Path("/dev/bcache7")
        register = machine.sysfs / "fs/bcache/register_quiet"
        lines = [f"echo /dev/{letter} >{register}" for letter in "ba"]
        lines += [f"echo writeback >{registered}/cache_mode", f"echo 1048576 >{registered}/sequential_cutoff"]
        assert machine.commands == lines
        assert isinstance(place, Block)
        place.check()
        (registered / "dev").unlink()
        (registered / "dev").symlink_to("/sys/devices/virtual/block/bcache0")
        with pytest.raises(OSError, match="bcache7"):
            place.check()


def test_a_cache_that_the_kernel_does_not_take_is_told(
    machine: LayerMachine, pool: Pool, context: BuildContext, registered: Path
) -> None:
    (registered / "cache").rmdir()
    machine.wait_until = until  # type: ignore[method-assign]
    with pytest.raises(OSError, match=r"/dev/b\b.*/dev/a\b"):
        with only("bcache").opened(first(pool, 2), context):
            pytest.fail("it was opened")


def test_caches_of_a_dead_session_are_stopped_and_no_others(machine: LayerMachine, tmp_path: Path) -> None:
    machine.sysfs, own, other = tmp_path, "aaaa-1", "bbbb-2"
    sets = [tmp_path / "fs/bcache" / identity for identity in (own, other)]
    waiting = {name: tmp_path / "class/block" / name / "bcache" for name in ("sdb", "sdc", "sdd")}
    for directory in *sets, *waiting.values():
        directory.mkdir(parents=True)
        (directory / "stop").touch()
    for name, identity in ("sdb", own), ("sdc", other), ("sdd", own):
        machine.answers[f"bcache-super-show /dev/{name}"] = f"sb.version 1\ncset.uuid\t\t{identity}\n"
    # A disk that has its cache goes with the cache set.
    (waiting["sdd"] / "cache").mkdir()
    machine.wait_until = lambda condition, seconds, pause=None: bool(condition())  # type: ignore[method-assign]
    with pytest.raises(OSError, match=own):
        caches.CACHE_SET.undo(machine, {"uuid": own})
    stopped = {line.partition(">")[2] for line in machine.commands if line.startswith("echo 1")}
    assert stopped == {f"{sets[0]}/stop", f"{waiting['sdb']}/stop"}
    assert not caches.CACHE_SET.present(machine, {"uuid": "cccc-3"})
    for facts in {}, {"uuid": ""}:
        with pytest.raises(UndoError):
            caches.CACHE_SET.present(machine, facts)


def test_writecache_begins_empty_and_covers_the_first_device(
    machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    layer, pair = only("writecache(block_size=1024)"), first(pool, 2)
    layer.create(pair, context)
    assert machine.lines[-1].startswith("# /dev/b: ")
    assert machine.written == [Path("/dev/b")]
    assert machine.taken() == WIPED
    with layer.opened(pair, context):
        table = f"0 {SECTORS} writecache s /dev/a /dev/b 1024 0"
        assert machine.taken() == [f"dmsetup create fsstack-ID-1-writecache --table '{table}'"]


def test_a_cache_in_memory_stands_as_long_as_the_stack_and_is_no_device_of_the_session(
    machine: LayerMachine, context: BuildContext
) -> None:
    stack = Stack.parse("writecache(cache='ram:16M') | ext4", BUILT_IN)
    machine.sizes[Path("LOOP")] = SECTORS
    with build(stack, LoopDevice(SECTORS * 512), dataclasses.replace(context, depth=0)) as built:
        assert [disk.path for disk in built.disks] == [Path("LOOP")]
        machine.lines.clear()
        with built.taken_down():
            pass
        assert "writecache s LOOP LOOP2 4096 0" in "\n".join(machine.commands)
        assert "tmpfs" not in "\n".join(machine.commands)
    assert machine.commands[-1].startswith("umount")


@pytest.mark.parametrize(
    ("text", "name", "option"), [("md | ext4", "name", "--create /dev/md/"), ("bcache | ext4", "uuid", "--cset-uuid ")]
)
def test_after_a_kill_the_journal_has_the_name_that_the_devices_have(
    text: str, name: str, option: str, machine: LayerMachine, context: BuildContext, journal: RecordingJournal
) -> None:
    machine.sizes |= {Path(loop): SECTORS for loop in ("LOOP", "LOOP2")}
    with build(Stack.parse(text, BUILT_IN), LoopDevice(SECTORS * 512), dataclasses.replace(context, depth=0)):
        (facts,) = [facts for _, facts in journal.entered if name in facts]
        assert any(f"{option}{facts[name]} " in line for line in machine.commands)


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
