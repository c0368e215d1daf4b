"""The layers that there are, and what a stack of them would run."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from pytest_fsstack.command import first_word
from pytest_fsstack.command.sessions import ask

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    import pytest

    from pytest_fsstack.stack.model import Layer


def stacks(arguments: Namespace) -> int:
    """List the layers."""
    return ask(_list, arguments.words)


def explain(arguments: Namespace) -> int:
    """Show the commands of a stack. Raises `CommandLineError`."""
    stack = first_word(arguments, "stacks explain: name a stack first, such as 'luks | ext4'")
    return ask(lambda config: _explain(stack, config), arguments.words)


def _known_layers(config: pytest.Config) -> MutableMapping[str, type[Layer]]:
    from pytest_fsstack.layers import known

    return known(config.hook.pytest_fsstack_layers())


def _list(config: pytest.Config) -> int:
    from tabulate import tabulate

    from pytest_fsstack.machine import needs

    rows: list[list[str]] = []
    for name, layer in _known_layers(config).items():
        requirements = layer().needs()
        lacks = needs.lacking(requirements)
        takes = " or ".join(kind.kind for kind in layer.takes)
        words = ", ".join(dict.fromkeys(filter(None, map(needs.in_words, requirements))))
        first, *more = [(lack.what, lack.remedy) for lack in lacks] or [("", "")]
        rows.append([name, takes, layer.gives.kind, words, "no" if lacks else "yes", *first])
        rows += [["", "", "", "", "", *lack] for lack in more]
    titles = ["layer", "stands on a", "gives a", "needs", "runs here", "missing", "how to get it"]
    print(tabulate(rows, titles, disable_numparse=True))
    print("\nfsstack stacks explain 'luks | ext4' shows the commands of a stack; docs/layers.md has all options")
    return 0


def _explain(text: str, config: pytest.Config) -> int:
    import sys

    import pytest

    from pytest_fsstack.options.settings import read_settings
    from pytest_fsstack.preflight.explain import explained
    from pytest_fsstack.stack.model import Stack

    layers = _known_layers(config)
    names = frozenset(name for reports in config.hook.pytest_fsstack_reports() for name in reports)
    device = read_settings(config, layers, names).devices[0]
    try:
        stack = Stack.parse(text, layers)
        stack.check_device(device, layers, text)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    explanation = explained(stack, device)
    print("\n".join(explanation.lines))
    if explanation.problem:
        print(f"fsstack: the rest cannot be shown: {explanation.problem}", file=sys.stderr)
    return int(bool(explanation.problem))
