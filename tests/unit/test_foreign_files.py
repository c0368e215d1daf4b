"""Files that others may have made: one module reads them, and nothing that lies there makes a command wait."""

from __future__ import annotations

import ast
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pytest_fsstack
from pytest_fsstack.command import main
from pytest_fsstack.fleet.laboratory import run, settings, slurm
from pytest_fsstack.fleet.pooling import hosts
from pytest_fsstack.kernels import images
from pytest_fsstack.machine import commands, reading
from pytest_fsstack.over_time import history
from pytest_fsstack.over_time.plugin import earlier_runs
from pytest_fsstack.report import ReportError
from pytest_fsstack.session.files import ReportFile
from pytest_fsstack.workloads import jobfile

PACKAGE = Path(pytest_fsstack.__file__).parent
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")

#: What names a file of the kernel, a descriptor, or a file in a directory that is held, or makes a new file.
_SAFE = re.compile(
    r"/proc|/sys|/dev/|\b_?(PROC|SYS)\b|\bproc\b|\bprocess\b|\bthread\b|fdinfo|queue\(|dir_fd=|memfd_create|"
    r"descriptor|fileno\(|open_file\(|opened_regular\(|read_end|__file__|devnull|O_PATH|open\('x"
)
#: Modules and packages that may open files by themselves, with the reasons.
_ALLOWED = {
    "machine/reading.py": "it is the reader",
    "machine/owners.py": "it finds out who owns a file, and runs without this package",
    "machine/journal.py": "its directory belongs to this user, which it checks",
    "machine/identity.py": "/etc/machine-id is the machine's",
    "machine/emulation.py": "/proc and /sys",
    "machine/needs.py": "/boot and /lib/modules are the machine's",
    "machine/blockdev.py": "attributes of devices in /sys",
    "machine/loops.py": "loop devices",
    "machine/mounts.py": "attributes of loop devices in /sys",
    "machine/real.py": "attributes of devices in /sys, for layers",
    "measuring/load.py": "/proc",
    "measuring/settling.py": "/sys",
    "measuring/timed.py": "files that a test names, to be read into the cache",
    "session/environment.py": "/proc and /sys",
    "version.py": "the metadata of this package",
    "stack/kmsg.py": "/dev/kmsg",
    "machine/guard/holding.py": "the directory of locks is root's",
    "preflight/explain.py": "/sys",
    "plugin/__init__.py": "pytest has read the ini file before, and imports of this package would slow down its start",
    "kernels/launch.py": "files in a directory that only the session enters",
    "fleet/laboratory/run.py": "files that it writes into the directory of its own run",
    "fleet/laboratory/slurm.py": "scripts of this package",
    "layers/": "images and volumes in the directory of a stack",
    "workloads/": "files on a stack",
    "truth/": "files on a stack",
}


