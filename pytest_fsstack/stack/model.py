"""The model: places, layers, devices and stacks. Module `build` builds stacks."""

from __future__ import annotations

import bisect
import dataclasses
import difflib
import enum
import functools
import inspect
import mmap
import os
import re
import typing
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.journal import Journal, Kind
from pytest_fsstack.machine.locked import locked_memory
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Need
from pytest_fsstack.machine.port import Loop, Machine
from pytest_fsstack.stack import keys, spec, words
from pytest_fsstack.stack.spec import Setting, SpecError
from pytest_fsstack.stack.tuning import Queue, SettingNeed
from pytest_fsstack.units import format_size, parse_size

# -- places ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A block device.

    `check` runs before each mkfs, and raises if the device must not be overwritten. `written` runs after it.
    """

    path: Path
    check: Callable[[], None]
    machine: Machine = dataclasses.field(repr=False)
    written: Callable[[], object] = lambda: None
    #: Whether nothing was written to it yet, so it need not be wiped.
    blank: bool = False
    #: Raises if `path` now leads to another device, and drops cached reads. Runs before each mount, unless a layer has
    #: the device open.
    verify: Callable[[], object] = lambda: None
    #: Runs for the lowest place each time a layer was opened, because it may have been mounted.
    opened: Callable[[], object] = lambda: None
    kind: ClassVar[str] = "block device"

    @property
    def number(self) -> str:
        """Return ``major:minor``, as in /sys/dev/block."""
        return self.machine.number(self.path)

    @property
    def parts(self) -> tuple[Block, ...]:
        """Return the devices of the place."""
        return (self,)

    @property
    def sectors(self) -> int:
        """Return the size in units of 512 bytes, as in the device-mapper."""
        return self.machine.sectors(self.path)

    @classmethod
    def on_loop(cls, loop: Loop, machine: Machine) -> Block:
        """Return the place of a loop device."""
        return cls(loop.path, loop.check, machine, blank=loop.blank, verify=loop.verify)

    def wipe(self) -> None:
        """Remove all signatures. Raises the errors of `check`, and `commands.CommandError`."""
        self.check()
        if not self.blank:
            self.machine.run("wipefs", "-aq", self.path)

    def overwrite(
        self,
        *argv: str | os.PathLike[str],
        stdin: int | None = None,
        fds: tuple[int, ...] = (),
        env: Mapping[str, str] | None = None,
        beside: Sequence[Block] = (),
    ) -> None:
        """Run a tool that formats this device, with the path as its last argument. All formatting goes through here.

        A pool adds all of its devices. `beside` are other formatted devices, which are already arguments. All are wiped
        first, so that the tool does not ask, and checked immediately before and after. Raises the errors of `check`,
        `verify` and `written`, and `commands.CommandError`.
        """
        blocks = (self, *beside)
        for block in blocks:
            block.wipe()
        for block in blocks:
            block.check()
        self.machine.run(*argv, *(part.path for part in self.parts), stdin=stdin, fds=fds, env=env)
        for block in blocks:
            block.verify()
            block.written()

    def write(self, extents: Iterable[tuple[int, bytes]]) -> None:
        """Write bytes at offsets, bypassing caches. No layer may have the device open.

        Raises the errors of `check`, `verify` and `written`, and OSError.
        """
        self.check()
        self.machine.write(self.path, extents)
        self.verify()
        self.written()


@dataclass(frozen=True)
class Pool(Block):
    """Several block devices as one place. `path` is the first of them."""

    devices: tuple[Block, ...] = ()
    kind: ClassVar[str] = "pool of block devices"

    @classmethod
    def of(cls, devices: Sequence[Block]) -> Pool:
        """Join devices. Operations on the pool apply to each of them."""

        def each(name: str) -> Callable[[], None]:
            def ask() -> None:
                for device in devices:
                    getattr(device, name)()

            return ask

        first = devices[0]
        return cls(
            first.path,
            each("check"),
            first.machine,
            each("written"),
            verify=each("verify"),
            opened=each("opened"),
            devices=tuple(devices),
        )

    @property
    def parts(self) -> tuple[Block, ...]:
        return self.devices

    def wipe(self) -> None:
        for device in self.devices:
            device.wipe()


@dataclass(frozen=True)
class Directory:
    """A directory, usually a mount point."""

    path: Path
    #: Another directory of the stack to write to, if a layer above stores its own files in `path`.
    writable: Path | None = None
    kind: ClassVar[str] = "directory"


Place = Block | Directory
#: The place below a layer: one of the classes in `takes`. That is checked when a stack's text is parsed.
Below = typing.Any
PlaceType = type[Block] | type[Directory]


# -- layers ------------------------------------------------------------------------------------------------------------


class Secret:
    """The random passphrase and key of one stack, in memory that is not swapped out. Tools get descriptors of it."""

    def __init__(self) -> None:
        self._memory = locked_memory(mmap.PAGESIZE)
        # Read into the memory, because a bytes object would be another copy.
        with open("/dev/urandom", "rb", buffering=0) as random:
            random.readinto(self._memory)
        for index in range(_DIGITS):
            self._memory[index] = b"0123456789abcdef"[self._memory[index] & 15]

    def __repr__(self) -> str:
        return "Secret(...)"

    def passphrase(self) -> AbstractContextManager[int]:
        """Return a descriptor with 64 hexadecimal digits and no newline."""
        return commands.secret_fd(self._digits)

    def replacing(self, old: Secret) -> AbstractContextManager[int]:
        """Return a descriptor with the old passphrase and this one, on a line each."""
        return commands.secret_fd(old._digits, b"\n", self._digits, b"\n")

    def key(self, size: int) -> AbstractContextManager[int]:
        """Return a descriptor with a raw key of `size` bytes, always the same for this stack."""
        return commands.secret_fd(self.part(0, size))

    def part(self, start: int, size: int) -> memoryview:
        """Return some bytes of the key, which must not be copied."""
        return memoryview(self._memory)[_DIGITS:][start : start + size]

    @property
    def _digits(self) -> memoryview:
        return memoryview(self._memory)[:_DIGITS]


#: The length of a passphrase, in hexadecimal digits.
_DIGITS = 64

#: A random word in the names of this process. They are global to the machine, but containers repeat process numbers.
SESSION = os.urandom(4).hex()


@dataclass
class BuildContext:
    """The context of a layer: the machine, an empty directory, a secret, the journal, and unique names."""

    directory: Path
    journal: Journal
    secret: Secret = dataclasses.field(default_factory=Secret)
    queue: Queue = dataclasses.field(default_factory=Queue)
    #: The number of places below the layer.
    depth: int = 0
    #: The directory of mount points, if not in `directory`, which only this user can enter.
    mountpoints: Path | None = None
    #: The features that layers above need (`Layer.wants`).
    required_features: tuple[str, ...] = ()
    #: The number of the device that was taken away from the pool (`Built.take_away`).
    lost_device: int | None = None
    #: Prints a line between the progress of tests, with information that helps if a test fails.
    notify: Callable[[str], object] = dataclasses.field(default=str, repr=False)

    @property
    def machine(self) -> Machine:
        """Return the machine that holds the stack."""
        return self.journal.machine

    def remaining(self, below: Block) -> list[Block]:
        """Return the devices of the pool without the one that was taken away."""
        return [part for number, part in enumerate(below.parts) if number != self.lost_device]

    def mountpoint(self, layer: str) -> Path:
        """Create an empty directory to mount on."""
        path = (self.mountpoints or self.directory) / f"{self.depth}-{layer}"
        self.machine.mkdir(path, exist_ok=True)
        # The mounted directory has a mode of its own.
        path.chmod(0o711)
        return path

    def name(self, layer: str) -> str:
        """Return a unique name for a mapping, an array, a group or a pool for the lifetime of this stack."""
        return f"fsstack-{SESSION}-{self.depth}-{layer}"

    @contextmanager
    def mounted(
        self,
        layer: str,
        source: str | os.PathLike[str],
        kind: str = "",
        options: str = "",
        cwd: Path | None = None,
        by: Sequence[str] = ("mount",),
        fds: Sequence[int] = (),
    ) -> Iterator[Directory]:
        """Mount for a layer, and unmount afterwards. Relative paths in the options are relative to `cwd`.

        `by` is the mount command, and `fds` are descriptors that it reads. Raises `CommandError`.
        """
        target = self.mountpoint(layer)
        with (
            self.journal.entry(mounts.MOUNT, target=str(target)),
            mounts.mounted(self.machine, source, target, kind, options, cwd, by, fds),
        ):
            yield Directory(target)


class CheckResult(typing.NamedTuple):
    """The result of a layer's checker: whether it is clean, and the output."""

    clean: bool
    output: str

    @classmethod
    def of(cls, code: int, stdout: str, stderr: str) -> CheckResult:
        """Return the result of a checker that exits with 0 if it found no errors."""
        return cls(code == 0, (stdout + stderr).strip())


