"""Settings for the time of a session: chosen, checked, set and restored, in a sysfs of the test's own."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.machine import journal, needs
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack import spec, tuning
from pytest_fsstack.stack.tuning import Governor, Queue, Tuning, written


class Sysfs(RealMachine):
    """A machine whose settings are files below another directory, and whose devices have their names as numbers."""

    def __init__(self, sysfs: Path) -> None:
        super().__init__()
        self.sysfs, self.sysctls = sysfs, sysfs.with_name("sysctls")

    def number(self, device: Path) -> str:
        return device.name


def cleanup(directory: Path) -> list[str]:
    report = journal.cleanup(directory, Sysfs(directory.parent / "sys"), lambda: {"setting": tuning.SETTING})
    return [*report.undone, *report.left]


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "journals"


@pytest.fixture
def sys_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    sys_ = tmp_path / "sys"
    for number, governor in enumerate(("powersave", "schedutil")):
        cpufreq = sys_ / f"devices/system/cpu/cpu{number}/cpufreq"
        cpufreq.mkdir(parents=True)
        (cpufreq / "scaling_governor").write_text(f"{governor}\n")
        (cpufreq / "scaling_available_governors").write_text("performance schedutil powersave \n")
    queue = sys_ / "block/sdz/queue"
    queue.mkdir(parents=True)
    (queue / "scheduler").write_text("none [mq-deadline] kyber\n")
    (queue / "read_ahead_kb").write_text("128\n")
    (sys_ / "dev/block").mkdir(parents=True)
    (sys_ / "dev/block/sdz").symlink_to(sys_ / "block/sdz")
    monkeypatch.setattr(tuning, "load_module", lambda name: False)
    return sys_


@pytest.fixture
def machine(sys_: Path) -> Sysfs:
    return Sysfs(sys_)


@pytest.fixture
def governors(sys_: Path) -> list[Path]:
    return [sys_ / f"devices/system/cpu/cpu{number}/cpufreq/scaling_governor" for number in (0, 1)]


def read(paths: list[Path]) -> list[str]:
    return [path.read_text().strip() for path in paths]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_what_is_chosen_among_several_stands_in_brackets(sys_: Path, machine: Sysfs, governors: list[Path]) -> None:
    scheduler = sys_ / "block/sdz/queue/scheduler"
    assert tuning.current(machine, scheduler) == "mq-deadline"
    assert tuning.offered(machine, scheduler) == ["none", "mq-deadline", "kyber"]
    assert tuning.current(machine, governors[0]) == "powersave"
    assert tuning.offered(machine, governors[0]) == ["performance", "schedutil", "powersave"]
    read_ahead = sys_ / "block/sdz/queue/read_ahead_kb"
    assert tuning.current(machine, read_ahead) == "128"
    assert tuning.offered(machine, read_ahead) == []
    assert tuning.current(machine, sys_ / "no/such/file") is None


def test_the_queue_of_a_partition_is_that_of_its_disk(sys_: Path, machine: Sysfs) -> None:
    partition = sys_ / "block/sdz/sdz1"
    partition.mkdir()
    (partition / "partition").write_text("1\n")
    (sys_ / "dev/block/sdz1").symlink_to(partition)
    assert tuning.queue(machine, Path("/dev/sdz1")) == sys_ / "block/sdz/queue"


# -- setting -----------------------------------------------------------------------------------------------------------


def test_a_governor_is_set_for_all_cpus_and_back_to_each_ones_own(
    journals: Path, governors: list[Path], machine: Sysfs
) -> None:
    book = Journal(journals, machine)
    with contextlib.suppress(RuntimeError), Governor("performance", machine).applied(book):
        assert read(governors) == ["performance", "performance"]
        raise RuntimeError
    assert read(governors) == ["powersave", "schedutil"]
    book.close()
    assert list(journals.iterdir()) == []


def test_what_the_kernel_does_not_take_is_told_with_what_it_offers(journals: Path, sys_: Path) -> None:
    class Refusing(Sysfs):
        def set(self, path: Path, text: str) -> None:
            raise OSError(22, "Invalid argument")

    path = sys_ / "block/sdz/queue/scheduler"
    expected = r"scheduler .*\bbfq\b.*Invalid argument.*\bnone, mq-deadline, kyber$"
    with pytest.raises(OSError, match=expected), written(path, "bfq", Journal(journals, Refusing(sys_))):
        pytest.fail("it was set")


def test_what_the_kernel_rounds_is_told(journals: Path, sys_: Path) -> None:
    class Rounding(Sysfs):
        def setting(self, path: Path) -> str:
            return "128"

    with (
        pytest.raises(OSError, match=r"read_ahead_kb .*\b130\b.*\b128\b"),
        chosen(journals, Rounding(sys_), "queue/read_ahead_kb=130"),
    ):
        pytest.fail("it was set")


def test_the_bottom_device_gets_both_and_those_above_the_read_ahead(journals: Path, sys_: Path, machine: Sysfs) -> None:
    queue, book = sys_ / "block/sdz/queue", Journal(journals, machine)
    files = [queue / "scheduler", queue / "read_ahead_kb"]
    # The file of the test does not choose among several as the kernel's does.
    files[0].write_text("mq-deadline\n")
    defaults = Tuning((), Queue("none", 0), book)
    with defaults.bottom(Path("/dev/sdz"), topmost=False):
        assert read(files) == ["none", "0"]
    assert read(files) == ["mq-deadline", "128"]
    with defaults.above(Path("/dev/sdz"), topmost=False):
        assert read(files) == ["mq-deadline", "0"]
    with Tuning((), Queue(), book).bottom(Path("/dev/sdz"), topmost=True):
        assert read(files) == ["mq-deadline", "128"]


def test_what_is_not_offered_is_refused_with_what_is(sys_: Path, machine: Sysfs) -> None:
    reason = Queue("bfq").why_not_offered(machine, sys_ / "block/sdz/queue")
    assert re.search(r"'bfq'.*\bsdz\b.*\bnone, mq-deadline, kyber$", reason or "")
    assert Queue("kyber").why_not_offered(machine, sys_ / "block/sdz/queue") is None
    assert Queue("kyber").why_not_offered(machine, sys_ / "block/gone/queue") is None
    assert Queue().why_not_offered(machine, sys_ / "block/sdz/queue") is None
    reason = Governor("turbo", machine).why_not_offered()
    assert re.search(r"'turbo'.*\bcpu0\b.*\bperformance, schedutil, powersave$", reason or "")


def test_a_machine_without_governors_is_told(
    sys_: Path, governors: list[Path], become: Callable[[int], None], machine: Sysfs
) -> None:
    become(0)
    assert Governor("performance", machine).missing() is None
    become(1000)
    assert [lack.kind for lack in needs.lacking([Governor("performance", machine)])] == [needs.Missing.PERMISSION]
    for path in governors:
        path.unlink()
    assert "--fsstack-governor" in str(Governor("performance", machine).missing())
    assert Governor("performance", machine).why_not_offered() is None


# -- those of a stack --------------------------------------------------------------------------------------------------


def chosen(
    journals: Path, machine: Sysfs, text: str, defaults: Queue | None = None
) -> contextlib.AbstractContextManager[None]:
    """Return the settings of a stack on sdz, which is its only device."""
    tuning = Tuning(spec.parse(f"ext4 @ {text}").settings, defaults or Queue(), Journal(journals, machine))
    return tuning.bottom(Path("/dev/sdz"), topmost=True)


@pytest.fixture
def sysctls(sys_: Path) -> Path:
    values = {"dirty_bytes": 0, "dirty_ratio": 20, "dirty_background_bytes": 4096, "dirty_background_ratio": 0}
    (directory := sys_.with_name("sysctls") / "vm").mkdir(parents=True)
    for name, value in values.items():
        (directory / name).write_text(f"{value}\n")
    parameters = sys_ / "module/fuse/parameters"
    parameters.mkdir(parents=True)
    (parameters / "enable_uring").write_text("N\n")
    return directory


def test_a_stack_overrides_the_sessions_defaults(journals: Path, sys_: Path, machine: Sysfs) -> None:
    read_ahead = sys_ / "block/sdz/queue/read_ahead_kb"
    for key in "queue", "top":
        with chosen(journals, machine, f"{key}/read_ahead_kb=4M", Queue(read_ahead=65536)):
            assert read([read_ahead]) == ["4096"]
    assert read([read_ahead]) == ["128"]


def test_the_topmost_device_has_settings_of_its_own(journals: Path, sys_: Path, machine: Sysfs) -> None:
    settings = spec.parse("x @ queue/read_ahead_kb=1, top/read_ahead_kb=2").settings
    tuned, read_ahead = Tuning(settings, Queue(), Journal(journals, machine)), sys_ / "block/sdz/queue/read_ahead_kb"
    for context, expected in (
        (tuned.bottom(Path("/dev/sdz"), topmost=False), "1"),
        (tuned.above(Path("/dev/sdz"), topmost=False), "128"),
        (tuned.above(Path("/dev/sdz"), topmost=True), "2"),
    ):
        with context:
            assert read([read_ahead]) == [expected]


@pytest.mark.parametrize(
    ("text", "expected", "restored"),
    [
        ("vm.dirty_bytes=64M", ["67108864"], {"dirty_bytes": "67108864", "dirty_ratio": "20"}),
        ("vm.dirty_background_ratio=7", ["7"], {"dirty_background_bytes": "4096", "dirty_background_ratio": "7"}),
    ],
)
def test_of_bytes_and_percent_the_one_that_was_in_use_is_set_back(
    text: str, expected: list[str], restored: dict[str, str], journals: Path, sysctls: Path, machine: Sysfs
) -> None:
    path = sysctls / text.partition("=")[0].removeprefix("vm.")
    with chosen(journals, machine, text):
        assert read([path]) == expected
        (sysctls / tuning._PAIRS[path.name]).write_text("0\n")  # as the kernel does
    # Writing the one makes the other 0, which a file does not do.
    assert {name: read([sysctls / name])[0] for name in restored} == restored


def test_a_switch_reads_back_as_a_letter(journals: Path, sys_: Path, sysctls: Path) -> None:
    class Switch(Sysfs):
        def set(self, path: Path, text: str) -> None:
            super().set(path, {"1": "Y"}.get(text, text))

    machine = Switch(sys_)
    with chosen(journals, machine, "fuse/enable_uring=1"):
        assert read([sys_ / "module/fuse/parameters/enable_uring"]) == ["Y"]
    assert read([sys_ / "module/fuse/parameters/enable_uring"]) == ["N"]


def test_settings_are_set_in_order_and_restored_in_reverse(journals: Path, sys_: Path, sysctls: Path) -> None:
    writes: list[str] = []

    class Noted(Sysfs):
        def set(self, path: Path, text: str) -> None:
            super().set(path, text)
            writes.append(f"{path.name}={text}")

    (sys_ / "block/sdz/queue/scheduler").write_text("none\n")
    with chosen(
        journals,
        Noted(sys_),
        "vm.dirty_ratio=5, queue/read_ahead_kb=4, queue/scheduler=none, cpu/scaling_governor=performance",
    ):
        pass
    there = ["scheduler=none", "read_ahead_kb=4", "dirty_ratio=5", "scaling_governor=performance"]
    assert writes[:5] == [*there, "scaling_governor=performance"]
    assert writes[5:] == [
        "scaling_governor=schedutil",
        "scaling_governor=powersave",
        "dirty_ratio=20",
        "read_ahead_kb=128",
        "scheduler=none",
    ]


def test_a_foreign_change_is_told_and_left_alone(journals: Path, sysctls: Path, machine: Sysfs) -> None:
    settings = spec.parse("ext4 @ vm.dirty_ratio=5").settings
    tuned = Tuning(settings, Queue(), Journal(journals, machine))
    with tuned.bottom(topmost=True):
        tuned.check()
        (sysctls / "dirty_ratio").write_text("6\n")
        with pytest.raises(OSError, match=r"dirty_ratio .*\b6\b.*\b5\b"):
            tuned.check()
    assert read([sysctls / "dirty_ratio"]) == ["6"]
    tuned.check()


def test_one_setting_that_changes_another_is_told(journals: Path, sys_: Path, sysctls: Path) -> None:
    class Kernel(Sysfs):
        def set(self, path: Path, text: str) -> None:
            super().set(path, text)
            path.with_name(tuning._PAIRS[path.name]).write_text("0\n")

    with (
        pytest.raises(OSError, match=r"dirty_bytes .*\b0\b.*\b65536\b"),
        chosen(journals, Kernel(sys_), "vm.dirty_bytes=64K, vm.dirty_ratio=5"),
    ):
        pytest.fail("it was set")
    assert read([sysctls / "dirty_bytes", sysctls / "dirty_ratio"]) == ["0", "20"]


def test_a_setting_that_is_not_there_is_missing(
    sys_: Path, sysctls: Path, machine: Sysfs, become: Callable[[int], None], journals: Path
) -> None:
    become(0)
    for key in "vm.dirty_bytes", "fuse/enable_uring", "cpu/scaling_governor", "queue/scheduler":
        assert tuning.SettingNeed(key, machine).missing() is None
    for key in "vm.swappiness", "zfs/zfs_arc_max", "cpu/scaling_max_freq":
        assert key.rpartition("/")[2] in str(tuning.SettingNeed(key, machine).missing())
        with pytest.raises(OSError, match=key), chosen(journals, machine, f"{key}=1"):
            pytest.fail("it was set")
    become(1000)
    (lack,) = needs.lacking([tuning.SettingNeed("queue/scheduler", machine)])
    assert lack.kind is needs.Missing.PERMISSION
    assert "queue/scheduler" in lack.what


# -- after a killed session --------------------------------------------------------------------------------------------


def kill_in(block: str, journals: Path, sys_: Path) -> None:
    """Kill a process in a block of it."""
    code = f"""
