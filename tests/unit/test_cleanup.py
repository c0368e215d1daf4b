"""Which kinds of leftovers the clean-up knows: those of the built-in layers, and those that others bring."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest

import pytest_fsstack
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import journal
from pytest_fsstack.machine.journal import Kind
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from pytest_fsstack.stack.layer import Layer

CONFTEST = """
from pathlib import Path
from typing import ClassVar
from pytest_fsstack.machine.journal import Kind, text
from pytest_fsstack.stack.layer import Layer
from pytest_fsstack.stack.places import Directory

def present(machine, facts):
    return Path(text(facts, "path")).exists()

def undo(machine, facts):
    Path(text(facts, "path")).unlink()
    return f"removed the flag {text(facts, 'path')}"

FLAG = Kind("flag", present, undo)

class Flagged(Layer):
    name: ClassVar = "flagged"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    leaves: ClassVar = (FLAG,)

def pytest_fsstack_layers():
    return [Flagged]
"""

KILLED = """
import os, sys
from pathlib import Path
import conftest
from pytest_fsstack.machine.journal import Journal, default_directory
from pytest_fsstack.machine.real import RealMachine
book = Journal(default_directory(), RealMachine())
with book.entry(conftest.FLAG, path=sys.argv[1]):
    Path(sys.argv[1]).touch()
    os.kill(os.getpid(), 9)
"""


def test_all_kinds_there_are_belong_to_something_that_the_clean_up_asks() -> None:
    modules = pkgutil.walk_packages(pytest_fsstack.__path__, "pytest_fsstack.")
    names = [module.name for module in modules if ".scenarios" not in module.name and ".kernels" not in module.name]
    names_of_kinds = {
        kind.name for name in names for kind in vars(importlib.import_module(name)).values() if type(kind) is Kind
    }
    assert len(names_of_kinds) >= 10
    assert names_of_kinds == set(kinds(BUILT_IN.values()))


def test_two_kinds_of_a_name_are_refused() -> None:
    class Other(Layer):
        name: ClassVar = "other"
        leaves: ClassVar = (Kind("mount", lambda machine, facts: False, lambda machine, facts: ""),)

    with pytest.raises(ValueError, match="'mount'"):
        kinds([Other])


def test_a_third_partys_layer_brings_its_kind(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "run").mkdir(mode=0o700)
    code = "from pathlib import Path\nfrom pytest_fsstack.machine import journal\n"
    code += f"directory = Path({str(tmp_path / 'run')!r})\n"
    flag = tmp_path / "flag"
    killed = KILLED.replace("default_directory()", f"Path({str(tmp_path / 'run')!r})")
    result = subprocess.run([sys.executable, "-c", killed, flag], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == -9, result.stderr
    (line,) = journal.cleanup(tmp_path / "run", RealMachine(), lambda: kinds(BUILT_IN.values())).left
    assert re.search(rf"flag {flag} .*\bconftest\b", line)
    assert flag.exists()
    clean = f"{code}import pytest_fsstack.plugin\njournal.default_directory = lambda: directory\nimport pytest\n"
    clean += "raise SystemExit(pytest.main(['--fsstack-cleanup', '-p', 'no:cacheprovider']))"
    result = subprocess.run([sys.executable, "-c", clean], cwd=tmp_path, capture_output=True, text=True)
    assert f"removed the flag {flag}" in result.stdout, result.stdout + result.stderr
    assert not flag.exists()
    assert list((tmp_path / "run").iterdir()) == []


def test_a_journal_that_never_got_its_name_is_removed_once_it_is_old(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    old, young = tmp_path / "1-0000000a.new", tmp_path / "2-0000000b.new"
    for path in old, young:
        path.touch()
    os.utime(old, (time.time() - 3600,) * 2)
    assert journal.cleanup(tmp_path, RealMachine(), lambda: {}) == journal.CleanupReport()
    assert [path.name for path in tmp_path.iterdir()] == ["2-0000000b.new"]
