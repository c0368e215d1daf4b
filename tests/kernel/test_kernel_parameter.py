"""The kernel as a parameter, with real guests: the same tests on two kernels of Debian's, and on the running one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack.kernels import vm
from pytest_fsstack.kernels.images import resolve
from pytest_fsstack.layers.dmcrypt import Luks
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.records.results import ChainResults, Note
from tests.kernel import boot
from tests.toolkit import chains_of

pytestmark = [pytest.mark.root, pytest.mark.kernel]

TEST = """
import pytest

@pytest.mark.fsstack("ext4", "luks | ext4")
@pytest.mark.benchmark(group="write")
def test_write(fsstack, timed):
    # Cold would read every program anew from the host, which takes longest of all in a guest.
    with timed(bytes=1 << 20, cold=False):
        (fsstack.path / "file").write_bytes(bytes(1 << 20))

@pytest.mark.fsstack("ext4")
@pytest.mark.benchmark
def test_panic(fsstack, timed, request):
    with timed(cold=False):
        pass
    if request.config.workerinput["fsstack"]["kernel"] == PANICS:
        with open("/proc/sysrq-trigger", "w") as trigger:
            trigger.write("c")
"""

#: Each turn leaves a file that says which boot of which kernel it was.
BOOTS = """
import os
from pathlib import Path

import pytest

@pytest.mark.fsstack("ext4")
@pytest.mark.benchmark
def test_write(fsstack, timed, request):
    worker = request.config.workerinput["fsstack"]
    identity = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    place = Path(os.environ.get("FSSTACK_RESULTS", request.config.rootpath))
    (place / f"boot {worker['boot']} {identity} {worker['kernel']}").touch()
    with timed(cold=False):
        (fsstack.path / "file").write_bytes(bytes(4096))
"""


@pytest.fixture(scope="module")
def older() -> Path:
    return boot.kernel_or_skip()


@pytest.fixture(scope="module")
def newer(older: Path) -> Path:
    return boot.kernel_or_skip(boot.NEWER)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    return prepare(tmp_path)


def prepare(directory: Path, panics: str = "", tests: str = TEST) -> list[str]:
    """Write the tests, which know the kernel that they bring down, and return the command that runs them."""
    (directory / "test_it.py").write_text(f"PANICS = {panics!r}\n{tests}")
    (directory / "pytest.ini").write_text("[pytest]\n")
    words = ["--fsstack-size=512M", "--fsstack-vm-accel=tcg", "--fsstack-vm-cpus=1", "-p", "no:cacheprovider"]
    return [*boot.PYTEST, *words]


def run(command: list[str], directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = boot.pytest_environment()
    return subprocess.run([*command, *arguments], cwd=directory, capture_output=True, text=True, env=env, timeout=900)


def guests(directory: Path) -> list[str]:
    """The QEMU processes that share this directory: they run in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # processes end while one looks
            line = (process / "cmdline").read_bytes()
            if line.startswith((b"qemu", b"/usr/bin/qemu")) and (process / "cwd").samefile(directory):
                found.append(process.name)
    return found


def troubles(junit: Path) -> dict[str, str]:
    """What is said of the failure of each test; nothing where there was none."""
    return {
        case.attrib["name"]: "".join(each.text or "" for each in [*case.findall("error"), *case.findall("failure")])
        for case in ElementTree.parse(junit).iter("testcase")
    }


@dataclass(frozen=True)
class Comparison:
    """A session on two kernels of Debian's and on the running one; the newer one panics in the second chain."""

    directory: Path
    kernels: list[str]
    returncode: int
    said: str

    @property
    def chains(self) -> dict[str, ChainResults]:
        between = [chain for chain in chains_of(self.directory / "out.json") if chain.view == "between"]
        return {chain.id.partition("::")[2]: chain for chain in between}

    @property
    def troubles(self) -> dict[str, str]:
        return troubles(self.directory / "out.xml")


