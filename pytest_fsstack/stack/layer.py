"""Layers: a small core, options from a stack's text, and what only some layers can do."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import typing
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from pytest_fsstack.machine.journal import Kind
from pytest_fsstack.machine.needs import Need
from pytest_fsstack.stack import spec, words
from pytest_fsstack.stack.places import Below, Block, BuildContext, CheckResult, Directory, Place, PlaceType, Pool
from pytest_fsstack.units import parse_size


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


class OptionError(ValueError):
    """An invalid value of a layer's option, raised by `Layer.check_options`."""

    def __init__(self, option: str, message: str) -> None:
        self.option = option
        super().__init__(f"{option}: {message}" if option else message)


@dataclass(frozen=True)
class Options:
    """The options of a layer: its fields, which a stack's text sets."""

    name: ClassVar[str]
    #: The grammar of text options, by name. Words of other options are checked for paths, except defaults and
    #: `choices`.
    grammar: ClassVar[Mapping[str, words.Grammar]] = {}

    def check_options(self) -> None:
        """Raise `OptionError` for an invalid value or combination."""

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


@dataclass(frozen=True)
class Declarations:
    """Declarations of a layer about the files in it, for scenarios and reports."""

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


@dataclass(frozen=True)
class Layer(Options, Declarations):
    """A layer of a stack: it takes the place below and gives the place above. Its fields are its options.

    `create` writes the layer to the place below, once per round. `opened` opens it and closes it afterwards. It runs
    again for every remount, so it may depend only on `context` and on data that `create` has written.

    What only some layers can do is in classes of their own: `Sized`, `Spread`, `Provides`, and the protocols `Checks`,
    `Scrubs`, `Rebuilds`, `Wants`, `Forgets` and `Journals`.
    """

    takes: ClassVar[tuple[PlaceType, ...]]
    gives: ClassVar[PlaceType]
    #: The requirements on the machine, whatever the options are.
    requires: ClassVar[tuple[Need, ...]] = ()
    #: Whether the layer has a daemon with its own cache. Dropping the kernel's caches does not affect it.
    caches: ClassVar[bool] = False
    #: Whether unmounting loses the data, so the layer stays mounted as long as the stack.
    volatile: ClassVar[bool] = False
    #: Kinds of things that it creates outside of its mount point. The cleanup finds them after a kill.
    leaves: ClassVar[tuple[Kind, ...]] = ()
    #: A typical stack with this layer. If empty, the shortest one that can be mounted.
    example: ClassVar[str] = ""

    def needs(self) -> list[Need]:
        """Return `requires`, plus what this layer's options need."""
        return [*self.requires]

    def create(self, below: Below, context: BuildContext) -> None:
        """Format the place below."""

    def opened(self, below: Below, context: BuildContext) -> AbstractContextManager[Place]:
        """Open or mount the layer, and close or unmount it afterwards."""
        raise NotImplementedError

    def sync(self, place: Place, context: BuildContext) -> None:
        """Write out all data of the place that this layer gives."""
        if isinstance(place, Directory):
            context.machine.sync(place.path)

    @classmethod
    def example_stack(cls) -> str:
        """Return the layer's example, or one derived from the places that it takes and gives."""
        below = () if Block in cls.takes else ("ext4",)
        above = () if cls.gives is Directory else ("ext4",)
        # Only of this class: a subclass is another layer.
        return vars(cls).get("example") or " | ".join([*below, cls.name, *above])


# -- what only some layers can do --------------------------------------------------------------------------------------


@runtime_checkable
class Checks(Protocol):
    """A layer with a checker."""

    def fsck(self, below: Below, context: BuildContext) -> CheckResult | None:
        """Check the unmounted layer without changes. Return None if it has no checker.

        Raises `commands.CommandError` if the checker fails to run.
        """
        ...


@runtime_checkable
class Scrubs(Protocol):
    """A layer that can verify its data while it is open."""

    def scrub(self, place: Place, below: Below, context: BuildContext) -> CheckResult | None:
        """Read all data of the open layer, and verify it by checksums or copies. Return None if the layer has neither.

        Errors are corrected if possible. The result is clean only if there were no errors at all. Raises
        `commands.CommandError` or OSError if the scrub fails to run.
        """
        ...


