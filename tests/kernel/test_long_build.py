"""What takes as long as a guest, though it needs none."""

from __future__ import annotations

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.layers.devices import LoopDevice
from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.model import Site
from pytest_fsstack.workloads.build import LIBSODIUM
from tests.real.conftest import built

pytestmark = pytest.mark.root


def test_libsodium_is_built(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("build")
    mounts.private_namespace()
    site = Site(directory, Journal(directory / "journals"))
    with built("ext4", LoopDevice(256 << 20), site) as stack:
        clock = Timed(stack)
        workloads.compile_source(clock, stack, cold=False)
        assert clock.sample is not None
        # The compiler's, which is what a build mostly is.
        assert clock.sample.values["user_seconds"] > clock.sample.values["system_seconds"]
        assert (stack.path / "source" / LIBSODIUM.top / LIBSODIUM.product).is_file()
