"""The kernel as a parameter, with real guests: the same tests on two kernels of Debian's, and on the running one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from pytest_fsstack import host
from pytest_fsstack.hosts import vm
from pytest_fsstack.hosts.kernels import resolve
from pytest_fsstack.needs import DeviceMapper
from tests.kernel import boot
from tests.kernel.test_filesystems_in_guest import NEWER

pytestmark = [pytest.mark.root, pytest.mark.kernel]

TEST = """
import os
import pytest

def write(fsstack, timed):
    # Cold would read every program anew from the host, which takes longest of all in a guest.
    with timed(bytes=1 << 20, cold=False):
        (fsstack.path / "file").write_bytes(bytes(1 << 20))

@pytest.mark.fsstack("ext4", "luks | ext4")
@pytest.mark.benchmark(group="write")
def test_write(fsstack, timed):
    write(fsstack, timed)

@pytest.mark.fsstack("ext4")
@pytest.mark.benchmark
def test_before(fsstack, timed):
    write(fsstack, timed)

@pytest.mark.fsstack("ext4")
@pytest.mark.benchmark
def test_panic(fsstack, timed, request):
    write(fsstack, timed)
    if request.config.workerinput["fsstack"]["in_vm"]:
        with open("/proc/sysrq-trigger", "w") as trigger:
            trigger.write("c")
"""


@pytest.fixture(scope="module")
def older() -> Path:
    try:
        boot.check()
        return boot.kernel(boot.cache_directory())
    except boot.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def newer(older: Path) -> Path:
    try:
        return boot.kernel(boot.cache_directory(), NEWER)
    except boot.GuestError as error:
        pytest.skip(f"no kernel of the package {NEWER}: {error}")


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = ["--fsstack-size=512M", "--fsstack-vm-accel=tcg", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", *words]


def run(command: list[str], directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return subprocess.run([*command, *arguments], cwd=directory, capture_output=True, text=True, env=env, timeout=900)


def guests(directory: Path) -> list[str]:
    """The QEMU processes that share this directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if line.startswith((b"qemu", b"/usr/bin/qemu")) and f"path={directory}".encode() in line:
            found.append(process.name)
    return found


def troubles(junit: Path) -> dict[str, str]:
    """What is said of the failure of each test; nothing where there was none."""
    return {
        case.attrib["name"]: "".join(each.text or "" for each in [*case.findall("error"), *case.findall("failure")])
        for case in ElementTree.parse(junit).iter("testcase")
    }


