"""A program is built, from a source as small as one may be, and what is wrong with it is noticed."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack import workloads
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.workloads import build
from pytest_fsstack.workloads.build import Header, LocalFile, PyPI, Source, linux
from tests.toolkit import NotedStack, NotedTimed, block

MAKEFILE = """\
program: $(sort $(wildcard *.c)) config.h
\tgcc -o $@ $(filter %.c,$^)
\techo "$$CCACHE_DISABLE" > ccache
clean:
\ttrue
"""
FILES = {"main.c": '#include "config.h"\nint other(void);\nint main(void) { return other() + NUMBER; }\n'}
FILES |= {"other.c": "int other(void) { return 0; }\n", "Makefile": MAKEFILE}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    directory = tmp_path / "source" / "program-1.0"
    directory.mkdir(parents=True)
    for name, text in FILES.items():
        (directory / name).write_text(text)
    archive = tmp_path / "program-1.0.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", directory.parent, directory.name], check=True)
    configure = (("sh", "-c", "echo '#define NUMBER 0' > config.h"),)
    return Source(
        "program", LocalFile(archive, "make it"), "program-1.0", configure, (), "program", product_bytes=5_000
    )


class TestCompile:
    def test_builds_what_it_unpacks(self, clock: NotedTimed, stack: NotedStack, source: Source) -> None:
        workloads.compile_source(clock, stack, source, jobs=3)
        top = stack.path / "source" / "program-1.0"
        assert subprocess.run([top / "program"]).returncode == 0
        assert clock.inside == [("make", "-s", "-j3")]
        assert clock.blocks == [block(cold=True)]
        assert (top / "ccache").read_text() == "1\n"
        assert stack.remounts == 1

    def test_builds_what_a_step_before_has_unpacked(self, clock: NotedTimed, stack: NotedStack, source: Source) -> None:
        (stack.path / "tree").mkdir()
        subprocess.run(["tar", "-xf", source.archive.path(), "-C", stack.path / "tree"], check=True)
        unreachable = replace(source, archive=LocalFile(source.archive.path(), ""), targets=("program",))
        workloads.compile_source(clock, stack, unreachable, tree="tree")
        assert clock.inside == [("make", "-s", f"-j{len(os.sched_getaffinity(0))}", "program")]

    def test_builds_a_directory(
        self, clock: NotedTimed, stack: NotedStack, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        workloads.compile_source(clock, stack, replace(source, archive=LocalFile(tmp_path / "source", "")))
        assert (stack.path / "source" / "program-1.0" / "program").exists()

    def test_is_not_misled_by_the_environment(
        self, clock: NotedTimed, stack: NotedStack, source: Source, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAKEFLAGS", "n")
        monkeypatch.setenv("CCACHE_DISABLE", "")
        workloads.compile_source(clock, stack, source)
        assert (stack.path / "source" / "program-1.0" / "program").exists()

    def test_a_tree_that_is_built_already_is_refused(
        self, clock: NotedTimed, stack: NotedStack, source: Source
    ) -> None:
        workloads.compile_source(clock, stack, source)
        with pytest.raises(FileExistsError, match=r"^compile_source: .*/program-1\.0/program\b"):
            workloads.compile_source(clock, stack, source)
        assert len(clock.inside) == 1

    def test_another_tree_is_refused(self, clock: NotedTimed, stack: NotedStack, source: Source) -> None:
        (stack.path / "tree").mkdir()
        with pytest.raises(AssertionError, match=r"^compile_source: tree .*\bprogram-1\.0\b.*\bprogram\b"):
            workloads.compile_source(clock, stack, source, tree="tree")
        assert clock.blocks == []

    def test_a_build_that_fails_is_an_error(self, clock: NotedTimed, stack: NotedStack, source: Source) -> None:
        broken = replace(source, configure=(("sh", "-c", "echo '#define NUMBER (' > config.h"),))
        with pytest.raises(commands.CommandError, match=r"(?s)make .*expected expression"):
            workloads.compile_source(clock, stack, broken)

    def test_a_configuration_that_fails_is_an_error(self, clock: NotedTimed, stack: NotedStack, source: Source) -> None:
        with pytest.raises(commands.CommandError, match="no good"):
            workloads.compile_source(
                clock, stack, replace(source, configure=(("sh", "-c", "echo no good >&2; exit 1"),))
            )
        assert clock.blocks == []

    def test_what_made_nothing_is_noticed(self, clock: NotedTimed, stack: NotedStack, source: Source) -> None:
        with pytest.raises(AssertionError, match=r"^compile_source: \D*\bprogram$"):
            workloads.compile_source(clock, stack, replace(source, targets=("clean",)))

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (lambda whole: whole[:4000], r"program .*4,000 bytes.* program .*5,000"),
            (lambda whole: bytes(len(whole)), r"program .*\bELF\b"),
            (lambda whole: whole[:-100], r"program [^\d]*[\d,]+ bytes.* header [\d,]+$"),
        ],
        ids=["short", "zeros", "truncated"],
    )
    def test_a_product_that_is_not_whole_is_noticed(
        self, clock: NotedTimed, stack: NotedStack, source: Source, content: Any, message: str
    ) -> None:
        product = stack.path / "source" / "program-1.0" / "program"
        stack.broken = lambda: product.write_bytes(content(product.read_bytes()))
        with pytest.raises(AssertionError, match=rf"^compile_source: \D*\b{message}"):
            workloads.compile_source(clock, stack, source)

    def test_is_skipped_without_the_source(
        self, clock: NotedTimed, stack: NotedStack, source: Source, tmp_path: Path
    ) -> None:
        with pytest.raises(pytest.skip.Exception, match=r"/none\.tar: apt install it$"):
            workloads.compile_source(
                clock, stack, replace(source, archive=LocalFile(tmp_path / "none.tar", "apt install it"))
            )
        with pytest.raises(pytest.skip.Exception, match=r"no/such\.h: .*\blibsuch-dev$"):
            workloads.compile_source(clock, stack, replace(source, needs=(Header("no/such.h", "libsuch-dev"),)))
        assert list(stack.path.iterdir()) == []


@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda rest: b"\x7fELF" + rest))
def test_any_bytes_are_an_elf_file_or_not(content: bytes) -> None:
    end = build._elf_end(io.BytesIO(content))
    assert end is None or (content[:4] == b"\x7fELF" and end >= 0)


def test_a_real_program_ends_where_its_header_says() -> None:
    with Path(sys.executable).resolve().open("rb") as file:
        end = build._elf_end(file)
    assert end is not None
    assert 0 < end <= Path(sys.executable).resolve().stat().st_size


def test_a_header_that_is_there() -> None:
    if reason := str(build._CC.missing() or ""):
        pytest.skip(reason)
    assert Header("stddef.h", "gcc").missing() is None


class TestPyPI:
    """The project lies in a directory that is pip's only index: the network has no part in it."""

    @pytest.fixture(autouse=True)
    def index(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        index = tmp_path / "index"
        index.mkdir()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(index)}.items():
            monkeypatch.setenv(f"PIP_{name}", value)
        return index

    def put(self, index: Path) -> PyPI:
        """A source distribution whose build backend needs nothing else."""
        backend = (
            "def prepare_metadata_for_build_wheel(directory, config_settings=None):\n"
            "    import os\n"
            "    os.mkdir(os.path.join(directory, 'small-1.0.dist-info'))\n"
            "    with open(os.path.join(directory, 'small-1.0.dist-info', 'METADATA'), 'w') as file:\n"
            "        file.write('Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n')\n"
            "    return 'small-1.0.dist-info'\n"
            "def build_wheel(*args, **kwargs):\n"
            "    raise AssertionError\n"
        )
        project = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        file = index / "small-1.0.tar.gz"
        with tarfile.open(file, "w:gz") as archive:
            for name, text in {"backend.py": backend, "pyproject.toml": project}.items():
                member = tarfile.TarInfo(f"small-1.0/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return PyPI("small", "1.0", file.name, hashlib.sha256(file.read_bytes()).hexdigest())

    def test_is_got_once(self, index: Path) -> None:
        project = self.put(index)
        assert project.missing() is None
        assert project.path().read_bytes() == (index / project.file).read_bytes()
        (index / project.file).unlink()
        assert project.missing() is None
        assert [path.name for path in project.path().parent.iterdir()] == [project.file]

    def test_that_is_damaged_is_got_anew(self, index: Path) -> None:
        project = self.put(index)
        project.path().parent.mkdir(parents=True)
        project.path().write_bytes(b"damaged")
        assert project.missing() is None
        assert project.path().read_bytes() == (index / project.file).read_bytes()

    def test_that_is_another_one_is_refused(self, index: Path) -> None:
        given = self.put(index)
        project = replace(given, sha256="0" * 64)
        assert re.search(
            rf"small-1\.0\.tar\.gz .*\b{given.sha256}\b.* 0{{64}}\): pip download ", str(project.missing())
        )
        assert not project.path().exists()

    def test_that_cannot_be_had_says_how_to_get_it(self, index: Path) -> None:
        reason = str(PyPI("no-such-project", "1.0", "x.tar.gz", "0").missing())
        assert re.search(r"no-such-project .*PyPI \(ERROR: ", reason)
        command = "pip download --no-deps --no-binary no-such-project"
        assert reason.endswith(f": {command} -d {index.parent}/cache/pytest-fsstack no-such-project==1.0")


class TestLinux:
    def test_the_newest_one_is_taken(self, tmp_path: Path) -> None:
        for version in "5.10", "6.1", "6.12":
            (tmp_path / f"linux-source-{version}.tar.xz").touch()
        newest = build._newest(tmp_path.glob("*"))
        assert newest == tmp_path / "linux-source-6.12.tar.xz"
        assert build._newest([]) is None
        source = linux(newest)
        assert source.top == "linux-source-6.12"
        assert source.name == "linux tinyconfig"
        assert source.configure == (("make", "-s", "tinyconfig"),)
        assert Header("gelf.h", "libelf-dev") not in source.needs
        assert Header("gelf.h", "libelf-dev") in linux(newest, config="defconfig").needs

    @pytest.mark.parametrize(("suffix", "compress"), [("", "cat"), (".xz", "xz"), (".gz", "gzip")])
    def test_a_distributions_configuration(self, tmp_path: Path, suffix: str, compress: str) -> None:
        config = tmp_path / f"config it's{suffix}"
        config.write_bytes(subprocess.run(compress, input=b"CONFIG_X=y\n", capture_output=True).stdout)
        source = linux(Path("/x/linux-6.1.tar"), config=config)
        assert source.top == "linux-6.1"
        subprocess.run(source.configure[0], cwd=tmp_path, check=True)
        assert (tmp_path / ".config").read_text() == "CONFIG_X=y\n"
        assert Header("gelf.h", "libelf-dev") in source.needs
        missing = source.archive.missing()
        assert missing
        assert "/x/linux-6.1.tar" in missing.what
        assert missing.remedy == needs.install_command(["linux-source"])

    def test_a_configuration_that_is_not_there(self, tmp_path: Path) -> None:
        source = linux(Path("/x/linux-source-6.1.tar.xz"), config=tmp_path / "none")
        missing = source.needs[-1].missing()
        assert missing
        assert f"{tmp_path}/none" in missing.what
        assert missing.remedy == needs.install_command(["linux-config-6.1"])

    def test_the_distributions_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build, "_newest", lambda found: None)
        monkeypatch.setattr("platform.release", lambda: "6.1.0-9-amd64")
        assert linux(config="distribution").name == "linux config-6.1.0-9-amd64"
