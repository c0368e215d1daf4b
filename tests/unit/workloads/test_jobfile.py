"""Job files of fio: what may run on a stack, and what leads out of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from pytest_fsstack.workloads import jobfile
from pytest_fsstack.workloads.jobfile import JobFileError

EXAMPLES = Path("/usr/share/doc/fio/examples")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of a stack, with a link out of it."""
    (tmp_path / "stack").mkdir()
    (tmp_path / "elsewhere").touch()
    (tmp_path / "stack/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "stack/within").symlink_to(tmp_path / "stack/file")
    return tmp_path / "stack"


def check(text: str, place: Path, **environment: str) -> None:
    job = place.parent / "job.fio"
    job.write_bytes(os.fsencode(text))
    escaped = str(place).replace(":", "\\:")
    jobfile.check(job, place, {"FSSTACK": escaped, **environment})


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("filename=/dev/sda", 10),
        ("filename=/dev/loop0", 10),
        ("filename=x:/dev/sda", 10),
        ("  filename = /dev/sda", 13),
        ("filename=../x", 10),
        ("filename=link", 10),
        ("filename=${FSSTACK}/../x", 10),
        ("filename=${HOME}/x", 10),
        ("filename=${FSSTACK}x", 10),
        ("${KEY}=touch x", 8),
        ("directory=/etc", 11),
        ("directory=sub:/etc", 11),
        ("filename_format=../$jobname", 17),
        ("filename_format=${FSSTACK}:", 17),
        ("write_bw_log=${FSSTACK}:x", 14),
        ("write_bw_log=${FSSTACK}", 14),
        ("opendir=/etc", 9),
        ("read_iolog=x", 12),
        ("write_iolog=/x", 13),
        ("write_bw_log=/x", 14),
        ("write_lat_log=../x", 15),
        ("write_hist_log=/x", 16),
        ("include other.fio", 1),
        ("include/other.fio", 1),
        ("exec_prerun=touch x", 13),
        ("exec_postrun=touch x # harmless", 14),
        ("ioengine=net", 10),
        ("ioengine=rdma", 10),
        ("ioengine=external:./x.so", 10),
        ("ioengine=exec", 10),
        ("ioengine=sg", 10),
        ("ioengine=libaio,net", 10),
        ("ioengine=new", 10),
        ("merge_blktrace_file=x", 21),
        ("replay_redirect=/dev/sda", 17),
        ("ioscheduler=none", 13),
        ("cgroup=x", 8),
        ("mem=mmaphuge:/etc/x", 5),
        ("buffer_pattern='/etc/passwd'", 16),
        ("some_new_option=/etc/passwd", 17),
        ("[/dev/sda]", 2),
        ("[../x]", 2),
        ("[a #/../../x]", 2),
        ("name=../x", 6),
        ("description=" + "x" * 4000, 1),
        ("filename=a\0b", 1),
        # These are blanks for Python, or for isspace(3) in some locales. As part of a name, they lead beside the stack.
        ("directory=${FSSTACK}\x1f", 1),
        ("directory=${FSSTACK}\x85", 1),
        ("directory=${FSSTACK}\udc85", 1),
        ("  filename=${FSSTACK}\u2003/x", 3),
        ("\x1cdirectory=/etc", 1),
        ("${UNCLEAR}=/etc", 1),
        ("[a\x1f]", 1),
    ],
)
def test_what_leads_out_is_refused_with_line_and_column(line: str, column: int, place: Path) -> None:
    with pytest.raises(JobFileError, match=rf"job\.fio:4:{column}: "):
        check(
            f"[global]\nsize=1M\n; a job\n{line}\n[job]\nrw=write\n",
            place,
            HOME="/root",
            KEY="exec_prerun",
            UNCLEAR="directory\x1f",
        )


