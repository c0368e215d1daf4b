"""Layers that another kernel can build: pytest starts in a guest of it as for the doctor, and answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from pytest_fsstack.kernels import vm
from pytest_fsstack.machine.needs import Missing, MissingRequirement
from pytest_fsstack.options import PROBED_KERNEL

#: At the start of the line with the answer: a conftest may write to stdout too.
_MARK = "fsstack-answer: "

#: Seconds that pytest may take in a guest.
_ANSWER_SECONDS = 300.0

#: What is missing, by the kind and the name of what needs it.
Answer = Mapping[tuple[str, str], Sequence[MissingRequirement]]


class ProbeError(Exception):
    """A guest did not answer; the message says why."""


def ask(machine: vm.Machine, arguments: Sequence[str], *, disk_size: int) -> Answer:
    """Boot a guest, and run pytest in it with the arguments of this session. Raises `ProbeError`."""
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
    answer = answer_in(stdout)
    if answer is None:
        output = "\n".join([*stdout.splitlines(), *stderr.splitlines()][-10:])
        raise ProbeError(f"kernel {name}: pytest did not answer in its guest; it said:\n{output}")
    return answer


def answer_text(parts: Iterable[tuple[str, str, Sequence[MissingRequirement]]]) -> str:
    """The answer as the guest writes it: kind, name and what is missing of each."""
    entries = [[kind, name, [_as_list(lack) for lack in lacks]] for kind, name, lacks in parts]
    return _MARK + json.dumps(entries)


def _as_list(lack: MissingRequirement) -> list[str]:
    return [lack.kind.value, lack.what, lack.remedy, lack.package]


def answer_in(stdout: str) -> Answer | None:
    """The answer in what a guest wrote; None if there is none."""
    line = next((line for line in stdout.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        return None
    return {
        (kind, name): [MissingRequirement(Missing(lack), *texts) for lack, *texts in lacks]
        for kind, name, lacks in json.loads(line.removeprefix(_MARK))
    }


def probed() -> bool:
    """Whether this process runs in a guest that is asked."""
    return PROBED_KERNEL in os.environ