def option(
    default: object,
    doc: str,
    *,
    choices: tuple[object, ...] = (),
    least: int | None = None,
    levels: Mapping[str, range] | None = None,
) -> typing.Any:
    """Define an option of a layer: the default, its description, and allowed values or the minimum.

    `levels` has further values, which may have a level, as in ``zstd:3``.
    """
    metadata = {"doc": doc, "choices": (*choices, *(levels or ())), "least": least, "levels": levels}
    return dataclasses.field(default=default, metadata=metadata)


class Limit(enum.Enum):
    """Features of directories that a layer may lack. Tests then skip these features."""

    HARD_LINKS = "hard links"
    HARD_LINKS_ACROSS = "hard links from one directory to another"
    SYMBOLIC_LINKS = "symbolic links"
    ATTRIBUTES = "extended attributes"
    ALLOCATION = "space allocated ahead (fallocate)"
    HOLES = "holes punched into files"
    SPARSE = "gaps in files that take no space"
    MAPPED_WRITES = "writing to shared mappings"
    MODES = "modes of files"
    CASES = "names that differ only in case"
    CHECKSUMS = "checksums of contents"
    NAME_CHECKSUMS = "checksums of names"
    POWER_CUTS = "a whole filesystem after a power cut, without a repair"


@dataclass(frozen=True)
class Layer:
    """A layer of a stack: it takes the place below and gives the place above. Its fields are its options.

    `create` writes the layer to the place below, once per round. `opened` opens it and closes it afterwards. It runs
    again for every remount, so it may depend only on `context` and on data that `create` has written.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[PlaceType, ...]]
    gives: ClassVar[PlaceType]
    #: The requirements on the machine, whatever the options are.
    requires: ClassVar[tuple[Need, ...]] = ()
    #: Whether the layer has a daemon with its own cache. Dropping the kernel's caches does not affect it.
    caches: ClassVar[bool] = False
    #: Seconds after which a daemon has written and dropped its cache by itself. Waiting is faster than a restart.
    forgets_after: ClassVar[float] = 0.0
    #: Whether unmounting loses the data, so the layer stays mounted as long as the stack.
    volatile: ClassVar[bool] = False
    #: Features that the filesystem below must be created with, such as "encryption". The filesystem sets them itself.
    wants: ClassVar[tuple[str, ...]] = ()
    #: Features that a layer above can request with `wants`, and the corresponding features of mkfs's -O.
    provides: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: Kinds of things that it creates outside of its mount point. The cleanup finds them after a kill.
    leaves: ClassVar[tuple[Kind, ...]] = ()
    #: Features that it lacks by design, and where this is documented. Only calls that need them may be refused.
    limits: ClassVar[Mapping[Limit, str]] = {}
    #: The documented limit of a file name in bytes. See also `stored_names`.
    name_max: ClassVar[int] = 255
    #: Whether the layer encrypts its data. Reports compare encrypted stacks with each other.
    encrypts: ClassVar[bool] = False
    #: Whether a cipher of the kernel does so.
    kernel_cipher: ClassVar[bool] = False
    #: The directory with the layer's own files, relative to the place below. Empty if the place below stores the data.
    #: `bit_rot` flips bytes in these files.
    stores: ClassVar[str] = ""
    #: The bytes of its superblock on the device below, if one checksum covers several sectors. `power_cut` does not
    #: tear them: with some sectors old and some new, nothing would mount it.
    superblock: ClassVar[range] = range(0)
    #: The grammar of text options, by name. Words of other options are checked for paths, except defaults and
    #: `choices`.
    grammar: ClassVar[Mapping[str, words.Grammar]] = {}
    #: A typical stack with this layer. If empty, the shortest one that can be mounted.
    example: ClassVar[str] = ""

    #: The bytes of the smallest device below on which the layer can be created. 0: any.
    smallest: ClassVar[int] = 0
    #: The option that is set by a number without a name, as in pool(2). Empty if there is none.
    counts: ClassVar[str] = ""
    #: Whether it must be the lowest layer.
    lowest: ClassVar[bool] = False

    @property
    def members(self) -> int:
        """Return the number of the session's devices that the layer uses as the lowest one."""
        return 1

    def needs(self) -> list[Need]:
        """Return `requires`, plus what this layer's options need."""
        return [*self.requires]

    def bottom(self, device: Below, context: BuildContext) -> AbstractContextManager[Place]:
        """Prepare the session's device for the lowest layer, while the stack stands. It may add devices of its own."""
        return nullcontext(device)

    def create(self, below: Below, context: BuildContext) -> None:
        """Format the place below."""

    def opened(self, below: Below, context: BuildContext) -> AbstractContextManager[Place]:
        """Open or mount the layer, and close or unmount it afterwards."""
        raise NotImplementedError

    def least_sizes(self, count: int) -> tuple[int, ...]:
        """Return the smallest size in bytes of each of so many devices below, with this layer's options."""
        return (self.smallest,) * count

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        """Return at most how many bytes the places above can have, if those below have so many.

        The estimate is never too small, because stacks that do not fit are refused by it. An empty tuple means that the
        size is unknown.
        """
        return (sum(below),) if below else ()

    def limited(self) -> Mapping[Limit, str]:
        """Return `limits`, plus those of this layer's options."""
        return self.limits

    def stored_names(self, length: int) -> Collection[int]:
        """Return the lengths of the names in the place below that a name of this length needs, in bytes.

        A name is supported if the place below supports all of these.
        """
        return (length,)

    def is_encrypting(self) -> bool:
        """Return `encrypts`, or the choice of this layer's options."""
        return self.encrypts

    def sync(self, place: Place, context: BuildContext) -> None:
        """Write out all data of the place that this layer gives."""
        if isinstance(place, Directory):
            context.machine.sync(place.path)

    def fsck(self, below: Below, context: BuildContext) -> CheckResult | None:
        """Check the unmounted layer without changes. Return None if it has no checker.

        Raises `commands.CommandError` if the checker fails to run.
        """
        return None

    def scrub(self, place: Place, below: Below, context: BuildContext) -> CheckResult | None:
        """Read all data of the open layer, and verify it by checksums or copies. Return None if the layer has neither.

        Errors are corrected if possible. The result is clean only if there were no errors at all. Raises
        `commands.CommandError` or OSError if the scrub fails to run.
        """
        return None

    def check_loss(self) -> None:
        """Raise `OptionError` if the layer needs all of its devices."""
        raise OptionError("", "it keeps no second copy")

    def regain(self, place: Place, below: Below, context: BuildContext, number: int) -> None:
        """Begin to rebuild a lost device's contents on an erased one, while the layer is open."""
        raise NotImplementedError

    def regained(self, place: Place, below: Below, context: BuildContext) -> None:
        """Wait until the rebuild is complete."""
        raise NotImplementedError

    def check_options(self) -> None:
        """Raise `OptionError` for an invalid value or combination."""

    def check_members(self, count: int) -> None:
        """Raise `OptionError` if the layer cannot use so many devices."""

    def check_words(self, own: Container[str] = ()) -> None:
        """Raise `OptionError` for an option that refers to something outside of the stack, where tools might write.

        It is checked when the stack is parsed, and again when the layer is created or opened, because paths may appear
        in between. `own` are the device numbers of the stack: after ``mkfs -L data``, the label data refers to one.
        """
        for name, value in self.given_options.items():
            for text in _texts(value):
                self.check_text(name, text, own)

    def check_text(self, name: str, text: str, own: Container[str] = ()) -> None:
        """Raise `OptionError` if a text of an option refers to something outside of the stack."""
        if self.options()[name].metadata.get("choices"):
            return
        try:
            words.check(self.grammar.get(name, words.LOOKED_UP), text, own)
        except words.WordError as error:
            raise OptionError(name, str(error)) from None

    def size_of(self, name: str) -> int | None:
        """Return the bytes in a text option such as 4G, or None if it is empty. Raises `OptionError`."""
        text = getattr(self, name)
        try:
            return parse_size(text) if text else None
        except ValueError as error:
            raise OptionError(name, str(error)) from None

    def check_wanted(self, feature: str) -> None:
        """Raise `OptionError` if this layer cannot be created with a feature that a layer above `wants`."""
        if feature not in self.provides:
            raise OptionError("", f"{self.name} has none")

    @classmethod
    def example_stack(cls) -> str:
        """Return the layer's example, or one derived from the places that it takes and gives."""
        below = () if Block in cls.takes else ("ext4",)
        above = () if cls.gives is Directory else ("ext4",)
        # Only of this class: a subclass is another layer.
        return vars(cls).get("example") or " | ".join([*below, cls.name, *above])

    @classmethod
    def options(cls) -> dict[str, dataclasses.Field[typing.Any]]:
        return {field.name: field for field in dataclasses.fields(cls)}

    @classmethod
    def option_types(cls) -> dict[str, typing.Any]:
        """Return the types of the options by name."""
        types: dict[str, typing.Any] = {}
        for base in reversed(cls.__mro__):
            # Python 3.10 cannot evaluate them for the whole class, because it rejects ClassVar without a type.
            kinds = {name: kind for name, kind in inspect.get_annotations(base).items() if name in cls.options()}
            part = type(base.__name__, (), {"__annotations__": kinds, "__module__": base.__module__})
            types |= typing.get_type_hints(part)
        return types

    @property
    def given_options(self) -> dict[str, object]:
        """Return the options that differ from their defaults, in order."""
        values = {name: getattr(self, name) for name in self.options()}
        return {name: value for name, value in values.items() if value != self.options()[name].default}

    @property
    def label(self) -> str:
        """Return the layer's part of a test id: its name and option values, in characters that ``-k`` accepts."""
        words = [self.name, *(self.label_word(name, value) for name, value in self.given_options.items())]
        return "-".join(map(for_id, words))

    def label_word(self, name: str, value: object) -> str:
        """Return the part of the label for an option."""
        if value is True:
            return name
        return value if isinstance(value, str) else f"{name}.{value}"

    def __str__(self) -> str:
        return str(spec.Call(self.name, tuple(spec.Option(name, value) for name, value in self.given_options.items())))


