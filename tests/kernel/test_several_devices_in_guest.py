"""The layers on several devices on a kernel that has software RAID, the device-mapper and bcache.

One guest with four disks runs all of `guest/inside_several_devices.py`; each of its tests is a test here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.conftest import Guest, names_in
from tests.kernel.guest import inside_several_devices
from tests.kernel.guest.inside_several_devices import DISKS

pytestmark = [pytest.mark.root, pytest.mark.kernel]


@pytest.fixture(scope="session")
def guest(run_in_guest: Callable[..., Guest]) -> Guest:
    device = "+".join(map(str, DISKS))
    inside = Path(inside_several_devices.__file__)
    return run_in_guest(inside, f"--fsstack-device={device}", disks=len(DISKS))


@pytest.mark.parametrize("name", names_in(inside_several_devices))
def test_in_guest(guest: Guest, name: str) -> None:
    guest.check(name)


def test_nothing_else_ran_in_the_guest(guest: Guest) -> None:
    assert set(guest.outcomes) == set(names_in(inside_several_devices))
