"""Build a stack, layer by layer, and take it down again."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_fsstack.machine import commands, processes, signals
from pytest_fsstack.machine.directories import HeldDirectory, safe_place, temporary
from pytest_fsstack.machine.mounts import DISCONNECTED
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.machine.signals import State
from pytest_fsstack.stack import kmsg
from pytest_fsstack.stack.layer import Checks, Forgets, Journals, Layer, OptionError, Rebuilds, Scrubs, Spread
from pytest_fsstack.stack.model import Device, Stack
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Directory, Place, Pool
from pytest_fsstack.stack.tuning import Tuning
from pytest_fsstack.units import reason_of

#: Free bytes below which a directory is full. Filesystems may keep a few blocks for themselves.
_FULL = 1 << 20
#: What a write to a stack reports if the file below cannot grow, as numbers and words of tools.
_NUMBERS = (errno.ENOSPC, errno.EIO)
_WORDS = tuple(map(os.strerror, _NUMBERS))
#: What the kernel reports then.
_FAILED_WRITE_OF_LOOP = re.compile(r"\berror\b.*\bloop\d|\bloop\d.*\berror\b")
#: Bytes at the beginning of a device that hold the superblock or label of each multi-device layer.
_LABEL_BYTES = 1 << 20


_Action = Literal["make", "open", "close", "check"]


class LayerAction(NamedTuple):
    """An action on a layer of a stack: ``make`` writes it, ``open`` mounts it, ``close`` undoes that."""

    action: _Action
    layer: str


class BuildError(Exception):
    """An error while a stack is built, remounted or taken down. The message has the layer and the reason.

    After a failed build or remount, it ends with messages of the kernel.
    """

    #: Set by `Built.fsck`: the results by layer, up to the layer that failed to open.
    checked: dict[str, CheckResult]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.checked = {}


@contextlib.contextmanager
def _fixed_umask() -> Iterator[None]:
    """Give all that layers create the same modes, whatever umask the user or a test has set."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


