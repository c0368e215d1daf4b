"""Names of series. A name consists of test, step, stack and metric, and is stable across runs."""

from __future__ import annotations

from typing import Literal

from pytest_fsstack.records.results import ChainResults

#: `figure`: in the unit of its metric. `overhead`: over the reference on the same kernel. `kernel_overhead`: over the
#: same stack on the first kernel.
Kind = Literal["figure", "overhead", "kernel_overhead"]


def name_of(chain: ChainResults, step: str, stack: str, metric: str, kind: Kind = "figure") -> str:
    """Return a series name: ``test_mail.py::TestMail::deliver::luks+ext4::seconds``. Overheads add ``::overhead``."""
    words = [chain.id, step, chain.stacks[stack].name, metric, *([] if kind == "figure" else [kind])]
    return "::".join(words)


def kind_of(chain: ChainResults, stack: str) -> Kind:
    """Return the kind of a stack's overhead: over another stack, or over the same stack on another kernel."""
    reference = chain.stacks.get(chain.reference(stack))
    same = reference is None or reference.kernel == chain.stacks[stack].kernel
    return "overhead" if same else "kernel_overhead"