@pytest.fixture(scope="module")
def comparison(older: Path, newer: Path, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    directory = tmp_path_factory.mktemp("comparison")
    texts = [str(older), str(newer), "host"]
    kernels = [resolve(text, directory).name for text in texts]
    done = run(
        prepare(directory, panics=kernels[1]),
        directory,
        *(f"--fsstack-kernel={text}" for text in texts),
        *("--fsstack-rounds=3", "-v", "--fsstack-json=out.json", "--junitxml=out.xml"),
    )
    return Comparison(directory, kernels, done.returncode, done.stdout + done.stderr)


def test_two_kernels_and_the_running_one_are_compared_in_one_session(comparison: Comparison) -> None:
    older, newer, here = comparison.kernels
    said, chain = comparison.said, comparison.chains["test_write"]
    assert f"kernels {older} (baseline), {newer}, {here}" in said
    assert "emulated" in said
    arms = [f"{stack}:{kernel}" for stack in ("ext4", "luks+ext4") for kernel in comparison.kernels]
    assert list(chain.stacks) == arms
    assert {name for name in comparison.troubles if "write" in name} == {f"test_write[{arm}]" for arm in arms}
    # Whether the running kernel has dm-crypt is another question.
    for arm in arms if needs.missing(Luks().needs()) == [] else arms[:-1]:
        assert chain.stacks[arm].mounts[0].startswith("ext4 /dev/")
        assert [key.number for key in chain.of(chain.steps[0], arm)] == [0, 1, 2]
        assert re.search(rf"PASSED test_it.py::test_write\[{re.escape(arm)}\]", said)
        # The table; each stack is compared with itself on the first kernel.
        compared = "baseline" if arm.endswith(f":{older}") else r"[-+]?\d[\d.]* %|x\d"
        assert re.search(rf"^{re.escape(arm)} .*({compared})", said, re.MULTILINE), said


def test_a_panic_of_one_of_two_kernels_is_shown_and_keeps_the_results_of_the_others(comparison: Comparison) -> None:
    older, newer, here = comparison.kernels
    assert comparison.returncode == pytest.ExitCode.TESTS_FAILED
    assert {name for name, text in comparison.troubles.items() if text} == {f"test_panic[ext4:{newer}]"}
    text = comparison.troubles[f"test_panic[ext4:{newer}]"]
    assert f"kernel {newer}: went down" in text
    assert "Kernel panic - not syncing: sysrq triggered crash" in text
    assert "the console's last lines" in text
    chain = comparison.chains["test_panic"]
    assert list(chain.samples[chain.steps[0]]) == [f"ext4:{older}", f"ext4:{here}"]
    assert chain.note(chain.steps[0], f"ext4:{newer}") == Note("kernel went down", cause=newer)
    assert guests(comparison.directory) == []


def test_guests_boot_three_times_for_a_limit_and_the_running_kernel_gives_no_verdict(
    older: Path, tmp_path: Path
) -> None:
    here, guest = (resolve(text, tmp_path).name for text in ("host", str(older)))
    done = run(
        prepare(tmp_path, tests=BOOTS),
        tmp_path,
        *("--fsstack-kernel=host", f"--fsstack-kernel={older}", "--fsstack-max-regression=5%", "--fsstack-rounds=3"),
        *("--fsstack-judge-emulated", "--fsstack-vm-memory=1G", "--fsstack-json=out.json", "--junitxml=out.xml"),
    )
    said = done.stdout + done.stderr
    assert f"kernels {here} (baseline), {guest}, 3 boots each" in said
    assert "--fsstack-max-regression is no gate between kernels" in said
    # Each boot of a guest is one of its own; the running kernel has only the one.
    boots = [file.name.split(" ", 3)[1:] for file in tmp_path.rglob("boot *")]
    assert sorted((kernel, number) for number, _, kernel in boots) == sorted(
        (kernel, str(number)) for kernel, boots in ((here, 1), (guest, 3)) for number in range(boots)
    )
    identities = {kernel: {identity for _, identity, name in boots if name == kernel} for kernel in (here, guest)}
    assert [len(identities[here]), len(identities[guest])] == [1, 3]
    # An emulated machine is slower by far.
    assert done.returncode == pytest.ExitCode.OK, said
    assert "3 against 1 boots" in said
    assert not any(troubles(tmp_path / "out.xml").values())
    (chain,) = chains_of(tmp_path / "out.json")
    assert chain.boots == 3
    assert chain.worst("write", f"ext4:{guest}") == "inconclusive"
    assert guests(tmp_path) == []


def without_a_root(image: Path, directory: Path) -> Path:
    """The same kernel with a module that cannot be loaded, so that it finds no root filesystem and panics."""
    home = image.parents[1]
    shutil.copytree(home / "lib/modules", directory / "lib/modules", copy_function=os.symlink)
    (module,) = directory.rglob("9p.ko")
    module.unlink()
    module.touch()
    (directory / "boot").mkdir()
    return Path(shutil.copy(image, directory / "boot"))


def test_a_guest_that_does_not_boot_fails_its_tests_and_keeps_the_others_results(
    command: list[str], older: Path, tmp_path: Path
) -> None:
    broken = without_a_root(older, tmp_path / "broken")
    name = resolve(str(broken), tmp_path).name
    done = run(
        command,
        tmp_path,
        *(f"--fsstack-kernel={broken}", "--fsstack-kernel=host", "--fsstack-rounds=1"),
        *("-k", "write", "--junitxml=out.xml"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert guests(tmp_path) == []
    troubled = troubles(tmp_path / "out.xml")
    for stack in "ext4", "luks+ext4":
        text = troubled.pop(f"test_write[{stack}:{name}]")
        assert f"kernel {name}: went down before it had booted" in text
        assert "the console's last lines" in text
    assert list(troubled.values()) == ["", ""]


def test_the_doctor_asks_a_guest(command: list[str], older: Path, tmp_path: Path) -> None:
    name = resolve(str(older), tmp_path).name
    here = needs.missing(Luks().needs()) == []
    done = run(
        command,
        tmp_path,
        *("--fsstack-doctor", f"--fsstack-kernel={older}", "--fsstack-stacks=luks | ext4"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\(luks\+ext4\) .*{re.escape(name)}", done.stdout)
    row = next(line.split() for line in done.stdout.splitlines() if line.split()[:2] == ["stack", "luks+ext4"])
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
        _, _, in_time = guest.communicate(seconds)
        assert answer is guest.ended
        hangs = not in_time
    assert guests(tmp_path) == []
    if not answer and not hangs:
        pytest.skip("a guest goes down on KVM here at once, so it may be tried each time")
    monkeypatch.setattr(vm, "_boots_on_kvm", lambda kernel, seconds: pytest.fail("it was tried again"))
    assert vm.accelerate("auto", kernel, seconds) is answer


def test_sigkill_leaves_no_guest(command: list[str], older: Path, tmp_path: Path) -> None:
    words = [*command, f"--fsstack-kernel={older}"]
    env, null = boot.pytest_environment(), subprocess.DEVNULL
    process = subprocess.Popen(words, cwd=tmp_path, stdout=null, stderr=null, env=env)
    assert commands.wait_until(lambda: guests(tmp_path), 60)
    time.sleep(2)
    process.kill()
    process.wait()
    assert commands.wait_until(lambda: not guests(tmp_path), 60)
