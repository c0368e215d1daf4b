"""Sessions of pytest that begin where all have imported the same: two thirds of a short one's time.

A process of its own imports it once, and is forked for each. It has no threads and runs no session itself, so nothing
of one is seen in another.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import pytest_fsstack
from pytest_fsstack.machine.libc import libc

#: Seconds for a session that is interrupted.
_PATIENCE = 60.0
_PR_SET_PDEATHSIG = 1


class Warm:
    """Starts its process with the first session, and ends it with `close`."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._mounts = ""

    def run(self, pytester: pytest.Pytester, *arguments: str | os.PathLike[str]) -> pytest.RunResult:
        """As `pytester.runpytest_subprocess` does it."""
        base = pytester.path / f"runpytest-{len(list(pytester.path.glob('runpytest-*')))}"
        base.mkdir()
        started = time.perf_counter()
        result = self.session(f"--basetemp={base}", *arguments)
        seconds = time.perf_counter() - started
        print(result.stdout)
        print(result.stderr, file=sys.stderr)
        return pytest.RunResult(result.returncode, result.stdout.splitlines(), result.stderr.splitlines(), seconds)

    def session(self, *words: str | os.PathLike[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``python -m pytest`` with these words to its end, with this process's environment."""
        with (
            tempfile.NamedTemporaryFile("w+", encoding="utf-8") as out,
            tempfile.NamedTemporaryFile("w+", encoding="utf-8") as err,
        ):
            code = self._ask(
                words=[os.fspath(word) for word in words],
                cwd=os.fspath(cwd or os.getcwd()),
                environment=dict(os.environ),
                out=out.name,
                err=err.name,
            )
            return subprocess.CompletedProcess(words, code, out.read(), err.read())

    def _ask(self, **request: object) -> int:
        if self._mounts != (mounts := os.readlink("/proc/self/ns/mnt")):
            # A test has given this worker mounts of its own, and its sessions must see them.
            self.close()
            self._mounts = mounts
        if self._server is None:
            # Nothing of the test that happens to be the first: no conftest, no plugin that it alone asks for.
            environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
            self._server = subprocess.Popen(
                [sys.executable, __file__],
                cwd="/",
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # Ctrl-C in a terminal reaches the worker alone, which ends its session.
                start_new_session=True,
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        try:
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            return int(self._server.stdout.readline())
        except BaseException:
            # An answer that comes later would be taken for that of another session.
            self._server.terminate()
            self.close()
            raise

    def close(self) -> None:
        """End the process, after the session that runs. That has `_PATIENCE` to tear down."""
        if self._server is not None:
            try:
                self._server.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.communicate()
            self._server = None


#: Of this worker. Its process ends with it.
WARM = Warm()
atexit.register(WARM.close)
session = WARM.session


def _serve() -> None:
    # A session has the working directory in place of this file's.
    path = sys.path[1:]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main(["--help", "--noconftest"])
    for module in pkgutil.walk_packages(pytest_fsstack.__path__, "pytest_fsstack."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    # They need not look through all that, and when they end not throw it away. The plugin unfreezes what it froze
    # itself, and would unfreeze all this as well: a third of a short session's time.
    gc.freeze()
    setattr(gc, "unfreeze", lambda: None)  # noqa: B010
    for line in sys.stdin:
        print(_exit_code_of(path, json.loads(line)), flush=True)


def _exit_code_of(path: list[str], request: dict[str, Any]) -> int:
    """Fork a session, which ends with this process, and pass SIGTERM on to it until it has ended."""
    pid = os.fork()
    if not pid:
        libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _become_session(path, **request)
    before = signal.signal(signal.SIGTERM, lambda number, frame: os.kill(pid, number))
    _, status = os.waitpid(pid, 0)
    signal.signal(signal.SIGTERM, before)
    return os.waitstatus_to_exitcode(status)


def _become_session(path: list[str], words: list[str], cwd: str, environment: dict[str, str], **files: Any) -> None:
    """The same as ``python -m pytest``. Raises SystemExit."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate((os.devnull, files["out"], files["err"])):
        fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(fd, number)
        os.close(fd)
    # Python read PYTHONPATH when this process began, for another session.
    own = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [cwd, *own, *path]
    sys.argv[1:] = words
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