class Built:
    """A mounted stack, as the `fsstack` fixture yields it."""

    def __init__(self, stack: Stack, device: Device, bottom: Place, context: BuildContext) -> None:
        self.stack, self.on, self._context = stack, device, context
        self._places: list[Place] = [bottom]
        self._open: list[ExitStack] = []
        #: The number of mounts when the last layer was opened.
        self._mounted = 0
        #: The number of the missing device.
        self._lost_device: int | None = None
        #: The seconds of building the stack, of taking it down, and of its checks. Remounts do not count.
        self.seconds: dict[LayerAction, float] = {}
        #: What the kernel says while the stack stands.
        self._kernel = kmsg.SILENT

    @cached_property
    def tuning(self) -> Tuning:
        """Return the settings of the machine while the stack is up."""
        return Tuning(self.stack.settings, self._context.queue, self._context.journal)

    @property
    def machine(self) -> Machine:
        """Return the machine that holds the stack."""
        return self._context.machine

    def notify(self, line: str) -> None:
        """Print a line between the progress of tests."""
        self._context.notify(line)

    def scratch(self) -> AbstractContextManager[Path]:
        """Create a directory outside of the stack for a block. After a kill, ``--fsstack-cleanup`` removes it."""
        return temporary(safe_place(), self._context.journal)

    @property
    def spec(self) -> str:
        """Return the stack's text with its name."""
        return str(self.stack)

    @property
    def bottom(self) -> Place:
        """Return the lowest place of the stack."""
        return self._places[0]

    @property
    def disks(self) -> tuple[Block, ...]:
        """Return the session's block devices at the bottom of the stack; none in a directory."""
        return self.bottom.parts[: self.stack.members] if isinstance(self.bottom, Block) else ()

    @property
    def path(self) -> Path:
        """Return the mounted directory, or the block device if the stack ends in one.

        Raises `BuildError` if a layer is not open, as after a failed remount: the place below is not the stack.
        """
        return self._place(len(self.stack.layers)).path

    @property
    def sh(self) -> Any:
        """Return `sh`, whose commands run in the stack's directory: ``fsstack.sh.tar("-xf", corpus.tar)``.

        They have the session's time limit, and end with the session. Their errors show stderr. In a timed block,
        `timed.run` takes less time. If the stack ends in a block device, they run in the directory of pytest.
        """
        from pytest_fsstack.machine import shell

        return shell.baked(self.path if isinstance(self._place(len(self.stack.layers)), Directory) else None)

    @property
    def below(self) -> Path:
        """Return the place below the topmost layer. If that layer is a view of another directory, write data here."""
        return self._place(len(self.stack.layers) - 1).path

    @property
    def places(self) -> tuple[Path, ...]:
        """Return the paths of the device and of all open layers, bottom first."""
        return tuple(place.path for place in self._places)

    def _place(self, index: int) -> Place:
        if index >= len(self._places):
            name = self.stack.layers[len(self._open)].name
            raise BuildError(f"`{self.spec}` on {self.on.spec} is not complete: {name} could not be opened again")
        return self._places[index]

    @property
    def stored(self) -> Path:
        """Return the directory of the filesystem that stores the data of `path`.

        That is `path` itself, or the lowest directory of layers that store their data in the directory below. With
        stacked encryption, it has the ciphertext.
        """
        for layer, place in reversed(list(zip(self.stack.layers, self._places[1:]))):
            if layer.takes != (Directory,) or layer.gives is not Directory:
                return place.path
        return self.bottom.path

    @property
    def device(self) -> Path | None:
        """Return the topmost block device of the stack, which has its filesystem, or None on a directory."""
        return next((place.path for place in reversed(self._places) if isinstance(place, Block)), None)

    def check(self) -> None:
        """Raise an error if `path` is a block device that must not be overwritten. Call it before writing to `path`.

        The stack uses the devices below, and the check of a disk would refuse those.
        """
        if isinstance(top := self._place(len(self.stack.layers)), Block):
            top.check()

    def usage(self) -> int:
        """Return the bytes in use on the lowest filesystem of the stack, after a sync."""
        if isinstance(self.bottom, Directory):
            return _allocated(self.bottom.path)
        for place in self._places:
            if isinstance(place, Directory):
                status = os.statvfs(place.path)
                return (status.f_blocks - status.f_bfree) * status.f_frsize
        return 0

    def sync(self) -> None:
        """Write everything out, from the top down, because a layer may still cache data that the layer above has
        synced.
        """
        for index in reversed(range(len(self._open))):
            self.stack.layers[index].sync(self._places[index + 1], self._context_of(index))
        if isinstance(self.bottom, Directory):
            self.machine.sync(self.bottom.path)
        if isinstance(top := self._places[-1], Block):
            self.machine.flush(top.path)

    def sync_directory(self) -> None:
        """Write out the filesystem with the session's files, such as that of a loop device and logs."""
        self.machine.sync(self._context.directory)

    def trim(self) -> int:
        """Discard the unused blocks of the stack's filesystems from the top down, like fstrim. Return the number of
        bytes.

        Do not use it in timed sections. Filesystems without discard are skipped. Raises `BuildError` if none has it.
        """
        self.sync()
        sizes: list[int] = []
        problems: list[str] = []
        for layer, place in reversed(list(zip(self.stack.layers, self._places[1:]))):
            if Block in layer.takes and layer.gives is Directory:
                try:
                    output = self.machine.run("fstrim", "--verbose", place.path)
                except commands.CommandError as error:
                    problems.append(f"layer {layer.name}: {error}")
                    continue
                sizes += [int(number) for number in re.findall(r"\((\d+) bytes\)", output)]
        if not sizes:
            why = "; ".join(problems) or "it has no filesystem of its own"
            holding_back = [layer.name for layer in self.stack.layers if self._holds_discards_back(layer)]
            hint = f". {', '.join(holding_back)}: open='--allow-discards' passes discards on" if holding_back else ""
            raise BuildError(f"could not trim `{self.spec}` on {self.on.spec}: {why}{hint}")
        return sum(sizes)

    @staticmethod
    def _holds_discards_back(layer: Layer) -> bool:
        """Whether a layer blocks discards, as cryptsetup's encryption and integrity do by default."""
        return layer.gives is Block and "--allow-discards" not in getattr(layer, "open", "--allow-discards")

    def remount(self) -> None:
        """Unmount and mount everything again, so that the next reads come from the device."""
        self._reopen(lambda layer: layer.gives is Directory, "fsstack.remount()")

    def release_caches(self) -> None:
        """Write everything out, and let go of what dropping the kernel's caches would leave in memory.

        Daemons with caches of their own are restarted, or given the time to drop them. Journals are written back.
        """
        # Daemons that end write to the layers below.
        self._reopen(lambda layer: layer.caches, "timed()", ", or use timed(cold=False)")
        self.sync()
        # A sleep of no seconds waits for the other programs of a busy machine.
        if waits := [layer.forgets_after for layer in self.stack.layers if isinstance(layer, Forgets)]:
            time.sleep(max(waits))
            self.sync()
        for index, layer in enumerate(self.stack.layers):
            if isinstance(layer, Journals):
                layer.checkpoint(self._places[index + 1], self._context_of(index))

    @contextlib.contextmanager
    def taken_down(self, layer: str | None = None) -> Iterator[Place]:
        """Take down a layer and all above it (by default the whole stack), yield the place below, then open them again.

        The block may change the place, by `Block.write` or in the directory. If a layer then fails to open,
        `BuildError` is raised, and the stack ends below that layer until another `taken_down` opens it. Unknown layers
        and volatile ones, such as tmpfs, raise it before anything is taken down.
        """
        names = [layer.name for layer in self.stack.layers]
        if layer is not None and layer not in names:
            raise BuildError(f"`{self.spec}` has no layer {layer!r}; it has: {', '.join(names)}")
        first = 0 if layer is None else names.index(layer)
        if len(self._open) < first:
            raise BuildError(f"a layer of `{self.spec}` below {layer} is not open, so there is nothing to give")
        self._refuse_to_lose(first)
        with signals.during(State.BUILDING):
            self._close(first)
        yield self._places[-1]
        with signals.during(State.BUILDING):
            self._open_all()

    def fsck(self) -> dict[str, CheckResult]:
        """Take the stack down, and run each layer's checker before the layer is opened again.

        Return the results by layer. If a lower layer has the same name, the key has the number of the layer too, as in
        ``3-ext4``. Raises `BuildError` if a checker fails to run, or a layer fails to open.
        """
        self._refuse_to_lose(0)
        checks: dict[str, CheckResult] = {}
        with signals.during(State.BUILDING):
            self._close()
            try:
                self._open_all(checks)
            except BuildError as error:
                error.checked = checks
                raise
        return checks

    @property
    def is_open(self) -> bool:
        """Whether all layers are open. False after a layer failed to open."""
        return len(self._open) == len(self.stack.layers)

    def complete(self) -> bool:
        """Remount a stack that an earlier step has damaged: a server has ended, or a layer failed to open.

        Return whether there was such damage. Raises `BuildError` if it cannot be remounted.
        """
        if self.is_open and len(self.mounts()) == self._mounted and self._is_served():
            return False
        try:
            self.remount()
        except BuildError:
            # Closing reports the damage, once.
            if self.is_open:
                raise
            self.remount()
        return True

    def _is_served(self) -> bool:
        try:
            os.statvfs(self.path)
        except OSError as error:
            # Other errors are answers.
            return error.errno not in DISCONNECTED
        return True

    def scrub(self) -> dict[str, CheckResult]:
        """Scrub each layer that supports it, from the bottom up: read all of its data and correct errors.

        Return the results by layer, with the keys of `fsck`. Raises `BuildError` if a scrub fails to run, or a layer is
        not open.
        """
        self._place(len(self.stack.layers))
        checks: dict[str, CheckResult] = {}
        for index, layer in enumerate(self.stack.layers):
            if isinstance(layer, Scrubs):
                below, place = self._places[index : index + 2]
                with self._reported("scrub", layer), self.machine.limited(layer.name, "scrubbing"):
                    checked = layer.scrub(place, below, self._context_of(index))
                if checked:
                    checks[self.stack.layer_names[index]] = checked
        return checks

    def take_away(self, number: int = 1) -> None:
        """Take the stack down, erase one of its devices, and open it without that device.

        Devices count from 0. Raises `BuildError` before anything is taken down if the stack needs all devices.
        """
        self._refuse_to_lose(0)
        layer = self.stack.layers[self._spanning]
        try:
            if not isinstance(layer, Rebuilds):
                raise OptionError("", "it keeps no second copy, or cannot restore it")
            layer.check_loss()
        except OptionError as error:
            raise BuildError(f"`{self.spec}` cannot lose a device: {layer.name}: {error}") from None
        if self._lost_device is not None or number not in range(len(self.disks)) or not self.disks[1:]:
            what = "has lost one already" if self._lost_device is not None else f"has {len(self.disks)}, from 0 on"
            raise BuildError(f"`{self.spec}` cannot lose device {number}: it {what}")
        with signals.during(State.BUILDING):
            self._close()
            self.disks[number].write([(0, bytes(_LABEL_BYTES))])
            self._lost_device = number
            self._open_all()

    def give_back(self) -> None:
        """Add the erased device again. The stack begins to rebuild its contents. Raises `BuildError`."""
        if (number := self._lost_device) is None:
            raise BuildError(f"`{self.spec}` has all of its devices")
        self._rebuild(lambda layer, *places: layer.regain(*places, number))
        self._lost_device = None

    def wait_until_rebuilt(self) -> None:
        """Wait until the rebuild is complete. Raises `BuildError`."""
        self._rebuild(lambda layer, *places: layer.regained(*places))

    @property
    def _spanning(self) -> int:
        """Return the index of the layer that uses several devices. A pool of its own uses them for nothing."""
        return next((index for index, layer in enumerate(self.stack.layers) if layer.gives is not Pool), 0)

    def _rebuild(self, act: Callable[..., None]) -> None:
        index = self._spanning
        layer, below, place = self.stack.layers[index], self._place(index), self._place(index + 1)
        if not isinstance(layer, Rebuilds):
            raise BuildError(f"`{self.spec}` has nothing to rebuild: {layer.name} keeps no second copy")
        with self._reported("rebuild", layer), self.machine.limited(layer.name, "rebuilding"):
            act(layer, place, below, self._context_of(index))

    def _refuse_to_lose(self, first: int) -> None:
        if lost := next((layer.name for layer in self.stack.layers[first:] if layer.volatile), ""):
            raise BuildError(f"`{self.spec}` cannot be taken down and opened again: {lost} keeps nothing")

    def _open_all(self, checked: dict[str, CheckResult] | None = None) -> None:
        for layer in self.stack.layers[len(self._open) :]:
            if checked is not None and (check := self._fsck(layer)):
                checked[self.stack.layer_names[len(self._open)]] = check
            self._add(layer, fresh=False)
        # A test that calls this in a loop is hardly ever in a state in which signals are raised.
        signals.safe_point()

    def _context_of(self, index: int) -> BuildContext:
        """Return the build context of the layer at an index."""
        return dataclasses.replace(
            self._context,
            depth=index + 1,
            required_features=self.stack.required_features(index),
            # The layers above stand on what that one has made of the others.
            lost_device=self._lost_device if index == self._spanning else None,
        )

    def _fsck(self, layer: Layer) -> CheckResult | None:
        below = self._places[-1]
        with self._reported("check", layer):
            if isinstance(below, Block):
                below.verify()
            if not isinstance(layer, Checks):
                return None
            with self._clocked("check", len(self._open)):
                return layer.fsck(below, self._context_of(len(self._open)))

    def mounts(self) -> list[str]:
        """Return ``type source options`` of each mount of the stack as the kernel reports it, bottom first."""
        mounts = (self.machine.mount_at(place.path) for place in self._places if isinstance(place, Directory))
        return [str(mount) for mount in mounts if mount]

    def _reopen(self, chosen: Callable[[Layer], bool], what: str, otherwise: str = "") -> None:
        """Close the lowest chosen layer and all above it, and open them again."""
        layers = self.stack.layers
        keep = max((index + 1 for index, layer in enumerate(layers) if layer.volatile), default=0)
        first = next((index for index, layer in enumerate(layers) if index >= keep and chosen(layer)), len(layers))
        places = [place.path for place in self._places[first + 1 :] if isinstance(place, Directory)]
        files = [file for path in places for file in processes.own_files(path, HeldDirectory.descriptors)]
        # This runs in a test, but an interrupted operation would leave the stack half open.
        with signals.during(State.BUILDING):
            try:
                self._close(first)
            except BuildError:
                if files:
                    raise BuildError(
                        f"{what} remounts {layers[first].name}: close or leave {', '.join(files)} before it{otherwise}"
                    ) from None
                raise
            self._open_all()

    @contextlib.contextmanager
    def _reported(self, what: str, layer: Layer, kernel: kmsg.Listener = kmsg.SILENT) -> Iterator[None]:
        """Convert errors of a layer to `BuildError`."""
        try:
            yield
        except (commands.CommandError, OSError, OptionError) as error:
            reason = f"layer {layer.name}: {reason_of(error)}"
            reason = _explained(reason, self._full(), error, kernel.heard())
            raise BuildError(f"could not {what} `{self.spec}` on {self.on.spec}: {reason}") from error

    def why_full(self, error: BaseException) -> tuple[str, bool]:
        """Return why writing to the stack fails although it has space: the file of a loop device cannot grow.

        Tools and the kernel then report I/O errors. The text is empty if the file has room. The second value is whether
        `error` or the kernel shows that writing failed.
        """
        full = self._full()
        return full, bool(full) and _shows_failed_write(error, self._kernel.heard())

    def _full(self) -> str:
        if full := _why_full(self.on, self._context):
            return full
        for layer, place in zip(self.stack.layers, self._places):
            if layer.name == "loop" and _is_full(self.machine, place.path):
                return f"no space is left below the file of the layer loop, in {place.path}: give the stack more"
        return ""

    @_fixed_umask()
    def _add(self, layer: Layer, fresh: bool) -> None:
        below, context = self._places[-1], self._context_of(len(self._open))
        with kmsg.listening() as kernel, self._reported("build", layer, kernel):
            above = [place for place in self._places[1:] if isinstance(place, Block)]
            layer.check_words({block.number for block in [*self.disks, *above]})
            if fresh:
                with self.machine.limited(layer.name, "making"), self._clocked("make", len(self._open)):
                    layer.create(below, context)
            if isinstance(below, Block):
                below.verify()
            with ExitStack() as undo:
                with self.machine.limited(layer.name, "opening"), self._clocked("open", len(self._open), counts=fresh):
                    place = undo.enter_context(layer.opened(below, context))
                if isinstance(place, Block) and layer.gives is Block:
                    topmost = not any(other.gives is Block for other in self.stack.layers[context.depth :])
                    undo.enter_context(self.tuning.above(place.path, topmost=topmost))
                self._open.append(undo.pop_all())
                self._places.append(place)
                self._mounted = len(self.mounts())
            if isinstance(self._places[0], Block):
                self._places[0].opened()

    @contextlib.contextmanager
    def _clocked(self, action: _Action, index: int, *, counts: bool = True) -> Iterator[None]:
        """Add the duration of an action that succeeds to those of the layer at an index, if it counts."""
        start = time.perf_counter()
        yield
        if counts:
            key = LayerAction(action, self.stack.layer_names[index])
            self.seconds[key] = self.seconds.get(key, 0.0) + time.perf_counter() - start

    def _close(self, down_to: int = 0, *, for_good: bool = False) -> None:
        """Close layers from the top down to an index. An error of one layer does not stop the others."""
        problems: list[tuple[Layer, BaseException]] = []
        while len(self._open) > down_to:
            self._places.pop()
            layer = self.stack.layers[len(self._open) - 1]
            try:
                opened = self._open.pop()
                with (
                    self.machine.limited(layer.name, "closing"),
                    self._clocked("close", len(self._open), counts=for_good),
                ):
                    opened.close()
            except BaseException as error:
                problems.append((layer, error))
        if problems:
            # A user of a layer also blocks the layers below, so the first error is the most useful one.
            layer, first = problems[0]
            stop = next((error for _, error in problems if not isinstance(error, Exception)), None)
            if stop is not None:
                raise stop
            text = reason_of(first) if isinstance(first, commands.CommandError | OSError) else repr(first)
            reason = _explained(f"layer {layer.name}: {text}", self._full(), first, self._kernel.heard())
            raise BuildError(f"could not take down `{self.spec}` on {self.on.spec}: {reason}") from first