import os, pathlib
from pytest_fsstack.stack import tuning
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
machine = RealMachine()
machine.sysfs = pathlib.Path({str(sys_)!r})
journal = Journal(pathlib.Path({str(journals)!r}), machine)
with {block}:
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL


@pytest.fixture
def killed(journals: Path, sys_: Path, governors: list[Path]) -> list[Path]:
    kill_in('tuning.Governor("performance", machine).applied(journal)', journals, sys_)
    assert read(governors) == ["performance", "performance"]
    return governors


def test_a_clean_up_sets_it_back(killed: list[Path], journals: Path) -> None:
    last, first = cleanup(journals)
    assert re.search(rf"{killed[1]} .*\bschedutil\b", last)
    assert re.search(rf"{killed[0]} .*\bpowersave\b", first)
    assert read(killed) == ["powersave", "schedutil"]
    assert list(journals.iterdir()) == []
    assert cleanup(journals) == []


def test_a_clean_up_leaves_alone_what_was_changed_since(killed: list[Path], journals: Path) -> None:
    killed[0].write_text("schedutil\n")
    killed[1].write_text("schedutil\n")
    (line,) = cleanup(journals)
    assert re.search(rf"setting {killed[0]} .*\bschedutil\b.*\bperformance\b", line)
    assert read(killed) == ["schedutil", "schedutil"]
    assert list(journals.iterdir()) == []


