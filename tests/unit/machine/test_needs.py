"""Records of missing requirements: what is missing, how to get it, and who can help."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, needs
from pytest_fsstack.machine.needs import (
    Crate,
    DeviceNode,
    KernelFilesystem,
    Missing,
    MissingRequirement,
    PythonTool,
    Root,
    Tool,
)


def test_a_tool_of_no_package_is_not_looked_for_in_packages() -> None:
    lack = Tool("no-such-daemon").missing()
    assert lack is not None
    assert (lack.kind, lack.package) == (Missing.OTHER, "")
    assert "PATH" in lack.remedy


def test_a_tool_names_its_package() -> None:
    lack = Tool("no-such-tool", "no-such-package").missing()
    assert lack is not None
    assert "no-such-tool" in lack.what
    assert lack == MissingRequirement(
        Missing.PACKAGE, lack.what, needs.install_command(["no-such-package"]), "no-such-package"
    )


def test_what_pip_installs_is_found_beside_the_running_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", "/usr/bin")
    need = PythonTool("no-such-daemon", "no-such-package")
    advice = f"{tmp_path}/bin/python -m pip install no-such-package"
    lack = need.missing()
    assert lack is not None
    assert "no-such-daemon" in lack.what
    assert lack == MissingRequirement(Missing.OTHER, lack.what, advice)
    program = tmp_path / "bin/no-such-daemon"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o755)
    assert need.missing() is None
    assert commands.run("no-such-daemon") == "it runs\n"


def test_a_crate_is_found_where_cargo_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARGO_HOME", str(tmp_path))
    crate = Crate("no-such-crate")
    assert crate.path is None
    lack = crate.missing()
    assert lack is not None
    assert "no-such-crate" in lack.what
    assert lack == MissingRequirement(Missing.OTHER, lack.what, "cargo install no-such-crate")
    program = tmp_path / "bin" / "no-such-crate"
    program.parent.mkdir()
    program.touch(0o755)
    assert crate.path == str(program)
    assert crate.missing() is None


def test_a_kernel_feature_is_no_package() -> None:
    for need in (
        KernelFilesystem("nosuchfs", removal="Linux 9 removed it"),
        DeviceNode("/dev/nosuch", "magic", "nosuch"),
    ):
        lack = need.missing()
        assert lack is not None
        assert (lack.kind, lack.package) == (Missing.KERNEL, "")
    reason = str(KernelFilesystem("nosuchfs", removal="Linux 9 removed it").missing())
    assert re.search("nosuchfs.*Linux 9 removed it", reason)


def test_root_is_a_permission(become: Callable[[int], None]) -> None:
    become(1000)
    lack = Root("mounting").missing()
    assert lack is not None
    assert (lack.kind, lack.package) == (Missing.PERMISSION, "")
    assert "mounting" in lack.what
    assert "sudo" in lack.remedy


def test_a_remedy_is_said_once_for_all_that_it_brings(become: Callable[[int], None]) -> None:
    become(1000)
    lines = needs.missing([Root("mounting"), Tool("no-such-tool", "no-such-package"), Root("attaching")])
    assert len(lines) == 2
    assert re.fullmatch("mounting needs root; attaching needs root: .*sudo", lines[0])


def test_what_is_missing_twice_is_said_once() -> None:
    tool = Tool("no-such-tool", "no-such-package")
    assert len(needs.lacking([tool, tool])) == 1
    (line,) = needs.missing([tool, tool])
    assert re.search(f"no-such-tool.*{needs.install_command(['no-such-package'])}", line)