def opening(source: str) -> list[str]:
    """Return the calls that open a file by its name to read it."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [text for call in calls if _opens(call) and not _SAFE.search(text := ast.unparse(call))]


def _opens(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name in ("open", "os.open", "io.open"):
        return True
    owner, _, method = name.rpartition(".")
    return method in ("read_text", "read_bytes", "open") and owner not in (
        *("reading", "HeldDirectory", "Run", "tarfile", "packed", "cls"),
    )


def test_only_one_module_reads_files_that_others_may_have_made() -> None:
    openings = {str(path.relative_to(PACKAGE)): opening(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert "over_time/history.py" in openings
    assert {name: calls for name, calls in openings.items() if calls and not name.startswith(tuple(_ALLOWED))} == {}
    unused = [place for place in _ALLOWED if not any(openings[name] for name in openings if name.startswith(place))]
    assert unused == [], "these need no exception any more"


@pytest.mark.parametrize(
    "source",
    ["path.read_text()", "Path(name).read_bytes()", "open(path)", "path.open('rb')", "os.open(path, os.O_RDONLY)"],
)
def test_what_opens_a_file_is_seen(source: str) -> None:
    assert len(opening(source)) == 1


@pytest.mark.parametrize(
    "source", ["reading.read_text(path)", "Path('/proc/mounts').read_text()", "open(descriptor)", "path.open('xb')"]
)
def test_what_opens_nothing_of_others_is_not(source: str) -> None:
    assert opening(source) == []


# -- what lies there ---------------------------------------------------------------------------------------------------


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        # Its path may have 107 bytes.
        server.bind(f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY)}/{path.name}")


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS = [_pipe, _socket, _endless, _large]


@pytest.fixture
def quick() -> Iterator[None]:
    """A way out for a reader that waits: the test then fails."""
    timer = threading.Timer(60.0, lambda: os._exit(99))
    timer.start()
    yield
    timer.cancel()


#: Each reads a file that a user names, by its own function.
READERS: dict[str, Callable[[Path], object]] = {
    "compare": lambda path: earlier_runs(path),
    "pool": lambda path: hosts.read(path),
    "trend": lambda path: history.read(path),
    "history": lambda path: history.append(path, "{}"),
    "prune": lambda path: history.prune(path, "2026"),
    "laboratory": lambda path: settings.load(path),
    "fio": lambda path: jobfile.check(path, path.parent, {}),
    "kernel": lambda path: images.resolve(str(path), path.parent),
    "package": lambda path: images.resolve(str(path.rename(path.with_suffix(".deb"))), path.parent),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", KINDS)
def test_what_is_no_file_of_a_sensible_size_is_refused_at_once(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    if name in ("kernel", "package") and make is _large:
        pytest.skip("only its first bytes are read")
    make(tmp_path / "file")
    with pytest.raises((OSError, ValueError, images.KernelError)) as caught:
        READERS[name](tmp_path / "file")
    assert re.search("regular|larger|symbolic", str(caught.value)), caught.value


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("words", [["report"], ["pool"], ["lab", "check"]])
def test_a_command_ends_with_a_line(
    words: list[str], make: Callable[[Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "file")
    assert main([*words, str(tmp_path / "file")]) != 0
    errors = capfd.readouterr().err
    assert "Traceback" not in errors
    assert re.search("file.*(is not a regular file|is larger than)", errors), errors


@pytest.mark.usefixtures("quick")
def test_a_history_that_another_process_keeps_locked_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_PATIENCE", 0.2)
    (tmp_path / "file").touch()
    code = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    words = [sys.executable, "-c", code, str(tmp_path / "file")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        for read in history.read, lambda path: history.append(path, "{}"):
            with pytest.raises(OSError, match="locked"):
                read(tmp_path / "file")
        holder.communicate(b"\n")
    assert history.read(tmp_path / "file").runs == []


@pytest.mark.usefixtures("quick")
def test_a_report_waits_for_no_reader_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    report = ReportFile("json", tmp_path / "pipe")
    with pytest.raises(ReportError, match="nobody reads"):
        report.write("text")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        # It opens the pipe at some moment.
        assert commands.wait_until(lambda: _written(report), 50.0)
        assert reader.communicate()[0] == "text"


def _written(report: ReportFile) -> bool:
    try:
        report.write("text")
    except ReportError:
        return False
    return True


@needs_root
def test_links_of_another_user_are_not_followed_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for name, owner in ("mine", 0), ("other", 65534):
        (tmp_path / name).symlink_to("file")
        os.chown(tmp_path / name, owner, owner, follow_symlinks=False)
    assert reading.read_text(tmp_path / "mine") == "text"
    with pytest.raises(PermissionError, match="other is a link of user 65534"):
        reading.read_text(tmp_path / "other")
    # A file of another user is read, because results come from many.
    os.chown(tmp_path / "file", 65534, 65534)
    assert reading.read_text(tmp_path / "file") == "text"
    with pytest.raises(PermissionError, match="user 65534 owns"):
        reading.opened_regular(tmp_path / "file", trusted=True)


def test_a_file_that_grows_while_it_is_read_is_read_to_its_limit(tmp_path: Path) -> None:
    # The kernel gives such files the size 0.
    with pytest.raises(OSError, match=r"larger than 1 B"):
        reading.read_bytes(Path("/proc/self/status"), 1)
    assert reading.read_bytes(Path("/proc/self/status"))


# -- text of others on the terminal ------------------------------------------------------------------------------------

HOSTILE = "\x1b]0;title\x07\x1b[2Jred\x9b31m\u202e"


def printing(source: str) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [text for call in calls if ast.unparse(call.func) == "print" and (text := ast.unparse(call))]


def test_commands_show_text_of_others_by_one_function() -> None:
    openings = {
        str(path.relative_to(PACKAGE)): printing(path.read_text())
        for room in ("command", "fleet", "over_time", "preflight", "session")
        for path in (PACKAGE / room).rglob("*.py")
    }
    assert "fleet/laboratory/command.py" in openings
    # A report escapes its text itself, and the answer of a guest is for another process.
    assert {name: len(calls) for name, calls in openings.items() if calls} == {
        "command/reports.py": 1,
        "preflight/doctor.py": 1,
    }


def test_the_output_of_a_host_reaches_no_terminal_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    host = run.Host("node1", "loop", "/", {}, [run.Task(state="COMPLETED")], job="1", fetched=True, problem=HOSTILE)
    run.Run(tmp_path, run.State("r", settings.Settings([]), [], [host])).save()
    results = tmp_path / "results/node1/0"
    results.mkdir(parents=True)
    (results / "output").write_text(f"first\n{HOSTILE}\n")
    monkeypatch.setattr(slurm, "jobs", lambda name: {})
    monkeypatch.setattr(slurm, "unavailable", lambda hosts: {})
    assert main(["lab", "status", str(tmp_path)]) == 0
    assert main(["lab", "fetch", str(tmp_path)]) != 0
    shown = "".join(capfd.readouterr())
    assert shown.count("title") >= 2
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)


def test_the_errors_of_a_command_reach_no_terminal_as_they_are() -> None:
    assert "\x1b" not in str(commands.CommandError(["tool"], 1, HOSTILE))
