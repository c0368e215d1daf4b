"""Names of series: they consist of the test, the step, the stack and the metric, and stay from run to run."""

from __future__ import annotations

from typing import Literal

from pytest_fsstack.judging.results import IN_EACH_KERNEL, ChainResults

#: A figure in the unit of its metric; how much more a stack costs than its reference on the same kernel; how much more
#: it costs than itself on the first kernel.
Kind = Literal["figure", "overhead", "kernel_overhead"]


def test_of(chain: ChainResults) -> str:
    """The test or class of a chain, as pytest names it."""
    return chain.id.removesuffix(IN_EACH_KERNEL)


def name_of(chain: ChainResults, step: str, stack: str, metric: str, kind: Kind = "figure") -> str:
    """Such as ``test_mail.py::TestMail::deliver::luks+ext4::seconds``, an overhead with ``::overhead`` behind it."""
    words = [test_of(chain), step, chain.stacks[stack].name, metric, *([] if kind == "figure" else [kind])]
    return "::".join(words)


def kind_of(chain: ChainResults, stack: str) -> Kind:
    """Return the kind of reference of an overhead: another stack on its kernel, or the same stack on another kernel."""
    reference = chain.stacks.get(chain.reference(stack))
    same = reference is None or reference.kernel == chain.stacks[stack].kernel
    return "overhead" if same else "kernel_overhead"
