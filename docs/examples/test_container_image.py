"""A container's image of three layers: unpacked, started, and written to, on an overlay and on plain filesystems.

A plain filesystem gets one layer over the other, and what a layer deletes is deleted there. An overlay gets each into a
directory of its own, with marks for what it deletes, as container engines do it; the container writes above them.

pytest docs/examples/test_container_image.py
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_fsstack import Built, Timed

LIBRARIES = 300
DATABASE = 16 << 20
#: The layers of an image, the lowest first: contents by path. A name that begins with .wh. says that a layer below has
#: a file that is gone, and .wh..wh..opq that nothing shows of what layers below have in that directory (OCI's format).
IMAGE: dict[str, dict[str, bytes]] = {
    "base": {
        **{f"usr/lib/lib{number}.so": f"base {number};".encode() * 2000 for number in range(LIBRARIES)},
        **{f"usr/share/doc/page{number}": b"text" * 200 for number in range(LIBRARIES)},
        "etc/service.conf": b"debug = yes\n",
    },
    "update": {
        **{f"usr/lib/lib{number}.so": f"update {number};".encode() * 2000 for number in range(0, LIBRARIES, 3)},
        **{f"usr/lib/.wh.lib{number}.so": b"" for number in range(1, LIBRARIES, 3)},
        "usr/share/doc/.wh..wh..opq": b"",
    },
    "service": {
        "srv/orders.db": os.urandom(DATABASE // 2) * 2,
        "etc/service.conf": b"debug = no\n",
    },
}
FILES = sum(map(len, IMAGE.values()))
OVERLAY = f"overlay(lower='{':'.join(reversed(IMAGE))}')"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The layers as archives, which stand beside the stacks, the same for all."""
    directory = tmp_path_factory.mktemp("image")
    for layer, contents in IMAGE.items():
        with tarfile.open(directory / f"{layer}.tar", "w") as archive:
            for name, content in contents.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return {layer: directory / f"{layer}.tar" for layer in IMAGE}


def whiteouts(layer: str) -> list[tuple[Path, bool]]:
    """What a layer hides of those below: a path, and whether that is all that a directory has there."""
    found = [Path(name) for name in IMAGE[layer] if "/.wh." in name]
    names = [(path.parent, path.name.removeprefix(".wh.")) for path in found]
    return [(parent, True) if name == ".wh..opq" else (parent / name, False) for parent, name in names]


@pytest.mark.fsstack("ext4", f"overlay = ext4 | {OVERLAY}", "xfs", f"xfs-overlay = xfs | {OVERLAY}")
class TestContainerImage:
    @pytest.mark.fsstack_budget("200%")
    def test_unpack(self, fsstack: Built, timed: Timed, archives: Mapping[str, Path]) -> None:
        layered = "overlay(" in fsstack.spec
        with timed(files=FILES, preload=list(archives.values())):
            for layer, archive in archives.items():
                top = fsstack.below / layer if layered else fsstack.path
                if not layered:
                    for hidden, opaque in whiteouts(layer):
                        shutil.rmtree(top / hidden) if opaque else (top / hidden).unlink()
                timed.run("tar", "-xf", archive, "--exclude=.wh.*", "-C", top)
                if layered:
                    for hidden, opaque in whiteouts(layer):
                        if opaque:
                            (top / hidden).mkdir(parents=True)
                            os.setxattr(top / hidden, "trusted.overlay.opaque", b"y")
                        else:
                            os.mknod(top / hidden, stat.S_IFCHR, os.makedev(0, 0))
        fsstack.remount()
        assert (fsstack.path / "etc/service.conf").read_bytes() == IMAGE["service"]["etc/service.conf"]
        assert not any((fsstack.path / "usr/share").glob("doc/*"))

    @pytest.mark.fsstack_budget("200%")
    def test_start(self, fsstack: Built, timed: Timed) -> None:
        with timed():
            libraries = {path.name: path.read_bytes() for path in (fsstack.path / "usr/lib").iterdir()}
            (fsstack.path / "run").mkdir()
            (fsstack.path / "run/service.pid").write_text("1\n")
        assert len(libraries) == LIBRARIES * 2 // 3
        assert libraries["lib0.so"].startswith(b"update 0;")
        assert libraries["lib2.so"].startswith(b"base 2;")

    # An overlay copies the whole file up first, unless the filesystem below it can share the blocks, as XFS does.
    @pytest.mark.fsstack_budget({"*": "300%", "overlay": "5000%"})
    def test_first_write(self, fsstack: Built, timed: Timed) -> None:
        database = fsstack.path / "srv/orders.db"
        with timed(), database.open("ab") as file:
            file.write(b"x")
            os.fsync(file.fileno())
        assert database.stat().st_size == DATABASE + 1
