"""Whether a CPU is emulated, by what its kernel shows."""

from __future__ import annotations

import pytest

from pytest_fsstack.machine.emulation import shows_emulation


@pytest.mark.parametrize(
    ("model", "clocks", "emulated"),
    [
        ("QEMU TCG CPU version 2.5+", "tsc hpet", True),
        ("QEMU Virtual CPU version 2.5+", "hpet acpi_pm", True),
        ("QEMU Virtual CPU version 2.5+", "kvm-clock tsc", False),
        ("AMD EPYC", "kvm-clock tsc", False),
        ("Intel(R) Core(TM) i7", "tsc hpet", False),
    ],
)
def test_the_model_of_the_cpu_and_the_clock_of_kvm_show_it(model: str, clocks: str, emulated: bool) -> None:
    cpuinfo = f"processor\t: 0\nmodel name\t: {model}\nflags\t\t: fpu hypervisor\n"
    assert shows_emulation(cpuinfo, clocks) == emulated


def test_a_machine_that_shows_nothing_is_not_called_emulated() -> None:
    assert not shows_emulation("", "")
