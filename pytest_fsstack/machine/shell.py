"""`sh` for the commands of a test: in the directory of its stack, with the time limit of the session, ended with it.

https://sh.readthedocs.io documents the library. Its fork copies the page tables of the whole session and its threads
read the output, so a command takes longer than by `Timed.run`: ``python -m benchmarks shell`` prints by how much.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import sh

from pytest_fsstack.machine import commands, orphans, resident, signals


class Running(sh.RunningCommand):
    """A command that is ended, with all that it started, if its time is over or an exception ends the test."""

    def __init__(self, cmd: list[str], call_args: Mapping[str, Any], *streams: Any) -> None:
        environment = os.environ if call_args["env"] is None else call_args["env"]
        mark = os.urandom(16).hex()
        # The session's own variable is how its clean-up finds processes after a kill.
        own = {name: os.environ[name] for name in (orphans.VARIABLE,) if name in os.environ}
        self._mark, self._overdue = f"{orphans.COMMAND}={mark}", False
        name = os.path.basename(cmd[0])
        if commands.which(name) == cmd[0]:
            resident.want(name)
        with self._ending():
            super().__init__(cmd, {**call_args, "env": {**environment, **own, orphans.COMMAND: mark}}, *streams)

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the end. Raises `sh.ErrorReturnCode`, or `sh.TimeoutException` with the command and its stderr."""
        # With its own argument `_timeout`, sh takes a tenth of a second longer for each command.
        timer = threading.Timer(commands.limit, self._kill_overdue)
        timer.daemon = True
        timer.start()
        try:
            with self._ending():
                result = super().wait(timeout)
        finally:
            timer.cancel()
        signals.progress()
        return result

    def _kill_overdue(self) -> None:
        self._overdue = True
        orphans.end_marked(self._mark, [signal.SIGKILL])

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        except sh.TimeoutException as error:
            orphans.end_marked(self._mark, [signal.SIGKILL])
            raise self._timeout_error(error.exit_code) from None
        except sh.ErrorReturnCode as error:
            if not self._overdue:
                raise
            raise self._timeout_error(error.exit_code) from None
        except BaseException:
            with signals.shielded():
                orphans.end_marked(self._mark, [signal.SIGKILL])
                if self.process is not None:
                    self.process.wait()
            raise

    def _timeout_error(self, code: int | None) -> sh.TimeoutException:
        error = sh.TimeoutException(code, self.ran)
        errors = self.process.stderr.decode(errors="replace").strip()
        text = f"`{self.ran}` did not end in time (--fsstack-timeout), and was killed"
        error.args = (f"{text}: {errors}" if errors else text,)
        return error


def baked(directory: Path | None) -> Any:
    """Return `sh` with these defaults. `directory` is the working directory (None: that of this process).

    Output goes to pipes, since a terminal changes what tools print. Arguments such as ``_cwd`` override a default.
    """
    shell: Any = sh.bake(_cwd=directory and str(directory), _tty_out=False, _new_session=True, _decode_errors="replace")
    shell.Command.RunningCommandCls = Running
    return shell
