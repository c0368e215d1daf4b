"""Storage configurations as pytest parameters: build them, measure on them, compare them, judge them.

Everything that a test, a scenario, a layer, a report or a table of somebody else needs can be imported from here, and
the ready-made steps from `pytest_fsstack.workloads`. All other modules may change. A name is loaded when it is first
used, because the plugin is part of every pytest run of the machine.

PYTEST_DONT_REWRITE: the command `fsstack` imports it before pytest, which would warn that it can no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pytest_fsstack.data.archive import Corpus as Corpus
    from pytest_fsstack.data.backup import Backup as Backup
    from pytest_fsstack.data.corpus import (
        cache_directory as cache_directory,
        generated as generated,
        packed_backup as packed_backup,
        zipped as zipped,
    )
    from pytest_fsstack.data.scale import Sizes as Sizes
    from pytest_fsstack.judging.results import ChainResults as ChainResults, Results as Results
    from pytest_fsstack.layers.filesystems import Filesystem as Filesystem
    from pytest_fsstack.layers.stacked import served as served
    from pytest_fsstack.machine.commands import CommandError as CommandError, run as run
    from pytest_fsstack.machine.needs import (
        FUSE as FUSE,
        Crate as Crate,
        DeviceMapper as DeviceMapper,
        DeviceNode as DeviceNode,
        KernelCipher as KernelCipher,
        KernelFilesystem as KernelFilesystem,
        Missing as Missing,
        MissingRequirement as MissingRequirement,
        Need as Need,
        PythonTool as PythonTool,
        Root as Root,
        Tool as Tool,
    )
    from pytest_fsstack.machine.port import Machine as Machine
    from pytest_fsstack.measuring.timed import Timed as Timed
    from pytest_fsstack.report.model import Cell as Cell, Grid as Grid, View as View
    from pytest_fsstack.stack.build import BuildError as BuildError, Built as Built
    from pytest_fsstack.stack.model import (
        Block as Block,
        BlockLayer as BlockLayer,
        BuildContext as BuildContext,
        Checked as Checked,
        Directory as Directory,
        Layer as Layer,
        Limit as Limit,
        OptionError as OptionError,
        Place as Place,
        Stack as Stack,
        option as option,
    )
    from pytest_fsstack.stack.words import (
        FLAG as FLAG,
        FUSE_MOUNT as FUSE_MOUNT,
        INSIDE as INSIDE,
        KEYWORD as KEYWORD,
        MOUNT as MOUNT,
        NAME as NAME,
        NUMBER as NUMBER,
        OUTSIDE as OUTSIDE,
        SIZE as SIZE,
        TEXT as TEXT,
        CommandLine as CommandLine,
        Directories as Directories,
        Items as Items,
    )
    from pytest_fsstack.units import (
        format_quantity as format_quantity,
        format_size as format_size,
        parse_size as parse_size,
    )
    from pytest_fsstack.workloads.base import workload as workload

#: Where each public name is.
_PUBLIC = {
    "data.archive": ("Corpus",),
    "data.backup": ("Backup",),
    "data.corpus": ("cache_directory", "generated", "packed_backup", "zipped"),
    "data.scale": ("Sizes",),
    "judging.results": ("ChainResults", "Results"),
    "layers.filesystems": ("Filesystem",),
    "layers.stacked": ("served",),
    "machine.commands": ("CommandError", "run"),
    "machine.needs": (
        *("FUSE", "Crate", "DeviceMapper", "DeviceNode", "KernelCipher", "KernelFilesystem"),
        *("Missing", "MissingRequirement", "Need", "PythonTool", "Root", "Tool"),
    ),
    "machine.port": ("Machine",),
    "measuring.timed": ("Timed",),
    "report.model": ("Cell", "Grid", "View"),
    "stack.build": ("BuildError", "Built"),
    "stack.model": (
        *("Block", "BlockLayer", "BuildContext", "Checked", "Directory", "Layer", "Limit", "OptionError"),
        *("Place", "Stack", "option"),
    ),
    "stack.words": (
        *("FLAG", "FUSE_MOUNT", "INSIDE", "KEYWORD", "MOUNT", "NAME", "NUMBER", "OUTSIDE", "SIZE", "TEXT"),
        *("CommandLine", "Directories", "Items"),
    ),
    "units": ("format_quantity", "format_size", "parse_size"),
    "workloads.base": ("workload",),
}

__all__ = sorted(name for names in _PUBLIC.values() for name in names)


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _PUBLIC.items():
        if name in names:
            # Not kept: pytester forgets modules, and the source of a class of a forgotten one is not found.
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
