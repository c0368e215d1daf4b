"""Checks of LAB.toml, before anything is sent to a host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fsstack.command import main
from pytest_fsstack.fleet.laboratory import settings
from pytest_fsstack.fleet.laboratory.settings import SettingsError


def load(tmp_path: Path, text: str) -> settings.Settings:
    (tmp_path / "LAB.toml").write_text(text)
    return settings.load(tmp_path / "LAB.toml")


HOST = '[[hosts]]\nname = "node1"\ndisk = "{}"\n'


@pytest.mark.parametrize(
    "disk",
    ["/dev/disk/by-id/nvme-X_1", "/dev/disk/by-partlabel/scratch", "/dev/mapper/vg-lv", "loop", "ram", "dir:/srv/x"],
)
def test_names_that_mean_the_same_disk_tomorrow_are_taken(tmp_path: Path, disk: str) -> None:
    (hosts,) = load(tmp_path, HOST.format(disk)).hosts
    assert hosts.disk == disk


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        (HOST.format("/dev/sdb"), "hosts[0].disk", "/dev/sdb"),
        (HOST.format("/dev/nvme0n1"), "hosts[0].disk", "/dev/nvme0n1"),
        (HOST.format("dir:relative"), "hosts[0].disk", "dir:relative"),
        ('[[hosts]]\ndisk = "loop"\n', "hosts[0].name", "feature"),
        ('[[hosts]]\nname = "a"\nfeature = "b"\ndisk = "loop"\n', "hosts[0].name", "feature"),
        ('[[hosts]]\nname = "-w x"\ndisk = "loop"\n', "hosts[0].name", "'-w x'"),
        ('[[hosts]]\nfeature = "a&b"\ndisk = "loop"\n', "hosts[0].feature", "'a&b'"),
        ('[[hosts]]\nname = "a"\ndisk = 3\n', "hosts[0].disk", "int"),
        ('[[hosts]]\nname = "a"\n', "hosts[0]", "disk"),
        ('[[hosts]]\nname = "a"\ndisk = "loop"\nlabels = { "a b" = "c" }\n', "hosts[0].labels", "a b"),
        ("", "hosts", "hosts"),
        ("hosts = []\n", "hosts", "[[hosts]]"),
        (HOST.format("loop") + "[laboratory]\nhuors = 3\n", "laboratory", "huors"),
        (HOST.format("loop") + "[laboratory]\nhours = 0\n", "laboratory.hours", "0"),
        (HOST.format("loop") + "[laboratory]\ngrace = 70000\n", "laboratory.grace", "70000"),
        (HOST.format("loop") + "[laboratory]\nhours = 0.03\n", "laboratory.grace", "120"),
        (HOST.format("loop") + '[laboratory]\nkernels = ["host", "host"]\n', "laboratory.kernels", "host"),
        (HOST.format("loop") + '[laboratory]\npartition = "-x"\n', "laboratory.partition", "-x"),
        (HOST.format("loop") + '[laboratory]\ndirectory = "runs"\n', "laboratory.directory", "runs"),
        (HOST.format("loop") + '[laboratory]\nfiles = ["../x"]\n', "laboratory.files", "../x"),
        (HOST.format("loop") + '[laboratory]\nfiles = ["none.py"]\n', "laboratory.files", "none.py"),
        (HOST.format("loop") + '[laboratory]\nkernels = ["a\\nb"]\n', "laboratory.kernels[0]", "printable"),
        (HOST.format("loop") + '[python]\nenvironment = "venv"\n', "python.environment", "'venv'"),
        (HOST.format("loop") + '[python]\nwheels = "missing"\n', "python.wheels", "missing"),
        (HOST.format("loop") + '[labels]\nplace = " "\n', "labels", "place"),
        ("[[hosts]\n", "TOML", "line 1"),
    ],
)
def test_an_error_names_the_file_the_key_and_the_value(tmp_path: Path, text: str, key: str, value: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, text)
    for fact in (str(tmp_path / "LAB.toml"), key, value):
        assert fact in str(raised.value)


def test_a_new_file_is_right_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "new"]) == 0
    written = settings.load(tmp_path / "LAB.toml")
    assert [hosts.name for hosts in written.hosts] == ["node[1-2]"]
    assert main(["lab", "new"]) == 4


def test_each_key_that_is_commented_out_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["lab", "new"])
    text = re.sub(r"^# (?=\[|\w+ = )", "", (tmp_path / "LAB.toml").read_text(), flags=re.MULTILINE)
    for name in ("tests/storage", "wheels"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pytest.ini").touch()
    whole = load(tmp_path, text)
    assert len(whole.hosts) == 3
    assert whole.laboratory.kernels
    assert whole.labels == {"place": "basement"}
    assert whole.python.wheels == "wheels"


@pytest.mark.parametrize("words", [["--directory=x"], ["--fsstack-device=loop"], ["--fsstack-json=x"]])
def test_words_that_a_laboratory_gives_itself_are_refused(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "LAB.toml").write_text(HOST.format("loop"))
    assert main(["lab", "run", str(tmp_path / "LAB.toml"), "--", *words]) == 4
