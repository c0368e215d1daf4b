"""What is measured: functions that prepare, run one timed block, and check outside of it that the work was done.

Each is one step of a chain. All raise `AssertionError`, with what differs, where a stack did not do the work, and
`pytest_fsstack.host.CommandError` where a command fails; all skip the test where a tool is not installed.

To add one: decorate its function with `workload`, which says what it needs, and name it below.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_fsstack.workloads.ageing import age
from pytest_fsstack.workloads.base import needs_of, workload
from pytest_fsstack.workloads.block import dd_read, dd_write
from pytest_fsstack.workloads.bonnieplus import bonnie
from pytest_fsstack.workloads.build import compile_source
from pytest_fsstack.workloads.copy import copy_file, overwrite_file, read_back
from pytest_fsstack.workloads.filler import fill
from pytest_fsstack.workloads.fiojob import fio, fio_job
from pytest_fsstack.workloads.hardlinks import extract_backup, remove_backup
from pytest_fsstack.workloads.latency import create_files, delete_files
from pytest_fsstack.workloads.space import settle, small_file_space
from pytest_fsstack.workloads.stream import stream_write
from pytest_fsstack.workloads.tree import delete, du, extract, extract_over, rsync_dry_run, unzip

__all__ = [
    "BUILT_IN",
    "age",
    "bonnie",
    "compile_source",
    "copy_file",
    "create_files",
    "dd_read",
    "dd_write",
    "delete",
    "delete_files",
    "du",
    "extract",
    "extract_backup",
    "extract_over",
    "fill",
    "fio",
    "fio_job",
    "needs_of",
    "overwrite_file",
    "read_back",
    "remove_backup",
    "rsync_dry_run",
    "settle",
    "small_file_space",
    "stream_write",
    "unzip",
    "workload",
]

BUILT_IN: dict[str, Callable[..., object]] = {
    function.__name__: function
    for function in (
        stream_write,
        copy_file,
        overwrite_file,
        read_back,
        extract,
        extract_over,
        unzip,
        du,
        rsync_dry_run,
        delete,
        create_files,
        delete_files,
        extract_backup,
        remove_backup,
        small_file_space,
        settle,
        fill,
        age,
        dd_write,
        dd_read,
        fio,
        fio_job,
        bonnie,
        compile_source,
    )
}