@pytest.mark.parametrize(
    "line",
    [
        "filename=x",
        "filename=a:b:sub/c",
        "filename=a\\:b",
        "filename=within",
        "filename=${FSSTACK}/x",
        "directory=${FSSTACK}",
        "directory=sub",
        "filename_format=$jobname.$jobnum",
        "write_bw_log",
        "write_bw_log=log",
        "ioengine=io_uring",
        "ioengine=libaio ; not net",
        "bssplit=4k/50:8k/50",
        "random_distribution=zoned:50/5:30/15",
        "rw=randrw",
        "[job 4k/8k]",
        "[global]",
        "verify_pattern=0xdeadbeef",
        "# include /etc/passwd",
        "description=reads and writes",
        "rate=1m,500k",
        "group_reporting",
    ],
)
def test_what_stays_within_the_stack_is_allowed(line: str, place: Path) -> None:
    check(f"[global]\nsize=1M\n[job]\n{line}\n", place)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "is_block_device", lambda path: True)
    return Path("/dev/fsstack-1")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[a]\nfilename=x\n", "2:10"),
        ("[a]\nfilename=/dev/sda\n", "2:10"),
        ("[a]\nfilename=${FSSTACK}:/dev/sda\n", "2:10"),
        ("[a]\ndirectory=sub\n", "2:11"),
        ("[a]\nrw=read\n", "1:2"),
        ("[a]\nfilename=${FSSTACK}\n[b]\nrw=read\n", "3:2"),
        ("[sda]\nfilename=${FSSTACK}\nwrite_bw_log=x\n", "3:14"),
        ("[/dev/sda]\nfilename=${FSSTACK}\n", "1:2"),
    ],
)
def test_on_a_device_each_job_works_on_that_device(text: str, where: str, device: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text(text)
    with pytest.raises(JobFileError, match=rf"job\.fio:{where}: "):
        jobfile.check(job, device, {"FSSTACK": str(device)})


@pytest.mark.parametrize(
    "text",
    [
        "[global]\nfilename=${FSSTACK}\n[a]\nrw=read\n[b]\nrw=write\n",
        "[a]\nfilename=${FSSTACK}\n[b]\nioengine=cpuio\ncpuload=50\n",
        "[a]\nfilename=${FSSTACK}\n[global]\nfilename=${FSSTACK}\n[b]\nrw=read\n",
    ],
)
def test_jobs_on_the_device_are_allowed(text: str, device: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text(text)
    jobfile.check(job, device, {"FSSTACK": str(device)})


GROUPED = "[global]\ngroup_reporting\nsize=4k\n[bank-a]\nrw=read\n[bank-b]\nrw=write\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GROUPED, 6),
        (GROUPED.replace("[bank-b]", "[bank-b]\ngroup_reporting=1"), 6),
        ("[a]\nrw=read\n[b]\nrw=read\ngroup_reporting\n", 3),
        (GROUPED.replace("[bank-b]\n", "[bank-b]\nstonewall=0\n"), 6),
    ],
)
def test_sections_that_fio_reports_as_one_are_refused(text: str, line: int, place: Path) -> None:
    job = place.parent / "job.fio"
    job.write_text(text)
    with pytest.raises(JobFileError, match=rf":{line}:\d+: .*group_reporting"):
        jobfile.check(job, place, {}, sections=True)
    # Together they have figures.
    jobfile.check(job, place, {})


@pytest.mark.parametrize(
    "text",
    [
        GROUPED.replace("[bank-b]\n", "[bank-b]\nstonewall\n"),
        GROUPED.replace("[bank-b]\n", "[bank-b]\nnew_group=1\n"),
        GROUPED.replace("[bank-b]\n", "[bank-b]\ngroup_reporting=0\n"),
        "[a]\ngroup_reporting\nnumjobs=2\nrw=read\n",
    ],
)
def test_sections_that_fio_reports_apart_are_allowed(text: str, place: Path) -> None:
    job = place.parent / "job.fio"
    job.write_text(text)
    jobfile.check(job, place, {}, sections=True)


@pytest.mark.parametrize("pattern", ["trim", "randtrim", "trimwrite"])
def test_trims_need_a_block_device(pattern: str, place: Path, device: Path) -> None:
    with pytest.raises(JobFileError, match=r":1:2: .*block device"):
        check(f"[a]\nsize=4k\nrw={pattern}\n", place)
    job = device.parent / "trim.fio"
    job.write_text(f"[a]\nfilename=${{FSSTACK}}\nrw={pattern}\n")
    jobfile.check(job, device, {"FSSTACK": str(device)})


