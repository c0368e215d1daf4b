"""Kernel images, and the choice of an accelerator, without a VM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.kernels import launch, probe, vm
from pytest_fsstack.kernels.images import Kernel, KernelError, resolve
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.machine.needs import Missing, MissingRequirement
from pytest_fsstack.options import GUEST_DOWN


def image(path: Path, release: str) -> Path:
    """Write a file with the header of a bzImage (Documentation/arch/x86/boot.rst) and nothing else."""
    head = bytearray(0x1000)
    head[0x202:0x206] = b"HdrS"
    head[0x20E:0x210] = (0x600).to_bytes(2, "little")
    text = f"{release} (build@host) #1 SMP".encode()
    head[0x800 : 0x800 + len(text)] = text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)
    return path


@pytest.mark.parametrize(
    ("release", "name"), [("6.1.0-56-amd64", "6.1.0-56-amd64"), ("6.1.0~rc1@home", "6.1.0-rc1-home")]
)
def test_an_image_says_itself_which_release_it_is_in_a_name_that_dash_k_accepts(
    release: str, name: str, tmp_path: Path
) -> None:
    path = image(tmp_path / "any-name", release)
    assert resolve(str(path), tmp_path) == Kernel(name, path)


def test_a_build_tree_brings_its_own_modules(tmp_path: Path) -> None:
    path = image(tmp_path / "arch/x86/boot/bzImage", "6.19.0-rc1+")
    kernel = resolve(str(tmp_path), tmp_path)
    assert kernel == Kernel("6.19.0-rc1+", path, tmp_path)
    assert kernel.arguments() == ["--kdir", str(tmp_path), "--mods", "auto"]


def test_a_directory_holds_one_kernel(tmp_path: Path) -> None:
    path = image(tmp_path / "boot/vmlinuz-6.1", "6.1")
    assert resolve(str(tmp_path), tmp_path).image == path
    image(tmp_path / "boot/vmlinuz-6.2", "6.2")
    with pytest.raises(KernelError, match=r"vmlinuz-6\.1, .*vmlinuz-6\.2$"):
        resolve(str(tmp_path), tmp_path)


def test_the_running_kernel_needs_no_machine(tmp_path: Path) -> None:
    kernel = resolve("host", tmp_path)
    assert not kernel.in_vm
    assert kernel.name.startswith("host-")


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("{} @ mitigations=off, nokaslr", "6.1-mitigations-off-nokaslr", ("mitigations=off", "nokaslr")),
        ("plain = {} @ isolcpus=0,1 nvme.poll_queues=2", "plain", ("isolcpus=0,1", "nvme.poll_queues=2")),
        ("plain = {}", "plain", ()),
        ("{}", "6.1", ()),
    ],
)
def test_a_kernel_has_a_name_and_words_for_its_command_line(
    text: str, name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = image(tmp_path / "vmlinuz", "6.1")
    kernel = resolve(text.format(path), tmp_path)
    assert kernel == Kernel(name, path, words=words)
    assert kernel.arguments() == [
        "--kimg",
        str(path),
        "--mods",
        "auto",
        *(w for word in words for w in ("--kopt", word)),
    ]


@pytest.mark.parametrize("word", ["init=/bin/sh", "rdinit=/x", "root=/dev/sda", "sysrq=1", "a;b", "mitigations='off'"])
def test_words_that_are_not_on_the_list_are_refused(word: str, tmp_path: Path) -> None:
    path = image(tmp_path / "vmlinuz", "6.1")
    named = "|".join(re.escape(repr(name)) for name in (word, word.partition("=")[0]))
    with pytest.raises(KernelError, match=named):
        resolve(f"{path} @ {word}", tmp_path)
    with pytest.raises(KernelError, match=r"^host @ nokaslr: "):
        resolve("host @ nokaslr", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing", None, r"/missing .*\bvmlinuz\b.*`host`"),
        ("a" * 5000, None, r"/a{5000} .*\bvmlinuz\b.*`host`"),
        ("text", b"hello", r"/text .*\bbzImage\b"),
        ("empty.deb", b"", r"/empty\.deb: "),
        (".", None, r" has no kernel: .*bzImage .*vmlinuz-\*"),
    ],
)
def test_what_is_no_kernel_is_told(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    if name.endswith(".deb") and not shutil.which("dpkg"):
        pytest.skip("needs dpkg")
    with pytest.raises(KernelError, match=message):
        resolve(str(path), tmp_path)


def test_a_guest_can_write_to_nothing_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "virtme_run", lambda: "virtme-run")
    words = vm.Machine(Kernel("x", Path("/boot/x")), Path("/home"), "1G", 2).argv(
        disks=[7], results=5, console=8, command=9
    )
    assert not [word for word in words if word.startswith(("--rwdir", "--rw"))]
    assert "--force-9p" in words


def test_the_disks_of_stacks_come_first_and_no_format_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "virtme_run", lambda: "virtme-run")
    words = vm.Machine(Kernel("x", Path("/boot/x")), Path("/home"), "1G", 2).argv(
        disks=[7, 6], results=5, console=8, command=9
    )
    drives = [word for word in words if word.startswith("-q=file=")]
    assert all(",format=raw," in drive for drive in drives)
    # QEMU makes devices in their order, but those of if=virtio last. The first disk is /dev/vda in the guest.
    assert not any("if=virtio" in drive for drive in drives)
    images = {drive.rpartition("id=")[2]: drive.partition(",")[0].rpartition("/")[2] for drive in drives}
    devices = [word for word in words if word.startswith("-q=virtio-blk,")]
    assert [images[device.split("drive=")[1].split(",")[0]] for device in devices] == ["7", "6", "5"]
    assert "-q=virtio-blk-device.request-merging=off" in words
    assert {"--disable-kvm", "no_timer_check"} <= set(words)
    assert words[:3] == ["setpriv", "--pdeathsig", "KILL"]


@pytest.mark.root
def test_what_starts_a_guest_covers_nothing_below_var_and_run() -> None:
    for parent in "/var/tmp", "/var/cache", "/var/log", "/run":
        with tempfile.TemporaryDirectory(prefix="fsstack a b", dir=parent) as directory:
            (Path(directory) / "file").write_text(parent)
            words = [*vm._contained(), "cat", f"{directory}/file"]
            assert subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout == parent


@pytest.mark.root
def test_temporary_files_of_what_starts_a_guest_vanish_with_it() -> None:
    words = [*vm._contained(), "sh", "-c", 'file=$(mktemp) && findmnt -no FSTYPE -T "$file" && echo "$file"']
    result = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=vm.environment())
    kind, file = result.stdout.split()
    assert kind == "tmpfs"
    assert not Path(file).exists()


def test_a_guest_shows_what_python_needs_below_run_and_nothing_else_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", "/run", "/usr"])
    script = vm.script(["true"], Path("/srv/a b"), {}, stdin=False)
    assert f"mkdir -p /run && mount --bind {vm._ROOT}/run /run" in script
    assert f"{vm._ROOT}/usr" not in script
    monkeypatch.setattr(sys, "path", ["/usr"])
    assert str(vm._ROOT) not in vm.script(["true"], Path("/srv/a b"), {}, stdin=False)


@pytest.mark.parametrize(("directory", "covered"), [("/srv/a b", False), ("/data/a, b", True), ("/run/a", True)])
def test_the_working_directory_is_written_to_in_memory(directory: str, covered: bool) -> None:
    script = vm.script(["true"], Path(directory), {}, stdin=False)
    assert ("mount -t overlay " in script) is covered


def test_a_place_that_no_guest_can_show_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "missing", lambda wanted: [])
    assert vm.why_no_guest(Path("/var/tmp")) is None
    monkeypatch.setattr(sys, "path", ["/dev"])
    reason = vm.why_no_guest(Path("/var/tmp"))
    assert reason is not None
    assert re.search(r" /dev\b", reason)


def test_a_guest_needs_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    assert vm.guest_environment()["HOME"] == "/"


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bool | None]:
    """Return the results of future trials to boot on KVM. Each trial takes one."""
    answers: list[bool | None] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vm, "_boots_on_kvm", lambda kernel, seconds: answers.pop(0))
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    monkeypatch.setattr(commands, "run", lambda *words: "QEMU emulator version 7.2")
    return answers


KERNEL = Kernel("6.1", Path("/boot/vmlinuz-6.1"))


@pytest.mark.parametrize("answer", [True, False])
def test_whether_guests_run_on_kvm_is_tried_once(trials: list[bool | None], answer: bool) -> None:
    trials.append(answer)
    assert [vm.accelerate("auto", KERNEL) for _ in range(3)] == [answer] * 3


def test_another_qemu_is_tried_again(trials: list[bool | None], monkeypatch: pytest.MonkeyPatch) -> None:
    trials += [False, True]
    assert not vm.accelerate("auto", KERNEL)
    monkeypatch.setattr(commands, "run", lambda *words: "QEMU emulator version 9.0")
    assert vm.accelerate("auto", KERNEL)


@pytest.mark.parametrize(
    ("first", "age", "tried_again"), [(False, 1.01, True), (False, 0.99, False), (True, 99, False)]
)
def test_that_a_guest_hung_on_kvm_is_not_believed_for_ever(
    trials: list[bool | None], tmp_path: Path, first: bool, age: float, tried_again: bool
) -> None:
    trials += [first, True]
    vm.accelerate("auto", KERNEL)
    (known,) = tmp_path.rglob("kvm-*")
    then = time.time() - age * vm.RETRY_SECONDS
    os.utime(known, (then, then))
    assert vm.accelerate("auto", KERNEL) is (first or tried_again)
    assert trials == ([] if tried_again else [True])


@pytest.mark.parametrize("content", ["", "nonsense"])
def test_an_answer_that_is_none_is_not_believed(trials: list[bool | None], tmp_path: Path, content: str) -> None:
    trials += [False, True]
    vm.accelerate("auto", KERNEL)
    (known,) = tmp_path.rglob("kvm-*")
    known.write_text(content)
    assert vm.accelerate("auto", KERNEL)


def test_a_guest_that_went_down_says_nothing_about_kvm(trials: list[bool | None], tmp_path: Path) -> None:
    trials += [None, True]
    assert not vm.accelerate("auto", KERNEL)
    assert list(tmp_path.rglob("kvm-*")) == []
    assert vm.accelerate("auto", KERNEL)


def test_a_wish_is_not_tried(trials: list[bool | None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert vm.accelerate("kvm", KERNEL)
    assert not vm.accelerate("tcg", KERNEL)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert not vm.accelerate("auto", KERNEL)


LACK = MissingRequirement(Missing.KERNEL, "no y", "boot one that has it")
LACKS = st.builds(MissingRequirement, st.sampled_from(Missing), st.text(), st.text(), st.text())


@given(
    missing=st.lists(st.tuples(st.text(), st.text(), st.lists(LACKS)), unique_by=lambda entry: entry[:2]),
    noise=st.lists(st.text(st.characters(codec="ascii", exclude_characters="\r\n"))),
)
def test_an_answer_of_a_guest_is_found_among_all_that_it_says(
    missing: list[tuple[str, str, list[MissingRequirement]]], noise: list[str]
) -> None:
    output = "\r\n".join([*noise, probe.answer_text(missing), *noise])
    assert probe.parse_answer(output) == {(kind, name): reasons for kind, name, reasons in missing}
    assert probe.parse_answer("\n".join(noise)) is None


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], vm.Machine]:
    """A machine that is a shell script. Its console is $console, and the script for the guest $command."""

    def make(script: str) -> vm.Machine:
        def argv(self: vm.Machine, *, disks: list[int], results: int, console: int, command: int) -> list[str]:
            return ["sh", "-c", f"console=/proc/self/fd/{console}; command=/proc/self/fd/{command}; {script}"]

        monkeypatch.setattr(vm.Machine, "argv", argv)
        return vm.Machine(KERNEL, tmp_path)

    return make


def start(machine: vm.Machine, talks: bool = False) -> vm.Guest:
    return vm.Guest(machine, ["true"], disk_size=1, env={}, talks=talks)


def test_a_guest_boots_talks_and_ends(machine: Callable[[str], vm.Machine]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    script = f"echo '{vm.STARTED}' >>$console; cat; echo oops >&2; echo '{vm.ENDED}' >>$console"
    with start(machine(script), talks=True) as guest:
        assert guest.booted(60)
        assert guest.process.stdin is not None
        guest.process.stdin.write(b"hello")
        assert guest.communicate(60) == ("hello", "oops\n", True)
        assert guest.ended
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_guest_that_hangs_is_ended(machine: Callable[[str], vm.Machine]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with start(machine(f"echo so far; echo '{vm.STARTED}' >>$console; exec sleep 600")) as guest:
        assert guest.booted(60)
        assert guest.communicate(0.1) == ("so far\n", "", False)
        assert guest.process.returncode == -9
        assert not guest.ended
    with start(machine("exec sleep 600")) as guest:
        assert not guest.booted(0.1)
        assert guest.process.poll() is None
    assert guest.process.returncode == -9
    assert len(os.listdir("/proc/self/fd")) == before


def test_of_a_guest_that_goes_down_the_reason_is_told(machine: Callable[[str], vm.Machine]) -> None:
    panic = "Kernel panic - not syncing: no init"
    noise = "for i in $(seq 40); do echo trace $i >>$console; done"
    with start(machine(f"echo '{panic}' >>$console; {noise}; echo no memory >&2; exit 3")) as guest:
        assert not guest.booted(60)
        _, output, in_time = guest.communicate(60)
        assert in_time
        first, second, *rest = guest.story("went down", output).splitlines()
    assert re.search(r"\b6\.1: went down$", first)
    assert second == panic
    assert re.search(r"^--- .*\bconsole\b", rest[0])
    assert rest[1:31] == [f"trace {number}" for number in range(11, 41)]
    assert re.search(r"^--- .*\bQEMU\b", rest[31])
    assert rest[32:] == ["no memory"]


ANSWER = probe.answer_text([("layer", "x", [LACK])])
BEGIN, END = (f"echo '{mark}' >>$console" for mark in (vm.STARTED, vm.ENDED))


def ask(machine: vm.Machine) -> probe.Answer:
    return probe.ask(machine, ["--fsstack-doctor"], disk_size=1)


@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("exec sleep 600", r"6\.1: .*\bboot\b.* 0.5 s\n"),
        (f"{BEGIN}; exec sleep 600", r"6\.1: .*\banswer\b.* 0.5 s\n"),
        (f"{BEGIN}; echo an error message >&2", r"6\.1: [^\d]+\n(.*\n)*an error message$"),
        (f"{BEGIN}; echo usage; echo an error message >&2; {END}", r"6\.1: .*\nusage\nan error message$"),
    ],
)
def test_why_a_guest_does_not_answer_is_told(
    script: str, facts: str, machine: Callable[[str], vm.Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    if BEGIN not in script:
        monkeypatch.setattr(vm, "BOOT_SECONDS", 0.5)
    if "sleep" in script:
        monkeypatch.setattr(probe, "_ANSWER_SECONDS", 0.5)
    with pytest.raises(probe.ProbeError, match=facts):
        ask(machine(script))


def test_a_guest_answers(machine: Callable[[str], vm.Machine]) -> None:
    command = "grep -q 'env -i .*FSSTACK_PROBED=6.1 .* -m pytest --fsstack-doctor' $command"
    assert ask(machine(f"{BEGIN}; {command} && echo '{ANSWER}'; {END}")) == {("layer", "x"): [LACK]}


def test_a_guest_that_cannot_be_started_is_stood_in_for(tmp_path: Path) -> None:
    description = tmp_path / "0.json"
    machine = vm.Machine(Kernel("6.1", tmp_path / "vmlinuz"), tmp_path, "1G", 1)
    launch.Description(machine, 1 << 20, 5.0, tmp_path / "log", tmp_path / "results").write(description)
    assert launch.Description.read(description).machine == machine
    code = f"import os; print(os.getsid(0) == os.getpid(), os.environ['{GUEST_DOWN}'])"
    words = [sys.executable, "-m", "pytest_fsstack.kernels.launch", str(description), "-c", code]
    env = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True)
    # Ctrl-C would end it before its session if it was in the same one.
    assert re.match(r"True kernel 6\.1: cannot be started: .*(No such file or directory|virtme-run)", result.stdout)


def test_the_console_reaches_the_stand_in_whatever_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GUEST_DOWN, "")
    monkeypatch.setattr(os, "execve", lambda *words: subprocess.run(words[1], env=words[2], check=True))
    launch.stand_in(["true"], "a zero byte: \0" + "\N{REPLACEMENT CHARACTER}" * 200_000)


@pytest.mark.parametrize(
    ("words", "problem"), [("exec sleep 60", "silent"), ("exec <&-; sleep 0.2", "went down .*exit code 0")]
)
def test_a_guest_that_does_not_read_its_input_is_a_problem(
    words: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input").write_bytes(bytes(300_000))
    with (
        (tmp_path / "input").open() as given,
        subprocess.Popen(
            ["sh", "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
    ):
        monkeypatch.setattr(sys, "stdin", given)
        guest = types.SimpleNamespace(process=process, ended=False, kill=process.kill)
        assert re.search(problem, launch.forward(guest, 0.5) or "")  # type: ignore[arg-type]


@pytest.mark.parametrize("ended", [True, False])
def test_only_a_guest_that_halts_after_its_command_is_ended_without_a_problem(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_HALTED_SECONDS", 0.1)
    with (
        open(os.devnull) as nothing,
        subprocess.Popen(
            ["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
    ):
        monkeypatch.setattr(sys, "stdin", nothing)
        guest = types.SimpleNamespace(process=process, ended=ended, kill=process.kill)
        problem = launch.forward(guest, 0.5)  # type: ignore[arg-type]
        assert (problem is None) == ended
        assert process.wait() == -9
