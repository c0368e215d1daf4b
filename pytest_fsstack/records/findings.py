"""Findings of scenarios, and the faults of layers that explain some of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Finding:
    """A broken promise in one line, and its kind.

    The kind has no numbers that a seed decides, so another run finds the same kind. In `contents` it is the call, what
    was wrong after it, and the conditions of the call: ``fsync: ENOENT (unlinked)``. Other scenarios have their own
    kinds (docs/truth.md).
    """

    kind: str
    text: str
    #: The file that --fsstack-counterexamples writes, and what it is made of, as a literal of Python.
    script: str = ""
    program: str = ""
    #: Limits that would permit it, by name, if the layer declared one of them.
    limits: tuple[str, ...] = ()
    #: Findings with a smaller number are worse.
    weight: int = 0


@dataclass(frozen=True)
class Fault:
    """A known fault of a layer. In `scenario`, findings of its `kinds` are expected, and all others fail the test.

    `scenario` may name one test of a scenario (``power_cut::test_sync_of_all``). `kinds` are kinds of findings, with
    ``*`` for any text. `words` say what goes wrong and where that is reported. `seen_in` has the versions that have the
    fault, as the name of a program and a number: ``("mydaemon 1.4",)``, or ``("Linux 6.12",)`` for a fault of the
    kernel. The version 1.4 stands for 1.4.2 too. On other versions the fault is still expected, and the report says
    which version was tested. Raises `ValueError`.
    """

    scenario: str
    kinds: tuple[str, ...]
    words: str
    seen_in: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.kinds, tuple) or not all(kind.strip("* ") for kind in self.kinds) or not self.kinds:
            raise ValueError(f"Fault({self.words!r}): kinds must be a tuple of kinds of findings (got {self.kinds!r})")
        programs = {text.rpartition(" ")[0] for text in self.seen_in}
        if len(programs) != 1 or not all(re.fullmatch(r"\S.* v?\d[\w.]*", text) for text in self.seen_in):
            raise ValueError(
                f"Fault({self.words!r}): seen_in must name one program with its versions, as in ('mydaemon 1.4',) "
                f"(got {self.seen_in!r})"
            )

    def __str__(self) -> str:
        return f"{self.shown_versions}: {self.words}"

    @property
    def program(self) -> str:
        """Return the name of the program with the fault."""
        return self.seen_in[0].rpartition(" ")[0]

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(text.rpartition(" ")[2].removeprefix("v") for text in self.seen_in)

    @property
    def shown_versions(self) -> str:
        return f"{self.program} {' and '.join(self.versions)}"

    def explains(self, kind: str) -> bool:
        """Whether findings of this kind are expected."""
        return any(fnmatchcase(kind, pattern) for pattern in self.kinds)

    def seen_in_version(self, version: str) -> bool:
        """Whether a version is one of those that have the fault."""
        # The kernel's release goes on with words, as in 6.12.9-amd64.
        return any(re.match(rf"{re.escape(seen)}(?!\w)", version) for seen in self.versions)
