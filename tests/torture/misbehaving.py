"""Tests that harm their own session: whatever a test does, the session ends, says so and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from pathlib import Path

from tests.torture.place import Figures, Place, code_of, quick_stacks

#: What a test can do to its session, as Python with `fsstack`, `path` (that of the stack), `os`, `sys` and others.
DEEDS = {
    "empties the environment": "os.environ.clear()",
    "stays in the stack": "os.chdir(path)",
    "works in a directory that is gone": "(path / 'gone').mkdir(); os.chdir(path / 'gone'); os.rmdir(path / 'gone')",
    "leaves a file open": "sys.modules['kept'] = (path / 'open').open('w')",
    "leaves a file locked": "f = sys.modules['kept'] = (path / 'lock').open('w'); fcntl.flock(f, fcntl.LOCK_EX)",
    "leaves a mapping": "f = (path / 'm').open('w+b'); f.truncate(9); sys.modules['kept'] = mmap.mmap(f.fileno(), 9)",
    "leaves a child in the stack": "subprocess.Popen(['sleep', '1000'], cwd=path)",
    "leaves a daemon in the stack": "subprocess.Popen(['setsid', 'sleep', '1000'], cwd=path, start_new_session=True)",
    "leaves a child that ignores signals": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM INT HUP; exec sleep 1000'])",
    "leaves a stopped child": "os.kill(subprocess.Popen(['sleep', '1000'], cwd=path).pid, signal.SIGSTOP)",
    "leaves a thread that writes": "threading.Thread(target=scribble, args=(path,), daemon=True).start()",
    "leaves a thread that raises": "threading.Thread(target=lambda: 1 / 0, daemon=True).start()",
    "leaves a mount in it": "(path / 'in').mkdir(); subprocess.run(['mount', '-t', 'tmpfs', 'none', path / 'in'])",
    "mounts over it": "subprocess.run(['mount', '-t', 'tmpfs', 'none', path])",
    "mounts it elsewhere": "subprocess.run(f'mkdir -p {root}/e; mount --bind . {root}/e', shell=True, cwd=path)",
    "makes it read-only": "subprocess.run(['mount', '-o', 'remount,ro', path])",
    "unmounts it": "subprocess.run(['umount', path])",
    "unmounts it lazily": "subprocess.run(['umount', '-l', path])",
    "takes a namespace of its own": "ctypes.CDLL(None).unshare(0x00020000)",
    "fills it": "fill(path)",
    "fills its inodes": "[(path / f'f{n}').touch() for n in range(3000)]",
    "makes a deep tree": "deep(path, 200)",
    "makes a file immutable": "(path / 'i').touch(); subprocess.run(['chattr', '+i', path / 'i'])",
    "makes a device and a pipe": "os.mknod(path / 'd', 0o60600, os.makedev(7, 250)); os.mkfifo(path / 'p')",
    "makes files with odd names": "[(path / name).touch() for name in ('a\\nb', '-rf', ' ', '\\x1b[2J', 'é' * 100)]",
    "makes links that lead out": "(path / 'out').symlink_to('/etc'); (path / 'loop').symlink_to('loop')",
    "takes away its permissions": "os.chmod(path, 0)",
    "makes it immutable": "subprocess.run(['chattr', '+i', path])",
    "sets a strict umask": "os.umask(0o777)",
    "closes all descriptors": "os.closerange(3, 256)",
    "closes its output": "os.close(1)",
    "has no output": "sys.stdout = sys.stderr = None",
    "allows few descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))",
    "allows little memory": "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
    "allows no files": "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    "allows no processes": "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))",
    "allows little recursion": "sys.setrecursionlimit(60 + len(inspect.stack()))",
    "recurses": "recurse()",
    "is nobody": "os.setuid(65534)",
    "is nobody for now": "os.seteuid(65534)",
    "lives in another root": "os.chroot(path); os.chdir('/')",
    "returns in a child": "os.fork()",
    "leaves by its own door": "os._exit(3)",
    "becomes another program": "os.execv('/bin/true', ['true'])",
    "kills itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "crashes": "os.abort()",
    "ends pytest": "pytest.exit('enough', returncode=7)",
    "exits": "sys.exit(5)",
    "interrupts": "raise KeyboardInterrupt",
    "ignores signals": "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)]",
    "sends itself a signal": "os.kill(os.getpid(), signal.SIGTERM)",
    "lets an alarm come": "signal.setitimer(signal.ITIMER_REAL, 0.3)",
    "reaps all children": "signal.signal(signal.SIGCHLD, lambda *_: os.waitpid(-1, os.WNOHANG))",
    "breaks subprocess": "subprocess.Popen = None",
    "breaks the clock": "time.monotonic = time.perf_counter = lambda: 0.0",
    "breaks open": "os.open = None",
    "traces": "sys.settrace(lambda *_: None)",
    "raises at the exit": "atexit.register(lambda: 1 / 0)",
    "raises what is no exception": "raise BaseException('neither')",
    "raises without end": "raise endless()",
    "is slow": "os.nice(19)",
    "changes the time zone and the locale": "os.environ.update(TZ='X', LC_ALL='tr_TR', LANG='x'); time.tzset()",
    "records odd figures": "timed.record('m', 5e-324, unit='\\n::error::x')",
    "removes its temporary directory": "subprocess.run(['rm', '-rf', '--one-file-system', root / 'tmp'])",
}
#: These end the process: nothing is torn down by it, and the exit code is whatever they make it.
ENDS = frozenset({"lets an alarm come", "leaves by its own door", "becomes another program", "kills itself", "crashes"})

_TEST = """
import atexit, ctypes, fcntl, inspect, mmap, os, pathlib, resource, signal, stat, subprocess, sys, threading, time

