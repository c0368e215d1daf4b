"""Logical volumes of a private LVM, isolated from the system's."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers import mapper, scrubs
from pytest_fsstack.layers.volumes.raid import check_power_of_2
from pytest_fsstack.machine import directories, journal
from pytest_fsstack.machine.journal import Facts, Kind, UndoError
from pytest_fsstack.machine.needs import DMSETUP, DeviceMapper, Need, Root, Tool
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.layer import OptionError, PoolLayer, option
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Place
from pytest_fsstack.stack.words import FLAG, KEYWORD, OUTSIDE, SIZE, TEXT, CommandLine, Grammar

_TARGETS = {
    "linear": "linear",
    "striped": "striped",
    "thin": "thin-pool",
    "snapshot": "snapshot",
    "raid1": "raid",
    "cache": "cache",
}

#: Thin pools and caches are not checked or repaired, which would need additional tools. They are as new as their stack.
_CONFIGURATION = """\
devices {{
    global_filter = [ {accepted}, "r|.*|" ]
    use_devicesfile = 0
    scan_lvs = 1
    hints = "none"
    obtain_device_list_from_udev = 0
    external_device_info_source = "none"
    md_component_detection = 0
    multipath_component_detection = 0
}}
global {{
    locking_dir = "{directory}"
    event_activation = 0
    use_lvmpolld = 0
    use_lvmlockd = 0
    notify_dbus = 0
    system_id_source = "none"
    thin_check_executable = ""
    cache_check_executable = ""
}}
activation {{
    monitoring = 0
}}
backup {{
    backup = 0
    archive = 0
}}
"""


#: Options of all LVM commands. Those that could add devices to the configuration are refused.
_COMMON: Mapping[str, Grammar] = {
    "-d --debug -f --force -h --help --longhelp --nohints --nolocking -q --quiet -t --test -v --verbose": FLAG,
    "--version -y --yes": FLAG,
    "-A --autobackup --alloc --driverloaded --reportformat -Z --zero": KEYWORD,
    "--bootloaderareasize --dataalignment --dataalignmentoffset --labelsector --metadatacopies --metadatasize": SIZE,
    "--pvmetadatacopies --setphysicalvolumesize --vgmetadatacopies": SIZE,
    "--addtag": TEXT,
    "--commandprofile --config --configtype --devices --devicesfile --journal --lockopt --metadataprofile": OUTSIDE,
    "--profile --restorefile --select -S --systemid --locktype": OUTSIDE,
}
_PVCREATE = CommandLine({**_COMMON, "--norestorefile": FLAG, "-M --metadatatype --metadataignore -u --uuid": KEYWORD})
_VGCREATE = CommandLine(
    {
        **_COMMON,
        "--shared": FLAG,
        "-l --maxlogicalvolumes -p --maxphysicalvolumes -s --physicalextentsize": SIZE,
        "-c --clustered -M --metadatatype --setautoactivation": KEYWORD,
    }
)
_LVCREATE = CommandLine(
    {
        **_COMMON,
        "-H --cache -K --ignoreactivationskip --ignoremonitoring --nosync --noudevsync -s --snapshot -T --thin": FLAG,
        "-c --chunksize --cachesize -l --extents -i --stripes -I --stripesize -L --size -m --mirrors": SIZE,
        "--maxrecoveryrate --minrecoveryrate -j --major --minor --poolmetadatasize -R --regionsize": SIZE,
        "--raidintegrityblocksize -V --virtualsize": SIZE,
        "-a --activate -C --contiguous -k --setactivationskip -M --persistent -p --permission -r --readahead": KEYWORD,
        "--cachemetadataformat --cachemode --cachepolicy --cachesettings --compression --deduplication": KEYWORD,
        "--discards --errorwhenfull --mirrorlog --monitor -n --name --poolmetadataspare --raidintegrity": KEYWORD,
        "--raidintegritymode --setautoactivation --thinpool --type --vdosettings -W --wipesignatures": KEYWORD,
        "--cachedevice --cachepool --cachevol --pooldatasize --poolmetadata --vdopool": OUTSIDE,
    }
)

DEV = Path("/dev")


# -- after a kill ------------------------------------------------------------------------------------------------------


def _active_volumes(machine: Machine, facts: Facts) -> list[str]:
    """Return the mappings of a volume group, including hidden ones."""
    group = journal.text(facts, "name")
    if not group.startswith("fsstack-"):
        raise UndoError("this plugin does not create volume groups with such a name")
    return sorted(machine.mappings(_of(group)))


def _active(machine: Machine, facts: Facts) -> bool:
    return bool(_active_volumes(machine, facts)) or _links(facts).is_dir()


def _links(facts: Facts) -> Path:
    """Return LVM's directory of links to the volumes, which only udevd removes."""
    return DEV / journal.text(facts, "name")


