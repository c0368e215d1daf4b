"""Places, layers and stacks, and how one is built. Pure but for `Built`."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
import time
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from pytest_fsstack import host, kmsg, spec
from pytest_fsstack.needs import Need
from pytest_fsstack.settings import Queue
from pytest_fsstack.spec import SpecError

if typing.TYPE_CHECKING:
    from pytest_fsstack.journal import Journal


# -- places ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A block device.

    `check` raises where it may not be written to any more; it is called before each mkfs, and `written` after it.
    """

    path: Path
    check: Callable[[], None]
    written: Callable[[], object] = lambda: None
    #: Whether nothing was written to it before it was opened, so that there is nothing to wipe.
    blank: bool = False
    kind: ClassVar[str] = "block device"

    @property
    def number(self) -> str:
        """``major:minor``, as /sys/dev/block names it."""
        status = os.stat(self.path)
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"

    def wipe(self) -> None:
        """Remove the signatures of whatever was here before. Raises what `check` raises, `host.CommandError`."""
        self.check()
        if not self.blank:
            host.run("wipefs", "-aq", self.path)

    def overwrite(
        self, *argv: str | os.PathLike[str], fds: tuple[int, ...] = (), env: Mapping[str, str] | None = None
    ) -> None:
        """Run a tool that formats this device, which is added as its last word: the one way to write to a device.

        It is wiped first, so that the tool does not ask, and checked again at the last moment. Raises what `check`
        raises, `host.CommandError`.
        """
        self.wipe()
        self.check()
        host.run(*argv, self.path, fds=fds, env=env)
        self.written()


@dataclass(frozen=True)
class Directory:
    """A directory, usually where something is mounted."""

    path: Path
    kind: ClassVar[str] = "directory"


Place = Block | Directory
PlaceType = type[Block] | type[Directory]


# -- layers ------------------------------------------------------------------------------------------------------------


class Secret:
    """The random passphrase of one built stack. It reaches tools through descriptors only."""

    def __init__(self) -> None:
        self._bytes = os.urandom(32)

    def __repr__(self) -> str:
        return "Secret(...)"

    def passphrase(self) -> AbstractContextManager[int]:
        """A descriptor with 64 hexadecimal digits and no newline."""
        return host.secret_fd(self._bytes.hex().encode())

    def key(self, size: int) -> AbstractContextManager[int]:
        """A descriptor with a raw key of `size` bytes, always the same for this stack."""
        import hashlib

        return host.secret_fd(hashlib.shake_256(self._bytes).digest(size))


@dataclass
class Site:
    """What layers may use while a stack is built: an empty directory, a secret, the journal, names of their own."""

    directory: Path
    journal: Journal
    secret: Secret = dataclasses.field(default_factory=Secret)
    queue: Queue = dataclasses.field(default_factory=Queue)
    #: How many places there are below the layer that is being made: what `Layer.opened` gets as `depth`.
    depth: int = 0

    def mountpoint(self, layer: str, depth: int) -> Path:
        """An empty directory to mount on."""
        path = self.directory / f"{depth}-{layer}"
        path.mkdir(exist_ok=True)
        return path

    def name(self, layer: str) -> str:
        """A device-mapper name that nobody else has while this stack stands."""
        return f"fsstack-{os.getpid()}-{layer}"


def option(default: object, doc: str, *, choices: tuple[str, ...] = ()) -> typing.Any:
    """A layer's option: its default, what it does, the values it may have (any, where none are given)."""
    return dataclasses.field(default=default, metadata={"doc": doc, "choices": choices})