_pieces = st.sampled_from(("/", "/", "..", "../x", "link", "${FSSTACK}", "${UP}", "#", ";", ":", "\\:", " ", "x", "y"))
_paths = st.lists(_pieces, min_size=1, max_size=6).map("".join)
_keys = st.sampled_from(("filename", "directory", "filename_format", "write_bw_log", "name", "${KEY}"))
_lines = st.one_of(st.builds("{}={}".format, _keys, _paths), st.builds("[{}]\nsize=4k\nrw=write".format, _paths))


@pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")
@given(text=_lines)
@example(text="filename=../x")
@example(text="${KEY}=x:${UP}/x")
@example(text="filename_format=${FSSTACK}:")
@example(text="write_bw_log=${FSSTACK}")
@example(text="[../x]\nsize=4k\nrw=write")
@example(text="[x#/../../x]\nsize=4k\nrw=write")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_fio_makes_nothing_elsewhere_of_a_job_that_is_allowed(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "a/stack").mkdir(parents=True)
    place = root / "a/stack"
    (place / "link").symlink_to(root / "elsewhere")
    job = f"[job]\nsize=4k\nrw=write\n{text}\n"
    try:
        check(job, place, UP="..", KEY="filename")
    except JobFileError:
        return
    before = set(_files(root)) - set(_files(place))
    environment = {**os.environ, "FSSTACK": str(place), "UP": "..", "KEY": "filename"}
    subprocess.run(["fio", place.parent / "job.fio"], cwd=place, env=environment, capture_output=True, timeout=60)
    assert set(_files(root)) - set(_files(place)) == before


def _files(place: Path) -> Iterator[Path]:
    return (path for path in place.rglob("*") if path != place.parent / "job.fio")


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the package fio-examples is not installed")
def test_each_example_of_fio_is_allowed_or_refused_at_a_place(place: Path) -> None:
    refusals = {}
    for job in EXAMPLES.rglob("*.fio"):
        try:
            jobfile.check(job, place, {})
        except JobFileError as error:
            refusals[job.name] = str(error)
    assert {"netio.fio", "http-s3.fio", "nbd.fio", "exec.fio", "sg_verify.fio"} <= refusals.keys()
    assert not {"fio-seq-read.fio", "fsx.fio", "null.fio"} & refusals.keys()


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", 1, "section"),
        ("[global]\nsize=4k\nrw=write\n", 1, "section"),
        ("[a]\nrw=read\n[b]\nrw=write\nstats=0\n", 3, "stats"),
        ("[global]\nstats=0\n[a]\nrw=read\n", 3, "stats"),
        ("[a]\nrw=rw\nunified_rw_reporting=1\n", 1, "unified_rw_reporting"),
        ("[a]\nrw=rw\nunified_rw_reporting=mixed\n", 1, "unified_rw_reporting"),
        ("[a]\nrw=read\n[a]\nrw=write\n", 3, "'a'"),
        ("[a]\nname=b\n[b]\nrw=write\n", 3, "'b'"),
    ],
)
def test_jobs_whose_figures_would_be_missing_are_refused(text: str, line: int, word: str, place: Path) -> None:
    job = place.parent / "job.fio"
    job.write_text(text)
    with pytest.raises(JobFileError, match=rf":{line}:\d+: .*{word}"):
        jobfile.check(job, place, {}, sections=True)


@pytest.mark.parametrize(
    "text",
    [
        "[global]\nname=both\n[a]\nrw=read\n[b]\nrw=write\n",
        "[a]\nrw=rw\nunified_rw_reporting=both\n",
        "[a]\nrw=read\nstats=1\nnumjobs=2\n",
    ],
)
def test_jobs_with_all_figures_are_allowed(text: str, place: Path) -> None:
    job = place.parent / "job.fio"
    job.write_text(text)
    jobfile.check(job, place, {}, sections=True)