def _deactivated(machine: Machine, facts: Facts) -> str:
    if volumes := _active_volumes(machine, facts):
        # Volumes that others depend on are removed after them.
        machine.run("dmsetup", "remove", "--deferred", *volumes, env=machine.mapper_environment())
    if not machine.wait_until(lambda: not _active_volumes(machine, facts), 2.0):
        raise UndoError("the kernel removes it once nothing uses it")
    _remove_links(_links(facts))
    return f"removed the logical volumes of {journal.text(facts, 'name')}"


GROUP = Kind("vg", _active, _deactivated)


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lvm(PoolLayer, mapper.MapperLayer):
    """A logical volume of LVM, in a volume group of its own on the device below, or on a pool of devices.

    `kind` is one of six. A linear volume. A volume striped over the devices, or over slices of a single one. A thin
    volume, in a pool that fills with its writes. A volume with a snapshot, where the first write to a block copies it.
    With `on='snapshot'` the stack stands on the snapshot. A mirror (`raid1`) over all devices. A volume with a `cache`,
    which is on the last device.
    """

    leaves: ClassVar = (GROUP, mapper.MAPPING)
    name: ClassVar = "lvm"
    grammar: ClassVar = {
        "pvcreate": _PVCREATE,
        "vgcreate": _VGCREATE,
        "lvcreate": _LVCREATE,
        "extents": SIZE,
        "virtual_size": SIZE,
    }

    kind: str = option("linear", "the kind of volume", choices=tuple(_TARGETS))
    stripes: int | None = option(None, "number of stripes. The default is 2, or the number of devices of a pool")
    stripe_size: int | None = option(None, "bytes of a stripe, a power of 2 from 4096 on. The default is LVM's, 65536")
    chunk_size: int | None = option(
        None,
        "bytes of a chunk of a thin pool (65536 and multiples) or a snapshot (4096 to 524288). The default is LVM's",
    )
    initial: str = option(
        "nosync",
        "the copies of a mirror. With 'nosync' they count as right from the start, and on disks that were not blank, "
        "`scrub` also reports differences where nothing was written. With 'sync' they are synchronised when the stack "
        "is made, which takes as long as writing all of a device",
        choices=("nosync", "sync"),
    )
    mode: str = option("writethrough", "how a cache writes", choices=("writethrough", "writeback"))
    on: str = option("origin", "the place of the stack if there is a snapshot", choices=("origin", "snapshot"))
    extents: str = option(
        "",
        "size of the volume or thin pool, a value of `lvcreate --extents`. The default is 100%FREE, or 45%VG if a "
        "snapshot gets the rest",
    )
    virtual_size: str = option("", "size of a thin volume, such as 4G. The default is 80 % of the device")
    pvcreate: str = option("", "further options of `pvcreate`, verbatim")
    vgcreate: str = option("", "further options of `vgcreate`, verbatim, such as '--physicalextentsize 1M'")
    lvcreate: str = option("", "further options of `lvcreate`, verbatim. With a snapshot, they apply to it")

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper(_TARGETS[self.kind]), DMSETUP, Tool("lvm", "lvm2")]

    def check_options(self) -> None:
        belongs = {
            "stripes": ("striped",),
            "stripe_size": ("striped",),
            "chunk_size": ("thin", "snapshot"),
            "virtual_size": ("thin",),
            "on": ("snapshot",),
            "initial": ("raid1",),
            "mode": ("cache",),
        }
        for name, kinds in belongs.items():
            if name in self.given_options and self.kind not in kinds:
                alternatives = " or ".join(f"kind='{kind}'" for kind in kinds)
                raise OptionError(name, f"goes with {alternatives}")
        if self.stripes is not None and not 1 < self.stripes <= 128:
            raise OptionError("stripes", f"must be a number from 2 to 128 (got {self.stripes})")
        check_power_of_2("stripe_size", self.stripe_size)
        if self.kind == "snapshot":
            check_power_of_2("chunk_size", self.chunk_size)
        elif self.chunk_size is not None and (self.chunk_size < 65536 or self.chunk_size % 65536):
            raise OptionError("chunk_size", f"must be a multiple of 65536 for a thin pool (got {self.chunk_size})")
        self.size_of("virtual_size")

    def check_members(self, count: int) -> None:
        if self.kind in ("raid1", "cache") and count < 2:
            raise OptionError("kind", f"{self.kind!r} needs 2 devices: put pool(2) below it, or write devices=2")
        if self.kind == "striped" and 1 < count < (self.stripes or 2):
            raise OptionError("stripes", f"{self.stripes} stripes need as many devices (got {count})")

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        if self.kind == "thin":
            virtual = self.size_of("virtual_size")
            return (virtual,) if virtual else tuple(size * 8 // 10 for size in below[:1])
        # A MiB of each device has LVM's metadata. The rest is in extents.
        extent = 1 if self.vgcreate else 4 << 20
        sizes = [(size - (1 << 20)) // extent * extent for size in below]
        whole = sum(sizes[:1] if self.kind == "raid1" else sizes[:-1] if self.kind == "cache" else sizes)
        return (whole * 45 // 100 if self.kind == "snapshot" and not self.extents else whole,) if sizes else ()

    def create(self, below: Block, context: BuildContext) -> None:
        machine, group = context.machine, context.name(self.name)
        if self._slices(below):
            below.wipe()
        with (
            self._physical(below, context) as volumes,
            _private(volumes, context) as env,
            context.journal.entry(GROUP, name=group),
            mapper.removed_on_error(machine, _of(group)),
        ):
            for volume in volumes:
                volume.overwrite("lvm", "pvcreate", "-qffy", *shlex.split(self.pvcreate), env=env)
            # The system's LVM may see the group. It must not activate it automatically.
            words = ["-q", "--setautoactivation", "n", *shlex.split(self.vgcreate), group]
            machine.run("lvm", "vgcreate", *words, *(volume.path for volume in volumes), env=env)
            # Only an active mirror notes that its copies are right.
            active = "-ay" if self.kind == "raid1" else "-an"
            for words in self._volumes(below, group):
                machine.run("lvm", "lvcreate", "-qy", active, *words, env=env)
            if self.kind == "raid1":
                scrubs.wait_until_raid_is_synchronised(machine, f"{_prefix(group)}lv")
                machine.run("lvm", "lvchange", "-qy", "--activate", "n", f"{group}/lv", env=env)
            if self.kind == "cache":
                words = ["--type", "cache", "--cachevol", "cache", "--cachemode", self.mode, f"{group}/lv"]
                machine.run("lvm", "lvconvert", "-qy", *words, env=env)

    def _volumes(self, below: Block, group: str) -> list[list[str]]:
        """Return the options of `lvcreate` for each volume."""
        verbatim = shlex.split(self.lvcreate)
        chunk = ["--chunksize", f"{self.chunk_size}b"] if self.chunk_size else []
        plain = ["-Wn", "-Zn", "--name", "lv"]
        if self.kind == "thin":
            size = self.size_of("virtual_size") or below.sectors * mapper.SECTOR * 8 // 10
            pool = ["--type", "thin", "--thinpool", "pool", "--extents", self.extents or "100%FREE", *chunk]
            return [[*pool, "-Wn", "--virtualsize", f"{size // mapper.SECTOR}s", "--name", "lv", *verbatim, group]]
        if self.kind == "snapshot":
            origin = [*plain, "--extents", self.extents or "45%VG", group]
            return [origin, ["--snapshot", "--name", "snap", "--extents", "100%FREE", *chunk, *verbatim, f"{group}/lv"]]
        extents = ["--extents", self.extents or "100%FREE"]
        if self.kind == "striped":
            size_of = ["--stripesize", f"{self.stripe_size or 65536}b"]
            stripes = str(self.stripes or max(2, len(below.parts)))
            return [["--stripes", stripes, *size_of, *plain, *extents, *verbatim, group]]
        if self.kind == "raid1":
            nosync = ["--nosync"] if self.initial == "nosync" else []
            copies = ["--type", "raid1", "--mirrors", str(len(below.parts) - 1), *nosync]
            return [[*copies, *plain, *extents, *verbatim, group]]
        if self.kind == "cache":
            *origins, cache = (str(part.path) for part in below.parts)
            # What is first in the cache counts, so it must be zeros.
            fast = ["-Wn", "--name", "cache", "--extents", "100%PVS", group, cache]
            return [[*plain, "--extents", self.extents or "100%PVS", *verbatim, group, *origins], fast]
        return [[*plain, *extents, *verbatim, group]]

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Block]:
        machine, group = context.machine, context.name(self.name)
        with contextlib.ExitStack() as undo:
            volumes = undo.enter_context(self._physical(below, context))
            undo.enter_context(context.journal.entry(GROUP, name=group))
            if machine.mapper_environment():
                # Without udevd, LVM does not notice that the kernel removed the volumes.
                undo.callback(_remove_links, DEV / group)
            with _private(volumes, context) as env:
                # This also activates the volumes that it depends on: hidden ones and the snapshot.
                words = ["lvm", "lvchange", "-qy", "--activate", "y", f"{group}/lv"]
                activate = functools.partial(machine.run, *words, env=env)
                devices = undo.enter_context(mapper.held(machine, _of(group), activate))
            name = f"{_prefix(group)}{'snap' if self.on == 'snapshot' else 'lv'}"
            if name not in devices:
                raise OSError(f"LVM activated {', '.join(devices) or 'nothing'} instead of {name}")
            yield mapper.block(machine, name, devices[name])

    def scrub(self, place: Place, below: Block, context: BuildContext) -> CheckResult | None:
        return scrubs.raid(context.machine, place.path) if self.kind == "raid1" else None

    def _slices(self, below: Block) -> int:
        """Return the number of slices that the device is cut into; 0 if it is used as a whole."""
        return self.stripes or 2 if self.kind == "striped" and not below.parts[1:] else 0

    @contextlib.contextmanager
    def _physical(self, below: Block, context: BuildContext) -> Iterator[list[Block]]:
        """Yield the physical volumes: the devices, or one slice of a single device per stripe."""
        if not (count := self._slices(below)):
            yield list(below.parts)
            return
        length = below.sectors // count // 2048 * 2048
        extents = [(number * length, length) for number in range(count)]
        with mapper.slices(context.name("pv"), context, below, extents) as volumes:
            yield volumes


@contextlib.contextmanager
def _private(volumes: Sequence[Block], context: BuildContext) -> Iterator[Mapping[str, str]]:
    """Yield the environment of a private LVM that knows only these physical volumes."""
    with directories.scratch(context.directory, "lvm-") as directory:
        paths = [re.escape(os.path.realpath(volume.path)) for volume in volumes]
        accepted = ", ".join(f'"a|^{path}$|"' for path in paths)
        # A string for LVM's parser (libdm/libdm-config.c), with these two characters escaped.
        quoted = re.sub(r'(["\\])', r"\\\1", str(directory))
        content = _CONFIGURATION.format(accepted=accepted, directory=quoted)
        context.machine.make_file(directory / "lvm.conf", content.encode())
        private = {"LVM_SYSTEM_DIR": str(directory), "LVM_SUPPRESS_FD_WARNINGS": "1"}
        yield {**context.machine.mapper_environment(), **private}


def _remove_links(links: Path) -> None:
    """Remove a group's links to its volumes, as udevd does, unless it has already done so."""
    if links.is_dir():
        with contextlib.suppress(FileNotFoundError):
            directories.remove(links)


def _prefix(group: str) -> str:
    """Return the prefix of a group's mappings. LVM doubles hyphens (lib/misc/lvm-string.c)."""
    return f"{group.replace('-', '--')}-"


def _of(group: str) -> Callable[[str], bool]:
    # Two hyphens are one of the group's name, so this is the end of it.
    pattern = re.compile(re.escape(_prefix(group)) + "[^-]")
    return lambda name: pattern.match(name) is not None
