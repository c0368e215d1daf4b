"""Work in a repository of Git: clone it, ask for its status when nothing is in memory, and commit a change.

pytest docs/examples/test_git.py
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sh

from pytest_fsstack import Built, Timed

FILES = 1000
SOMEBODY = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is cloned: it stands beside the stacks, the same for all."""
    path = tmp_path_factory.mktemp("repository")
    for number in range(FILES):
        file = path / f"directory{number % 30}" / f"file{number}.c"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"int f{number}(void) {{ return {number}; }}\n" * (1 + number % 50))
    git = sh.git.bake(*SOMEBODY, _cwd=str(path))
    git.init("-q")
    git.add(".")
    git.commit("-q", "-m", "first")
    return path


@pytest.mark.fsstack("ext4", "xfs", "btrfs", "ext4 | fscrypt", "ext4 | gocryptfs")
@pytest.mark.fsstack_budget({"*": "100%", "*gocryptfs": "1000%"})
class TestGit:
    def test_clone(self, fsstack: Built, timed: Timed, repository: Path) -> None:
        with timed(files=FILES):
            timed.run("git", "clone", "-q", "--no-hardlinks", repository, fsstack.path / "clone")

    def test_status(self, fsstack: Built, timed: Timed) -> None:
        with timed():
            done = timed.run("git", "-C", fsstack.path / "clone", "status", "--porcelain")
        assert done.stdout == ""

    def test_commit(self, fsstack: Built, timed: Timed) -> None:
        for number in range(0, FILES, 10):
            (fsstack.path / "clone" / f"directory{number % 30}" / f"file{number}.c").write_text("int changed;\n")
        with timed():
            timed.run("git", *SOMEBODY, "-C", fsstack.path / "clone", "commit", "-q", "-a", "-m", "second")