@dataclass(frozen=True)
class DirectoryLayer(Layer):
    """A layer from one directory to another. `create` makes its own subdirectory in the place below."""

    takes: ClassVar[tuple[PlaceType, ...]] = (Directory,)
    gives: ClassVar[PlaceType] = Directory

    def own_directory(self, below: Directory) -> Path:
        """Return its own directory, which is `stores` if it has files of its own."""
        return below.path / (self.stores or self.name)

    def create(self, below: Directory, context: BuildContext) -> None:
        context.machine.mkdir(self.own_directory(below))


@dataclass(frozen=True)
class BlockLayer(Layer):
    """A layer on a block device. `create` wipes the device, unless a layer does more."""

    takes: ClassVar[tuple[PlaceType, ...]] = (Block,)
    #: Whether it protects contents with checksums, which few layers on block devices do.
    checksums: ClassVar[bool] = False

    def has_checksums(self) -> bool:
        """Return `checksums`, or the choice of this layer's options."""
        return self.checksums

    def limited(self) -> Mapping[Limit, str]:
        return self.limits if self.has_checksums() else {Limit.CHECKSUMS: "they are stored without", **self.limits}

    def create(self, below: Block, context: BuildContext) -> None:
        below.wipe()


@dataclass(frozen=True)
class PoolLayer(BlockLayer):
    """A layer on one block device or on a pool. It can also have its own option for the number of devices."""

    takes: ClassVar[tuple[PlaceType, ...]] = (Block, Pool)

    devices: int | None = option(None, "as the lowest layer, take so many devices: short for `pool(2) | ...`", least=2)

    @property
    def members(self) -> int:
        return self.devices or 1


