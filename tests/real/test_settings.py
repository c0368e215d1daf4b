"""Settings that a stack asks for: they hold while it stands, differ in what they cost, and are set back."""

from __future__ import annotations

import fcntl
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.devices import DiskDevice
from pytest_fsstack.records import saved
from pytest_fsstack.stack.places import BuildContext
from tests.real.conftest import DISK_SIZE, LoopDevice as MakeLoop, Sessions, built
from tests.toolkit import chains_of

pytestmark = pytest.mark.root

#: Global to the machine, so it is a value that disturbs nobody.
SYSCTL = Path("/proc/sys/fs/xfs/rotorstep")


def queue(loop: Path, name: str) -> str:
    return Path("/sys/block", loop.name, "queue", name).read_text().strip()


@pytest.fixture(autouse=True)
def _turn() -> Iterator[None]:
    """Keep the tests of other workers from the same setting of the machine."""
    with Path("/proc/sys/fs/file-max").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def before(loop_device: MakeLoop) -> tuple[Path, dict[str, str]]:
    if not SYSCTL.exists():
        pytest.skip("this kernel has no XFS")
    loop = loop_device(size=DISK_SIZE).path
    return loop, now(loop)


def now(loop: Path) -> dict[str, str]:
    return {
        "sysctl": SYSCTL.read_text().strip(),
        **{name: queue(loop, name) for name in ("scheduler", "read_ahead_kb")},
    }


def test_each_device_has_its_own_while_the_stack_stands(
    before: tuple[Path, dict[str, str]], locks: Path, context: BuildContext
) -> None:
    loop, values = before
    text = (
        "ext4 | loop(size='64M') | ext4 @ queue/scheduler=kyber, queue/read_ahead_kb=64, top/read_ahead_kb=32, "
        "fs.xfs.rotorstep=3"
    )
    with built(text, DiskDevice(loop, overwrite=False), context) as stack:
        for _ in range(2):
            assert stack.device
            assert "[kyber]" in queue(loop, "scheduler")
            assert (queue(loop, "read_ahead_kb"), queue(stack.device, "read_ahead_kb")) == ("64", "32")
            assert SYSCTL.read_text().strip() == "3"
            stack.tuning.check()
            with stack.taken_down():
                assert queue(loop, "read_ahead_kb") == "64"
        SYSCTL.write_text("4")
        with pytest.raises(OSError, match=r"rotorstep .*\b4\b.*\b3\b"):
            stack.tuning.check()
        SYSCTL.write_text("3")
    assert now(loop) == values


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, None])
def test_they_are_set_back_however_the_session_ends(
    number: signal.Signals | None, before: tuple[Path, dict[str, str]], sessions: Sessions
) -> None:
    loop, values = before
    sessions.write("ext4 @ queue/read_ahead_kb=64, fs.xfs.rotorstep=3")
    options = "--fsstack-rounds=1", "--fsstack-readahead=128K", "--fsstack-scheduler=kyber"
    process = sessions.start(f"--fsstack-device={loop}", "--fsstack-json=out.json", *options)
    assert "[kyber]" in queue(loop, "scheduler")
    assert (queue(loop, "read_ahead_kb"), SYSCTL.read_text().strip()) == ("64", "3")
    if number:
        process.send_signal(number)
    else:
        (sessions.directory / "wait").unlink()
    assert process.wait(120) == {signal.SIGKILL: -9, signal.SIGINT: 130, None: 0}[number]
    if number is signal.SIGKILL:
        assert sessions.nothing_is_left(), sessions.left
        assert now(loop) != values
        undone = sessions.run("--fsstack-cleanup").stdout
        paths = re.findall(r" (/(?:proc/)?sys/\S+)", undone)
        queue_of_loop = f"/sys/block/{loop.name}/queue"
        assert paths == [str(SYSCTL), f"{queue_of_loop}/read_ahead_kb", f"{queue_of_loop}/scheduler"]
    elif number is None:
        results = saved.loads((sessions.directory / "out.json").read_text())
        assert results.environment["settings"]["scheduler"] == "kyber"
    assert now(loop) == values


