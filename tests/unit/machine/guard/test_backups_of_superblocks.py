"""A filesystem whose beginning and end were wiped shows by the copies that it keeps of its superblock."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.guard import reading

MIB = 1 << 20
EDGE = 16 * MIB


@pytest.mark.parametrize(
    ("argv", "start"),
    [
        (["mkfs.ext4", "-q", "-F", "-b", "1024"], 0),
        (["mkfs.ext4", "-q", "-F", "-b", "2048"], 0),
        (["mkfs.ext4", "-q", "-F", "-b", "4096"], 0),
        (["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", f"offset={MIB}"], MIB),
        (["mkfs.ext3", "-q", "-F"], 0),
        (["mkfs.xfs", "-q", "-f"], 0),
        (["mkfs.btrfs", "-q", "-f"], 0),
        (["mkntfs", "-q", "-F", "-f"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_copy_is_looked_at(argv: list[str], start: int, tmp_path: Path) -> None:
    tool = commands.which(argv[0])
    if tool is None:
        pytest.skip(f"not installed: {argv[0]}; python -m tests.install")
    image, size = tmp_path / "image", 2048 * MIB
    with image.open("wb") as file:
        file.truncate(size)
    rest = [f"{(size - start) // 1024 - 1024}"] if start else []
    subprocess.run([tool, *argv[1:], image, *rest], check=True, capture_output=True)
    places = [place for place in reading.backup_superblocks(size) if EDGE <= place < size - EDGE]
    assert places == [offset for offset, length in reading.samples(size) if length == 8192]
    with image.open("rb") as file:
        places_with_data = [place for place in places if file.seek(place) == place and file.read(8192).strip(b"\0")]
    assert places_with_data, f"{argv[0]} shows at none of {len(places)} places"


def test_places_lie_on_the_device_and_are_few() -> None:
    for size in (64 * MIB, 5 * MIB * 1024 + 512, 20 << 40):
        places = reading.backup_superblocks(size)
        assert len(places) < 1000
        assert all(place % 4096 == 0 and 0 <= place < size for place in places)
