"""Layers, stacks and devices change the machine only through its port, so a recorded machine shows all that they do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pytest_fsstack

PACKAGE = Path(pytest_fsstack.__file__).parent
PLACES = [*(PACKAGE / "layers").rglob("*.py"), *(PACKAGE / "stack").rglob("*.py"), PACKAGE / "devices.py"]
#: Modules that may, and why.
ALLOWED = {
    "layers/recorder.py": "a server in a process of its own",
    "layers/network/servers.py": "a requirement, which asks this machine whether its kernel delays packets",
}
_OUTSIDE = {
    "os.remove",
    "os.replace",
    "commands.run",
    "commands.ended",
    "commands.started",
    "os.system",
    "os.execvp",
    "os.fork",
    "os.kill",
}
_CHANGING = {
    *("mkdir", "makedirs", "mknod", "rmdir", "unlink", "rename", "truncate", "ftruncate"),
    *("chmod", "chown", "link", "symlink", "symlink_to", "hardlink_to", "touch", "write_text", "write_bytes"),
    *("setxattr", "removexattr", "pwrite", "writev", "fsync", "rmtree", "copyfile", "copytree", "mount", "umount"),
    *("TemporaryFile", "NamedTemporaryFile", "mkstemp", "mkdtemp", "TemporaryDirectory"),
}


def changing(source: str) -> list[str]:
    """Return the calls that start a process, or change a file, beside the port."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call) for call in calls if _changes(call)]


def _changes(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    owner, _, method = name.rpartition(".")
    if owner == "subprocess" or name in _OUTSIDE:
        return True
    if name in ("open", "os.open", "io.open") or method == "open":
        words = [ast.unparse(word) for word in [*call.args, *(keyword.value for keyword in call.keywords)]]
        return any(word.strip("'\"")[:1] in ("w", "x", "a") for word in words[:2] if word[:1] in "'\"")
    return method in _CHANGING and owner.rpartition(".")[2] != "machine"


@pytest.mark.parametrize("path", PLACES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_changes_the_machine_beside_its_port(path: Path) -> None:
    if str(path.relative_to(PACKAGE)) in ALLOWED:
        assert changing(path.read_text())
    else:
        assert changing(path.read_text()) == []


@pytest.mark.parametrize(
    "call",
    [
        *("path.chmod(mode)", "(directory / 'a').write_text('')", "os.mkdir(path)", "commands.run('mkfs')"),
        *("subprocess.run(['mkfs'])", "open(path, 'xb')", "path.open('w')", "os.fsync(fd)", "shutil.rmtree(path)"),
        "tempfile.TemporaryFile(dir=directory)",
    ],
)
def test_a_change_is_noticed(call: str) -> None:
    assert changing(call) == [call]


@pytest.mark.parametrize(
    "call",
    [
        *("context.machine.mkdir(path)", "dataclasses.replace(place, path=path)", "text.replace('a', 'b')"),
        *("open(path, 'rb')", "path.read_text()", "os.open(path, os.O_RDONLY)"),
    ],
)
def test_a_look_is_no_change(call: str) -> None:
    assert changing(call) == []
