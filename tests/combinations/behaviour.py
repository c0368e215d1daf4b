"""The conftest of every drawn project: layers that are directories, and fixtures that do what marks say.

``@pytest.mark.does("setup", "fails", stack="dear", round=2)`` lets the setup of a test fail on one stack, in the second
round. The plugin `standin` sets STANDIN: it runs a test once, and then rounds do not matter.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import drawn  # type: ignore[import-not-found]  # the settings of the project
import pytest

from pytest_fsstack.machine.needs import Need, Tool
from pytest_fsstack.stack.layer import Layer, option
from pytest_fsstack.stack.places import Directory

#: The cost of a step on each stack, in coins.
COSTS = {"dear": 150, "same": 100}


@dataclass(frozen=True)
class Plain(Layer):
    name: ClassVar = "plain"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    cost: int = option(100, "only gives stacks different texts")

    def create(self, below: Any, context: Any) -> None:
        context.machine.mkdir(below.path / self.name)

    @contextlib.contextmanager
    def opened(self, below: Any, context: Any) -> Iterator[Directory]:
        yield Directory(below.path / self.name)


@dataclass(frozen=True)
class Absent(Plain):
    name: ClassVar = "absent"

    def needs(self) -> list[Need]:
        return [Tool("no-such-tool", "no-such-package")]


@dataclass(frozen=True)
class Broken(Plain):
    name: ClassVar = "broken"

    def create(self, below: Any, context: Any) -> None:
        context.machine.run("ls", "/no/such/file")


def pytest_fsstack_layers() -> list[type[Layer]]:
    return [Plain, Absent, Broken]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if drawn.ORDER == "reversed":
        items.reverse()
    elif drawn.ORDER == "shuffled":
        random.Random(7).shuffle(items)
    elif drawn.ORDER == "interleaved":
        # The first test of each class, then the second of each.
        before = Counter[Any]()
        ranks: dict[Any, int] = {}
        for item in items:
            before[item.parent] += 1
            ranks[item] = before[item.parent]
        items.sort(key=lambda item: (item.path.name, ranks[item]))


class Doing:
    """What the running test does, as its marks say."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request, self.name, self.stack, self.round = request, request.node.nodeid, "", 1
        if "fsstack" in request.fixturenames:
            self.stack = request.getfixturevalue("fsstack").stack.id
            seeds = request.config.stash.setdefault(SEEDS, {}).setdefault(self.name, [])
            if (seed := request.getfixturevalue("fsstack_seed")) not in seeds:
                seeds.append(seed)
            self.round = len(seeds)

    def __call__(self, when: str) -> bool:
        """Do what a mark says about this moment. Return False if nothing is to be measured."""
        for mark in self.request.node.iter_markers("does"):
            moment, what = mark.args
            stack, number = mark.kwargs.get("stack", self.stack), mark.kwargs.get("round", self.round)
            standin = os.environ.get("STANDIN") and number <= mark.kwargs.get("rounds", 1)
            if moment != when or stack != self.stack or not (number == self.round or standin):
                continue
            if what == "measures nothing":
                return False
            text = f"{what} in {when}"
            deeds: dict[str, Callable[[str], object]] = {"fails": pytest.fail, "skips": pytest.skip}
            deeds |= {"xfails": pytest.xfail, "raises": _raise}
            deeds[what](text)
        return True

    def log(self) -> None:
        with open(self.request.config.rootpath / "log", "a") as file:
            print(self.round, self.stack, self.name, file=file)

    @property
    def cost(self) -> int:
        return COSTS.get(self.stack, 100)


SEEDS = pytest.StashKey[dict[str, list[int]]]()


def _raise(text: str) -> NoReturn:
    raise ValueError(text)


@pytest.fixture
def does(request: pytest.FixtureRequest) -> Iterator[Doing]:
    doing = Doing(request)
    doing("setup")
    doing.log()
    yield doing
    doing("teardown")


def _of_scope(scope: Any) -> Any:
    @pytest.fixture(scope=scope, name=f"of_{scope}")
    def fixture(request: pytest.FixtureRequest) -> Iterator[object]:
        for when in "setup", "teardown":
            if f"{when} of_{scope}" == drawn.BROKEN:
                pytest.fail(f"fails in the {when} of of_{scope}")
            if when == "setup":
                yield getattr(request, "param", 0)

    return fixture


@pytest.fixture(scope="module", autouse=drawn.AUTOUSE)
def of_each_module(request: pytest.FixtureRequest) -> Iterator[None]:
    with open(request.config.rootpath / "scopes", "a") as file:
        print(request.node.nodeid, file=file, flush=True)
        yield
        print(request.node.nodeid, file=file)


of_function, of_class, of_module, of_session = map(_of_scope, ("function", "class", "module", "session"))
pair_of_function = pytest.fixture(params=[1, 2])(lambda request: request.param)
pair_of_class = pytest.fixture(params=[1, 2], scope="class")(lambda request: request.param)
pair_of_module = pytest.fixture(params=[1, 2], scope="module")(lambda request: request.param)