def for_id(word: str) -> str:
    """Convert a word to characters that ``-k`` accepts."""
    return re.sub(r"[^A-Za-z0-9_.:-]+", ".", word).strip(".-")


def _texts(value: object) -> Iterator[str]:
    """Yield all texts in an option's value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _texts(item)


class OptionError(ValueError):
    """An invalid value of a layer's option, raised by `Layer.check_options`."""

    def __init__(self, option: str, message: str) -> None:
        self.option = option
        super().__init__(f"{option}: {message}" if option else message)


# -- devices -----------------------------------------------------------------------------------------------------------


class Device(Protocol):
    """A device for stacks. `opened` yields a fresh place for one stack, and frees it afterwards."""

    @property
    def spec(self) -> str:
        """Return the text on the command line: loop, ram, /dev/sdb1, dir:/path."""

    @property
    def id(self) -> str:
        """Return the text in test ids."""

    @property
    def gives(self) -> PlaceType: ...

    @property
    def members(self) -> tuple[Device, ...]:
        """Return the devices of a group, or the device itself."""

    @property
    def max_devices(self) -> int:
        """Return the maximum number of block devices for a stack."""

    def needs(self) -> list[Need]: ...

    def room(self, directory: Path) -> int:
        """Return the maximum size of a stack in bytes. The session's files are in `directory`."""

    def sizes(self, count: int) -> tuple[int, ...]:
        """Return the bytes of the first block devices. Empty for a directory, or if they are unknown."""

    def advice(self, space: int) -> str:
        """Advise in a few words how to get this much space."""

    def held(self) -> AbstractContextManager[None]:
        """Identify, check and lock the device for the session. Raises `guard.Refused`."""

    def opened(self, context: BuildContext, count: int = 1) -> AbstractContextManager[Place]:
        """Yield the place of a stack that needs so many devices: a pool if there are several."""


