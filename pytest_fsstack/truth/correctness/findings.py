"""Findings of scenarios, and the known faults of layers that explain some of them."""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.records.findings import Fault, Finding
from pytest_fsstack.stack.layer import Layer
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.units import counted

#: The name under which a step keeps its findings.
KEPT = "findings"


@dataclass(frozen=True)
class KnownFault:
    """A fault of a layer in a stack, with the version of its program here, empty if that is unknown."""

    fault: Fault
    version: str

    @property
    def same_version(self) -> bool:
        return self.fault.seen_in_version(self.version)


#: The faults of layers, by the layer's name.
Faults = Mapping[str, Sequence[Fault]]


def known_in(stack: Stack, faults: Faults, scenario: str, test: str) -> list[KnownFault]:
    """Return the faults of the stack's layers in a test of a scenario.

    A fault of a program that the layer does not run here, such as zfs-fuse beside OpenZFS, is left out.
    """
    names = {scenario, f"{scenario}::{test}"}
    declared = []
    for layer in stack.layers:
        for fault in faults.get(layer.name, ()):
            command = "" if fault.program == "Linux" else _command(layer, fault.program)
            if fault.scenario in names and command is not None:
                declared.append(KnownFault(fault, version_of(fault.program, command)))
    return list(dict.fromkeys(declared))


def _command(layer: Layer, program: str) -> str | None:
    """Return the executable that a layer runs as a program, None if it runs none."""
    commands_ = [need.command for need in layer.needs() if isinstance(need, Tool)]
    return next((command for command in commands_ if os.path.basename(command).startswith(program)), None)


@functools.cache
def version_of(program: str, command: str = "") -> str:
    """Return the version that an executable reports of itself, or the kernel's release for Linux. Empty if unknown."""
    if program == "Linux":
        return platform.release()
    try:
        _, output, errors = commands.ended(command or program, "--version", timeout=10.0)
    except (OSError, commands.CommandError):
        return ""
    # Some tools report the version of a library first.
    match = re.search(rf"(?im)^{re.escape(program)}\b[^\d\n]*(\d+(?:\.\d+)+)", f"{output}\n{errors}")
    return match[1] if match else ""


@dataclass(frozen=True)
class Explained:
    """The findings of a test: those that a known fault explains, and `new` ones."""

    known: Sequence[KnownFault]
    by_fault: Mapping[Fault, Sequence[Finding]]
    new: Sequence[Finding]

    @property
    def not_shown(self) -> list[KnownFault]:
        """Return the known faults that nothing was found of."""
        return [declared for declared in self.known if not self.by_fault.get(declared.fault)]

    @property
    def comparison(self) -> str:
        """Return what differs from the versions that the faults were seen in. Empty if the versions are the same.

        For example: ``declared for gocryptfs 2.3, this is 2.6.1: 2 of 3 faults did not show, 1 finding is new``.
        """
        others = [declared for declared in self.known if declared.version and not declared.same_version]
        parts = []
        for program in dict.fromkeys(declared.fault.program for declared in others):
            faults = [declared for declared in others if declared.fault.program == program]
            versions = dict.fromkeys(version for declared in faults for version in declared.fault.versions)
            hidden = sum(declared in faults for declared in self.not_shown)
            words = f"declared for {program} {' and '.join(versions)}, this is {faults[0].version}"
            parts.append(f"{words}: {hidden} of {counted(len(faults), 'fault')} did not show")
        new = f", {counted(len(self.new), 'finding')} {'are' if len(self.new) > 1 else 'is'} new" if self.new else ""
        return f"{'; '.join(parts)}{new}" if parts else ""

    def lines(self, scripts: Path | None) -> Iterator[dict[str, str | int | list[str]]]:
        """Yield the findings as JSON data, each with the `fault` that explains it, the new ones first.

        They have what their script is made of if a directory for scripts is given.
        """
        explained = [("", finding) for finding in self.new]
        explained += [(str(fault), finding) for fault, findings in self.by_fault.items() for finding in findings]
        for fault, finding in explained:
            data: dict[str, str | int | list[str]] = {
                "fault": fault,
                "kind": finding.kind,
                "text": finding.text,
                "limits": [*finding.limits],
                "weight": finding.weight,
            }
            has_script = scripts and finding.script
            script = {"script": f"{scripts}/{finding.script}" if has_script else ""}
            yield {**data, **script, **({"program": finding.program} if has_script else {})}

    @property
    def faults_in_words(self) -> str:
        """Return the known faults that were found, each with the number of its findings."""
        counts = ((fault, len(findings)) for fault, findings in self.by_fault.items())
        return "; ".join(f"{fault} ({counted(count, 'finding')})" for fault, count in counts)


def explain(findings: Iterable[Finding], known: Sequence[KnownFault]) -> Explained:
    """Sort findings by the known fault that explains each."""
    by_fault: dict[Fault, list[Finding]] = {}
    new = []
    for finding in findings:
        fault = next((known_fault.fault for known_fault in known if known_fault.fault.explains(finding.kind)), None)
        if fault is None:
            new.append(finding)
        else:
            by_fault.setdefault(fault, []).append(finding)
    return Explained(known, by_fault, new)
