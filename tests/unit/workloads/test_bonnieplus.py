"""bonnie++'s line of CSV, as recorded from bonnie++ 2.00a, and the workload on a directory."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack import workloads
from pytest_fsstack.machine import needs
from pytest_fsstack.workloads.bonnieplus import _FIELDS, BonnieError, parse_bonnie
from tests.toolkit import DATA, NotedStack, NotedTimed, block

LINE = (DATA / "bonnie-2.00.csv").read_text()


def test_what_it_measured() -> None:
    figures = parse_bonnie(LINE)
    assert {name: value for name, (_, value) in figures.items() if not name.endswith("latency")} == {
        "bonnie_write_chars": 3508 * 1024,
        "bonnie_write_chars_cpu": 99,
        "bonnie_write_blocks": 275032 * 1024,
        "bonnie_write_blocks_cpu": 83,
        "bonnie_read_chars": 5137 * 1024,
        "bonnie_read_chars_cpu": 96,
        "bonnie_create_sequential": 64946,
        "bonnie_create_sequential_cpu": 91,
        "bonnie_create_random": 73885,
        "bonnie_create_random_cpu": 96,
    }
    latencies = [round(value * 1e6) for name, (_, value) in figures.items() if name.endswith("latency")]
    assert latencies == [3260, 8343, 1981, 3324, 1924, 3998, 3576, 1761, 3077, 2496, 290, 2429]
    metric, _ = figures["bonnie_write_chars"]
    assert (metric.name, metric.unit, metric.better, metric.resolution) == (
        "bonnie_write_chars",
        "B/s",
        "higher",
        1024,
    )
    metric, _ = figures["bonnie_write_chars_cpu"]
    assert (metric.unit, metric.better, metric.resolution) == ("%", "lower", 1)
    metric, _ = figures["bonnie_rewrite_latency"]
    assert (metric.unit, metric.better, metric.resolution) == ("s", "lower", 1e-6)
    assert figures["bonnie_create_random"][0].unit == "1/s"


def test_what_was_left_out_and_what_was_too_fast() -> None:
    assert set(parse_bonnie((DATA / "bonnie-2.00-fast.csv").read_text())) == {
        f"bonnie_{name}_latency" for name in ("write_blocks", "rewrite", "read_blocks", "seeks")
    }
    small = parse_bonnie((DATA / "bonnie-2.00-small.csv").read_text())
    assert "bonnie_write_blocks" not in small
    assert "bonnie_write_blocks_cpu" not in small
    assert small["bonnie_seeks_latency"][1] == pytest.approx(8.641e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 lines .*''$"),
        (LINE + LINE, "2 lines .*CSV"),
        (LINE.replace("1.98", "1.97", 1), r"'1\.97'.* 1\.98"),
        (LINE.rsplit(",", 1)[0], "49 fields .*50$"),
        (LINE.replace("3508", "fast"), "'fast' .*write_chars$"),
        (LINE.replace("3508", "3508us"), "'3508us' .*write_chars$"),
        (LINE.replace("3260us", "3260"), "'3260' .*write_chars_latency$"),
    ],
)
def test_what_is_not_complete_is_refused(text: str, message: str) -> None:
    with pytest.raises(BonnieError, match=f"^bonnie: .*{message}"):
        parse_bonnie(text)


@given(st.text() | st.lists(st.sampled_from(["1.98", "", "+++", "12", "3us", "4ms", "1s", "x"])).map(",".join))
def test_anything_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(BonnieError):
        parse_bonnie(text)


RATES = st.integers(0, 10**9).map(str) | st.just("+++++") | st.just("")
LATENCIES = st.tuples(st.integers(0, 10**6).map(str), st.sampled_from(["us", "ms", "s"])).map("".join) | st.just("")


@given(st.data())
def test_each_figure_is_under_its_own_name(data: st.DataObject) -> None:
    words = ["1.98", *(["text"] * (len(_FIELDS) - 1))]
    for index, field in enumerate(_FIELDS):
        if field is not None:
            words[index] = data.draw(LATENCIES if field.unit == "s" else RATES)
    figures = parse_bonnie(",".join(words))
    assert len(figures) == sum(
        word.strip("+") != "" for field, word in zip(_FIELDS, words, strict=True) if field is not None
    )
    assert all(name == metric.name and value >= 0 for name, (metric, value) in figures.items())


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs.Tool, "missing", lambda self: None)


@pytest.mark.usefixtures("installed")
class TestWorkload:
    def test_records_and_keeps(self, clock: NotedTimed, stack: NotedStack) -> None:
        clock.instead = lambda: LINE
        workloads.bonnie(clock, stack, size=512 << 20, files=65536, concurrency=5, seed=7)
        (words,) = clock.inside
        assert words[:10] == ("bonnie++", "-q", "-d", f"{stack.path}/bonnie", "-s", "512M", "-r", "256", "-n", "64")
        assert words[10:16] == ("-c", "5", "-z", "7", "-m", "fsstack")
        assert clock.recorded["bonnie_create_random"] == (73885, "1/s", "higher")
        assert clock.kept["bonnie_csv"] == LINE
        assert clock.blocks == [block(cold=True)]
        assert list(stack.path.iterdir()) == []

    def test_leaves_out_what_goes_byte_by_byte(self, clock: NotedTimed, stack: NotedStack) -> None:
        clock.instead = lambda: LINE
        workloads.bonnie(clock, stack, characters=False)
        assert clock.inside[0][-1] == "-f"

    def test_notices_what_is_left(self, clock: NotedTimed, stack: NotedStack) -> None:
        def left() -> str:
            (stack.path / "bonnie" / "Bonnie.1").touch()
            return LINE

        clock.instead = left
        with pytest.raises(AssertionError, match=r"^bonnie: .*\bBonnie\.1$"):
            workloads.bonnie(clock, stack)

    def test_needs_a_filesystem(self, clock: NotedTimed, stack: NotedStack) -> None:
        stack.path.rmdir()
        with pytest.raises(NotADirectoryError, match=f"^bonnie: {stack.path} "):
            workloads.bonnie(clock, stack)