@dataclass(frozen=True)
class Layer:
    """One step up: takes the place below, gives the place above. Its fields are its options.

    `create` writes the layer onto a fresh place, once a round. `opened` makes it usable and undoes that afterwards;
    it runs again for every remount, so it must find everything it needs in what `create` wrote, and in `site`.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[PlaceType, ...]]
    gives: ClassVar[PlaceType]
    #: Whether a daemon of this layer caches data, which dropping the kernel's caches does not reach.
    caches: ClassVar[bool] = False
    #: Seconds after which a daemon of this layer has by itself written and dropped what it caches: a restart would take
    #: longer than waiting.
    forgets_after: ClassVar[float] = 0.0
    #: Whether unmounting it loses what is in it, so that it stays mounted as long as the stack stands.
    volatile: ClassVar[bool] = False
    #: A stack that shows what the layer is for; where it is empty, the shortest one that can be mounted.
    example: ClassVar[str] = ""

    def needs(self) -> list[Need]:
        """What the machine must have."""
        return []

    def create(self, below: Place, site: Site) -> None:
        """Format."""

    def opened(self, below: Place, site: Site, depth: int) -> AbstractContextManager[Place]:
        """Open or mount; close or unmount."""
        raise NotImplementedError

    def sync(self, place: Place) -> None:
        """Write out what was written to the place that this layer gives."""
        if isinstance(place, Directory):
            host.syncfs(place.path)

    def check_options(self) -> None:
        """Raise `OptionError` for a value, or a combination, that makes no sense."""

    @classmethod
    def shown(cls) -> str:
        """The layer's example, or one that is made from what it takes and gives."""
        below = () if Block in cls.takes else ("ext4",)
        above = () if cls.gives is Directory else ("ext4",)
        # Of this very class: a subclass is a layer of another name.
        return vars(cls).get("example") or " | ".join([*below, cls.name, *above])

    @classmethod
    def options(cls) -> dict[str, dataclasses.Field[typing.Any]]:
        return {field.name: field for field in dataclasses.fields(cls)}

    @property
    def given(self) -> dict[str, object]:
        """The options that differ from their defaults, in order."""
        values = {name: getattr(self, name) for name in self.options()}
        return {name: value for name, value in values.items() if value != self.options()[name].default}

    @property
    def label(self) -> str:
        """The layer in a test id: its name and its options' values, in characters that ``-k`` accepts."""
        words = [self.name]
        for name, value in self.given.items():
            if value is True:
                words.append(name)
            elif isinstance(value, str):
                words.append(value)
            else:
                words.append(f"{name}.{value}")
        return "-".join(re.sub(r"[^A-Za-z0-9_.:-]+", ".", word).strip(".-") for word in words)

    def __str__(self) -> str:
        return str(spec.Call(self.name, tuple(spec.Option(name, value) for name, value in self.given.items())))


class OptionError(ValueError):
    """A layer's option has a value that makes no sense; raised by `Layer.check_options`."""

    def __init__(self, option: str, message: str) -> None:
        self.option = option
        super().__init__(message)


# -- devices -----------------------------------------------------------------------------------------------------------


class Device(Protocol):
    """Where stacks start. `opened` gives a fresh place for one stack, and takes it back."""

    @property
    def spec(self) -> str:
        """As on the command line: loop, ram, /dev/sdb1, dir:/path."""

    @property
    def id(self) -> str:
        """In test ids."""

    @property
    def gives(self) -> PlaceType: ...

    def needs(self) -> list[Need]: ...

    def room(self, directory: Path) -> int:
        """Bytes that a stack on it can take at most, where the session keeps its files in `directory`."""

    def advice(self, space: int) -> str:
        """What to do where there must be room for this many bytes, in a few words."""

    def opened(self, site: Site) -> AbstractContextManager[Place]: ...


# -- stacks ------------------------------------------------------------------------------------------------------------

Known = Mapping[str, type[Layer]]


@dataclass(frozen=True)
class Stack:
    """Layers, bottom first, and a name. `parse` and `str` are inverses."""

    layers: tuple[Layer, ...]
    name: str | None = None

    @classmethod
    def parse(cls, text: str, known: Known) -> Stack:
        """Read ``[name =] layer [| layer ...]`` with the layers that are known. Raises `SpecError`."""
        pipe = spec.parse(text)
        layers = tuple(_layer(call, text, known) for call in pipe.calls)
        for below, above, call in zip(layers, layers[1:], pipe.calls[1:]):
            if below.gives not in above.takes:
                raise SpecError(_misfit(above, below.name, below.gives, known), text, call.start, call.end)
        return cls(layers, pipe.name)

    def check_device(self, device: Device, known: Known, text: str | None = None) -> None:
        """Raise `SpecError` where the lowest layer cannot stand on this device."""
        if device.gives not in self.layers[0].takes:
            text = str(self) if text is None else text
            call = spec.parse(text).calls[0]
            message = _misfit(self.layers[0], f"the device {device.spec}", device.gives, known)
            raise SpecError(message, text, call.start, call.end)

    @property
    def id(self) -> str:
        return self.name or "+".join(layer.label for layer in self.layers)

    @property
    def gives(self) -> PlaceType:
        return self.layers[-1].gives

    @property
    def spec(self) -> str:
        """The layers without the name."""
        return " | ".join(map(str, self.layers))

    def needs(self) -> list[Need]:
        return [need for layer in self.layers for need in layer.needs()]

    def __str__(self) -> str:
        return f"{self.name} = {self.spec}" if self.name else self.spec


