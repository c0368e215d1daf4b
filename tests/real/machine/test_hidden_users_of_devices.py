"""Users of a device that no descriptor of a main thread shows."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice as LoopFile
from pytest_fsstack.machine import commands, guard
from pytest_fsstack.stack.places import BuildContext
from tests import guarding
from tests.real.conftest import LoopDevice, built, run, stop_process

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("locks")]

MAIN_THREAD_ENDED = """
import ctypes, os, sys, threading, time
fd = os.open(sys.argv[1], os.O_RDWR)
def wait():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    print("ready", flush=True)
    time.sleep(600)
threading.Thread(target=wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""

DESCRIPTORS_OF_ITS_OWN = """
import ctypes, os, sys, threading, time
def hold():
    assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
    os.open(sys.argv[1], os.O_RDWR)
    print("ready", flush=True)
    time.sleep(600)
threading.Thread(target=hold).start()
"""

MAPPING = """
import ctypes, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
assert libc.mmap(None, 4096, 3, 1, fd, ctypes.c_long(0)) != ctypes.c_void_p(-1).value
os.close(fd)
print("ready", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def running(code: str, device: Path) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code, device], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(MAIN_THREAD_ENDED, id="main-thread-ended"),
        pytest.param(DESCRIPTORS_OF_ITS_OWN, id="descriptors-of-its-own"),
        pytest.param(MAPPING, id="mapping"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_a_hidden_user_is_seen(loop_device: LoopDevice, code: str) -> None:
    loop = loop_device()
    with running(code, loop.path) as pid, loop.untouched():
        with pytest.raises(guard.Refused, match=rf"\b{pid}\b"):
            guarding.check_idle(loop.path)
    guarding.check_idle(loop.path)


def test_behind_a_loop_device_under_a_name_that_is_gone(loop_device: LoopDevice, tmp_path: Path) -> None:
    below = loop_device()
    node = tmp_path / "node"
    status = os.stat(below.path)
    os.mknod(node, status.st_mode, status.st_rdev)
    above = loop_device(on=node)
    node.unlink()
    node.touch()
    with below.untouched(), pytest.raises(guard.Refused, match=f"`losetup -d {above.path}`"):
        guarding.check_idle(below.path)


def test_a_device_that_this_session_holds_is_open_to_mkfs_and_to_the_guard(loop_device: LoopDevice) -> None:
    loop = loop_device()
    with guard.held(guard.identify(loop.path), overwrite=False) as device:
        device.check()
        # It opens the device exclusively.
        run("mkfs.ext4", "-q", loop.path)
        device.check()
        with loop.path.open("rb"), pytest.raises(guard.Refused, match=rf"\b{os.getpid()}\b"):
            device.check()


@pytest.mark.usefixtures("impatient")
def test_a_forked_child_keeps_no_device_from_use(loop_device: LoopDevice) -> None:
    disk, child = guard.identify(loop_device().path), 0
    files, unlimited = resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with guard.held(disk, overwrite=False) as device:
            # The child has no free descriptor.
            os.close(lowest := os.dup(0))
            resource.setrlimit(files, (lowest, unlimited[1]))
            try:
                child = os.fork()
                if not child:
                    time.sleep(60)
                    os._exit(0)
            finally:
                resource.setrlimit(files, unlimited)
            device.check()
        with guard.held(disk, overwrite=False):
            pass
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


BELOW_A_LONG_PATH = """
import mmap, os, sys, time
os.chdir(sys.argv[1])
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
if "open" in sys.argv[2:]:
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
if "mapped" in sys.argv[2:]:
    with open("mapped", "w+b") as file:
        file.truncate(4096)
        mapping = mmap.mmap(file.fileno(), 4096)
if "root" in sys.argv[2:]:
    os.chroot(".")
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["open", "mapped", "root"])
def test_a_file_below_a_path_that_is_too_long_for_a_name_keeps_no_device_from_use(
    loop_device: LoopDevice, tmp_path: Path, how: str
) -> None:
    path = loop_device().path
    # Not even root can be told the name of what such a process has open.
    argv = [sys.executable, "-c", BELOW_A_LONG_PATH, str(tmp_path), how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "ready\n"
            guarding.check_idle(path)
        finally:
            process.kill()
    shutil.rmtree(tmp_path / ("d" * 250))


HOLDING = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print("ready", flush=True)
time.sleep(600)
"""

CHECK = """
import sys
from pathlib import Path
from tests import guarding
guarding.check_idle(Path(sys.argv[1]))
"""


def test_a_file_on_a_filesystem_whose_server_hangs_does_not_keep_the_check_waiting(
    context: BuildContext, loop_device: LoopDevice
) -> None:
    path = loop_device().path
    with built("ext4 | gocryptfs", LoopFile(64 << 20), context) as stack, running(HOLDING, stack.path / "file"):
        (server,) = (int(pid) for pid in run("pgrep", "-f", f"gocryptfs .* {stack.path}$").split())
        # What the kernel knows of the file is too old by then for it to answer by itself.
        time.sleep(1.2)
        stop_process(server)
        try:
            # In a process of its own: a thread that waits in the kernel could not be ended.
            with subprocess.Popen([sys.executable, "-c", CHECK, path]) as check:
                assert commands.wait_until(lambda: check.poll() is not None, 60), "it waits for the server"
                assert check.returncode == 0
        finally:
            os.kill(server, signal.SIGCONT)
