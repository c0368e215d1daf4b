"""The public names, and the modules that they are loaded from when they are first used."""

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
from pytest_fsstack.options.settings import Settings as Settings
from pytest_fsstack.records.findings import Fault as Fault, Finding as Finding
from pytest_fsstack.records.results import ChainResults as ChainResults, Results as Results
from pytest_fsstack.report.model import Cell as Cell, Grid as Grid, View as View
from pytest_fsstack.stack.build import BuildError as BuildError, Built as Built
from pytest_fsstack.stack.layer import (
    BlockLayer as BlockLayer,
    Layer as Layer,
    Limit as Limit,
    OptionError as OptionError,
    option as option,
)
from pytest_fsstack.stack.model import Stack as Stack
from pytest_fsstack.stack.places import (
    Block as Block,
    BuildContext as BuildContext,
    CheckResult as CheckResult,
    Directory as Directory,
    Place as Place,
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
from pytest_fsstack.version import __version__ as __version__
from pytest_fsstack.workloads.base import workload as workload
from pytest_fsstack.workloads.data.archive import Corpus as Corpus
from pytest_fsstack.workloads.data.backup import Backup as Backup
from pytest_fsstack.workloads.data.corpus import (
    cache_directory as cache_directory,
    generated as generated,
    packed_backup as packed_backup,
    zipped as zipped,
)
from pytest_fsstack.workloads.data.scale import Sizes as Sizes

__all__: list[str]
