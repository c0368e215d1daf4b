"""Fixtures for tests of workloads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.workloads.data.archive import Corpus
from pytest_fsstack.workloads.data.corpus import generated
from tests.toolkit import NotedStack


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    # No more files than the sample has, so that altering any of them must be noticed.
    return generated(tmp_path_factory.mktemp("cache"), files=40, size=200_000)


@pytest.fixture
def tree(stack: NotedStack, packed: Corpus) -> Path:
    path = stack.path / "tree"
    path.mkdir()
    subprocess.run(["tar", "-xf", packed.tar, "-C", path], check=True)
    return path
