"""One run of a laboratory. Another process can continue it from its directory."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from pytest_fsstack.fleet.laboratory import slurm
from pytest_fsstack.fleet.laboratory.settings import Python, Settings, SettingsError
from pytest_fsstack.fleet.laboratory.slurm import HostError, NoAnswerError, SlurmError
from pytest_fsstack.machine import owners, reading
from pytest_fsstack.machine.directories import HeldDirectory, scratch
from pytest_fsstack.units import reason_of, show
from pytest_fsstack.version import __version__

#: The directory of the scripts that run on hosts.
SCRIPTS = Path(__file__).parent
#: The script that prepares a host.
_PREPARE = "prepare.sh"
#: The module that decides on a host which directories are the laboratory's own.
_OWNERS = Path(owners.__file__)
#: The laboratory's directory below the one that LAB.toml names. Only in it, files are removed after some time.
OWN = "fsstack-laboratory"
#: The number of hosts that exchange files with this machine at the same time.
_MAX_TRANSFERS = 16
#: Seconds for making all wheels.
_WHEELS_TIMEOUT = 1800.0
#: Seconds without an answer from Slurm before a run is abandoned.
_PATIENCE = 3600.0
#: Seconds between two checks of the queue: at first, and at most.
_POLL = 1.0, 30.0

Notify = Callable[[str], None]

#: Errors of a single host, which do not end the run.
HOST_ERRORS = HostError, SlurmError


class RunError(Exception):
    """A run that cannot begin or continue. The message has the reason."""


class Task(msgspec.Struct):
    """One session on a host."""

    kernel: str = ""
    #: The last known state, in the terms of Slurm.
    state: str = ""


class Host(msgspec.Struct):
    """A host of the run and its sessions, one for each kernel."""

    name: str
    disk: str
    directory: str
    labels: dict[str, str]
    tasks: list[Task]
    #: The job number of Slurm.
    job: str = ""
    #: Why results are missing or incomplete.
    problem: str = ""
    fetched: bool = False

    def ended(self) -> bool:
        """Whether the sessions of the host were submitted, and all have ended."""
        return bool(self.job) and all(task.state in slurm.ENDED for task in self.tasks)


class State(msgspec.Struct):
    """The record of a run in its directory."""

    name: str
    settings: Settings
    #: The arguments of pytest.
    arguments: list[str]
    hosts: list[Host]
    #: A hash of the wheels in the environment.
    wheels: str = ""


def _planned_hosts(settings: Settings) -> list[Host]:
    hosts: dict[str, Host] = {}
    common = settings.laboratory
    for kind in settings.hosts:
        if kind.name:
            names = slurm.hosts_named(kind.name)
        elif not (names := slurm.hosts_with(kind.feature, common.partition)):
            raise SettingsError(f"no host has the feature {kind.feature}")
        for name in names:
            if name in hosts:
                raise SettingsError(f"{name} is there twice, with {hosts[name].disk} and {kind.disk}")
            tasks = [Task(kernel) for kernel in common.kernels or [""]]
            directory = kind.directory or common.directory
            hosts[name] = Host(name, kind.disk, directory, {**settings.labels, **kind.labels}, tasks)
    return list(hosts.values())


class Run:
    """A run in its directory."""

    def __init__(self, directory: Path, state: State, notify: Notify = show) -> None:
        self.directory, self.state, self._notify = directory, state, notify
        #: Since when Slurm has not answered for a host.
        self._silent_since: dict[str, float] = {}

    @classmethod
    def begin(cls, directory: Path, settings: Settings, root: Path, arguments: Sequence[str]) -> Run:
        """Create the directory of a run, with the files for hosts. Raises `RunError`, `SettingsError`, `SlurmError`."""
        hosts = _planned_hosts(settings)
        name = f"fsstack-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        run = cls(directory, State(name, settings, list(arguments), hosts))
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            raise RunError(f"{directory}: {error.strerror}. Name another --directory") from None
        with HeldDirectory.open(directory.parent) as above, contextlib.ExitStack() as undo:
            # What cannot begin must not block its directory.
            undo.callback(above.remove, directory.name, undo.enter_context(above.subdirectory(directory.name)))
            run._collect(root)
            run.save()
            undo.pop_all()
        return run

    def _collect(self, root: Path) -> None:
        """Collect the files and wheels for hosts. Raises `RunError`."""
        settings = self.state.settings
        (self.directory / "files").mkdir()
        for name in settings.laboratory.files:
            source, target = root / name, self.directory / "files" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                if source.is_dir():
                    shutil.copytree(
                        source, target, ignore=self._left_out, ignore_dangling_symlinks=True, dirs_exist_ok=True
                    )
                else:
                    shutil.copy2(source, target)
            except OSError as error:
                raise RunError(f"cannot copy {source}: {reason_of(error)}") from None
        if not settings.python.environment:
            self.state.wheels = _collect_wheels(settings.python, root, self.directory / "wheels")

    def _left_out(self, directory: str, names: list[str]) -> set[str]:
        """Return the names in a directory that hosts do not need: caches, and runs with copies of the same files."""
        return {name for name in names if name in ("__pycache__", ".git") or self._is_run(Path(directory, name))}

    def _is_run(self, path: Path) -> bool:
        is_other = (path / "run.json").exists() and (path / "files").is_dir()
        return is_other or os.path.realpath(path) == os.path.realpath(self.directory)

    @classmethod
    def open(cls, directory: Path) -> Run:
        """Read the run in a directory. Raises `RunError`."""
        try:
            return cls(directory, msgspec.json.decode(reading.read_bytes(directory / "run.json"), type=State))
        except FileNotFoundError:
            raise RunError(f"{directory}: there is no run in it") from None
        except (OSError, msgspec.DecodeError) as error:
            raise RunError(f"{directory}/run.json: {error}") from None

    def check_settings(self, settings: Settings) -> None:
        """Raise `RunError` if LAB.toml was changed after the run had begun."""
        before = self.state.settings
        if changed := [key for key in settings.__struct_fields__ if getattr(settings, key) != getattr(before, key)]:
            raise RunError(
                f"{self.directory}: this run began with other settings in LAB.toml ({', '.join(changed)}): undo the "
                "change, or begin another run with another --directory"
            )

    def save(self) -> None:
        """Write the state. A complete file exists at any time."""
        new = self.directory / "run.json.new"
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self.state), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.rename(self.directory / "run.json")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run against other processes. Raises `RunError` if another one holds it."""
        with (self.directory / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"{self.directory}: another process is at this run") from None
            yield

    def _say(self, text: str) -> None:
        self._notify(f"{time.strftime('%H:%M:%S')} {text}")
        self.save()

    # -- the course of a run -------------------------------------------------------------------------------------------

    def finish(self, *, submit: bool = True) -> None:
        """Submit the hosts without a job, wait for all, and fetch their results. Hosts that failed are tried again.

        Without `submit`, only fetch the results of ended sessions. Raises `SlurmError` if Slurm does not answer for an
        hour.
        """
        self._silent_since.clear()
        for host in self.state.hosts:
            host.problem = ""
        if submit:
            self._stopped.unlink(missing_ok=True)
        pool, busy = ThreadPoolExecutor(_MAX_TRANSFERS), dict[str, Future[None]]()
        begun = answered = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                try:
                    for change in self.update_states():
                        self._say(change)
                    answered = now
                except SlurmError as error:
                    if now - answered > _PATIENCE:
                        raise
                    self._say(f"waiting for Slurm: {error}")
                # A job may be there that only Slurm knows.
                for host in self.state.hosts if answered == now else []:
                    if host.name not in busy and (step := self._next_step(host, submit)):
                        busy[host.name] = pool.submit(step, host)
                for host in self.state.hosts:
                    if host.name in busy and busy[host.name].done():
                        self._end_step(host, busy.pop(host.name))
                if answered == now and not busy and not any(self._goes_on(host, submit) for host in self.state.hosts):
                    return
                time.sleep(min(_POLL[1], _POLL[0] + (time.monotonic() - begun) / 60))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _goes_on(self, host: Host, submit: bool) -> bool:
        return not (host.problem or host.fetched) and (submit or self._next_step(host, submit) is not None)

    def _next_step(self, host: Host, submit: bool) -> Callable[[Host], None] | None:
        if host.problem or host.fetched:
            return None
        if not host.job:
            return self._submit if submit else None
        return self._fetch if host.ended() else None

    def _end_step(self, host: Host, step: Future[None]) -> None:
        """Record what a thread did on a host. Only the main thread writes the state."""
        try:
            step.result(0)
            self._silent_since.pop(host.name, None)
        except (*HOST_ERRORS, OSError, tarfile.TarError) as error:
            silent_since = self._silent_since.setdefault(host.name, time.monotonic())
            if isinstance(error, NoAnswerError) and time.monotonic() - silent_since <= _PATIENCE:
                # It is done again once Slurm answers. A host that Slurm cannot reach looks the same.
                self._say(f"{host.name}: waiting for Slurm: {error}")
            else:
                host.problem = f"{'not fetched' if host.job else 'not begun'}: {reason_of(error)}"
                self._say(f"{host.name}: {host.problem}")
        for task in host.tasks if host.fetched else []:
            self._say(f"{self.name_of(host, task)}: {self.outcome(host, task)}")
        self.save()

    def update_states(self) -> list[str]:
        """Ask Slurm for the states of all tasks, and return a line for each change. Raises `SlurmError`."""
        # Jobs that are submitted while Slurm answers are not in its answer.
        submitted = {host.name for host in self.state.hosts if host.job}
        states, changes = slurm.jobs(self.state.name), []
        for host in self.state.hosts:
            # A process may have been killed before it could record the job that it submitted.
            host.job = host.job or next((job for (job, _), (_, where) in states.items() if where == host.name), "")
            for index, task in enumerate(host.tasks if host.job and not host.fetched else []):
                # Slurm forgets a job some minutes after its end.
                missing = slurm.FORGOTTEN if host.name in submitted else task.state
                state, _ = states.get((host.job, index), (missing, ""))
                if state != task.state and task.state not in slurm.ENDED:
                    task.state = state
                    changes.append(f"{self.name_of(host, task)}: {state.lower().replace('_', ' ')}")
        return changes

    def stop(self) -> None:
        """Ask all sessions to take their stacks down and end. Kill them after the grace period. Raises `SlurmError`.

        Another process may be at this run, and begins no further session.
        """
        self._stopped.touch()
        slurm.cancel(f"{self.state.name}-{_PREPARE}")
        self._stop_jobs()
        deadline = time.monotonic() + self.state.settings.laboratory.grace
        while time.monotonic() < deadline:
            self.update_states()
            if all(host.ended() for host in self.state.hosts if host.job):
                return
            time.sleep(1.0)
        slurm.cancel(self.state.name)

    def _stop_jobs(self) -> None:
        """Remove the jobs of the run from the queue, and ask those that run to end. Raises `SlurmError`."""
        slurm.cancel(self.state.name, "--state=PENDING")
        slurm.cancel(self.state.name, "--signal=TERM", "--batch")

    # -- on a host -----------------------------------------------------------------------------------------------------

    @property
    def _stopped(self) -> Path:
        """The file that keeps hosts from beginning."""
        return self.directory / "stopped"

    def _submit(self, host: Host) -> None:
        for step in self._prepare, self._submit_job:
            if self._stopped.exists():
                raise HostError("the run was stopped")
            step(host)
        # `stop` may have come just before the job.
        if self._stopped.exists():
            self._stop_jobs()

    def _prepare(self, host: Host) -> None:
        """Send the files and wheels of the run to a host. Raises `HostError`."""
        python = self.state.settings.python
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for name in ("files", "wheels"):
                    if (self.directory / name).exists():
                        tar.add(self.directory / name, name)
            archive.seek(0)
            words = [python.executable, self.state.wheels, python.environment, __version__, _OWNERS.read_text()]
            self._on_host(host, _PREPARE, words, stdin=archive)

    def _submit_job(self, host: Host) -> None:
        common = self.state.settings.laboratory
        kernels = [task.kernel for task in host.tasks if task.kernel]
        options = [f"--time={max(1, round(common.hours * 60))}", f"--signal=B:TERM@{common.grace}"]
        options += [f"--partition={common.partition}"] if common.partition else []
        options += [f"--gres={common.gres}"] if common.gres else []
        labels = [f"--fsstack-label={key}={value}" for key, value in {**host.labels, "host": host.name}.items()]
        words = [own_directory(host), self._remote_directory(host), str(len(kernels)), *kernels]
        words += [*self.state.arguments, f"--fsstack-device={host.disk}", *labels]
        host.job = slurm.submit(self.state.name, host.name, len(host.tasks), options, SCRIPTS / "session.sh", words)

    def doctor(self, host: Host) -> tuple[int, str]:
        """Prepare a host, and return the exit code and the output of its doctor. Raises `HostError`, `SlurmError`."""
        self._prepare(host)
        kernels = [f"--fsstack-kernel={task.kernel}" for task in host.tasks if task.kernel]
        words = [*self.state.arguments, f"--fsstack-device={host.disk}", *kernels]
        output = self._on_host(host, "doctor.sh", words)
        *lines, code = output.decode(errors="replace").splitlines()
        return int(code), "\n".join(lines)

    def _fetch(self, host: Host) -> None:
        """Fetch the files of a host's sessions. Raises `HostError`, OSError, `TarError`."""
        results = self.directory / "results"
        results.mkdir(exist_ok=True)
        with HeldDirectory.open(results) as top, scratch(results, ".") as unpacked, tempfile.TemporaryFile() as archive:
            self._on_host(host, "collect.sh", [], stdout=archive)
            archive.seek(0)
            unpack(archive, unpacked)
            # A fetch that was killed may have left a part of it.
            os.close(owners.own(top.fileno(), host.name))
            shutil.copytree(unpacked, results / host.name, dirs_exist_ok=True)
        host.fetched = True

    def _on_host(self, host: Host, script: str, words: Sequence[str], **streams: IO[bytes]) -> bytes:
        if problem := slurm.unavailable([host.name]).get(host.name):
            raise HostError(problem)
        words = [own_directory(host), self._remote_directory(host), *words]
        name, partition = f"{self.state.name}-{script}", self.state.settings.laboratory.partition
        return slurm.on_host(host.name, SCRIPTS / script, words, name=name, partition=partition, **streams)

    def _remote_directory(self, host: Host) -> str:
        return f"{self.state.name}/{host.name}"

    # -- results -------------------------------------------------------------------------------------------------------

    def name_of(self, host: Host, task: Task) -> str:
        """Return ``node1``, or ``node1 on KERNEL``."""
        return f"{host.name} on {task.kernel}" if task.kernel else host.name

    def results_of(self, host: Host, task: Task) -> Path:
        """Return the directory with the files of a session."""
        return self.directory / "results" / host.name / str(host.tasks.index(task))

    def exit_code(self, host: Host, task: Task) -> int | None:
        """Return the exit code of a session, or None if it was killed before it had one."""
        try:
            return int(reading.read_text(self.results_of(host, task) / "exit"))
        except (OSError, ValueError):
            return None

    def outcome(self, host: Host, task: Task) -> str:
        """Return how a session ended, with the last line of its output."""
        if not host.fetched:
            return host.problem or (task.state or "not begun").lower().replace("_", " ")
        code, output = self.exit_code(host, task), self.results_of(host, task) / "output"
        ended = f"exit code {code}" if code is not None else f"killed ({task.state.lower().replace('_', ' ')})"
        if not output.exists() and (errors := self.results_of(host, task).with_suffix(".errors")).exists():
            ended, output = "not begun", errors
        lines = reading.read_text(output, reading.RESULTS, errors="replace").splitlines() if output.exists() else []
        last = next((line.strip("= ") for line in reversed(lines) if line.strip("= ")), "it has written nothing")
        return f"{ended}: {last}"

    def files(self) -> dict[str, Path]:
        """Return the results of each session: complete ones, or the log of rounds if the session was killed."""
        files = {}
        for host in self.state.hosts:
            for task in host.tasks:
                names = [self.results_of(host, task) / name for name in ("run.json", "rounds.jsonl")]
                if present := [path for path in names if path.exists() and path.stat().st_size]:
                    files[self.name_of(host, task)] = present[0]
        return files


