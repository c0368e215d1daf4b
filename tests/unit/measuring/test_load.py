"""The machine's load, from the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.measuring.load import Reading, conditions, lacking, read

FILES = {
    "proc/stat": "cpu  100 10 50 800 20 5 5 10 70 7\ncpu0 50 5 25 400 10 2 3 5 35 3\nctxt 5\n",
    "proc/loadavg": "1.25 0.80 0.50 2/300 4242\n",
    "proc/pressure/io": "some avg10=26.74 avg60=26.88 avg300=17.50 total=237338296\nfull avg10=0.00 total=10279117\n",
    "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
    "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "4\n",
    "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "1\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2000000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "3000000\n",
    "sys/devices/system/cpu/cpufreq/boost": "1\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_everything_is_read(root: Path) -> None:
    load = read(root, clock=5.0)
    assert load == Reading(
        5.0, 1.25, ticks=1000, stolen=10, pressure={"cpu": 17, "io": 237338296}, throttled=8, frequency=2500.0
    )
    assert lacking(["load", "steal", "psi_io", "throttled"], load) == ""
    assert lacking(["load", "psi_memory"], load) == "psi_memory"


def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    load = read(tmp_path, clock=5.0)
    assert load == Reading(5.0)
    assert set(conditions(load, load, load)) == {"cpus"}
    for name in "load", "steal", "throttled", "psi_cpu":
        assert lacking([name], load) == name


def test_this_machine_has_at_least_a_load() -> None:
    assert lacking(["load", "steal"], read()) == ""


def test_pressure_counts_before_the_round_and_the_rest_during_it_too() -> None:
    first = Reading(10.0, 0.5, 1000, 0, {"io": 0}, 2, 2000.0)
    start = Reading(11.0, 9.0, 1100, 10, {"io": 250_000}, 2, 2000.0)
    end = Reading(15.0, 9.0, 1400, 40, {"io": 3_250_000}, 5, 3000.0)
    conditions_between = conditions(first, start, end)
    del conditions_between["cpus"]
    expected = {"load": 0.5, "steal": 0.1, "throttled": 3, "frequency": 2500.0, "psi_io": 0.25, "psi_io_during": 0.75}
    assert conditions_between == pytest.approx(expected)
    # Without a pause there is no pressure before the round.
    assert "psi_io" not in conditions(start, start, end)
