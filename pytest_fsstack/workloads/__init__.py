"""What is measured: functions that prepare, run one timed block, and check outside of it that the work was done.

Each is one step of a chain. All raise `AssertionError`, with what differs, where a stack did not do the work, and
`pytest_fsstack.host.CommandError` where a command fails; all skip the test where a tool is not installed.

To add one: decorate its function with `workload`, which says what it needs, and name it below.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_fsstack.workloads.base import needs_of, workload
from pytest_fsstack.workloads.block import dd_read, dd_write
from pytest_fsstack.workloads.bonnieplus import bonnie
from pytest_fsstack.workloads.build import compile_source
from pytest_fsstack.workloads.fiojob import fio, fio_job
from pytest_fsstack.workloads.stream import stream_write
from pytest_fsstack.workloads.tree import delete, du, extract, rsync_dry_run

__all__ = [
    "BUILT_IN",
    "bonnie",
    "compile_source",
    "dd_read",
    "dd_write",
    "delete",
    "du",
    "extract",
    "fio",
    "fio_job",
    "needs_of",
    "rsync_dry_run",
    "stream_write",
    "workload",
]

BUILT_IN: dict[str, Callable[..., object]] = {
    function.__name__: function
    for function in (
        stream_write,
        extract,
        du,
        rsync_dry_run,
        delete,
        dd_write,
        dd_read,
        fio,
        fio_job,
        bonnie,
        compile_source,
    )
}
