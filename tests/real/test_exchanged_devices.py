"""Sessions on a real device whose name leads to another one meanwhile: not a byte of the other is written."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from pytest_fsstack import devices
from pytest_fsstack.machine import guard
from pytest_fsstack.machine.real import RealMachine
from tests.real.conftest import Loop, LoopDevice, image_of, run
from tests.warm import session as run_pytest

pytestmark = pytest.mark.root

MIB = 1 << 20

TEST = """
import os, subprocess
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.mark.fsstack("one = ext2", "two = ext4", "three = ext2(mkfs='-b 4096')")
class TestIt:
    def test_write(self, fsstack):
        (fsstack.path / "file").write_bytes(bytes(1 << 20))

    def test_exchange(self, fsstack):
        with open(HERE / "stacks", "a") as file:
            print(fsstack.stack.id, fsstack.bottom.path, file=file)
        {exchange}
"""

FLIP = """os.symlink({other!r}, HERE / "new"); os.replace(HERE / "new", {link!r})"""


@pytest.fixture
def disk(loop_device: LoopDevice) -> Loop:
    return loop_device()


@pytest.fixture
def link(tmp_path: Path, disk: Loop) -> Path:
    path = tmp_path / "by-id"
    path.symlink_to(disk.path)
    return path


def session(directory: Path, exchange: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(TEST.format(exchange=exchange))
    (directory / "pytest.ini").write_text("[pytest]\n")
    base = [f"--basetemp={directory / 'tmp'}", "-p", "no:cacheprovider", "--fsstack-seed=1"]
    return run_pytest(*base, *arguments, cwd=directory)


def stacks(directory: Path) -> list[str]:
    return (directory / "stacks").read_text().splitlines()


@pytest.mark.parametrize("given_over", [True, False], ids=["given-over", "blank"])
def test_a_link_that_leads_to_another_disk_later_is_refused_for_good(
    disk: Loop, link: Path, loop_device: LoopDevice, tmp_path: Path, given_over: bool
) -> None:
    other = loop_device()
    if given_over:
        run("mkfs.ext4", "-q", "-L", "photos", other.path)
    overwrite = [f"--fsstack-overwrite={link}"] if given_over else []
    then, now = (guard.identify(loop.path).number for loop in (disk, other))
    with other.untouched():
        exchange = FLIP.format(other=str(other.path), link=str(link))
        result = session(tmp_path, exchange, f"--fsstack-device={link}", "--fsstack-rounds=1", *overwrite)
        assert result.returncode == 1, result.stdout
        assert re.search(rf"{link} .*\b{then}\b.*\b{now}\b", result.stdout)
        assert "Traceback" not in result.stdout
    # One stack was built before. What it left is put in order all the same, for that disk was ours.
    assert len(stacks(tmp_path)) == 1
    assert guard.labelled(disk.path)


def test_it_stays_refused_after_the_link_leads_back(
    disk: Loop, link: Path, loop_device: LoopDevice, tmp_path: Path
) -> None:
    other = loop_device()
    # Each stack that is refused turns the link again, through a hook of the conftest.
    (tmp_path / "conftest.py").write_text(f"""
import os
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    if call.when == "setup" and call.excinfo:
        os.symlink({str(disk.path)!r}, {str(tmp_path / "back")!r})
        os.replace({str(tmp_path / "back")!r}, {str(link)!r})
    return (yield)
