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
    from pytest_fsstack.data.archive import Corpus
    from pytest_fsstack.data.backup import Backup
    from pytest_fsstack.data.corpus import cache_directory, generated, packed_backup, zipped
    from pytest_fsstack.data.scale import Sizes
    from pytest_fsstack.judging.results import ChainResults, Results
    from pytest_fsstack.layers.filesystems import Filesystem
    from pytest_fsstack.layers.stacked import served
    from pytest_fsstack.machine.commands import CommandError, run
    from pytest_fsstack.machine.needs import (
        FUSE,
        Crate,
        DeviceMapper,
        DeviceNode,
        KernelCipher,
        KernelFilesystem,
        Missing,
        MissingRequirement,
        Need,
        PythonTool,
        Root,
        Tool,
    )
    from pytest_fsstack.machine.port import Machine
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.report.model import Cell, Grid, View
    from pytest_fsstack.stack.build import BuildError, Built
    from pytest_fsstack.stack.model import (
        Block,
        BlockLayer,
        BuildContext,
        Checked,
        Directory,
        Layer,
        Limit,
        OptionError,
        Place,
        Stack,
        option,
    )
    from pytest_fsstack.stack.words import (
        FLAG,
        FUSE_MOUNT,
        INSIDE,
        KEYWORD,
        MOUNT,
        NAME,
        NUMBER,
        OUTSIDE,
        SIZE,
        TEXT,
        CommandLine,
        Directories,
        Items,
    )
    from pytest_fsstack.units import format_quantity, format_size, parse_size
    from pytest_fsstack.workloads.base import workload

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

__all__ = [
    "FLAG",
    "FUSE",
    "FUSE_MOUNT",
    "INSIDE",
    "KEYWORD",
    "MOUNT",
    "NAME",
    "NUMBER",
    "OUTSIDE",
    "SIZE",
    "TEXT",
    "Backup",
    "Block",
    "BlockLayer",
    "BuildContext",
    "BuildError",
    "Built",
    "Cell",
    "ChainResults",
    "Checked",
    "CommandError",
    "CommandLine",
    "Corpus",
    "Crate",
    "DeviceMapper",
    "DeviceNode",
    "Directories",
    "Directory",
    "Filesystem",
    "Grid",
    "Items",
    "KernelCipher",
    "KernelFilesystem",
    "Layer",
    "Limit",
    "Machine",
    "Missing",
    "MissingRequirement",
    "Need",
    "OptionError",
    "Place",
    "PythonTool",
    "Results",
    "Root",
    "Sizes",
    "Stack",
    "Timed",
    "Tool",
    "View",
    "cache_directory",
    "format_quantity",
    "format_size",
    "generated",
    "option",
    "packed_backup",
    "parse_size",
    "run",
    "served",
    "workload",
    "zipped",
]


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _PUBLIC.items():
        if name in names:
            # Not kept: pytester forgets modules, and the source of a class of a forgotten one is not found.
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
