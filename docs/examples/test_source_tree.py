"""A tree of sources: packed into one archive by tar, and searched by grep, each from cold caches.

pytest docs/examples/test_source_tree.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack import Built, Timed

FILES = 1000


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is packed and searched: it stands beside the stacks, the same for all."""
    path = tmp_path_factory.mktemp("sources") / "tree"
    for number in range(FILES):
        file = path / f"directory{number % 30}" / f"file{number}.c"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"int f{number}(void) {{ return {number}; }}\n" * (50 + 20 * (number % 50)))
    return path


@pytest.mark.fsstack("ext4", "ext4 | gocryptfs")
@pytest.mark.fsstack_budget("1000%")
class TestSourceTree:
    def test_pack(self, fsstack: Built, timed: Timed, tree: Path) -> None:
        fsstack.sh.cp("-a", tree, ".")
        archive = fsstack.path / "tree.tar"
        with timed(bytes=sum(file.stat().st_size for file in tree.glob("*/*.c")), files=FILES):
            timed.run("tar", "-cf", archive, "-C", fsstack.path, "tree")
        fsstack.remount()
        assert fsstack.sh.tar("-tf", archive).count(".c\n") == FILES
        fsstack.sh.tar("--compare", "-f", archive, "-C", tree.parent)  # fails where a file differs

    @pytest.mark.fsstack_repeat("auto")
    def test_search(self, fsstack: Built, timed: Timed) -> None:
        with timed(files=FILES, direction="read"):
            done = timed.run("grep", "-rl", "return [0-9]*99;", fsstack.path / "tree")
        assert done.stdout.count("\n") == FILES // 100