""")
    with other.untouched():
        exchange = FLIP.format(other=str(other.path), link=str(link))
        result = session(tmp_path, exchange, f"--fsstack-device={link}", "--fsstack-rounds=1")
    assert result.returncode == 1, result.stdout
    assert os.path.realpath(link) == str(disk.path)
    assert len(stacks(tmp_path)) == 1


def test_a_loop_device_cannot_be_put_on_another_file_while_a_session_holds_it(disk: Loop, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with other.open("wb") as file:
        file.truncate(64 * MIB)
    run("mkfs.ext4", "-q", "-L", "photos", other)
    before = hashlib.sha256(other.read_bytes()).hexdigest()
    exchange = (
        f'subprocess.run(["losetup", "-d", {str(disk.path)!r}]); '
        f'assert subprocess.run(["losetup", {str(disk.path)!r}, {str(other)!r}]).returncode'
    )
    result = session(tmp_path, exchange, f"--fsstack-device={disk.path}", "--fsstack-rounds=1")
    assert result.returncode == 0, result.stdout
    assert len(stacks(tmp_path)) == 3
    assert hashlib.sha256(other.read_bytes()).hexdigest() == before
    # The kernel takes it away as soon as the session lets go of it.
    assert str(disk.image) not in image_of(disk.path)
    assert b"pytest-fsstack scratch device" in disk.image.read_bytes()[:4096]


@pytest.mark.plugins("xdist")
def test_a_worker_looks_at_its_first_stack_and_that_test_fails(disk: Loop, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", "-L", "photos", disk.path)
    with disk.untouched():
        result = session(tmp_path, "pass", f"--fsstack-device={disk.path}", "-n", "1", "-k", "exchange and one")
    assert result.returncode == 1, result.stdout
    assert re.search(rf"{disk.path} .*\(ext4\).*'photos'.*`--fsstack-overwrite={disk.path}`", result.stdout)
    assert not (tmp_path / "stacks").exists()


def test_a_device_of_tests_that_do_not_run_is_not_looked_at(disk: Loop, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", disk.path)
    for arguments, code in (["--collect-only"], 0), (["-k", "nothing_like_it"], 5):
        result = session(tmp_path, "pass", f"--fsstack-device={disk.path}", *arguments)
        assert result.returncode == code, result.stdout + result.stderr
        assert "--fsstack-overwrite" not in result.stdout + result.stderr


def test_two_devices_with_the_same_last_name_are_two_chains(
    disk: Loop, loop_device: LoopDevice, tmp_path: Path
) -> None:
    paths = []
    for name, loop in ("a", disk), ("b", loop_device()):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "stick"
        path.symlink_to(loop.path)
        paths.append(path)
    result = session(tmp_path, "pass", *(f"--fsstack-device={path}" for path in paths), "--fsstack-rounds=1", "-v")
    assert result.returncode == 0, result.stdout
    assert "[one:a.stick]" in result.stdout
    assert "[one:b.stick]" in result.stdout
    used = [line.split()[1] for line in stacks(tmp_path)]
    assert {used.count(str(path.resolve())) for path in paths} == {3}


def test_one_device_by_two_names_is_refused(disk: Loop, link: Path, tmp_path: Path) -> None:
    result = session(tmp_path, "pass", f"--fsstack-device={disk.path}", f"--fsstack-device={link}")
    output = result.stdout + result.stderr
    assert result.returncode == 4, output
    assert re.search(f"{link} .*session", output)


@pytest.mark.parametrize("file", ["conftest.py", "inner/conftest.py", "inner/test_other.py"])
def test_the_flag_does_not_go_along_when_a_link_changes_while_tests_are_collected(
    disk: Loop, link: Path, loop_device: LoopDevice, tmp_path: Path, file: str
) -> None:
    other = loop_device()
    run("mkfs.ext4", "-q", "-L", "photos", other.path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "test_other.py").write_text("")
    flip = FLIP.format(other=str(other.path), link=str(link)).replace("HERE", repr(tmp_path).removeprefix("Posix"))
    (tmp_path / file).write_text(f"import os\nfrom pathlib import Path\n{flip}\n")
    with other.untouched(), disk.untouched():
        result = session(tmp_path, "pass", f"--fsstack-device={link}", f"--fsstack-overwrite={link}")
    assert result.returncode == 4, result.stdout + result.stderr
    assert str(link) in result.stdout + result.stderr
    assert not (tmp_path / "stacks").exists()


@pytest.mark.plugins("xdist")
def test_a_worker_does_not_take_another_device_than_the_session_that_started_it(
    disk: Loop, link: Path, loop_device: LoopDevice, tmp_path: Path
) -> None:
    other = loop_device()
    flip = FLIP.format(other=str(other.path), link=str(link)).replace("HERE", repr(tmp_path).removeprefix("Posix"))
    (tmp_path / "conftest.py").write_text(
        "import os, pytest\nfrom pathlib import Path\n@pytest.hookimpl(tryfirst=True)\ndef pytest_configure(config):\n"
        f"    if hasattr(config, 'workerinput'):\n        {flip}\n"
    )
    with other.untouched(), disk.untouched():
        result = session(tmp_path, "pass", f"--fsstack-device={link}", "-n", "1", "-k", "exchange and one")
    assert result.returncode == 1, result.stdout
    assert re.search(f"{link} .*session", result.stdout)
    assert not (tmp_path / "stacks").exists()


def test_a_clean_up_empties_no_other_disk_than_the_one_it_has_looked_at(
    disk: Loop, link: Path, loop_device: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = loop_device()
    run("mkfs.ext4", "-q", "-L", "photos", other.path)
    run("cryptsetup", "-q", "luksFormat", "--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000", disk.path, stdin="secret")
    signature = guard.signature(disk.path)
    facts = {**guard.identify(disk.path).facts(), "path": str(link), "signature": signature}

    def exchange(path: Path) -> str:
        link.unlink()
        link.symlink_to(other.path)
        return signature

    monkeypatch.setattr(guard, "signature", exchange)
    with other.untouched(), pytest.raises(guard.Refused, match=str(link)):
        devices._relabelled(RealMachine(), facts)
