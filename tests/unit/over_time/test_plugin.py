"""Earlier runs in files: other files are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_fsstack.over_time.plugin import earlier_runs
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import FORMAT, Results
from tests.chains import a_chain


def run(scale: str) -> Results:
    return a_chain({"write": {"ext4": 1.0}}, 1).results(scale=scale)


def test_a_directory_is_all_of_its_json_in_order_of_the_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(saved.dumps(run(name)))
    (tmp_path / "notes.txt").write_text("not one of them")
    assert [results.scale for results in earlier_runs(tmp_path).values()] == ["a", "b"]
    assert [results.scale for results in earlier_runs(tmp_path / "b.json").values()] == ["b"]


def test_a_run_under_two_names_counts_once(tmp_path: Path) -> None:
    first = replace(run("small"), start="2026-01-01T00:00:00+00:00")
    for name, results in ("1", first), ("2", replace(first, start="2026-01-02T00:00:00+00:00")):
        (tmp_path / f"{name}.json").write_text(saved.dumps(results))
    (tmp_path / "latest.json").symlink_to("2.json")
    (tmp_path / "copy").write_text(saved.dumps(first))
    assert [path.name for path in earlier_runs(tmp_path, tmp_path / "copy")] == ["1.json", "2.json"]


def test_a_directory_without_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{tmp_path}: .*\*\.json"):
        earlier_runs(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "JSON: Input data was truncated"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"format": 99}', rf"\b99, .*\b{FORMAT}$"),
        (b'{"format": 1}', rf"\b1, .*\b{FORMAT}$"),
        (b"\xff\xfe", "JSON"),
        (saved.dumps(Results()).encode(), "measurements"),
    ],
)
@pytest.mark.parametrize("within", ["directory", "file"])
def test_what_is_no_run_is_refused_by_name(tmp_path: Path, content: bytes, message: str, within: str) -> None:
    path = tmp_path / "OLD.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"OLD\.json: .*{message}"):
        earlier_runs(tmp_path if within == "directory" else path)


def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "OLD.json").mkdir()
    with pytest.raises(ValueError, match=r"OLD\.json: Is a directory"):
        earlier_runs(tmp_path)
