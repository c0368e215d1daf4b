"""Encryption in the device-mapper, inside the guest on its /dev/vda.

`tests/kernel/test_layers_in_guest.py` starts it, with the plugin and `--fsstack-device=/dev/vda`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.layers import mapper
from pytest_fsstack.machine import commands, journal, needs
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built
from pytest_fsstack.workloads import needs_of
from pytest_fsstack.workloads.direct import differing
from tests.kernel.guest.common import (
    DISK,
    check_round_trip,
    ended,
    forked,
    mapper_nodes,
    mappings,
    nothing_stays_behind,  # noqa: F401 - a fixture for all tests
    without_udevd,  # noqa: F401 - a fixture
    write,
)

ENCRYPTED = (
    "luks | ext4",
    "luks(cipher='aes-cbc-essiv:sha256', key_size=256) | ext4",
    "luks(sector_size=4096) | xfs",
    "luks | btrfs(compress='zlib')",
    "dmcrypt | ext4",
    "dmcrypt(cipher='aes-cbc-essiv:sha256', key_size=128) | ext4",
)


# -- stacks ------------------------------------------------------------------------------------------------------------


@pytest.mark.fsstack("ext4", "btrfs(compress='zlib')")
def test_plaintext_is_found_on_the_disk_without_encryption(fsstack: Built) -> None:
    check_round_trip(fsstack, hidden=False)


@pytest.mark.fsstack(*ENCRYPTED)
def test_plaintext_is_read_back_but_is_not_on_the_disk(fsstack: Built) -> None:
    check_round_trip(fsstack, hidden=True)
    assert len(mappings()) == 1


@pytest.mark.fsstack("ext4 | loop | luks | ext4")
def test_a_remount_closes_and_opens_a_mapping_that_stands_on_a_filesystem(fsstack: Built) -> None:
    data = os.urandom(64 << 10)
    file = write(fsstack, data)
    fsstack.remount()
    assert file.read_bytes() == data


@pytest.mark.fsstack("raw", "dmcrypt(cipher='aes-cbc-essiv:sha256', key_size=128)", "luks")
def test_workloads_write_to_the_device_on_top_and_through_it(fsstack: Built) -> None:
    size = 1 << 20
    for block in 4096, 65536:
        workloads.dd_write(Timed(fsstack), fsstack, size=size, block=block)
        workloads.dd_read(Timed(fsstack), fsstack, size=size, block=block, prepare=False)
    zeros = differing(DISK, Path("/dev/zero"), size, 4096) is None
    assert zeros is (fsstack.path == DISK)
    if not needs.missing(needs_of(workloads.fio)):
        workloads.fio(Timed(fsstack), fsstack, rw="randwrite", size=size, iodepth=4)
        workloads.fio(Timed(fsstack), fsstack, rw="read", size=size, direct=False)


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="class")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with the arguments and the environment of every tool that the stack's layers run."""
    tools, told = tmp_path_factory.mktemp("tools"), tmp_path_factory.mktemp("told") / "told"
    for tool in ("cryptsetup", "dmsetup", "wipefs", "mkfs.ext4", "mount"):
        wrapper = tools / tool
        wrapper.write_text(f'#!/bin/sh\n{{ echo "$0 $*"; env; }} >>{told}\nexec {commands.which(tool)} "$@"\n')
        wrapper.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        yield told


@pytest.mark.fsstack("dmcrypt | luks | ext4")
def test_two_mappings_hide_the_plaintext_and_show_their_secrets_nowhere(told: Path, fsstack: Built) -> None:
    check_round_trip(fsstack, hidden=True)
    assert len(mappings()) == 2
    secret = fsstack._context.secret
    passphrase, key = bytes(secret._digits), bytes(secret.part(0, 64))
    secrets = told.read_bytes()
    assert secrets.count(b"cryptsetup --batch-mode ") == 3
    places = {"what tools were told": secrets}
    for path in [*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]:
        with contextlib.suppress(OSError):
            places[str(path)] = path.read_bytes()
    journals = list(journal.default_directory().iterdir())
    assert journals
    places.update({str(path): path.read_bytes() for path in journals})
    for place, content in places.items():
        for form in (passphrase, key):
            assert form not in content, place
            assert form.hex().encode() not in content.lower(), place


# -- other processes ---------------------------------------------------------------------------------------------------


def test_a_mapping_of_a_session_that_was_killed_before_it_held_it_is_cleaned_up(tmp_path: Path) -> None:
    name, journals = "fsstack-1-luks", tmp_path / "journals"

    def code() -> int:
        with journal.Journal(journals, RealMachine()).entry(mapper.MAPPING, name=name):
            subprocess.run(["dmsetup", "create", name, "--table", "0 2048 zero"], check=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert ended(forked(code, tmp_path / "output")) == -signal.SIGKILL, (tmp_path / "output").read_text()
    assert mapper_nodes() == {"control", name}
    (line,) = journal.cleanup(journals, RealMachine(), lambda: {"dm": mapper.MAPPING}).undone
    assert line.startswith(f"removed the device-mapper device {name} ")


# -- without udevd -----------------------------------------------------------------------------------------------------


@pytest.mark.fsstack("luks | ext4")
@pytest.mark.usefixtures("without_udevd")
def test_mappings_come_and_go_without_udevd(fsstack: Built) -> None:
    check_round_trip(fsstack, hidden=True)
