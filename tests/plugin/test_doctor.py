"""`--fsstack-doctor` and `--fsstack-cleanup`: what they print instead of running tests, and their exit codes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_fsstack.machine import needs
from pytest_fsstack.preflight import doctor
from tests.plugin.conftest import LAYERS

#: A workload that needs a tool that no machine has, as the layer `absent` does.
WORKLOAD = """
from pytest_fsstack.workloads import workload

@workload(Tool("no-such-tool", "no-such-package"))
def frobnicate(timed, fsstack):
    with timed():
        pass


def pytest_fsstack_workloads():
    return {"frobnicate": frobnicate}
"""

FAKE_APT = """#!/bin/sh
echo "apt-get $*" >> {log}
for word in "$@"; do
    if [ "$word" = no-such-package ] && [ "$1" = install ]; then
        printf '#!/bin/sh\\n' > {bin}/no-such-tool
        chmod +x {bin}/no-such-tool
    fi
done
exit {code}
"""


@pytest.fixture
def machine(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of commands that come before the machine's own, with a package manager; returns it."""
    directory = pytester.mkdir("bin")
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    package_manager(directory)
    pytester.makeconftest(LAYERS + WORKLOAD)
    pytester.makepyfile("def test_never_runs():\n    raise AssertionError")
    return directory


def package_manager(directory: Path, code: int = 0) -> None:
    script = directory / "apt-get"
    script.write_text(FAKE_APT.format(log=directory / "log", bin=directory, code=code))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(f"--fsstack-device=dir:{pytester.path}", *arguments)


def cells(result: pytest.RunResult, kind: str, name: str) -> list[str]:
    line = next(line for line in result.outlines if line.split()[:2] == [kind, name])
    return re.split(r"\s{2,}", line.strip())


def advised(result: pytest.RunResult) -> list[str]:
    """Return the packages in the line below the table that installs what is missing."""
    lines = [line for line in result.outlines if re.match("[^:]+: apt install ", line)]
    return [package for line in lines for package in line.partition(": apt install ")[2].split()]


def test_a_table_of_every_layer_and_workload_instead_of_the_tests(pytester: pytest.Pytester, machine: Path) -> None:
    result = run(pytester, "--fsstack-doctor=all")
    assert cells(result, "layer", "plain")[2:] == ["yes"]
    runs, missing, command = cells(result, "layer", "absent")[2:]
    assert (runs, command) == ("no", "apt install no-such-package")
    assert "no-such-tool" in missing
    assert cells(result, "workload", "frobnicate")[2] == "no"
    for kind, name in (("layer", "ext4"), ("layer", "gocryptfs"), ("workload", "extract"), ("workload", "delete")):
        assert cells(result, kind, name)[2] in ("yes", "no")
    assert not any("test_never_runs" in line for line in result.outlines)
    assert advised(result).count("no-such-package") == 1
    # Nothing is selected, so nothing that is selected cannot run.
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--fsstack-stacks*--fsstack-scenario: *"])


def test_only_what_the_selected_stacks_need_counts(pytester: pytest.Pytester, machine: Path) -> None:
    result = run(pytester, "--fsstack-doctor", "--fsstack-stacks=plain | plain")
    result.stdout.fnmatch_lines(["*(plain+plain)*"])
    assert result.ret == 0
    result = run(pytester, "--fsstack-doctor", "--fsstack-stacks=plain", "--fsstack-stacks=plain | absent")
    result.stdout.fnmatch_lines(["  plain+absent: *no-such-tool: apt install no-such-package"])
    assert result.ret == 1


def test_the_stacks_of_the_ini_are_selected_too(pytester: pytest.Pytester, machine: Path) -> None:
    pytester.makeini("[pytest]\nfsstack_stacks =\n    plain")
    result = run(pytester, "--fsstack-doctor")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*(plain)*"])


@pytest.mark.skipif(os.geteuid() != 0, reason="installing needs root: run pytest with sudo")
def test_install_gets_the_packages_and_looks_again(pytester: pytest.Pytester, machine: Path) -> None:
    result = run(pytester, "--fsstack-doctor=install", "--fsstack-stacks=absent")
    assert result.ret == 0
    update, install = (machine / "log").read_text().splitlines()
    assert update == "apt-get update"
    assert install.startswith("apt-get install -y ")
    assert "no-such-package" in install.split()
    rows = [line.split()[2] for line in result.outlines if line.split()[:2] == ["stack", "absent"]]
    assert rows == ["yes"], "said once"


@pytest.mark.skipif(os.geteuid() != 0, reason="installing needs root: run pytest with sudo")
def test_an_installation_that_fails_is_told_by_the_exit_code(pytester: pytest.Pytester, machine: Path) -> None:
    package_manager(machine, code=100)
    (machine / "apt-get").write_text((machine / "apt-get").read_text().replace("no-such-package", "other"))
    result = run(pytester, "--fsstack-doctor=install", "--fsstack-stacks=absent")
    result.stdout.fnmatch_lines(["*exit code 100"])
    assert result.ret == 1


