"""Stand-ins for a terminal: what pytest's reporter writes, and what a screen then shows."""

from __future__ import annotations

import re


class Reporter:
    """As much of pytest's terminal reporter as is used, which keeps what is written to it."""

    def __init__(self, *, isatty: bool = False, verbosity: int = 0) -> None:
        self.isatty, self.hasmarkup, self.verbosity = isatty, isatty, verbosity
        self.currentfspath: object = "test_it.py"
        self.text = ""

    def ensure_newline(self) -> None:
        if self.currentfspath:
            self.write("\n")
            self.currentfspath = None

    def write(self, content: str, *, flush: bool = False) -> None:
        self.text += content

    def write_line(self, line: str) -> None:
        self.ensure_newline()
        self.write(f"{line}\n")

    def section(self, title: str, sep: str = "=") -> None:
        self.ensure_newline()
        self.text += f"{sep * 3} {title} {sep * 3}\n"

    def flush(self) -> None:
        pass


def screen(text: str, width: int = 80) -> list[str]:
    """The lines that a terminal shows after `text`, from its first to the last one on which anything was written.

    It knows what the view uses: the cursor goes up and to the left, lines are erased, colours do not show.
    Lines that are too long are broken. Raises `ValueError` for any other control sequence.
    """
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", text):
        if part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            column = 0
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part.startswith("\x1b["):
            if part.endswith("A"):
                row -= int(part[2:-1])
            elif not part.endswith("m") and part not in ("\x1b[?25l", "\x1b[?25h"):
                raise ValueError(f"unknown: {part!r}")
        else:
            for character in part:
                if column == width:
                    row, column = row + 1, 0
                    lines += [""] * (row + 1 - len(lines))
                lines[row] = lines[row].ljust(column)[:column] + character + lines[row][column + 1 :]
                column += 1
    return [line.rstrip() for line in lines]
