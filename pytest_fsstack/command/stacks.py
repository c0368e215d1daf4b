"""The commands of a stack."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from pytest_fsstack.command import first_word
from pytest_fsstack.command.sessions import ask
from pytest_fsstack.units import show

if TYPE_CHECKING:
    import pytest


def explain(arguments: Namespace) -> int:
    """Show the commands of a stack. Raises `CommandLineError`."""
    stack = first_word(arguments, "stacks explain: name a stack first, such as 'luks | ext4'")
    return ask(lambda config: _explain(stack, config), arguments.words)


def _explain(text: str, config: pytest.Config) -> int:

    import pytest

    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.preflight.explain import explained
    from pytest_fsstack.stack.model import Stack

    settings = Settings.of(config)
    settings.check()
    layers, device = settings.known, settings.devices[0]
    try:
        stack = Stack.parse(text, layers)
        stack.check_device(device, layers, text)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    explanation = explained(stack, device)
    show("\n".join(explanation.lines))
    if explanation.problem:
        show(f"fsstack: the rest cannot be shown: {explanation.problem}", error=True)
    return int(bool(explanation.problem))
