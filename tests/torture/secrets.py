"""Passphrases and keys: in no command line, no environment, no output, no report, no journal, and not on the disk."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.real.conftest import contents_of
from tests.torture.place import Figures, Place, code_of, quick_stacks
from tests.torture.tools import Noting

ENCRYPTED = ("gocryptfs", "encfs", "securefs", "cryfs", "fscrypt", "ecryptfs", "luks", "dmcrypt", "zfs", "bcachefs")
#: Seconds between two looks at all processes.
_PAUSE = 0.03

#: The session tells what the secrets are, in a file that is not searched, and gives one of its own away.
_TELL = """
import contextlib
from pytest_fsstack.machine import commands

_secret_fd = commands.secret_fd

@contextlib.contextmanager
def told(*parts):
    with open({told!r}, "a") as file:
        print(b"".join(parts).hex(), file=file)
    with _secret_fd(*parts) as fd:
        yield fd

commands.secret_fd = told
"""


def secrets(place: Place) -> Figures:
    """A session with encrypted stacks, all of whose traces are searched."""
    encrypted = [text for text in quick_stacks() if any(name in text for name in ENCRYPTED)]
    chosen = place.random.sample(encrypted, min(2, len(encrypted)))
    told = place.directory / "told"
    told.unlink(missing_ok=True)
    place.write(*chosen)
    conftest = place.directory / "conftest.py"
    conftest.write_text(conftest.read_text() + _TELL.format(told=str(told)))
    # Its own argument is what the search must find.
    decoy = f"decoy-{place.random.getrandbits(100):x}"
    test = place.directory / "test_it.py"
    text = test.read_text().replace('"sh", "-c",', f'"env", "DECOY={decoy}", "sh", "-c",')
    # It runs for long enough to be seen on a busy machine as well.
    test.write_text(text.replace("sleep 0.2", "sleep 2"))
    noting = Noting(place.directory, environment=True)
    reports = [f"--fsstack-report={name}={name}.out" for name in ("json", "html", "markdown", "csv", "openmetrics")]
    with place.session(
        *("--fsstack-rounds=1", "-v", "-ra", "-s", "--showlocals", "--junitxml=junit.out", *reports),
        before=["env", f"PATH={noting.path}"],
    ) as process:
        with sampled(process.pid) as seen:
            code = code_of(process)
    what = f"secrets of {', '.join(chosen)}"
    figures: Figures = Counter({"cases": len(seen)})
    if code != 0:
        figures += place.wrong("wrong exit code", f"{what}: exit code {code}")
    known = [bytes.fromhex(line) for line in told.read_text().split()] if told.exists() else []
    if not known:
        figures += place.wrong("failed controls", f"{what}: no secret was told")
    disk = b"".join(data for _, data in contents_of(place.directory / "disk"))
    traces = {"argv and environments": b"\n".join(seen), **_files(place, told), "disk": disk}
    for secret in known:
        forms = {secret, secret.hex().encode(), base64.b64encode(secret), base64.b64encode(secret).rstrip(b"=")}
        with contextlib.suppress(ValueError):
            forms.add(bytes.fromhex(secret.decode()))
        for name, content in traces.items():
            if any(form in content for form in forms if len(form) >= 8):
                figures += place.wrong("secrets seen", f"{what}: seen in {name}")
    if decoy.encode() in traces["argv and environments"] and decoy.encode() in traces["calls"]:
        figures["controls"] += 1
    else:
        figures += place.wrong("failed controls", f"{what}: the argument that was given away was not seen")
    figures += place.figures_of_what_is_left(process.pid)
    for path in [*place.directory.glob("*.out"), noting.environments, told]:
        path.unlink(missing_ok=True)
    return figures + place.unlabelled()


@contextlib.contextmanager
def sampled(pid: int) -> Iterator[set[bytes]]:
    """What the processes of a session show of themselves until the block's end, and what its journals hold."""
    seen: set[bytes] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_PAUSE):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    seen.add((process / "cmdline").read_bytes())
                    seen.add((process / "environ").read_bytes())
            for journal in Path("/run/pytest-fsstack").glob(f"{pid}-*"):
                with contextlib.suppress(OSError):
                    seen.add(journal.read_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _files(place: Place, told: Path) -> dict[str, bytes]:
    """All that the session has written in its directory."""
    files = {}
    for path in place.directory.iterdir():
        if path.is_file() and not path.is_symlink() and path not in (told, place.directory / "disk"):
            files[path.name] = path.read_bytes()
    for path in (place.directory / "tmp").rglob("*"):
        if path.is_file():
            files[str(path)] = path.read_bytes()
    return files