@runtime_checkable
class Rebuilds(Protocol):
    """A layer that works on without one of its devices."""

    def check_loss(self) -> None:
        """Raise `OptionError` if the layer needs all of its devices with these options."""

    def regain(self, place: Place, below: Below, context: BuildContext, number: int) -> None:
        """Begin to rebuild a lost device's contents on an erased one, while the layer is open."""

    def regained(self, place: Place, below: Below, context: BuildContext) -> None:
        """Wait until the rebuild is complete."""


@runtime_checkable
class Wants(Protocol):
    """A layer that needs features of the filesystem below, such as "encryption". The filesystem sets them itself."""

    wants: ClassVar[tuple[str, ...]]


@runtime_checkable
class Forgets(Protocol):
    """A layer whose daemon writes and drops its cache by itself. Waiting for that is faster than a restart."""

    #: Seconds after which it has done so.
    forgets_after: ClassVar[float]


@runtime_checkable
class Journals(Protocol):
    """A filesystem whose journal keeps what it has written in memory, also while caches are dropped."""

    def checkpoint(self, place: Place, context: BuildContext) -> None:
        """Write the journal back, so that it keeps nothing. Raises OSError."""
        ...


@dataclass(frozen=True)
class Provides(Layer):
    """A filesystem that can be created with features that layers above want."""

    #: These features, and the corresponding features of mkfs's -O.
    provides: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def check_wanted(self, feature: str) -> None:
        """Raise `OptionError` if this layer cannot be created with a feature that a layer above `wants`."""
        if feature not in self.provides:
            raise OptionError("", f"{self.name} has none")


@dataclass(frozen=True)
class Sized(Layer):
    """A layer that needs a certain size below, or gives another size than that of the place below."""

    #: The bytes of the smallest device below on which the layer can be created. 0: any.
    smallest: ClassVar[int] = 0

    def least_sizes(self, count: int) -> tuple[int, ...]:
        """Return the smallest size in bytes of each of so many devices below, with this layer's options."""
        return (self.smallest,) * count

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        """Return at most how many bytes the places above can have, if those below have so many.

        The estimate is never too small, because stacks that do not fit are refused by it. An empty tuple means that the
        size is unknown.
        """
        return (sum(below),) if below else ()


@dataclass(frozen=True)
class Spread(Layer):
    """A layer that can be the lowest one on several devices of the session."""

    #: The option that is set by a number without a name, as in pool(2). Empty if there is none.
    counts: ClassVar[str] = ""
    #: Whether it must be the lowest layer.
    lowest: ClassVar[bool] = False

    @property
    def members(self) -> int:
        """Return the number of the session's devices that the layer uses as the lowest one."""
        return 1

    def bottom(self, device: Below, context: BuildContext) -> AbstractContextManager[Place]:
        """Prepare the session's device for the lowest layer, while the stack stands. It may add devices of its own."""
        return nullcontext(device)

    def check_members(self, count: int) -> None:
        """Raise `OptionError` if the layer cannot use so many devices."""

    def check_place(self, index: int, count: int) -> None:
        """Raise `OptionError` if the layer cannot stand at this index of a stack, on so many devices."""
        if index and (self.members > 1 or self.lowest):
            raise OptionError("", "it takes devices of the session, and so must be the lowest layer")
        self.check_members(count)


# -- bases of layers ---------------------------------------------------------------------------------------------------


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
class BlockLayer(Sized):
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
class PoolLayer(Spread, BlockLayer):
    """A layer on one block device or on a pool. It can also have its own option for the number of devices."""

    takes: ClassVar[tuple[PlaceType, ...]] = (Block, Pool)

    devices: int | None = option(None, "as the lowest layer, take so many devices: short for `pool(2) | ...`", least=2)

    @property
    def members(self) -> int:
        return self.devices or 1
