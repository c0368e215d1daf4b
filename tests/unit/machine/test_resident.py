"""Tools that stay in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, resident


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    pages: set[str] = set()
    monkeypatch.setattr(resident, "_kept", pages)
    monkeypatch.setattr(resident, "_names", dict(resident._names))
    resident.keep.cache_clear()
    return pages


def test_a_command_is_kept_with_its_libraries(mapped: set[str]) -> None:
    resident.keep("tar")
    assert str(Path(str(commands.which("tar"))).resolve()) in mapped
    assert any("libc.so" in name for name in mapped)


def test_links_to_kept_files_are_looked_up_after_a_cold_start(
    mapped: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(__file__)
    resident.keep_file(link)
    resident.keep_file(tmp_path / "missing")
    names: list[str] = []
    monkeypatch.setattr(os.path, "exists", names.append)
    resident.look_up()
    assert {str(link), str(tmp_path / "missing"), "/etc/ld.so.preload"} <= set(names)


def test_what_is_no_dynamic_executable_is_kept_alone(mapped: set[str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    resident.keep(str(script))
    assert mapped <= {str(script), "/etc/ld.so.cache"}
    assert str(script) in mapped


@pytest.mark.parametrize("content", ["", None])
def test_what_cannot_be_kept_is_passed_over(mapped: set[str], tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "command"
    if content is not None:
        file.write_text(content)
        file.chmod(0o755)
    resident.keep(str(file))
    assert str(file) not in mapped


def test_a_file_is_kept_if_it_is_small_beside_the_memory(mapped: set[str], tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"corpus")
    large.touch()
    os.truncate(large, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 64 + 1)
    for file in small, large:
        resident.keep_file(file)
    assert mapped == {str(small)}


def test_it_takes_no_descriptors(mapped: set[str]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    resident.keep("tar")
    assert len(os.listdir("/proc/self/fd")) == before


def test_it_asks_once(mapped: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def run(*words: object, **_: object) -> str:
        asked.append(words)
        return ""

    monkeypatch.setattr(commands, "run", run)
    resident.keep("tar")
    resident.keep("tar")
    assert len(asked) == 1


@pytest.mark.skipif(not Path("/usr/lib/locale/C.utf8").is_dir(), reason="libc has no files of this locale")
def test_the_files_of_the_locale_are_kept() -> None:
    # In processes of their own, because a locale that was chosen stays mapped.
    maps = "print(open('/proc/self/maps').read())"
    choose = f"import locale; locale.setlocale(locale.LC_ALL, ''); {maps}"
    keep = "from pytest_fsstack.machine import resident; resident.keep_locales(); print(*resident._kept, sep='\\n')"
    chosen, kept = (
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        for code in (choose, keep)
    )
    read = {words[-1] for line in chosen.splitlines() if "/C.utf8/" in (words := line.split() or [""])[-1]}
    assert any(file.endswith("LC_CTYPE") for file in read)
    assert read <= set(kept.split())


@pytest.mark.root
def test_a_kept_command_survives_a_cold_start(tmp_path: Path) -> None:
    # In a process of its own, for others in this one may have mapped the file already.
    code = """
import ctypes, mmap, os, shutil, sys
from pathlib import Path
from pytest_fsstack.machine import resident
from pytest_fsstack.measuring import timed

tool = Path(sys.argv[1])
shutil.copy(sys.executable, tool)

def cached():
    with tool.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Private and writable, so that ctypes takes it; nothing of it is touched.
        window = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    pages = -(-size // mmap.PAGESIZE)
    here = (ctypes.c_ubyte * pages)()
    start = ctypes.addressof(ctypes.c_char.from_buffer(window))
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), here) == 0
    return sum(byte & 1 for byte in here) / pages

os.sync()
timed.drop_caches()
before = cached()
resident.keep(str(tool))
timed.drop_caches()
print(before, cached())
"""
    tool = tmp_path / "tool"
    result = subprocess.run([sys.executable, "-c", code, str(tool)], capture_output=True, text=True, check=True)
    before, after = map(float, result.stdout.split())
    assert before == 0
    assert after == 1