import pytest

def scribble(path):
    try:
        while True:
            (path / "scribble").write_bytes(bytes(4096))
    except OSError:
        pass

def fill(path):
    try:
        with (path / "all").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError:
        pass

def deep(path, depth):
    for number in range(depth):
        path = path / ("d" * 10)
        path.mkdir()

def recurse():
    recurse()

class endless(Exception):
    def __str__(self):
        raise ValueError("no text")

def act(fsstack, timed):
    path, root = fsstack.path, pathlib.Path(__file__).parent
    {deed}

@pytest.mark.fsstack({stacks})
class TestIt:
    @pytest.mark.benchmark
    def test_write(self, fsstack, timed):
        {before}
        with timed(cold=False):
            {inside}
            (fsstack.path / "file").write_bytes(bytes(1 << 16))
        {after}

    def test_python(self, fsstack):
        assert (fsstack.path / "file").exists()
"""


def misbehaving(place: Place) -> Figures:
    """One such test, on one or two stacks, before, inside or after its timed block."""
    name = place.random.choice(sorted(DEEDS))
    where = place.random.choice(("before", "inside", "after"))
    chosen = place.random.sample(quick_stacks(), place.random.choice((1, 2)))
    place.write(*chosen)
    code = dict.fromkeys(("before", "inside", "after"), "pass") | {where: "act(fsstack, timed)"}
    test = _TEST.format(deed=DEEDS[name], stacks=", ".join(map(repr, chosen)), **code)
    (place.directory / "test_it.py").write_text(test)
    what = f"a test on {' and '.join(chosen)} that {name}, {where} its timed block"
    return _ended(place, name, what)


def _ended(place: Place, name: str, what: str) -> Figures:
    figures: Figures = Counter({"cases": 1})
    with place.session("--fsstack-rounds=1", "--fsstack-timeout=20", "--tb=short") as process:
        code = code_of(process)
    if code is None:
        figures += place.wrong("hung", f"{what}: hangs")
    elif code < 0 and name not in ENDS:
        figures += place.wrong("wrong exit code", f"{what}: exit code {code}")
    if "INTERNALERROR" in place.output or "pytest_fsstack/" in place.output.partition("Traceback")[2]:
        figures += place.wrong("traceback", f"{what}: a traceback")
    place.clean_up()
    figures += place.figures_of_what_is_left(process.pid, what=what)
    _end_children(place)
    figures += place.put_in_order(what, admitted=True, dead=process.pid)
    place.give_over()
    return figures


def _end_children(place: Place) -> None:
    """End what the test left running, which is the test's own business as long as the stack is down."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"TORTURE={place.directory}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