def _shows_failed_write(error: BaseException | None, heard: str = "") -> bool:
    """Whether an error, one that led to it, or the kernel's messages show that writing failed."""
    if _FAILED_WRITE_OF_LOOP.search(heard):
        return True
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        texts = [str(error), *(text for text in (getattr(error, "stderr", ""),) if isinstance(text, str))]
        if getattr(error, "errno", None) in _NUMBERS or any(word in text for word in _WORDS for text in texts):
            return True
        error = error.__cause__ or error.__context__
    return False


def unproven(full: str) -> str:
    """Return the hint for a failure that shows no failed write although `full` says that writes fail."""
    return f"perhaps because {full}"


def _explained(reason: str, full: str, error: BaseException, heard: str) -> str:
    """Return the reason of a failure. `full` is before it if writing failed, and otherwise a hint after it."""
    if full and _shows_failed_write(error, heard):
        return f"{full}; {reason}"
    return f"{reason}; {unproven(full)}{heard}" if full else f"{reason}{heard}"


def _is_full(machine: Machine, directory: Path) -> bool:
    # Without the directory, the error says enough.
    with contextlib.suppress(OSError):
        return machine.free(directory) < _FULL
    return False


def _why_full(device: Device, context: BuildContext) -> str:
    """Return why writing to a session's device fails, if it is a file without room to grow. Empty otherwise."""
    directory = context.directory
    if device.spec != "loop" or not _is_full(context.machine, directory):
        return ""
    return f"no space is left below the loop file, in {directory.parent}: name another directory with --fsstack-dir"