FOREIGN = """
from pathlib import Path
import pytest

@pytest.mark.fsstack("ext4", "tuned = ext4 @ fs.xfs.rotorstep=3")
class TestIt:
    def test_write(self, fsstack, timed):
        with timed(cold=False):
            (fsstack.path / "file").write_bytes(bytes(1 << 20))

    def test_read(self, fsstack, timed):
        with (Path(__file__).parent / "rounds").open("a") as file:
            print(fsstack.spec, file=file)
        if (Path(__file__).parent / "rounds").read_text().count("tuned") == 2:
            Path({sysctl!r}).write_text("5")
        with timed(cold=False):
            (fsstack.path / "file").read_bytes()
"""


def test_a_foreign_writer_is_an_error_of_the_test(before: tuple[Path, dict[str, str]], sessions: Sessions) -> None:
    _, values = before
    sessions.write("ext4")
    (sessions.directory / "test_it.py").write_text(FOREIGN.format(sysctl=str(SYSCTL)))
    result = sessions.run("--fsstack-rounds=3", "--fsstack-json=out.json", "-rf")
    try:
        assert result.returncode == pytest.ExitCode.TESTS_FAILED
        assert "1 failed, 3 passed" in result.stdout
        assert re.search(rf"{SYSCTL} .*\b5\b.*\b3\b", result.stdout)
        (chain,) = chains_of(sessions.directory / "out.json")
        assert [len(chain.of("read", name)) for name in ("ext4", "tuned")] == [3, 1]
        assert chain.stacks["tuned"].settings == {"fs.xfs.rotorstep": "3"}
        # Who changes it meanwhile wins.
        assert SYSCTL.read_text().strip() == "5"
    finally:
        SYSCTL.write_text(values["sysctl"])


@pytest.mark.parametrize(
    ("stack", "options", "pattern"),
    [
        ("ext4 @ queue/scheduler=turbo", [], r"/queue/scheduler .*\bturbo: Invalid argument; .*\bnone, "),
        ("ext4 @ fs.xfs.rotorstep=0", [], r"/proc/sys/fs/xfs/rotorstep .*\b0: Invalid argument; .*\b\d+"),
        ("ext4 @ kernel.core_pattern=x", [], "'kernel\\.core_pattern' "),
        ("bind @ queue/scheduler=none", ["--fsstack-device=dir:."], "queue/scheduler .* dir:/.* directory"),
    ],
)
def test_what_cannot_be_set_ends_the_session_before_round_1(
    stack: str, options: list[str], pattern: str, before: tuple[Path, dict[str, str]], sessions: Sessions
) -> None:
    loop, values = before
    sessions.write("ext4")
    result = sessions.run(*options, "--fsstack-stacks", stack)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert re.search(pattern, result.stderr)
    assert not sessions.mounts.exists()
    assert now(loop) == values


READ = """
from pathlib import Path
import pytest

def requests(fsstack):
    return int(Path("/sys/dev/block", fsstack.bottom.number, "stat").read_text().split()[0])

@pytest.mark.fsstack("ext4")
def test_read(fsstack, timed):
    (fsstack.path / "file").write_bytes(bytes(16 << 20))
    with timed(bytes=16 << 20, direction="read"):
        before = requests(fsstack)
        timed.run("cat", fsstack.path / "file")
        timed.record("requests", requests(fsstack) - before)
"""


def test_a_cold_read_without_read_ahead_costs_more_and_a_gate_finds_it(sessions: Sessions) -> None:
    """A known answer: each page is then a request of its own."""
    sessions.write("ext4")
    (sessions.directory / "test_it.py").write_text(READ)
    stacks = "ext4 @ queue/read_ahead_kb=128", "none = ext4 @ queue/read_ahead_kb=0"
    # Counted, because the time of a busy machine decides nothing in five rounds.
    budget = "--fsstack-budget=none: requests 300%"
    result = sessions.run(
        *(f"--fsstack-stacks={text}" for text in stacks), budget, "--fsstack-rounds=5", "--fsstack-json=out.json"
    )
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    assert "1 failed, 1 passed" in result.stdout
    (chain,) = chains_of(sessions.directory / "out.json")
    baseline, none = (chain.median("read", name, "requests") for name in ("ext4+queue.read_ahead_kb-128", "none"))
    assert none is not None
    assert baseline is not None
    assert none >= (16 << 20) // 4096 > 8 * baseline
