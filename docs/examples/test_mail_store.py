"""A mail store, one file a message (Maildir): delivered safely, listed, and moved from `new` to `cur` when read.

pytest docs/examples/test_mail_store.py
"""

from __future__ import annotations

import os

import pytest

from pytest_fsstack import Built, Timed

MESSAGES = 500
MESSAGE = os.urandom(3000).hex().encode()


@pytest.mark.fsstack("ext4", "xfs", "btrfs", "ext4 | fscrypt", "ext4 | gocryptfs")
@pytest.mark.fsstack_budget({"*": "100%", "*gocryptfs": "1000%"})
class TestMailStore:
    def test_deliver(self, fsstack: Built, timed: Timed) -> None:
        for name in "tmp", "new", "cur":
            (fsstack.path / name).mkdir()
        with timed(files=MESSAGES):
            for number in range(MESSAGES):
                written = fsstack.path / "tmp" / str(number)
                with written.open("wb") as file:
                    file.write(MESSAGE)
                    os.fsync(file.fileno())
                written.rename(fsstack.path / "new" / str(number))

    def test_list(self, fsstack: Built, timed: Timed) -> None:
        with timed(files=MESSAGES):
            sizes = [entry.stat().st_size for entry in os.scandir(fsstack.path / "new")]
        assert sizes == [len(MESSAGE)] * MESSAGES

    def test_read(self, fsstack: Built, timed: Timed) -> None:
        with timed(files=MESSAGES):
            for number in range(MESSAGES):
                new = fsstack.path / "new" / str(number)
                assert len(new.read_bytes()) == len(MESSAGE)
                new.rename(fsstack.path / "cur" / f"{number}:2,S")
