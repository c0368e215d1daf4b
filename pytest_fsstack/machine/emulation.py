"""Detection of an emulated CPU, whose times say nothing about those of a real one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

#: Models of CPUs that only exist in an emulator, and those that QEMU shows with and without KVM.
_EMULATED = re.compile(r"\bTCG\b|\bBochs\b", re.I)
_OF_QEMU = re.compile(r"\bQEMU\b", re.I)
#: KVM offers this clock to each guest on x86.
_CLOCKS = Path("/sys/devices/system/clocksource/clocksource0/available_clocksource")
_KVM_CLOCK = "kvm-clock"


@cache
def is_emulated() -> bool:
    """Whether the CPU of this machine is emulated, as far as its kernel shows it. On x86 it does."""
    return shows_emulation(_read(Path("/proc/cpuinfo")), _read(_CLOCKS))


def shows_emulation(cpuinfo: str, clocks: str) -> bool:
    """Whether ``/proc/cpuinfo`` and the available clocks are those of an emulated CPU."""
    models = [line.partition(":")[2] for line in cpuinfo.splitlines() if line.startswith("model name")]
    if any(map(_EMULATED.search, models)):
        return True
    return any(map(_OF_QEMU.search, models)) and _KVM_CLOCK not in clocks.split()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
