"""Kernels for guests of the project's own tests."""

from __future__ import annotations

import pytest

from pytest_fsstack.machine import commands, needs
from tests.kernel import boot


@pytest.mark.parametrize(
    ("package", "ci", "error"),
    [
        (boot.NEWER, "", pytest.skip.Exception),
        (boot.NEWER, "true", boot.GuestError),
        (boot.KERNEL_PACKAGE, "", boot.GuestError),
    ],
)
def test_only_outside_of_ci_tests_are_skipped_without_the_newer_kernel(
    package: str, ci: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "missing", lambda needs: [])
    monkeypatch.setattr(commands, "ended", lambda *words: (100, "", "E: No packages found\n"))
    monkeypatch.delenv("CI", raising=False)
    if ci:
        monkeypatch.setenv("CI", ci)
    with pytest.raises(error, match=rf"{package}: .*E: No packages found"):
        boot.kernel_or_skip(package)