# -- stacks ------------------------------------------------------------------------------------------------------------

LayerClasses = Mapping[str, type[Layer]]


class DeviceError(SpecError):
    """An error because a device cannot hold a stack. `lack` has the reason and the remedy."""

    def __init__(self, lack: MissingRequirement, text: str, start: int, end: int) -> None:
        super().__init__(str(lack), text, start, end)
        self.lack = lack


_GROUP_ADVICE = (
    "name them as one group, as in --fsstack-device=/dev/sdb+/dev/sdc. Several --fsstack-device are one group only if "
    "every stack of a test needs exactly as many devices as there are"
)


@dataclass(frozen=True)
class Stack:
    """Layers, bottom first, a name, and settings of the machine. `parse` and `str` are inverses."""

    layers: tuple[Layer, ...]
    name: str | None = None
    settings: tuple[Setting, ...] = ()

    @classmethod
    def parse(cls, text: str, layer_classes: LayerClasses) -> Stack:
        """Parse ``[name =] layer [| layer ...] [@ key=value, ...]`` with the known layers. Raises `SpecError`."""
        pipe = spec.parse(text)
        layers = tuple(_layer(call, text, layer_classes) for call in pipe.calls)
        for below, above, call in zip(layers, layers[1:], pipe.calls[1:]):
            if below.gives not in above.takes:
                what, remedy = _misfit(above, below.name, below.gives, layer_classes)
                raise call.error(f"{what}: {remedy}" if remedy else what, text)
        stack = cls(layers, pipe.name, pipe.settings)
        stack._check_members(text, pipe)
        stack._check_settings(text)
        for index, call in enumerate(pipe.calls):
            for above, feature in stack._wants(index):
                try:
                    layers[index].check_wanted(feature)
                except OptionError as error:
                    able = [name for name, cls in layer_classes.items() if feature in cls.provides]
                    message = f"{above.name} needs {feature} by {_joined_by_or(able)} below it: {error}"
                    raise call.part(error.option).error(message, text) from None
        return stack

    @property
    def members(self) -> int:
        """Return the number of the session's devices that it needs."""
        return max((layer.members for layer in self.layers[:1]), default=1)

    def _check_members(self, text: str, pipe: spec.Pipe) -> None:
        for index, (layer, call) in enumerate(zip(self.layers, pipe.calls)):
            on_pool = index == 0 or self.layers[index - 1].gives is Pool
            try:
                if index and (layer.members > 1 or layer.lowest):
                    raise OptionError("", "it takes devices of the session, and so must be the lowest layer")
                layer.check_members(self.members if on_pool else 1)
            except OptionError as error:
                raise call.part(error.option).error(f"{call.name}: {error}", text) from None

    def _check_settings(self, text: str) -> None:
        values = {setting.key: setting.value for setting in self.settings}
        for setting in self.settings:
            problem = keys.why_refused(setting.key)
            both = values.get(setting.key.replace("top/", "queue/", 1), setting.value) != setting.value
            if both and not self.has_block_layer:
                problem = f"queue/ and {setting.key} are one setting here: no layer makes a block device"
            if problem:
                raise setting.error(problem, text)

    @property
    def layer_names(self) -> list[str]:
        """Return unique names of the layers. A name has the layer's number if a lower layer has the same name."""
        names = [layer.name for layer in self.layers]
        return [f"{index + 1}-{name}" if name in names[:index] else name for index, name in enumerate(names)]

    @property
    def has_block_layer(self) -> bool:
        """Whether a layer creates the topmost block device."""
        return any(layer.gives is Block for layer in self.layers)

    def required_features(self, index: int) -> tuple[str, ...]:
        """Return the features that layers above need. They apply to the filesystem on a block device."""
        return tuple(dict.fromkeys(feature for _, feature in self._wants(index)))

    def _wants(self, index: int) -> Iterator[tuple[Layer, str]]:
        if self.layers[index].gives is not Directory or Block not in self.layers[index].takes:
            return
        for above in self.layers[index + 1 :]:
            if Block in above.takes:
                return
            yield from ((above, feature) for feature in above.wants)

    def check_device(self, device: Device, layer_classes: LayerClasses, text: str | None = None) -> None:
        """Raise `DeviceError` if the device cannot hold the stack, or a setting has no device."""
        text = str(self) if text is None else text
        pipe = spec.parse(text)

        def refuse(part: spec.Call | Setting, what: str, remedy: str) -> typing.NoReturn:
            raise DeviceError(MissingRequirement(Missing.OTHER, what, remedy), text, part.start, part.end)

        for setting in pipe.settings:
            needs_disk = setting.key.startswith(("queue/", *(() if self.has_block_layer else ("top/",))))
            if needs_disk and device.gives is not Block:
                what = f"{setting.key} is of a block device, and the device {device.spec} is a {device.gives.kind}"
                refuse(setting, what, "leave it out")
        call = pipe.calls[0]
        if device.gives not in self.layers[0].takes:
            what, offer = _misfit(self.layers[0], f"the device {device.spec}", device.gives, layer_classes)
            another = f"name a {' or a '.join(kind.kind for kind in self.layers[0].takes)} as --fsstack-device"
            refuse(call, what, f"{offer}, or {another}" if offer else another)
        if self.members > device.max_devices:
            which = f"{device.spec} is {'one' if device.max_devices == 1 else device.max_devices}"
            refuse(call, f"{call.name} needs {self.members} devices, and {which}", _GROUP_ADVICE)
        if shortage := self._shortage(device.sizes(self.members)):
            index, least, size = shortage
            on = "the device" if index == 0 else f"{pipe.calls[index - 1].name} below it"
            what = f"{pipe.calls[index].name} needs {format_size(least)}, and {on} has at most {format_size(size)}"
            space = self._smallest_device()
            refuse(pipe.calls[index], what, device.advice(space) if space else "make the layers below it larger")

    def _shortage(self, sizes: tuple[int, ...]) -> tuple[int, int, int] | None:
        """Return the first layer that does not fit on devices of these sizes: its index, and the needed and real size.

        Sizes are in bytes. Without sizes, they are unknown.
        """
        for index, layer in enumerate(self.layers):
            for least, size in zip(layer.least_sizes(len(sizes)), sizes):
                if size < least:
                    return index, least, max(size, 0)
            sizes = layer.sizes_above(*sizes)
        return None

    def _smallest_device(self) -> int:
        """Return the bytes of the smallest devices that can hold the stack, in whole MiB. 0 if none can."""
        candidates = range(1 << 20)
        return bisect.bisect_left(candidates, True, key=lambda size: self._holds(size << 20)) % len(candidates) << 20

    def _holds(self, size: int) -> bool:
        return self._shortage((size,) * self.members) is None

    @property
    def id(self) -> str:
        settings = (f"{for_id(setting.key)}-{for_id(setting.value)}" for setting in self.settings)
        return self.name or "+".join([*(layer.label for layer in self.layers), *settings])

    @property
    def gives(self) -> PlaceType:
        return self.layers[-1].gives

    @property
    def spec(self) -> str:
        """Return the layers and settings without the name."""
        return spec.with_settings(" | ".join(map(str, self.layers)), self.settings)

    def needs(self) -> list[Need]:
        layers = [need for layer in self.layers for need in layer.needs()]
        return [*layers, *(SettingNeed(setting.key) for setting in self.settings)]

    @property
    def limits(self) -> dict[Limit, str]:
        """Return the limits of the stack's directory with their sources, from all layers that its files pass."""
        return {limit: source for layer in reversed(self._on_block()) for limit, source in layer.limited().items()}

    def lacks(self, limit: Limit) -> bool:
        """Whether no layer that sees the stored data has a feature about it, such as checksums."""
        stored = next((index for index, layer in enumerate(self.layers) if layer.stores), 0)
        return all(limit in layer.limited() for layer in self.layers[stored:])

    @property
    def has_kernel_cipher(self) -> bool:
        """Whether a cipher of the kernel encrypts in one of its layers."""
        return any(layer.kernel_cipher and layer.is_encrypting() for layer in self.layers)

    @property
    def encrypts(self) -> bool:
        return any(layer.is_encrypting() for layer in self.layers)

    @property
    def name_max(self) -> int:
        """Return the longest name that the stack supports, in bytes. It may lack some shorter ones (`name_lengths`)."""
        return max(self.name_lengths, default=0)

    @functools.cached_property
    def name_lengths(self) -> frozenset[int]:
        """Return the lengths of the names that the stack supports, in bytes, up to 255 (NAME_MAX)."""
        lengths = frozenset(range(1, 256))
        for layer in self._on_block():
            lengths = frozenset(
                length for length in range(1, layer.name_max + 1) if lengths.issuperset(layer.stored_names(length))
            )
        return lengths & frozenset(range(1, 256))

    def _on_block(self) -> tuple[Layer, ...]:
        """Return the filesystem on the topmost block device, and the layers above it."""
        start = max((index + 1 for index, layer in enumerate(self.layers) if layer.gives is Block), default=0)
        return self.layers[start:]

    def __str__(self) -> str:
        return f"{self.name} = {self.spec}" if self.name else self.spec