def test_two_kernels_are_measured_in_one_session_and_compared(
    command: list[str], older: Path, newer: Path, tmp_path: Path
) -> None:
    kernels = [resolve(str(path), tmp_path).name for path in (older, newer)]
    done = run(
        command,
        tmp_path,
        *(f"--fsstack-kernel={older}", f"--fsstack-kernel={newer}", "--fsstack-rounds=2", "-k", "write", "-v"),
        *("--fsstack-json=out.json", "--junitxml=out.xml", "--fsstack-report=markdown=out.md"),
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.search(rf"kernels {re.escape(kernels[0])} \(baseline\), {re.escape(kernels[1])}", said)
    assert "emulated" in said

    arms = [f"{stack}:{kernel}" for stack in ("ext4", "luks+ext4") for kernel in kernels]
    data = json.loads((tmp_path / "out.json").read_text())
    (chain,) = data["chains"]
    assert list(chain["stacks"]) == arms
    (step,) = chain["steps"]
    for arm in arms:
        assert chain["stacks"][arm]["mounts"][0].startswith("ext4 /dev/")
        assert step["stacks"][arm]["rounds"] == [1, 2]
    cases = {case.attrib["name"] for case in ElementTree.parse(tmp_path / "out.xml").iter("testcase")}
    assert cases == {f"test_write[{arm}]" for arm in arms}
    for arm in arms:
        assert re.search(rf"PASSED test_it.py::test_write\[{re.escape(arm)}\]", said)
        # The table.
        assert re.search(rf"^{re.escape(arm)} .*(baseline|%|x\d)", said, re.MULTILINE), said
        assert arm in (tmp_path / "out.md").read_text()
    assert guests(tmp_path) == []


def test_a_panic_fails_its_kernels_tests_with_the_console_and_keeps_the_others_results(
    command: list[str], older: Path, tmp_path: Path
) -> None:
    name = resolve(str(older), tmp_path).name
    done = run(
        command,
        tmp_path,
        *(f"--fsstack-kernel={older}", "--fsstack-kernel=host", "--fsstack-rounds=1", "-k", "before or panic"),
        *("--fsstack-json=out.json", "--junitxml=out.xml"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert guests(tmp_path) == []
    troubled = troubles(tmp_path / "out.xml")
    here = next(arm for arm in troubled if "host-" in arm).partition(":")[2].rstrip("]")
    assert set(troubled) == {f"test_{test}[ext4:{kernel}]" for test in ("before", "panic") for kernel in (name, here)}
    text = troubled.pop(f"test_panic[ext4:{name}]")
    assert f"kernel {name}: went down" in text
    assert "Kernel panic - not syncing: sysrq triggered crash" in text
    assert "the console's last lines" in text
    # What was measured before, there and here.
    assert set(troubled.values()) == {""}
    chains = {chain["id"]: list(chain["stacks"]) for chain in json.loads((tmp_path / "out.json").read_text())["chains"]}
    assert chains["test_it.py::test_before"] == [f"ext4:{name}", f"ext4:{here}"]
    assert chains["test_it.py::test_panic"] == [f"ext4:{here}"]


def test_a_guest_that_does_not_boot_fails_its_tests_and_keeps_the_others_results(
    command: list[str], older: Path, tmp_path: Path
) -> None:
    name = resolve(str(older), tmp_path).name
    done = run(
        command,
        tmp_path,
        *(f"--fsstack-kernel={older}", "--fsstack-vm-memory=64M", "--fsstack-kernel=host", "--fsstack-rounds=1"),
        *("-k", "before", "--junitxml=out.xml"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert guests(tmp_path) == []
    troubled = troubles(tmp_path / "out.xml")
    text = troubled.pop(f"test_before[ext4:{name}]")
    assert f"kernel {name}: went down before it had booted" in text
    assert "the console's last lines" in text
    assert list(troubled.values()) == [""]


def test_the_doctor_asks_a_guest(command: list[str], older: Path, tmp_path: Path) -> None:
    name = resolve(str(older), tmp_path).name
    here = DeviceMapper("crypt").missing() is None and host.which("cryptsetup") is not None
    done = run(
        command,
        tmp_path,
        *("--fsstack-doctor", f"--fsstack-kernel={older}", "--fsstack-stacks=luks | ext4"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"everything is there that the selected stacks (luks+ext4) need on {name}" in done.stdout
    row = next(line.split() for line in done.stdout.splitlines() if line.split()[:2] == ["layer", "luks"])
    assert row[2:4] == ["yes" if here else "no", "yes"]
    assert guests(tmp_path) == []


def test_auto_is_kvm_where_a_guest_boots_on_it(older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("this machine has no /dev/kvm, so there is nothing to find out")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel, seconds = resolve(str(older), tmp_path), 25.0
    answer = vm.accelerate("auto", kernel, seconds)
    machine = vm.Machine(kernel, tmp_path, "1G", 1, kvm=True)
    with vm.Guest(machine, ["true"], disk_size=1 << 20, env={}) as guest:
        guest.communicate(seconds)
        assert answer is guest.ended
    assert guests(tmp_path) == []
    monkeypatch.setattr(vm, "_boots_on_kvm", lambda kernel, seconds: pytest.fail("it was tried again"))
    assert vm.accelerate("auto", kernel, seconds) is answer


def test_sigkill_leaves_no_guest(command: list[str], older: Path, tmp_path: Path) -> None:
    words = [*command, f"--fsstack-kernel={older}"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert host.wait_until(lambda: guests(tmp_path), 60)
    time.sleep(2)
    process.kill()
    process.wait()
    assert host.wait_until(lambda: not guests(tmp_path), 10)
