"""Layers that another kernel can build. pytest runs in a guest, like the doctor, and prints the answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from pytest_fsstack.kernels import vm
from pytest_fsstack.machine.needs import Missing, MissingRequirement
from pytest_fsstack.options import PROBED_KERNEL

#: The beginning of the line with the answer. A conftest may write to stdout too.
_MARK = "fsstack-answer: "

#: Seconds for pytest in a guest.
_ANSWER_SECONDS = 300.0

#: Missing requirements, by kind and name of the layer, device or workload.
Answer = Mapping[tuple[str, str], Sequence[MissingRequirement]]


class ProbeError(Exception):
    """A guest without an answer. The message has the reason."""


def ask(machine: vm.Machine, arguments: Sequence[str], *, disk_size: int) -> Answer:
    """Boot a guest, run pytest in it with the arguments of this session, and return its answer. Raises `ProbeError`."""
    name = machine.kernel.name
    argv = [sys.executable, "-m", "pytest", *arguments]
    try:
        with vm.Guest(machine, argv, disk_size=disk_size, env={**vm.guest_environment(), PROBED_KERNEL: name}) as guest:
            if story := guest.boot():
                raise ProbeError(story)
            stdout, stderr, in_time = guest.communicate(_ANSWER_SECONDS)
            if not in_time:
                raise ProbeError(guest.story(f"did not answer within {_ANSWER_SECONDS:g} s", stderr))
            if not guest.ended:
                raise ProbeError(guest.story("went down", stderr))
    except OSError as error:
        raise ProbeError(f"kernel {name}: cannot be started: {error}") from None
    answer = parse_answer(stdout)
    if answer is None:
        output = "\n".join([*stdout.splitlines(), *stderr.splitlines()][-10:])
        raise ProbeError(f"kernel {name}: pytest in the guest printed no answer. Its last lines:\n{output}")
    return answer


def answer_text(parts: Iterable[tuple[str, str, Sequence[MissingRequirement]]]) -> str:
    """Return the line that the guest prints: kind, name and missing requirements of each part."""
    entries = [[kind, name, [_as_list(lack) for lack in lacks]] for kind, name, lacks in parts]
    return _MARK + json.dumps(entries)


def _as_list(lack: MissingRequirement) -> list[str]:
    return [lack.kind.value, lack.what, lack.remedy, lack.package]


def parse_answer(stdout: str) -> Answer | None:
    """Parse the answer in the output of a guest. Return None if there is none."""
    line = next((line for line in stdout.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        return None
    return {
        (kind, name): [MissingRequirement(Missing(lack), *texts) for lack, *texts in lacks]
        for kind, name, lacks in json.loads(line.removeprefix(_MARK))
    }


def probed() -> bool:
    """Whether this process runs in a guest that was booted for a probe."""
    return PROBED_KERNEL in os.environ
