"""Workloads: functions that prepare, run one timed block, and then check the work.

Each is one step of a chain. All raise `AssertionError` with the differences if a stack did not do the work, and
`pytest_fsstack.machine.commands.CommandError` if a command fails. All skip the test if a tool is not installed.

To add one, decorate its function with `workload` and its requirements, and import it below with `as`, so that tests can
import it from here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from pytest_fsstack.workloads.ageing import age as age
from pytest_fsstack.workloads.base import needs_of as needs_of, workload as workload
from pytest_fsstack.workloads.block import dd_read as dd_read, dd_write as dd_write, stream_write as stream_write
from pytest_fsstack.workloads.bonnieplus import bonnie as bonnie
from pytest_fsstack.workloads.build import (
    LUA as LUA,
    Source as Source,
    compile_source as compile_source,
    linux as linux,
)
from pytest_fsstack.workloads.command import command as command
from pytest_fsstack.workloads.copy import (
    copy_file as copy_file,
    overwrite_file as overwrite_file,
    read_back as read_back,
)
from pytest_fsstack.workloads.database import (
    Journal as Journal,
    Synchronous as Synchronous,
    rocksdb as rocksdb,
    sqlite as sqlite,
)
from pytest_fsstack.workloads.filler import fill as fill
from pytest_fsstack.workloads.fiojob import fio as fio, fio_job as fio_job
from pytest_fsstack.workloads.hardlinks import (
    RemovalOrder as RemovalOrder,
    extract_backup as extract_backup,
    remove_backup as remove_backup,
)
from pytest_fsstack.workloads.image import (
    build_image as build_image,
    read_blocks as read_blocks,
    read_files as read_files,
)
from pytest_fsstack.workloads.latency import create_files as create_files, delete_files as delete_files
from pytest_fsstack.workloads.postgresql import SynchronousCommit as SynchronousCommit, postgres as postgres
from pytest_fsstack.workloads.space import settle as settle, small_file_space as small_file_space
from pytest_fsstack.workloads.tree import (
    delete as delete,
    du as du,
    extract as extract,
    extract_over as extract_over,
    rsync_dry_run as rsync_dry_run,
    unzip as unzip,
)

#: The imported functions with declared requirements, by name.
BUILT_IN: dict[str, Callable[..., object]] = {
    name: function
    for name, function in list(globals().items())
    if isinstance(function, FunctionType) and hasattr(function, "needs")
}