@contextlib.contextmanager
def build(stack: Stack, device: Device, context: BuildContext) -> Iterator[Built]:
    """Build a stack on the device, and take it down afterwards.

    A signal can interrupt it between two layers (`signals.safe_point`). Raises `BuildError`, and `guard.Refused` if the
    device may not be overwritten.
    """
    undo, closing = ExitStack(), ExitStack()
    errors: list[BaseException] = []
    try:
        with signals.during(State.BUILDING):
            with kmsg.listening() as kernel:
                try:
                    bottom = undo.enter_context(device.opened(context, stack.members))
                    if stack.layers and isinstance(layer := stack.layers[0], Spread):
                        bottom = undo.enter_context(layer.bottom(bottom, dataclasses.replace(context, depth=1)))
                    built = Built(stack, device, bottom, context)
                    disks = (disk.path for disk in built.disks)
                    undo.enter_context(built.tuning.bottom(*disks, topmost=not stack.has_block_layer))
                except (commands.CommandError, OSError) as error:
                    reason = _explained(reason_of(error), _why_full(device, context), error, kernel.heard())
                    raise BuildError(f"could not set up the device {device.spec} for `{stack}`: {reason}") from error
            closing.callback(built._close, for_good=True)
            for layer in stack.layers:
                signals.safe_point()
                built._add(layer, fresh=True)
            signals.safe_point()
        built._kernel = undo.enter_context(kmsg.listening())
        yield built
    except BaseException as error:
        errors.append(error)
    with signals.during(State.UNDOING):
        for opened in closing, undo:
            try:
                opened.close()
            except BaseException as error:
                errors.append(error)
    # A user of a layer also blocks the device, so the first error is the cause.
    if len(errors) > 1:
        raise BuildError("; and then: ".join(map(str, errors))) from errors[0]
    if errors:
        raise errors[0]


def _allocated(directory: Path) -> int:
    """Return the bytes allocated below a directory. Hard links count once."""
    blocks: dict[tuple[int, int], int] = {}
    for parent, _, files in os.walk(directory):
        for name in [parent, *(os.path.join(parent, file) for file in files)]:
            with contextlib.suppress(FileNotFoundError):  # a daemon of the stack has just removed it
                status = os.lstat(name)
                blocks[status.st_dev, status.st_ino] = status.st_blocks
    return sum(blocks.values()) * 512
