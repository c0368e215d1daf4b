"""What tests of workloads share."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.corpus import Corpus, generated
from tests.unit.fakes import FakeStack, FakeTimed


@pytest.fixture
def clock() -> Any:
    return FakeTimed()


@pytest.fixture
def stack(tmp_path: Path) -> Any:
    path = tmp_path / "stack"
    path.mkdir()
    return FakeStack(path)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    # No more files than the sample has, so that altering any of them must be noticed.
    return generated(tmp_path_factory.mktemp("cache"), files=40, size=200_000)


@pytest.fixture
def tree(stack: Any, packed: Corpus) -> Path:
    path: Path = stack.path / "tree"
    path.mkdir()
    subprocess.run(["tar", "-xf", packed.tar, "-C", path], check=True)
    return path
