"""Kernel against kernel: chains that ran on several, as one chain whose stacks are compared across kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_fsstack.results import ROUNDS_OF_A_BOOT, ArmInfo, Chain
from pytest_fsstack.verdict import Looks


def arm_on(arm: str, kernel: str) -> str:
    """What a stack on a kernel is called, in tables and test ids."""
    return f"{arm}:{kernel}"


def merge(found: Mapping[tuple[str, int], Chain], kernels: Sequence[str], boots: int) -> Chain:
    """The chains of (kernel, boot) as one: each stack on each kernel, compared with itself on the first of `kernels`.

    Where there is only one kernel, stacks are compared with the chain's baseline, and judged, as they are in it.

    Samples are paired by round, within the boots of the same number. With one boot a round is the unit of the verdict;
    with several a boot is, because the rounds of a boot have in common what differs between boots (the layout of the
    kernel's memory, say).
    """
    some = next(iter(found.values()))
    merged = Chain(some.id, some.device, arm_on(some.baseline, kernels[0]), some.looks, some.seed, boots=boots)
    merged.groups, merged.tables, merged.remarks = dict(some.groups), list(some.tables), list(some.remarks)
    devices = dict.fromkeys(chain.device for chain in found.values())
    merged.device = ", ".join(devices)
    for arm in dict.fromkeys(name for chain in found.values() for name in chain.arms):
        for kernel in kernels:
            for (ran_on, boot), chain in found.items():
                if ran_on == kernel and arm in chain.arms:
                    _add(merged, chain, arm, kernel, boot)
            if len(kernels) > 1:
                merged.against[arm_on(arm, kernel)] = arm_on(arm, kernels[0])
    merged.steps = list(dict.fromkeys(step for chain in found.values() for step in chain.steps))
    merged.orders = max((chain.orders for chain in found.values()), key=len)
    if len(kernels) == boots == 1:
        merged.looks = some.looks
        for (step, arm), judgements in some.judgements.items():
            name = arm_on(arm, kernels[0])
            merged.judgements[step, name] = [merged.judge(step, name, each.budget) for each in judgements]
    else:
        units = boots if boots > 1 else max(1, _paired(merged))
        merged.looks = Looks.fixed(units, some.looks.alpha)
    return merged


def _add(merged: Chain, chain: Chain, arm: str, kernel: str, boot: int) -> None:
    name = arm_on(arm, kernel)
    merged.arms[name] = ArmInfo(name, chain.arms[arm].spec, chain.arms[arm].mounts)
    for step in chain.steps:
        for index, sample in chain.of(step, arm).items():
            merged.samples.setdefault((step, name), {})[boot * ROUNDS_OF_A_BOOT + index] = sample
        if (step, arm) in chain.notes:
            merged.notes[step, name] = chain.notes[step, arm]


def _paired(merged: Chain) -> int:
    """The fewest rounds in which a stack was measured on both kernels, among those that were at all."""
    counts: Iterable[int] = (
        len(set(samples) & set(merged.of(step, merged.reference(arm))))
        for (step, arm), samples in merged.samples.items()
        if merged.reference(arm) != arm
    )
    return min((count for count in counts if count), default=0)
