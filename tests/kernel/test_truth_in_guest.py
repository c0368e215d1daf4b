"""The scenarios of the truth on stacks that an ordinary kernel may lack, at *smoke* and in one round.

Not that of bit rot, which reads the whole device for each flip: under emulation it takes an hour.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack import Crate
from tests.kernel import boot

pytestmark = [pytest.mark.root, pytest.mark.kernel]

#: For each scenario, the stacks that only the guest has, and what its table counts of each of them.
STACKS = {
    "power_cut": (("luks+ext4",), "cuts"),
    "posix": (("luks", "ecryptfs"), "posix_run"),
    "contents": (("luks", "ecryptfs"), "contents_calls"),
}


@pytest.mark.parametrize("scenario", STACKS)
def test_a_scenario_of_the_truth_in_a_guest(scenario: str, tmp_path: Path) -> None:
    if scenario == "posix" and (lack := Crate("pjdfstest").missing()):
        pytest.skip(str(lack))
    stacks, counted = STACKS[scenario]
    # The kernel stands behind the stack in an id.
    names = " or ".join(f"[{stack}:" for stack in stacks)
    chosen = ["-k", f"({names}) and not test_database", f"scenarios/test_{scenario}.py"]
    chains = boot.run_scenarios(tmp_path, "--fsstack-size=384M", *chosen)
    assert chains
    for chain in chains:
        (kernel,) = {name.partition(":")[2] for name in chain.stacks}
        for name in (f"{stack}:{kernel}" for stack in stacks):
            assert [key.number for key in chain.of(chain.steps[0], name)] == [0], chain.note(chain.steps[0], name)
            (count,) = chain.series(chain.steps[0], name, counted)
            assert count > 0
