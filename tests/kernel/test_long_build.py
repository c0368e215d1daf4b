"""A build that takes as long as a guest, and needs none."""

from __future__ import annotations

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.workloads.build import LIBSODIUM, LUA, Source
from tests.real.conftest import built

pytestmark = pytest.mark.root


@pytest.mark.parametrize("source", [LIBSODIUM, LUA], ids=lambda source: source.name)
def test_a_program_is_built(source: Source, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("build")
    mounts.private_namespace()
    context = BuildContext(directory, Journal(directory / "journals", RealMachine()))
    with built("ext4", LoopDevice(256 << 20), context) as stack:
        clock = Timed(stack)
        workloads.compile_source(clock, stack, source, cold=False)
        assert clock.sample is not None
        # The compiler's, which is what a build mostly is.
        assert clock.sample.values["user_seconds"] > clock.sample.values["system_seconds"]
        assert (stack.path / "source" / source.top / source.product).is_file()
