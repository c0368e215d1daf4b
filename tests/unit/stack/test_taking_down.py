"""Whatever a layer raises, the layers below are taken down, and the cause is reported first."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.machine import signals
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import BuildError, Built, build
from pytest_fsstack.stack.model import BuildContext, Directory, Layer, Place, Stack

SAID: list[str] = []


@dataclass(frozen=True)
class Noted(Layer):
    """Notes when it is opened and closed, and may fail or hang there."""

    name: ClassVar = "noted"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    label_: str = ""
    opening: str = ""
    closing: str = ""

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        _act(self.opening)
        SAID.append(f"opened {self.label_}")
        try:
            yield Directory(below.path)
        finally:
            SAID.append(f"closed {self.label_}")
            _act(self.closing)


def _act(what: str) -> None:
    if what == "hang":
        time.sleep(60)
    elif what == "signal":
        signals.safe_point()
    elif what:
        raise {"value": ValueError, "system": OSError, "exit": KeyboardInterrupt}[what](f"{what} error")


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    SAID.clear()
    (tmp_path / "device").mkdir()
    return BuildContext(tmp_path, Journal(tmp_path / "journal", RealMachine()))


def built(context: BuildContext, *layers: Noted) -> contextlib.AbstractContextManager[object]:
    return build(Stack(layers), DirectoryDevice(context.directory / "device"), context)


@pytest.mark.parametrize("closing", ["value", "system", "exit"])
def test_the_layers_below_are_closed_whatever_one_raises(context: BuildContext, closing: str) -> None:
    with (
        pytest.raises(KeyboardInterrupt if closing == "exit" else BuildError, match=f"{closing} error"),
        built(context, Noted("low"), Noted("high", closing=closing)),
    ):
        pass
    assert SAID == ["opened low", "opened high", "closed high", "closed low"]
    assert list((context.directory / "device").iterdir()) == []


def test_of_two_layers_that_fail_the_upper_one_is_the_cause(context: BuildContext) -> None:
    with (
        pytest.raises(BuildError, match=r"noted: ValueError\('value error'\)$"),
        built(context, Noted("low", closing="system"), Noted("high", closing="value")),
    ):
        pass


def test_an_error_of_building_comes_before_what_follows_from_it(context: BuildContext) -> None:
    layers = Noted("low", closing="value"), Noted("high", opening="system")
    with pytest.raises(BuildError, match=r"(?s)system error.*value error"), built(context, *layers):
        pytest.fail("it stands")


class Hasty(RealMachine):
    """Waits for a layer for 0.3 s only."""

    limit = 0.3


@pytest.mark.parametrize("when", ["opening", "closing"])
def test_a_layer_that_hangs_is_ended(context: BuildContext, when: str, tmp_path: Path) -> None:
    hangs = Noted("high", **{when: "hang"})
    context = BuildContext(context.directory, Journal(tmp_path / "journal", Hasty()))
    with (
        pytest.raises(BuildError, match=rf"noted: {when} .*\b0\.3 s\b.*--fsstack-timeout"),
        built(context, Noted("low"), hangs),
    ):
        pass
    assert SAID[-1] == "closed low"


def test_a_signal_waits_for_the_layer_that_is_being_built(context: BuildContext) -> None:
    class Ended(BaseException):
        pass

    @dataclass(frozen=True)
    class Signalled(Noted):
        def create(self, below: Place, context: BuildContext) -> None:
            signal.raise_signal(signal.SIGTERM)

    with signals.caught(lambda number: Ended()), pytest.raises(Ended), built(context, Signalled("low"), Noted("high")):
        pytest.fail("it stands")
    assert SAID == ["opened low", "closed low"]


@pytest.mark.parametrize(
    ("act", "call", "is_optional"),
    [(Built.drop_daemon_caches, "timed()", True), (Built.remount, "fsstack.remount()", False)],
)
def test_a_file_that_the_test_holds_open_is_named_with_what_to_do(
    act: Callable[[Built], None], call: str, is_optional: bool, context: BuildContext
) -> None:
    @dataclass(frozen=True)
    class Busy(Noted):
        name: ClassVar = "busy"
        caches: ClassVar = True
        closing: str = "system"

    with (
        pytest.raises(BuildError) as caught,
        build(Stack((Busy(),)), DirectoryDevice(context.directory / "device"), context) as it,
    ):
        with (it.path / "db.sqlite").open("w"):
            act(it)
    assert re.match(rf"{re.escape(call)} .*\bbusy\b.*\bdb\.sqlite\b", str(caught.value))
    assert ("timed(cold=False)" in str(caught.value)) == is_optional
