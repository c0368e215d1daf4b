"""How a subcommand reads its words: what is wrong with them is a sentence."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from pytest_fsstack import options
from pytest_fsstack.command import CommandLineError


class Parser(argparse.ArgumentParser):
    """A parser of the words behind a subcommand, which raises `CommandLineError`."""

    def __init__(self, name: str) -> None:
        super().__init__(prog=name, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise CommandLineError(f"{self.prog}: {message}")


def as_option(name: str) -> Callable[[str], Any]:
    """Reads and checks a text as the option of pytest with that name does."""

    def read(text: str) -> Any:
        try:
            return options.named(name).read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read