@dataclass(frozen=True)
class Fits:
    """A requirement: that the device can hold the stack. `stack` is that of the device's lowest layer up."""

    stack: Stack
    device: Device
    layer_classes: LayerClasses = dataclasses.field(repr=False, compare=False)

    def missing(self) -> MissingRequirement | None:
        try:
            self.stack.check_device(self.device, self.layer_classes)
        except DeviceError as error:
            return error.lack
        return None


#: Other conftests are loaded while tests are collected, after the layers of the session are known.
_CONFTESTS = "A conftest.py adds layers if it is in the rootdir or beside the tests that the command line names"


def _layer(call: spec.Call, text: str, layer_classes: LayerClasses) -> Layer:
    cls = layer_classes.get(call.name)
    if cls is None:
        near = difflib.get_close_matches(call.name, layer_classes, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(layer_classes))}. {_CONFTESTS}"
        raise call.error(f"unknown layer {call.name!r}; {hint}", text)
    options, types = cls.options(), cls.option_types() if call.options else {}
    if any(not setting.name for setting in call.options):
        call = _with_number_named(call, cls, text)
    for setting in call.options:
        if setting.name not in options:
            valid = ", ".join(options) or "none"
            raise setting.error(f"{call.name} has no option {setting.name!r}; it has: {valid}", text)
        if problem := _wrong_value(setting.value, types[setting.name], options[setting.name].metadata):
            raise setting.error(f"{call.name}: {setting.name}: {problem}", text)
    layer = cls(**{setting.name: setting.value for setting in call.options})
    try:
        layer.check_options()
        layer.check_words()
    except OptionError as error:
        raise call.part(error.option).error(f"{call.name}: {error}", text) from None
    return layer


