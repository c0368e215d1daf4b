"""Stacks: layers on a device, from their text. And what a device must offer."""

from __future__ import annotations

import bisect
import dataclasses
import difflib
import functools
import re
import typing
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pytest_fsstack.machine.needs import Missing, MissingRequirement, Need
from pytest_fsstack.stack import keys, spec
from pytest_fsstack.stack.layer import Layer, Limit, OptionError, Provides, Sized, Spread, Wants, for_id
from pytest_fsstack.stack.places import Block, BuildContext, Directory, Place, PlaceType, Pool
from pytest_fsstack.stack.spec import Setting, SpecError
from pytest_fsstack.stack.tuning import SettingNeed
from pytest_fsstack.units import format_size


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
                    _check_wanted(layers[index], feature)
                except OptionError as error:
                    able = [name for name, cls in layer_classes.items() if feature in _provided(cls)]
                    message = f"{above.name} needs {feature} by {_joined_by_or(able)} below it: {error}"
                    raise call.part(error.option).error(message, text) from None
        return stack

    @property
    def members(self) -> int:
        """Return the number of the session's devices that it needs."""
        return max((layer.members for layer in self.layers[:1] if isinstance(layer, Spread)), default=1)

    def _check_members(self, text: str, pipe: spec.Pipe) -> None:
        for index, (layer, call) in enumerate(zip(self.layers, pipe.calls)):
            on_pool = index == 0 or self.layers[index - 1].gives is Pool
            try:
                if isinstance(layer, Spread):
                    layer.check_place(index, self.members if on_pool else 1)
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
            if isinstance(above, Wants):
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
            if not isinstance(layer, Sized):
                sizes = (sum(sizes),) if sizes else ()
                continue
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
    counts = cls.counts if issubclass(cls, Spread) else ""
    if not counts:
        raise number.error(spec.given_by_name(call.name), text)
    named = tuple(dataclasses.replace(setting, name=setting.name or counts) for setting in call.options)
    if [setting.name for setting in named].count(counts) > 1:
        raise number.error(f"option {counts!r} is given twice", text)
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


def _provided(layer: type[Layer]) -> Mapping[str, tuple[str, ...]]:
    return layer.provides if issubclass(layer, Provides) else {}


def _check_wanted(layer: Layer, feature: str) -> None:
    """Raise `OptionError` if a layer cannot be created with a feature."""
    if not isinstance(layer, Provides):
        raise OptionError("", f"{layer.name} has none")
    layer.check_wanted(feature)