def _layer(call: spec.Call, text: str, known: Known) -> Layer:
    cls = known.get(call.name)
    if cls is None:
        near = difflib.get_close_matches(call.name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known))}"
        raise SpecError(f"unknown layer {call.name!r}; {hint}", text, call.start, call.end)
    options, types = cls.options(), typing.get_type_hints(cls) if call.options else {}
    for given in call.options:
        if given.name not in options:
            valid = ", ".join(options) or "none"
            raise SpecError(f"{call.name} has no option {given.name!r}; it has: {valid}", text, given.start, given.end)
        if problem := _wrong_value(given.value, types[given.name], options[given.name].metadata.get("choices")):
            raise SpecError(f"{call.name}: {given.name} {problem}", text, given.start, given.end)
    layer = cls(**{given.name: given.value for given in call.options})
    try:
        layer.check_options()
    except OptionError as error:
        where = next((given for given in call.options if given.name == error.option), call)
        raise SpecError(f"{call.name}: {error}", text, where.start, where.end) from None
    return layer


def _wrong_value(value: object, expected: typing.Any, choices: tuple[str, ...] | None) -> str | None:
    allowed = typing.get_args(expected) or (expected,)
    if type(value) not in allowed:
        names = {str: "text in quotes", int: "a whole number", bool: "True or False", float: "a number"}
        wanted = " or ".join(names.get(kind, "None") for kind in allowed)
        return f"must be {wanted}, not {value!r}"
    if choices and value not in choices and value is not None:
        return f"must be one of {', '.join(choices)}, not {value!r}"
    return None


def _misfit(above: Layer, below_name: str, below_gives: PlaceType, known: Known) -> str:
    wanted = " or a ".join(kind.kind for kind in above.takes)
    between = [
        name
        for name, cls in known.items()
        if cls.takes == (below_gives,) and cls.gives in above.takes and cls.gives is not below_gives
    ]
    offer = f"; put {_or(between)} between them" if between else ""
    return f"{above.name} needs a {wanted} below it; {below_name} gives a {below_gives.kind}{offer}"


def _or(names: list[str]) -> str:
    shown = [f"`{name}`" for name in names[:3]]
    if len(names) > len(shown):
        return f"{', '.join(shown)} or the like"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


# -- building ----------------------------------------------------------------------------------------------------------


class BuildError(Exception):
    """A stack could not be built, remounted or torn down; the message says which layer and why.

    Where it could not be built or remounted, it ends with what the kernel said meanwhile.
    """