def own_directory(host: Host) -> str:
    """Return the laboratory's own directory on a host."""
    return f"{host.directory.rstrip('/')}/{OWN}"


def unpack(archive: IO[bytes], target: Path) -> None:
    """Write the regular files of an archive into a new directory. Raises OSError, `TarError`.

    Links and devices are left out, so no file of a host is written anywhere else.
    """
    with tarfile.open(fileobj=archive) as tar:
        for member in tar:
            parts = PurePosixPath("/", member.name).parts[1:]
            content = tar.extractfile(member) if member.isreg() and ".." not in parts else None
            if content:
                path = target.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file)


def _collect_wheels(python: Python, root: Path, target: Path) -> str:
    """Make or copy the wheels, and return a hash of them. Raises `RunError`."""
    if python.wheels:
        target.mkdir()
        for wheel in (root / python.wheels).glob("*.whl"):
            try:
                (target / wheel.name).write_bytes(reading.read_bytes(wheel, reading.RESULTS))
            except OSError as error:
                raise RunError(f"cannot copy {wheel}: {error.strerror}") from None
    else:
        _make_wheels(python.requirements or [f"pytest-fsstack=={__version__}"], root, target)
    wheels = sorted(target.glob("*.whl"))
    if not wheels:
        raise RunError(f"no wheels in {python.wheels}")
    digest = hashlib.sha256()
    for wheel in wheels:
        digest.update(wheel.name.encode() + hashlib.sha256(reading.read_bytes(wheel, reading.RESULTS)).digest())
    return digest.hexdigest()[:16]


def _make_wheels(requirements: Sequence[str], root: Path, target: Path) -> None:
    """Make wheels with pip. Raises `RunError`."""
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir"]
    problem = f"no wheels of {', '.join(requirements)}"
    try:
        result = subprocess.run(
            [*words, os.path.abspath(target), *requirements],
            cwd=root,
            # It makes wheels of the same sources equal.
            env={**os.environ, "SOURCE_DATE_EPOCH": "315532800"},
            stderr=subprocess.PIPE,
            text=True,
            timeout=_WHEELS_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{problem}: pip did not end within {_WHEELS_TIMEOUT:g} s") from None
    if result.returncode:
        raise RunError(f"{problem}: {result.stderr.strip()}")