def test_a_clean_up_leaves_another_device_of_the_same_name_alone(journals: Path, sys_: Path) -> None:
    read_ahead, diskseq = sys_ / "block/sdz/queue/read_ahead_kb", sys_ / "block/sdz/diskseq"
    diskseq.write_text("7\n")
    kill_in(f'tuning.written(pathlib.Path({str(read_ahead)!r}), "4096", journal)', journals, sys_)
    diskseq.write_text("8\n")
    (line,) = cleanup(journals)
    assert f"left alone: setting {read_ahead} " in line
    assert read_ahead.read_text() == "4096"


@pytest.mark.parametrize("now", ["4096", "128"])
def test_a_clean_up_resets_a_loop_device_that_the_kill_has_detached(now: str, journals: Path, sys_: Path) -> None:
    read_ahead, diskseq = sys_ / "block/loop7/queue/read_ahead_kb", sys_ / "block/loop7/diskseq"
    shutil.copytree(sys_ / "block/sdz", sys_ / "block/loop7")
    diskseq.write_text("7\n")
    kill_in(f'tuning.written(pathlib.Path({str(read_ahead)!r}), "4096", journal)', journals, sys_)
    diskseq.write_text("8\n")
    read_ahead.write_text(now)
    assert len(cleanup(journals)) == (now == "4096")
    assert read_ahead.read_text() == "128"
    assert list(journals.iterdir()) == []