class Built:
    """A stack that stands: what the `fsstack` fixture yields."""

    def __init__(self, stack: Stack, device: Device, bottom: Place, site: Site) -> None:
        self.stack, self.on, self._site = stack, device, site
        self._places: list[Place] = [bottom]
        self._open: list[ExitStack] = []

    @property
    def spec(self) -> str:
        """The stack's text, with its name."""
        return str(self.stack)

    @property
    def bottom(self) -> Place:
        """Where the stack starts."""
        return self._places[0]

    @property
    def path(self) -> Path:
        """The mounted directory, or the block device where the stack ends in one."""
        return self._places[-1].path

    @property
    def below(self) -> Path:
        """What the topmost layer stands on; it is what a layer that only shows something else is filled through."""
        return self._places[-2].path

    @property
    def stored(self) -> Path:
        """The directory of the filesystem that stores what is written to `path`.

        That is `path` itself, or, where the topmost layers store what they are given in the directory below them, the
        lowest such directory: with stacked encryption, the one that holds the ciphertext.
        """
        for layer, place in reversed(list(zip(self.stack.layers, self._places[1:]))):
            if layer.takes != (Directory,) or layer.gives is not Directory:
                return place.path
        return self.bottom.path

    @property
    def device(self) -> Path | None:
        """The topmost block device of the stack, on which its filesystem stands; None on a directory."""
        return next((place.path for place in reversed(self._places) if isinstance(place, Block)), None)

    def check(self) -> None:
        """Raise where `path` is a block device that may not be written to; called before writing to `path` itself.

        What is below it is in use by the stack, which is what the check of a disk refuses.
        """
        if isinstance(top := self._places[-1], Block):
            top.check()

    def usage(self) -> int:
        """Bytes in use on the lowest filesystem of the stack (after what was written has been synced)."""
        if isinstance(self.bottom, Directory):
            return _allocated(self.bottom.path)
        for place in self._places:
            if isinstance(place, Directory):
                status = os.statvfs(place.path)
                return (status.f_blocks - status.f_bfree) * status.f_frsize
        return 0

    def sync(self) -> None:
        """Write everything out, from the top down: a layer may hold back what the one above believes written."""
        for layer, place in reversed(list(zip(self.stack.layers, self._places[1:]))):
            layer.sync(place)
        if isinstance(self.bottom, Directory):
            host.syncfs(self.bottom.path)
        if isinstance(self._places[-1], Block):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def trim(self) -> int:
        """Discard what the stack's filesystems do not use, as fstrim does, from the top down; returns how many bytes.

        Not for timed sections. A filesystem that cannot is passed over. Raises `BuildError` where none can.
        """
        self.sync()
        found: list[int] = []
        problems: list[str] = []
        for layer, place in reversed(list(zip(self.stack.layers, self._places[1:]))):
            if Block in layer.takes and layer.gives is Directory:
                try:
                    said = host.run("fstrim", "--verbose", place.path)
                except host.CommandError as error:
                    problems.append(f"layer {layer.name}: {error}")
                    continue
                found += [int(number) for number in re.findall(r"\((\d+) bytes\)", said)]
        if not found:
            reason = "; ".join(problems) or "it has no filesystem of its own"
            holding_back = [layer.name for layer in self.stack.layers if self._holds_discards_back(layer)]
            hint = f". {', '.join(holding_back)}: open='--allow-discards' passes discards on" if holding_back else ""
            raise BuildError(f"could not trim `{self.spec}` on {self.on.spec}: {reason}{hint}")
        return sum(found)

    @staticmethod
    def _holds_discards_back(layer: Layer) -> bool:
        """As encryption and checksums do by default; the layers that do so are those of cryptsetup's tools."""
        return layer.gives is Block and "--allow-discards" not in getattr(layer, "open", "--allow-discards")

    def remount(self) -> None:
        """Unmount and mount again all that is mounted, so that what is read next comes from the device."""
        self._reopen(lambda layer: layer.gives is Directory)

    def drop_daemon_caches(self) -> None:
        """Restart the layers with daemons, whose caches the kernel cannot drop, or wait until they dropped them."""
        self._reopen(lambda layer: layer.caches)
        time.sleep(max(layer.forgets_after for layer in self.stack.layers))

    def mounts(self) -> list[str]:
        """``type source options`` of each mount of the stack as the kernel reports it, bottom first."""
        found = (host.mount_options(place.path) for place in self._places if isinstance(place, Directory))
        return [options for options in found if options]

    def _reopen(self, chosen: Callable[[Layer], bool]) -> None:
        layers = self.stack.layers
        keep = max((index + 1 for index, layer in enumerate(layers) if layer.volatile), default=0)
        first = next((index for index, layer in enumerate(layers) if index >= keep and chosen(layer)), len(layers))
        self._close(first)
        for layer in layers[first:]:
            self._add(layer, fresh=False)

    def _add(self, layer: Layer, fresh: bool) -> None:
        below, depth = self._places[-1], len(self._places)
        self._site.depth = depth
        with kmsg.listening() as kernel:
            try:
                if fresh:
                    layer.create(below, self._site)
                with ExitStack() as undo:
                    place = undo.enter_context(layer.opened(below, self._site, depth))
                    if isinstance(place, Block):
                        undo.enter_context(self._site.queue.above(place.path, self._site.journal))
                    self._open.append(undo.pop_all())
            except (host.CommandError, OSError) as error:
                message = f"could not build `{self.spec}` on {self.on.spec}: layer {layer.name}: {error}"
                raise BuildError(message + kernel.heard()) from error
        self._places.append(place)

    def _close(self, down_to: int = 0) -> None:
        """Undo layers from the top. A layer that cannot be undone does not keep those below it from being undone."""
        problems: list[Exception] = []
        while len(self._open) > down_to:
            self._places.pop()
            layer = self.stack.layers[len(self._open) - 1]
            try:
                self._open.pop().close()
            except (host.CommandError, OSError) as error:
                problems.append(error)
                message = f"could not take down `{self.spec}` on {self.on.spec}: layer {layer.name}: {error}"
        if problems:
            raise BuildError(message) from problems[0]


@contextlib.contextmanager
def build(stack: Stack, device: Device, site: Site) -> Iterator[Built]:
    """Build a stack on a fresh place of the device, and take it down afterwards.

    Raises `BuildError`, and `guard.Refused` where the device may not be overwritten.
    """
    with ExitStack() as undo:
        with kmsg.listening() as kernel:
            try:
                bottom = undo.enter_context(device.opened(site))
                if isinstance(bottom, Block):
                    undo.enter_context(site.queue.bottom(bottom.path, site.journal))
            except (host.CommandError, OSError) as error:
                message = f"could not set up the device {device.spec} for `{stack}`: {error}"
                raise BuildError(message + kernel.heard()) from error
        built = Built(stack, device, bottom, site)
        try:
            for layer in stack.layers:
                built._add(layer, fresh=True)
            yield built
        finally:
            try:
                built._close()
            except BuildError as first:
                # What holds a layer holds the device too, so a second error says less than the first.
                try:
                    undo.close()
                except Exception as second:
                    raise BuildError(f"{first}; and then: {second}") from first
                raise


def _allocated(directory: Path) -> int:
    """Bytes allocated below a directory, hard links counted once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for parent, _, files in os.walk(directory):
        for name in [parent, *(os.path.join(parent, file) for file in files)]:
            status = os.lstat(name)
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total
