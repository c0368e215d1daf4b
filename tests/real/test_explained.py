"""`fsstack stacks explain` shows the commands that run, one by one."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.stack.build import build
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext
from tests.real.layers.test_layers import SIZE

pytestmark = pytest.mark.root


def once(lines: Iterable[str]) -> list[str]:
    """Return the lines without immediate repetitions."""
    return [line for line, _ in groupby(lines)]


@pytest.mark.parametrize(
    "text",
    [
        "xfs(mount='noatime') | gocryptfs(aessiv=True)",
        "btrfs | loop(size='128M') | ext4 | bind | overlay",
        "ext4 | encfs",
        "ntfs3g",
    ],
)
def test_what_is_shown_is_what_is_run(text: str, context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    stack, device = Stack.parse(text, BUILT_IN), LoopDevice(SIZE)
    shown = [
        re.sub(r"( <&SECRET)?( &)?$", "", line)
        for line in explained(stack, device).lines
        if line and not line.startswith(("#", "mkdir"))
    ]
    ran: list[str] = []
    started = commands.started

    def noted(*argv: Any, **keywords: Any) -> AbstractContextManager[commands.Process]:
        words = [re.sub(r"/dev/loop\d+", "LOOP", re.sub(r"/fd/\d+", "/fd/SECRET", os.fspath(word))) for word in argv]
        line = shlex.join(re.sub(r"--pid=\d+", "--pid=PID-OF-THE-DAEMON", word) for word in words)
        line = line.replace(str(context.directory), "DIR")
        where = str(keywords.get("cwd") or "").replace(str(context.directory), "DIR")
        ran.append(f"(cd {where} && {line})" if where else line)
        return started(*argv, **keywords)

    monkeypatch.setattr(commands, "started", noted)
    with build(stack, device, context) as built:
        built.remount()
    # A loop device that is attached again may have the number that it had, or another.
    # While a mount is busy, as on a loaded machine, its command is repeated.
    assert once(ran) == once(re.sub(r"LOOP\d+", "LOOP", line) for line in shown)
