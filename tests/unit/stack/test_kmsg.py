"""The kernel's messages, by records as /dev/kmsg gives them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.stack import kmsg
from pytest_fsstack.stack.kmsg import Record, parse, reasons


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            b"3,21041,11230406116,-;EXT4-fs: Unknown parameter 'nosuchoption'\n",
            Record(0, 3, "EXT4-fs: Unknown parameter 'nosuchoption'"),
        ),
        (
            b"6,339,5140900,-,caller=T1;NET: Registered protocol family 10\n SUBSYSTEM=net\n DEVICE=n1\n",
            Record(0, 6, "NET: Registered protocol family 10"),
        ),
        (b"30,340,5690716,-;udevd[80]: starting version 181\n", Record(3, 6, "udevd[80]: starting version 181")),
        (b"4,1,2,-;caf\\xc3\\xa9 \\x5cx41; and\\x0aso on\n", Record(0, 4, "caf\u00e9 \\x41; and\nso on")),
        (b"4,1,2,-;\\xff\n", Record(0, 4, "\ufffd")),
        (b"4,1,2,c;more\n", Record(0, 4, "more", goes_on=True)),
    ],
)
def test_a_record_is_read(record: bytes, expected: Record) -> None:
    assert parse(record) == expected


@pytest.mark.parametrize("record", [b"", b"hello\n", b"a,b,c,-;text\n", b"4,1;text\n"])
def test_what_is_no_record_is_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"/dev/kmsg|invalid literal"):
        parse(record)


@given(text=st.text(), facility=st.integers(0, 23), level=st.integers(0, 7))
def test_escaping_as_the_kernel_does_is_undone(text: str, facility: int, level: int) -> None:
    # kernel/printk/printk.c, msg_add_ext_text: what is not printable ASCII, and the backslash.
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\x{byte:02x}" for byte in text.encode()
    )
    assert parse(f"{facility * 8 + level},7,123,-;{escaped}\n A=b\n".encode()) == Record(facility, level, text)


def test_pieces_of_a_line_are_put_together() -> None:
    records = [Record(0, 4, "a"), Record(0, 4, "b", goes_on=True), Record(0, 6, "c", goes_on=True), Record(0, 3, "d")]
    assert reasons(records) == ["abc", "d"]
    assert reasons([Record(0, 4, "its start was overwritten", goes_on=True)]) == ["its start was overwritten"]


def test_only_what_may_be_a_reason_is_shown_and_only_its_end() -> None:
    records = [Record(0, 6, "detected capacity change"), Record(3, 3, "udevd: a program's"), Record(0, 5, "")]
    assert reasons(records) == []
    assert reasons([*records, *(Record(0, 4, str(number)) for number in range(20))]) == list(map(str, range(12, 20)))


@pytest.mark.parametrize("device", ["/no/such/file", "/dev/null", "/dev/ptmx", "/etc/passwd", "/"])
def test_where_nothing_can_be_read_nothing_was_said(device: str) -> None:
    with kmsg.listening(device) as kernel:
        assert kernel.heard() == ""


def test_overwritten_records_are_passed_over_and_descriptors_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kmsg").write_text("")
    answers: list[bytes | Exception] = [
        BrokenPipeError(),
        b"4,1,2,-;first\n",
        b"6,2,3,-;news\n",
        b"3,3,4,-;last\n",
        BlockingIOError(),
    ]

    def read(fd: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    before = len(os.listdir("/proc/self/fd"))
    with kmsg.listening(str(tmp_path / "kmsg")) as kernel:
        monkeypatch.setattr(os, "read", read)
        *heading, first, last = kernel.heard().split("\n")
    assert (first.strip(), last.strip()) == ("first", "last")
    assert "news" not in "".join(heading)
    assert len(os.listdir("/proc/self/fd")) == before
