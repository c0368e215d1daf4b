"""Layers with a configurable main tool, to compare two versions of it as two stacks."""

from __future__ import annotations

import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import commands, owners
from pytest_fsstack.machine.needs import Need, Program, Tool
from pytest_fsstack.stack.layer import Layer, OptionError, for_id, option

#: Directory names that do not identify a version.
_COMMON = ("bin", "sbin")


def _why_not_run(executable: str | None) -> str | None:
    """Return why an executable must not be run, or None if no other user can change it, or if there is none."""
    try:
        reason = owners.untrusted(Path(executable)) if executable else ""
    except OSError as error:
        reason = f"{executable}: {error.strerror}"
    if not reason:
        return None
    return f"must name a file that only root and you can change, but {reason}: copy it to a directory of your own"


@dataclass(frozen=True)
class ToolLayer(Layer):
    """A layer with a main tool. `binary` may name another executable, which gets the same arguments."""

    tool: ClassVar[Tool]

    binary: str = option(
        "",
        "the executable to run, such as another version: an absolute path or a name in PATH. It must begin with the "
        "tool's name",
    )

    def needs(self) -> list[Need]:
        return [*super().needs(), self.program]

    @property
    def program(self) -> Tool:
        """Return the required executable: `binary`, or the machine's own tool."""
        return self._program(self.binary, self.tool) if self.binary else self.tool

    def beside(self, tool: Tool) -> Tool:
        """Return another tool of the same package: from the directory of `binary`, or the machine's own.

        One that another user may change is not used.
        """
        executable = commands.which(self.binary) if self.binary else None
        path = os.path.join(os.path.dirname(executable), tool.command) if executable else ""
        return self._program(path, tool) if path and commands.which(path) and not _why_not_run(path) else tool

    @staticmethod
    def _program(path: str, tool: Tool) -> Program:
        return Program(path, tool.package, tool.elsewhere)

    def check_text(self, name: str, text: str, own: Container[str] = ()) -> None:
        """Check a text like `Layer.check_text`, but let `binary` name a file outside of the stack."""
        if name != "binary":
            super().check_text(name, text, own)
        elif problem := self._problem(text):
            raise OptionError(name, f"{problem} (got {text!r})")

    def _problem(self, path: str) -> str | None:
        if not path:
            return None
        if not path.isprintable() or ("/" in path and not path.startswith("/")):
            return "must be an absolute path, or a name that is looked up in PATH"
        if not os.path.basename(path).startswith(self.tool.command):
            # Some tools act by their name. And a shell, for example, would run the arguments as a command.
            return f"must name a file whose name begins with {self.tool.command}"
        return _why_not_run(commands.which(path))

    def label_word(self, name: str, value: object) -> str:
        """Return the label like `Layer.label_word`. For `binary`, use the innermost distinctive part of its path.

        This needs no execution, and is the same in every process and on every machine.
        """
        if name != "binary":
            return super().label_word(name, value)
        for part in reversed(Path(self.binary).parts):
            if part not in _COMMON and (word := for_id(part.removeprefix(self.tool.command).strip("_"))):
                return word
        return name
