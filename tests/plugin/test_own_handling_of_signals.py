"""Who handles signals: pytest itself, unless there are stacks to take down."""

from __future__ import annotations

from tests.plugin.conftest import Project

TEST = """
import signal
import pytest

USUAL = {{signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGQUIT: signal.SIG_DFL}}

{mark}
def test_it({fixture}):
    for number, handler in USUAL.items():
        assert (signal.getsignal(number) == handler) is {usual}
"""


def test_a_session_without_stacks_keeps_the_usual_handling(project: Project) -> None:
    project.write(TEST.format(mark="", fixture="", usual=True))
    project.run().assert_outcomes(passed=1)


def test_a_session_with_stacks_handles_them(project: Project) -> None:
    project.write(TEST.format(mark="@pytest.mark.fsstack('plain')", fixture="fsstack", usual=False))
    project.run().assert_outcomes(passed=1)