def test_a_clean_up_waits_for_a_living_session_that_wants_the_same(
    killed: list[Path], journals: Path, machine: Sysfs
) -> None:
    with Governor("performance", machine).applied(Journal(journals, machine)):
        last, first = cleanup(journals)
        assert f"setting {killed[1]} " in last
        assert f"setting {killed[0]} " in first
        assert read(killed) == ["performance", "performance"]
    assert len(cleanup(journals)) == 2
    assert read(killed) == ["powersave", "schedutil"]


def test_a_clean_up_writes_to_no_other_file(journals: Path, sys_: Path, tmp_path: Path, machine: Sysfs) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    kind = tuning.SETTING
    ours = str(sys_ / "block/sdz/queue/scheduler")
    for path, back in (str(precious), ours), (ours, str(precious)):
        facts = {"path": path, "old": "theirs", "value": "mine", "back": back, "text": "theirs"}
        with pytest.raises(journal.UndoError):
            kind.present(machine, facts)
    assert not kind.present(machine, {**facts, "path": ours, "back": ours, "old": "mq-deadline"})
    assert not tuning.is_setting(machine, sys_ / "kernel/../block/sdz/queue/scheduler")
    assert not tuning.is_setting(machine, sys_ / "block/sdz/queue/write_cache")
    assert not tuning.is_setting(machine, sys_.with_name("sysctls") / "vm/../kernel/core_pattern")
    assert tuning.is_setting(machine, sys_.with_name("sysctls") / "vm/dirty_bytes")
    assert tuning.is_setting(machine, sys_ / "module/fuse/parameters/enable_uring")
    assert tuning.is_setting(machine, sys_ / "block/sdz/queue/scheduler")
