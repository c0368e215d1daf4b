"""A stack that is taken down: in the middle of a test, to be altered, checked and opened again, and at its end."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.machine import signals
from pytest_fsstack.machine.commands import CommandError
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import BuildError, Built, build
from pytest_fsstack.stack.layer import Layer
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Directory, Place

SAID: list[str] = []


@dataclass(frozen=True)
class Lower(Layer):
    """Keeps one file, without which it does not open."""

    name: ClassVar = "lower"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    def create(self, below: Place, context: BuildContext) -> None:
        (below.path / "kept").write_text("as made")

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        (below.path / "kept").read_text()
        SAID.append(f"open {self.name}")
        yield Directory(below.path)
        SAID.append(f"close {self.name}")

    def fsck(self, below: Place, context: BuildContext) -> CheckResult | None:
        SAID.append(f"check {self.name}")
        text = (below.path / "kept").read_text()
        if text == "no checker":
            raise CommandError(["checker"], None, "", "not installed")
        return CheckResult(text == "as made", text)


@dataclass(frozen=True)
class Upper(Lower):
    name: ClassVar = "upper"

    def create(self, below: Place, context: BuildContext) -> None:
        pass

    def fsck(self, below: Place, context: BuildContext) -> CheckResult | None:
        return None

    def scrub(self, place: Place, below: Place, context: BuildContext) -> CheckResult | None:
        return CheckResult(True, (place.path / "kept").read_text())


@dataclass(frozen=True)
class Refusing(Upper):
    """Does not open beside a file."""

    name: ClassVar = "refusing"

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        if (below.path / "refused").exists():
            raise OSError("refused")
        with super().opened(below, context) as place:
            yield place


@dataclass(frozen=True)
class Forgetful(Upper):
    name: ClassVar = "forgetful"
    volatile: ClassVar = True


@dataclass(frozen=True)
class Daemon(Upper):
    """Is restarted before a cold block, and notes when it is written out."""

    name: ClassVar = "daemon"
    caches: ClassVar = True

    def sync(self, place: Place, context: BuildContext) -> None:
        SAID.append(f"sync {self.name}")


@dataclass(frozen=True)
class Lazy(Daemon):
    """Lets go of its caches a while after it is written out."""

    name: ClassVar = "lazy"
    caches: ClassVar = False
    forgets_after: ClassVar = 0.001


def a_context(directory: Path) -> BuildContext:
    SAID.clear()
    (directory / "device").mkdir()
    return BuildContext(directory, Journal(directory / "journal", RealMachine()))


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return a_context(tmp_path)


@contextlib.contextmanager
def standing(context: BuildContext, spec: str) -> Iterator[Built]:
    known = {layer.name: layer for layer in (Lower, Upper, Refusing, Forgetful, Daemon, Lazy)}
    with build(Stack.parse(spec, known), DirectoryDevice(context.directory / "device"), context) as built:
        SAID.clear()
        yield built


class TakenDown(RuleBasedStateMachine):
    """A stack that is taken down and opened again, while its files decide which layers open.

    No layer opens without the file `kept`, and `refusing` not beside the file `refused`.
    """

    NAMES = ("lower", "refusing", "upper")

    def __init__(self) -> None:
        super().__init__()
        self.temporary, self.undo = tempfile.TemporaryDirectory(), ExitStack()
        context = a_context(Path(self.temporary.name))
        self.device = context.directory / "device"
        self.built = self.undo.enter_context(standing(context, " | ".join(self.NAMES)))
        self.files = self.built.bottom.path
        #: The number of open layers.
        self.depth = 3

    def openable(self, first: int) -> int:
        """Return how many layers are open if those from this index on are opened."""
        if not (self.files / "kept").exists():
            return first
        return 1 if first < 2 and (self.files / "refused").exists() else 3

    def reopen(self, act: Callable[[], object], first: int = 0, *checks: str) -> None:
        """Check that an action closes the layers from an index on, and then opens those that can be opened."""
        SAID.clear()
        depth = self.openable(first)
        closed, opened = reversed(self.NAMES[first : self.depth]), self.NAMES[first:depth]
        with nullcontext() if depth == 3 else pytest.raises(BuildError, match=rf"\b{self.NAMES[depth]}: "):
            act()
        assert [*(f"close {name}" for name in closed), *checks, *(f"open {name}" for name in opened)] == SAID
        self.depth = depth

    @rule(text=st.sampled_from(["as made", "altered", ""]), refused=st.booleans())
    def change(self, text: str, refused: bool) -> None:
        for name, content in (("kept", text), ("refused", "refused" * refused)):
            (self.files / name).unlink(missing_ok=True)
            if content:
                (self.files / name).write_text(content)

    @rule(layer=st.sampled_from([None, *NAMES]))
    def take_down(self, layer: str | None) -> None:
        first = self.NAMES.index(layer) if layer else 0

        def act() -> None:
            with self.built.taken_down(layer) as place:
                assert [f"close {name}" for name in reversed(self.NAMES[first : self.depth])] == SAID
                assert place is self.built._places[-1]
                assert len(self.built.places) == first + 1

        if first > self.depth:
            with pytest.raises(BuildError, match=rf"`lower \| refusing \| upper` .*\b{layer}\b"):
                act()
        else:
            self.reopen(act, first)

    @rule()
    def remount(self) -> None:
        self.reopen(self.built.remount)

    @rule()
    def check_files(self) -> None:
        file = self.files / "kept"
        checks = {"lower": CheckResult(file.read_text() == "as made", file.read_text())} if file.exists() else {}

        def act() -> None:
            try:
                assert self.built.fsck() == checks
            except BuildError as error:
                assert error.checked == checks
                raise

        self.reopen(act, 0, "check lower")

    @rule()
    def scrub(self) -> None:
        if self.depth == 3 and (self.files / "kept").exists():
            assert list(self.built.scrub()) == ["refusing", "upper"]
        else:
            with pytest.raises(BuildError, match="is not complete" if self.depth < 3 else "No such file"):
                self.built.scrub()

    @rule()
    def complete(self) -> None:
        if self.depth == 3:
            assert not self.built.complete()
        elif self.openable(0) == 3:
            self.reopen(self.built.complete)
        else:
            with pytest.raises(BuildError):
                self.built.complete()
            self.depth = self.openable(0)

    @invariant()
    def only_a_whole_stack_is_used(self) -> None:
        assert self.built.is_open == (self.depth == 3)
        assert len(self.built.places) == self.depth + 1
        for use in lambda: self.built.path, self.built.check:
            with (
                nullcontext() if self.depth == 3 else pytest.raises(BuildError, match=f"{self.NAMES[self.depth]} could")
            ):
                use()

    def teardown(self) -> None:
        SAID.clear()
        self.undo.close()
        assert [f"close {name}" for name in reversed(self.NAMES[: self.depth])] == SAID
        assert list(self.device.iterdir()) == []
        self.temporary.cleanup()


TestTakenDown = TakenDown.TestCase
TestTakenDown.settings = settings(max_examples=100, stateful_step_count=15, deadline=None)


def test_an_unknown_layer_is_named_before_anything_is_taken_down(context: BuildContext) -> None:
    with standing(context, "lower | upper") as built:
        with pytest.raises(BuildError, match=r"`lower \| upper` .*'uper'.*\blower, upper$"):
            built.taken_down("uper").__enter__()
        assert not SAID


def test_what_keeps_nothing_is_not_taken_down(context: BuildContext) -> None:
    with standing(context, "lower | forgetful") as built:
        for taken in built.taken_down().__enter__, built.fsck:
            with pytest.raises(BuildError, match=r"`lower \| forgetful` .*\bforgetful\b"):
                taken()
        assert not SAID


def test_only_the_first_build_the_last_end_and_checks_are_clocked(context: BuildContext) -> None:
    with standing(context, "lower | upper | lower") as built:
        names = built.stack.layer_names
        built_in = dict(built.seconds)
        assert list(built_in) == [(action, name) for name in names for action in ("make", "open")]
        built.remount()
        with built.taken_down("upper"):
            pass
        assert built.seconds == built_in
        built.fsck()
        checked = [("check", "lower"), ("check", "upper"), ("check", "3-lower")]
        assert [key for key in built.seconds if key not in built_in] == checked
    assert [layer for action, layer in built.seconds if action == "close"] == names[::-1]


def test_of_two_layers_with_one_name_neither_result_is_lost(context: BuildContext) -> None:
    with standing(context, "lower | upper | lower | upper") as built:
        assert list(built.fsck()) == ["lower", "3-lower"]
        assert list(built.scrub()) == ["upper", "4-upper"]


def test_a_checker_that_cannot_check_is_an_error(context: BuildContext) -> None:
    with standing(context, "lower") as built:
        (built.bottom.path / "kept").write_text("no checker")
        with pytest.raises(BuildError, match=r"`lower` .*lower: `checker` "):
            built.fsck()


def test_a_signal_that_came_meanwhile_ends_the_test_once_all_stands_again(context: BuildContext) -> None:
    with standing(context, "lower | upper") as built, signals.caught(lambda number: KeyboardInterrupt(number.name)):
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"), built.taken_down():
            signal.raise_signal(signal.SIGTERM)
        assert built.is_open
        for act in built.fsck, built.remount:
            with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
                act()
            assert built.is_open


@pytest.mark.parametrize(
    ("number", "damaged"), [(errno.ENOTCONN, True), (errno.ECONNABORTED, True), (errno.ENOSYS, False)]
)
def test_a_stack_without_its_server_is_remounted(
    number: int, damaged: bool, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statvfs(path: Path) -> None:
        raise OSError(number, "")

    with standing(context, "lower | upper") as built:
        assert not built.complete()
        monkeypatch.setattr(os, "statvfs", statvfs)
        assert built.complete() == damaged
        assert ("open upper" in SAID) == damaged


def test_a_stack_that_somebody_has_unmounted_is_remounted(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standing(context, "lower | upper") as built:
        monkeypatch.setattr(built, "mounts", lambda: ["ext4"])
        assert built.complete()
        assert not built.complete()
        monkeypatch.setattr(built, "mounts", list)
        close = built._close

        def complain(down_to: int = 0) -> None:
            close(down_to)
            monkeypatch.setattr(built, "_close", close)
            raise BuildError("it is not mounted any more")

        monkeypatch.setattr(built, "_close", complain)
        assert built.complete()
        assert built.is_open


def test_a_stack_without_a_second_copy_has_nothing_to_rebuild(context: BuildContext) -> None:
    with standing(context, "lower") as built, pytest.raises(BuildError, match=r"`lower` .*\blower\b"):
        built.wait_until_rebuilt()


def test_each_layer_with_a_scrub_is_scrubbed_while_it_stands(context: BuildContext) -> None:
    with standing(context, "lower | upper") as built:
        assert built.scrub() == {"upper": CheckResult(True, "as made")}
        assert SAID == []


def test_a_scrub_that_cannot_be_made_is_an_error(context: BuildContext) -> None:
    with standing(context, "lower | upper") as built:
        (built.path / "kept").unlink()
        with pytest.raises(BuildError, match=r"`lower \| upper` .*upper: No such file"):
            built.scrub()


def test_the_space_in_a_directory_can_be_counted_while_a_daemon_removes_files(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = os.walk
    with standing(context, "lower") as built:
        before = built.usage()
        (built.path / "file").write_bytes(os.urandom(1 << 16))
        (built.path / "link").hardlink_to(built.path / "file")
        (built.path / "gone").touch()

        def walked(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
            for listing in walk(top):
                (built.path / "gone").unlink(missing_ok=True)
                yield listing

        monkeypatch.setattr(os, "walk", walked)
        assert 1 << 16 <= built.usage() - before < 1 << 17


def test_extents_are_written_at_their_offsets_between_the_checks(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(bytes(16))
    calls = []
    block = Block(
        tmp_path / "disk",
        lambda: calls.append("check"),
        RealMachine(),
        written=lambda: calls.append("written"),
        verify=lambda: calls.append("verify"),
    )
    block.write([(2, b"ab"), (9, b"c"), (3, b"d")])
    assert (tmp_path / "disk").read_bytes() == b"\0\0ad\0\0\0\0\0c" + bytes(6)
    assert calls == ["check", "verify", "written"]


def test_a_device_that_may_not_be_written_to_is_not(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(bytes(16))

    def refuse() -> None:
        raise OSError(16, os.strerror(16))

    with pytest.raises(OSError, match="busy"):
        Block(tmp_path / "disk", refuse, RealMachine()).write([(0, b"x")])
    assert (tmp_path / "disk").read_bytes() == bytes(16)


# -- at its end --------------------------------------------------------------------------------------------------------


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


def of_layers(context: BuildContext, *layers: Noted) -> contextlib.AbstractContextManager[object]:
    return build(Stack(layers), DirectoryDevice(context.directory / "device"), context)


@pytest.mark.parametrize("closing", ["value", "system", "exit"])
def test_the_layers_below_are_closed_whatever_one_raises(context: BuildContext, closing: str) -> None:
    with (
        pytest.raises(KeyboardInterrupt if closing == "exit" else BuildError, match=f"{closing} error"),
        of_layers(context, Noted("low"), Noted("high", closing=closing)),
    ):
        pass
    assert SAID == ["opened low", "opened high", "closed high", "closed low"]
    assert list((context.directory / "device").iterdir()) == []


def test_of_two_layers_that_fail_the_upper_one_is_the_cause(context: BuildContext) -> None:
    with (
        pytest.raises(BuildError, match=r"noted: ValueError\('value error'\)$"),
        of_layers(context, Noted("low", closing="system"), Noted("high", closing="value")),
    ):
        pass


def test_an_error_of_building_comes_before_what_follows_from_it(context: BuildContext) -> None:
    layers = Noted("low", closing="value"), Noted("high", opening="system")
    with pytest.raises(BuildError, match=r"(?s)system error.*value error"), of_layers(context, *layers):
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
        of_layers(context, Noted("low"), hangs),
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

    with (
        signals.caught(lambda number: Ended()),
        pytest.raises(Ended),
        of_layers(context, Signalled("low"), Noted("high")),
    ):
        pytest.fail("it stands")
    assert SAID == ["opened low", "closed low"]


@pytest.mark.parametrize(
    ("act", "call", "is_optional"),
    [(Built.release_caches, "timed()", True), (Built.remount, "fsstack.remount()", False)],
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
        build(Stack((Busy(),)), DirectoryDevice(context.directory / "device"), context) as built,
    ):
        with (built.path / "db.sqlite").open("w"):
            act(built)
    assert re.match(rf"{re.escape(call)} .*\bbusy\b.*\bdb\.sqlite\b", str(caught.value))
    assert ("timed(cold=False)" in str(caught.value)) == is_optional


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("daemon", ["close daemon", "open daemon", "sync daemon"]),
        # What it has written by then to the layers below is written out, too.
        ("lazy", ["sync lazy", "sync lazy"]),
    ],
)
def test_a_stack_is_written_out_no_more_often_than_needed(name: str, steps: list[str], context: BuildContext) -> None:
    with standing(context, f"lower | {name}") as built:
        built.release_caches()
        assert steps == SAID
