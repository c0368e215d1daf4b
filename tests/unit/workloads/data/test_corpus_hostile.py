"""Caches of killed sessions, and users without a home."""

from __future__ import annotations

import fcntl
import os
import pwd
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from pytest_fsstack.units import parse_size
from pytest_fsstack.workloads.data import corpus
from pytest_fsstack.workloads.data.archive import CorpusError

KILLED = """
import os, sys
from pathlib import Path
from pytest_fsstack.workloads.data import corpus
from pytest_fsstack.workloads.data.archive import CorpusError
with corpus._replacing(Path(sys.argv[1]) / "big") as out:
    out.write(bytes(1 << 20))
    out.flush()
    os.kill(os.getpid(), 9)
"""


def test_nothing_of_an_unfinished_file_stays_after_a_kill(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert result.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def unfinished(cache: Path) -> Path:
    """Return an unfinished file as on a filesystem that has no files without a name."""
    file = cache / "new"
    file.touch()
    descriptor = os.open(file, os.O_RDONLY)
    name = corpus._name_of(descriptor)
    os.close(descriptor)
    return file.rename(cache / name)


def test_where_files_have_names_the_stale_ones_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale, young, open_ = (unfinished(tmp_path) for _ in range(3))
    names = ".gitignore", ".env", ".fsstack-notes", ".x.00000000", ".fsstack-0000000000000000.part"
    # A file that was restored from a backup has the name, and another inode.
    foreign = [*(tmp_path / name for name in names), tmp_path / stale.name.replace("-", "-1", 1)]
    for path in foreign:
        path.touch()
    for path in stale, open_, *foreign:
        os.utime(path, (time.time() - 7200,) * 2)
    with open_.open("rb") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        with corpus._replacing(tmp_path / "new") as out:
            out.write(b"data")
    assert sorted(tmp_path.iterdir()) == sorted([young, open_, *foreign, tmp_path / "new"])
    assert (tmp_path / "new").read_bytes() == b"data"


def test_a_user_without_an_entry_in_passwd_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", classmethod(nobody))
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__, raising=False)
    assert corpus.cache_directory().name == f"pytest-fsstack-cache-{os.geteuid()}"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives directories to another user")
@pytest.mark.parametrize("spoil", ["parent", "cache", "mode"])
def test_a_cache_that_others_may_change_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    usual = tmp_path / "cache/pytest-fsstack"
    assert corpus.chosen_cache() == (usual, "")
    usual.mkdir(parents=True)
    assert corpus.chosen_cache() == (usual, "")
    if spoil == "mode":
        usual.chmod(0o777)
    else:
        os.chown(usual if spoil == "cache" else usual.parent, 65534, 65534)
    place, reason = corpus.chosen_cache()
    assert place == tmp_path / "home/.cache/pytest-fsstack"
    assert str(usual) in reason
    # As after `sudo -E`: another user owns that home as well.
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", 65534, 65534)
    assert corpus.cache_directory() == Path(pwd.getpwuid(0).pw_dir, ".cache/pytest-fsstack")


def test_what_runs_as_root_is_not_packed_as_such(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for name, mode in ("user", 0o4755), ("group", 0o2755), ("plain", 0o755):
        (tmp_path / "tree" / name).write_text("text")
        (tmp_path / "tree" / name).chmod(mode)
    packed = corpus.users_corpus(tmp_path / "tree", tmp_path / "cache")
    with tarfile.open(packed.tar) as archive:
        assert {member.mode for member in archive if member.isreg()} == {0o755}


@pytest.mark.parametrize("text", ["9" * 400, "1" * 5000 + "G"])
def test_a_size_of_hundreds_of_digits_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ValueError, match=rf"'{text[:20]}'.* {len(text)}\b") as caught:
        parse_size(text)
    assert len(str(caught.value)) < 100


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("kind", ["link", "parent", "directory", "file"])
def test_a_cache_that_another_user_makes_after_it_was_chosen_is_not_used(tmp_path: Path, kind: str) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    cache, victim = tmp_path / "shared/cache/pytest-fsstack", tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    if kind == "link":
        cache.parent.symlink_to(victim)
    else:
        cache.mkdir(parents=True)
    path = cache / "payload"
    if kind == "file":
        path.write_text("of another user")
        os.chown(path, 65534, 65534)
        cache.chmod(0o777)
    else:
        os.chown({"link": cache.parent, "parent": cache.parent, "directory": cache}[kind], 65534, 65534, **_ITSELF)
    for use in (
        lambda: corpus.payload(cache, 1 << 20, 1),
        lambda: corpus.generated(cache, files=3, size=100),
        lambda: corpus.users_corpus(archive(tmp_path), cache),
    ):
        with pytest.raises(CorpusError, match=r"user 65534|every user"):
            use()
    assert os.listdir(victim) == ["file"]


_ITSELF = {"follow_symlinks": False}


def archive(directory: Path) -> Path:
    with tarfile.open(directory / "mine.tar", "w") as tar:
        tar.add(__file__, "file")
    return directory / "mine.tar"


#: Puts a link of nobody in the place of a directory, and back, as fast as it can.
SWAPPING = """
import os, sys
place, own, link = sys.argv[1:]
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print("ready", flush=True)
while True:
    for new in own, link:
        try:
            os.rename(place, place + ".old")
            os.rename(new, place)
            os.rename(place + ".old", new)
        except OSError:
            pass
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
def test_a_cache_reached_through_a_link_that_changes_all_the_time_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    foreign, safe, victim = tmp_path / "foreign", tmp_path / "safe", tmp_path / "victim"
    for path in foreign, safe, victim:
        path.mkdir()
        path.chmod(0o755)
    for name, target in ("place", safe), ("one", safe), ("two", victim):
        (foreign / name).symlink_to(target)
        os.chown(foreign / name, 65534, 65534, follow_symlinks=False)
    os.chown(foreign, 65534, 65534)
    words = [sys.executable, "-c", SWAPPING, *(str(foreign / name) for name in ("place", "one", "two"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        for _ in range(300):
            with pytest.raises(CorpusError):
                corpus.payload(foreign / "place/cache", 4096, 1)
        attacker.kill()
    assert not list(safe.iterdir())
    assert not list(victim.iterdir())