def _with_number_named(call: spec.Call, cls: type[Layer], text: str) -> spec.Call:
    number = next(setting for setting in call.options if not setting.name)
    if not cls.counts:
        raise number.error(spec.given_by_name(call.name), text)
    named = tuple(dataclasses.replace(setting, name=setting.name or cls.counts) for setting in call.options)
    if [setting.name for setting in named].count(cls.counts) > 1:
        raise number.error(f"option {cls.counts!r} is given twice", text)
    return dataclasses.replace(call, options=named)


def _wrong_value(value: typing.Any, expected: typing.Any, metadata: Mapping[str, typing.Any]) -> str | None:
    allowed = typing.get_args(expected) or (expected,)
    if type(value) not in allowed and not (float in allowed and type(value) is int):
        names = {str: "text in quotes", int: "a whole number", bool: "True or False", float: "a number"}
        allowed_kinds = " or ".join(names.get(kind, "None") for kind in allowed)
        return f"must be {allowed_kinds} (got {value!r})"
    if value is None:
        return None
    choices, least, levels = metadata.get("choices"), metadata.get("least"), metadata.get("levels") or {}
    if choices and value not in choices and not _has_level(value, levels):
        up_to = ", ".join(f"{method}:{numbers[-1]}" for method, numbers in levels.items())
        or_level = f", or have a level up to {up_to}" if up_to else ""
        return f"must be one of {', '.join(map(str, choices))}{or_level} (got {value!r})"
    if least is not None and value < least:
        return f"must be at least {least} (got {value})"
    return None


def _has_level(value: object, levels: Mapping[str, range]) -> bool:
    """Whether the value is a method with a level, such as ``zstd:3``."""
    match = re.fullmatch(r"([\w-]+):(\d{1,3})", str(value), re.ASCII)
    return match is not None and int(match[2]) in levels.get(match[1], ())


def _misfit(above: Layer, below_name: str, below_gives: PlaceType, layer_classes: LayerClasses) -> tuple[str, str]:
    """Return why a layer does not fit on the place below, and the layers to put between. Empty if there are none."""
    kinds = " or a ".join(kind.kind for kind in above.takes)
    between = [
        name
        for name, cls in layer_classes.items()
        if cls.takes == (below_gives,) and cls.gives in above.takes and cls.gives is not below_gives
    ]
    what = f"{above.name} needs a {kinds} below it; {below_name} gives a {below_gives.kind}"
    return what, f"put {_joined_by_or(between)} between them" if between else ""


def _joined_by_or(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names[:3]]
    if len(names) > len(quoted):
        return f"{', '.join(quoted)} or the like"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