@pytest.mark.parametrize("exists", [True, False])
def test_postgresql_is_installed_without_a_cluster_of_the_system(
    exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "postgresql-common" / "createcluster.d"
    if exists:
        directory.mkdir(parents=True)
    during: list[str] = []

    def install(command: Sequence[str]) -> bool:
        during.extend(file.read_text() for file in directory.glob("*.conf"))
        return True

    monkeypatch.setattr(doctor, "CLUSTERS", directory)
    monkeypatch.setattr(doctor, "_run", install)
    monkeypatch.setattr(needs, "package_manager", lambda: "apt")
    doctor._install(["postgresql"])
    assert during == ["create_main_cluster = false\n"]
    assert list(tmp_path.rglob("*")) == ([directory.parent, directory] if exists else [])


#: Two kernels whose guests answer, and one that does not boot; none of them is booted.
GUESTS = """
from pathlib import Path
from pytest_fsstack.kernels import controller, probe, vm
from pytest_fsstack.kernels.images import Kernel, resolve

from pytest_fsstack.machine.needs import Missing, MissingRequirement

LACKING = {
    "good": [],
    "bad": [MissingRequirement(Missing.KERNEL, "this kernel (bad) has no magic", "boot one that has")],
}


def ask(machine, arguments, **limits):
    if machine.kernel.name == "broken":
        raise probe.ProbeError("kernel broken: did not boot within 300 s")
    answer = probe.parse_answer(told)
    answer["layer", "plain"] = answer["stack", "plain"] = LACKING[machine.kernel.name]
    return answer


told = probe.answer_text([("layer", "absent", []), ("stack", "absent", []), ("device", "dir:" + str(Path.cwd()), [])])
controller.resolve = lambda text, cache: resolve(text, cache) if text == "host" else Kernel(text, Path(text))
probe.ask = ask
vm.why_no_guest = lambda directory: None
vm.accelerate = lambda wish, kernel: False
"""


@pytest.fixture
def guests(pytester: pytest.Pytester, machine: Path) -> None:
    pytester.makeconftest(GUESTS + LAYERS)


def kernels(*names: str) -> list[str]:
    return ["--fsstack-doctor", *(f"--fsstack-kernel={name}" for name in names)]


def test_each_kernel_has_a_column(pytester: pytest.Pytester, guests: None) -> None:
    result = run(pytester, *kernels("good", "host", "bad"))
    head = next(line for line in result.outlines if line.split()[:1] == ["name"])
    assert re.split(r"\s{2,}", head.strip())[2:4] == ["good", "bad"]
    assert cells(result, "layer", "plain")[2:] == [
        "yes",
        "yes",
        "no",
        "this kernel (bad) has no magic",
        "boot one that has",
    ]
    *runs, missing, command = cells(result, "layer", "absent")[2:]
    assert (runs, command) == (["no", "yes", "yes"], "apt install no-such-package")
    assert re.search(r"no-such-tool \(.*running kernel\)", missing)
    assert result.ret == 0


@pytest.mark.parametrize(
    ("names", "stack", "code"),
    [
        # Here it lacks its tool, which does not matter where only guests are asked for.
        (["good", "bad"], "absent", 0),
        (["good", "bad", "host"], "absent", 1),
        (["good"], "plain", 0),
        (["good", "bad"], "plain", 1),
        (["good", "broken"], "plain", 1),
        (["host"], "plain", 0),
    ],
)
def test_what_the_stacks_need_must_be_there_on_each_kernel(
    pytester: pytest.Pytester, guests: None, names: list[str], stack: str, code: int
) -> None:
    result = run(pytester, *kernels(*names), f"--fsstack-stacks={stack}")
    assert result.ret == code
    if names == ["good", "bad"]:
        result.stdout.fnmatch_lines([f"*({stack})*good, bad*"])
        assert (f"  {stack}: this kernel (bad) has no magic: boot one that has" in result.outlines) == bool(code)


def test_a_guest_that_does_not_boot_is_told(pytester: pytest.Pytester, guests: None) -> None:
    result = run(pytester, *kernels("broken", "good"), "--fsstack-stacks=plain")
    assert cells(result, "stack", "plain")[2:] == ["yes", "?", "yes"]
    result.stdout.fnmatch_lines(["*broken: kernel broken: * 300 s"])
    result.stdout.no_fnmatch_line("*(plain)*")
    assert result.ret == 1


def test_where_no_guest_can_be_booted_the_reason_is_told(pytester: pytest.Pytester, guests: None) -> None:
    refusal = 'vm.why_no_guest = lambda directory: "needs qemu: apt install qemu"'
    pytester.makeconftest(GUESTS + refusal + LAYERS)
    result = run(pytester, *kernels("good"), "--fsstack-stacks=plain")
    result.stdout.fnmatch_lines(["*good: needs qemu: apt install qemu"])
    assert result.ret == 1


def test_a_file_that_is_no_kernel_is_told(pytester: pytest.Pytester, machine: Path) -> None:
    result = run(pytester, *kernels("no-such-file"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-kernel: no-such-file*"])


def test_in_a_guest_it_answers(pytester: pytest.Pytester, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_fsstack.kernels import probe
    from pytest_fsstack.machine.needs import Missing, MissingRequirement

    monkeypatch.setenv("FSSTACK_PROBED", "6.1")
    result = run(pytester, *kernels("no-such-file"), "--fsstack-stacks=plain | absent")
    assert result.ret == 0
    answer = probe.parse_answer(result.stdout.str())
    assert answer is not None
    assert answer["layer", "plain"] == []
    lack = MissingRequirement(Missing.PACKAGE, "needs no-such-tool", "apt install no-such-package", "no-such-package")
    assert answer["stack", "plain+absent"] == answer["layer", "absent"] == [lack]
    assert answer["device", f"dir:{pytester.path}"] == []


def test_a_mistake_in_an_option_is_one_line(pytester: pytest.Pytester, machine: Path) -> None:
    result = run(pytester, "--fsstack-doctor", "--fsstack-stacks=absnt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.re_match_lines([r"ERROR: .*'absnt'[^,]* absent\?"])


def test_cleanup_with_nothing_to_clean_says_so(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    journals = pytester.path / "journals"
    pytester.makeconftest(
        f"""
        from pathlib import Path
        from pytest_fsstack.machine import journal

        journal.default_directory = lambda: Path({str(journals)!r})
        """
    )
    result = pytester.runpytest_subprocess("--fsstack-cleanup")
    (line,) = filter(None, result.outlines)
    assert "/" not in line
    assert result.ret == 0


def test_what_the_collected_tests_use_is_selected(pytester: pytest.Pytester, machine: Path) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_fsstack import Tool, workload

        @workload(Tool("lunar"))
        def own(timed, fsstack):
            pass

        @pytest.mark.fsstack("plain", "plain | absent")
        @pytest.mark.fsstack_budget("30%")
        def test_it(fsstack, timed):
            pass

        @pytest.mark.fsstack("plain")
        def test_frob(fsstack, timed):
            own(timed, fsstack)
            frobnicate(timed, fsstack)
        """
    )
    result = run(pytester, "--fsstack-doctor")
    shown = [line.split()[:2] for line in result.outlines if line.split()[:1] in (["stack"], ["workload"], ["layer"])]
    assert shown == [["stack", "plain"], ["stack", "plain+absent"], ["workload", "frobnicate"]]
    assert cells(result, "step", "own")[2] == "no"
    assert result.ret == 1
    # Nobody meant it to judge anything.
    result.stdout.no_fnmatch_line("*budget*")
    result = run(pytester, "--fsstack-doctor", "-k", "test_it and not absent")
    shown = [line.split()[:2] for line in result.outlines if line.split()[:1] in (["stack"], ["workload"], ["layer"])]
    assert shown == [["stack", "plain"]]
    result.stdout.fnmatch_lines(["*(plain)*"])
    assert result.ret == 0


def test_no_package_is_advised_for_what_the_kernel_cannot_run(pytester: pytest.Pytester, machine: Path) -> None:
    imports = "from pytest_fsstack.machine.needs import KernelFilesystem\n"
    pytester.makeconftest(imports + LAYERS.replace("return [Tool(", "return [KernelFilesystem('nosuchfs'), Tool("))
    result = run(pytester, "--fsstack-doctor", "--fsstack-stacks=absent")
    assert result.ret == 1
    assert advised(result) == []
    # All is for any kernel: a guest has the tools of this machine.
    result = run(pytester, "--fsstack-doctor=all")
    assert "no-such-package" in advised(result)


def test_to_install_needs_a_selection(pytester: pytest.Pytester, machine: Path) -> None:
    result = run(pytester, "--fsstack-doctor=install")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-doctor=install: *--fsstack-stacks*install-all*"])
    assert not (machine / "log").exists()


def test_a_workload_whose_tool_is_missing_skips_its_test(pytester: pytest.Pytester, machine: Path) -> None:
    pytester.makepyfile(
        """
        from pytest_fsstack.machine.needs import Tool
        from pytest_fsstack.workloads import workload

        @workload(Tool("no-such-tool", "no-such-package"))
        def frobnicate():
            raise AssertionError

        def test_it():
            frobnicate()
        """
    )
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no-such-tool: apt install no-such-package"])
