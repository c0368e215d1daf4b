"""The verdict of a scenario on a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_fsstack.stack.build import BuildError

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


def damage_of(fsstack: Built) -> str:
    """Remount a stack whose calls have ended a server. Return why it was not usable, or ""."""
    try:
        return "the stack was not usable any more, and was remounted" if fsstack.complete() else ""
    except BuildError as error:
        return str(error)


def conclude(
    item: pytest.Item,
    timed: Timed,
    fsstack: Built,
    broken: str,
    *,
    enough: bool = False,
    of_others: bool = True,
    expected: bool = True,
) -> None:
    """Fail the test after all rounds if a promise is `broken`. A known fault of a layer is an expected failure.

    On the scenario's own stacks, after `enough` attempts, a missing failure fails the test: the fault was mended, and
    its declaration (`Layer.faults`) must go. Without `of_others`, this holds only for faults that are declared for this
    test alone. `expected` is False for a stack that avoids the faults of its layers.
    """
    scenario = item.path.stem.removeprefix("test_")
    alone = fsstack.stack.faults(f"{scenario}::{item.name.partition('[')[0]}") if expected else ""
    faults = alone or (fsstack.stack.faults(scenario) if expected else "")
    enough = enough and (of_others or bool(alone))
    if faults and not item.get_closest_marker("xfail"):
        mark = item.get_closest_marker("fsstack")
        own = {text.partition(" = ")[0] for text in mark.args} if mark else set()
        # `incomplete` ends in `pytest.fail`. Any other error of a later round is not the known fault.
        strict = enough and fsstack.stack.id in own
        item.add_marker(pytest.mark.xfail(reason=faults, strict=strict, raises=pytest.fail.Exception))
    if broken:
        timed.incomplete(f"{broken} (known faults: {faults})" if faults else broken)
