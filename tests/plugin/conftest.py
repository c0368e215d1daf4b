"""A project whose stacks need neither root nor a device: layers that are plain directories."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sessions import in_memory
from tests.warm import WARM

LAYERS = '''
import contextlib
from dataclasses import dataclass
from typing import ClassVar

import pytest
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.stack.layer import Layer, option
from pytest_fsstack.stack.places import Directory


@dataclass(frozen=True)
class Plain(Layer):
    """A directory in the directory below."""

    name: ClassVar = "plain"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    cost: int = option(100, "what a step on it costs")

    def create(self, below, context):
        context.machine.mkdir(below.path / self.name)

    @contextlib.contextmanager
    def opened(self, below, context):
        yield Directory(below.path / self.name)


@dataclass(frozen=True)
class Crypt(Plain):
    name: ClassVar = "crypt"


@dataclass(frozen=True)
class Absent(Plain):
    name: ClassVar = "absent"

    def needs(self):
        return [Tool("no-such-tool", "no-such-package")]


@dataclass(frozen=True)
class Broken(Plain):
    name: ClassVar = "broken"

    def create(self, below, context):
        context.machine.run("ls", "/no/such/file")


def pytest_fsstack_layers():
    return [Plain, Crypt, Absent, Broken]


@pytest.fixture
def cost(fsstack):
    return sum(layer.cost for layer in fsstack.stack.layers)


@pytest.fixture
def log(request, fsstack):
    def write(what):
        with open(request.config.rootpath / "log", "a") as file:
            print(what, fsstack.stack.id, file=file)

    return write
'''


class Project:
    """A directory with tests; `run` runs pytest on it and says what happened."""

    def __init__(self, pytester: pytest.Pytester, device: Path) -> None:
        self.pytester = pytester
        pytester.makeconftest(LAYERS)
        self.device = device

    def write(self, test: str) -> None:
        self.pytester.makepyfile(test_it=test)

    def run(self, *arguments: object) -> pytest.RunResult:
        # The seed makes the workloads' noise the same every time; a later one on the command line wins.
        words = [f"--fsstack-device=dir:{self.device}", "--fsstack-seed=1", "-p", "no:cacheprovider"]
        return self.pytester.runpytest_subprocess(*words, *map(str, arguments))

    @property
    def log(self) -> list[str]:
        return (self.pytester.path / "log").read_text().splitlines()


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setattr(pytester, "runpytest_subprocess", functools.partial(WARM.run, pytester))
    return pytester


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    # Where these tests run under xdist, those inside do not.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    # Each step syncs it, and would wait for what the tests beside this one write to the same disk.
    with in_memory() as directory:
        device = directory / "device"
        device.mkdir()
        yield Project(pytester, device)
