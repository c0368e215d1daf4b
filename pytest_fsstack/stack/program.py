"""Layers whose main tool may be another one than the machine's: two versions of it, as two stacks."""

from __future__ import annotations

import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import Program, Tool
from pytest_fsstack.stack.model import Layer, OptionError, for_id, option

#: Directories that say nothing of which version is in them.
_COMMON = ("bin", "sbin")


@dataclass(frozen=True)
class ToolLayer(Layer):
    """A layer that one tool makes. `binary` may name another executable, which gets the same arguments."""

    tool: ClassVar[Tool]

    binary: str = option(
        "",
        "the executable to run, such as another version: an absolute path or a name in PATH. It must begin with the "
        "tool's name",
    )

    @property
    def program(self) -> Tool:
        """The required executable: that of `binary`, or else the machine's own tool."""
        return self._program(self.binary, self.tool) if self.binary else self.tool

    def beside(self, tool: Tool) -> Tool:
        """A second tool of the same package: what lies in the directory of `binary`, or else the machine's own."""
        executable = commands.which(self.binary) if self.binary else None
        path = os.path.join(os.path.dirname(executable), tool.command) if executable else ""
        return self._program(path, tool) if path and commands.which(path) else tool

    @staticmethod
    def _program(path: str, tool: Tool) -> Program:
        return Program(path, tool.package, tool.elsewhere)

    def check_text(self, name: str, text: str, own: Container[str] = ()) -> None:
        """Check a text as `Layer.check_text` does, except that `binary` may name a file outside of the stack."""
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
            # Some tools go by their name; and a shell, say, would take the words for another tool as its own.
            return f"must name a file whose name begins with {self.tool.command}"
        return None

    def label_word(self, name: str, value: object) -> str:
        """Return the label as `Layer.label_word` does. For `binary` it is the innermost distinctive part of its path.

        That is known without running it, and the same in each process and on each machine.
        """
        if name != "binary":
            return super().label_word(name, value)
        for part in reversed(Path(self.binary).parts):
            if part not in _COMMON and (word := for_id(part.removeprefix(self.tool.command).strip("_"))):
                return word
        return name
