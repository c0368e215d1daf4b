"""The command line, the ini and markers: what they mean, and what a mistake says."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Project

ONE = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.benchmark
def test_it(fsstack, timed):
    with timed(cold=False):
        pass
"""
UNMARKED = """
def test_it(fsstack):
    pass
"""


@pytest.mark.parametrize(
    ("test", "ini", "words", "ids"),
    [
        (ONE, "", ["--fsstack-stacks=x = crypt", "--fsstack-stacks=crypt | plain"], ["x", "crypt+plain"]),
        (UNMARKED, "plain\n    fast = plain(cost=1)", [], ["plain", "fast"]),
        # The ini does not replace a marker.
        (ONE, "crypt | crypt", [], ["plain", "crypt"]),
        (ONE, "", ["--fsstack-stacks=plain | crypt", "--fsstack-stacks=plain", "-k", "plain+crypt"], ["plain+crypt"]),
    ],
)
def test_the_stacks_are_those_of_the_command_line_the_marker_or_the_ini(
    project: Project, test: str, ini: str, words: list[str], ids: list[str]
) -> None:
    project.write(test)
    project.pytester.makeini(f"[pytest]\nfsstack_stacks =\n    {ini}\n")
    result = project.run("--collect-only", "-q", *words)
    assert [line for line in result.outlines if line.startswith("test_it.py::")] == [
        f"test_it.py::test_it[{stack}]" for stack in ids
    ]


ON = """
import pytest

@pytest.mark.fsstack("plain", "must-lose = plain(cost=1)", "other = crypt | plain", on="crypt(cost=3)", keep={keep})
def test_it(fsstack):
    print("built", fsstack.stack.id, fsstack.stack.spec)
"""


@pytest.mark.parametrize(
    ("given", "built"),
    [
        ([], ["plain crypt(cost=3) | plain", "must-lose crypt(cost=3) | plain(cost=1)", "other crypt | plain"]),
        (["plain | plain"], ["plain+plain crypt(cost=3) | plain | plain", "must-lose crypt(cost=3) | plain(cost=1)"]),
        (["must-lose = crypt"], ["must-lose crypt"]),
    ],
)
def test_a_marker_puts_a_layer_below_and_keeps_its_controls(
    project: Project, given: list[str], built: list[str]
) -> None:
    project.write(ON.format(keep=("must-lose",)))
    result = project.run("-s", "-q", *(f"--fsstack-stacks={stack}" for stack in given))
    result.assert_outcomes(passed=len(built))
    assert [line.partition("built ")[2] for line in result.outlines if "built " in line] == built


def test_the_name_of_a_baseline_wins_over_the_text_of_another_stack(project: Project) -> None:
    project.write(ONE.replace('"plain", "crypt"', '"plain", "same = plain", baseline="plain"'))
    result = project.run("--fsstack-rounds=1", "--fsstack-json=all.json")
    result.assert_outcomes(passed=2)
    (chain,) = json.loads((project.pytester.path / "all.json").read_text())["chains"]
    assert chain["baseline"] == "plain"


@pytest.mark.parametrize("keep", [("absent",), "must-lose", (1,)])
def test_what_a_marker_keeps_must_be_names_of_its_stacks(project: Project, keep: object) -> None:
    project.write(ON.format(keep=repr(keep)))
    result = project.run("--fsstack-stacks=crypt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: test_it.py::test_it: *keep=*"])


def test_the_same_stack_may_stand_twice_under_two_names(project: Project) -> None:
    project.write(ONE)
    result = project.run("--fsstack-stacks=a = plain", "--fsstack-stacks=b = plain", "--fsstack-rounds=1", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_it?a?*", "*test_it?b?*"])


def test_each_device_is_one_more_parameter(project: Project) -> None:
    project.write(ONE)
    other = project.pytester.mkdir("other")
    result = project.run("--fsstack-rounds=1", f"--fsstack-device=dir:{other}", "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_it?plain:dir-device?*", "*test_it?crypt:dir-other?*"])


def test_what_the_marker_has_below_goes_between_where_a_stack_does_not_fit_the_device(project: Project) -> None:
    project.write(
        "import pytest\n\n@pytest.mark.fsstack('plain', 'a = crypt', 'raw', below='plain | loop')\n"
        "def test_it(fsstack):\n    print('built', fsstack.stack.id, fsstack.spec)\n"
    )
    result = project.run("--collect-only", "-q")
    result.stdout.fnmatch_lines(["test_it.py::test_it?plain?", "test_it.py::test_it?a?", "test_it.py::test_it?raw?"])
    project.write(
        "import pytest\n\n@pytest.mark.fsstack('plain', 'raw', below='plain')\ndef test_it(fsstack):\n    pass\n"
    )
    result = project.run()
    result.stderr.fnmatch_lines(["ERROR: *raw *block device*"])


def test_a_remark_stands_below_the_tables(project: Project) -> None:
    project.write(
        ONE.replace("@pytest.mark.benchmark", "@pytest.mark.fsstack_remark('no barriers')\n@pytest.mark.benchmark")
    )
    result = project.run("--fsstack-rounds=1")
    result.stdout.fnmatch_lines(["[*] no barriers"])


def test_no_disk_but_the_sessions_own_is_advised(project: Project) -> None:
    """It may be a slip of the pen, and a disk that is named as the device is overwritten."""
    project.write(ONE)
    result = project.run("--fsstack-overwrite=/dev/sdz9")
    (line,) = [line for line in result.errlines if "/dev/sdz9" in line]
    assert f"dir:{project.device}" in line
    assert "--fsstack-device" not in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--fsstack-stacks=plain | crupt"], "*'crupt'; * crypt*"),
        (["--fsstack-stacks=plain(price=3)"], "*plain *'price'; *: cost*"),
        (["--fsstack-stacks=plain |"], "*luks | ext4*"),
        (["--fsstack-stacks=ext4"], "*ext4 *block device*; * dir:*`loop`*"),
        (["--fsstack-stacks=plain", "--fsstack-stacks=plain"], "*'plain': *'other = plain'*"),
        (["--fsstack-baseline=luks"], "*baseline 'luks' *: plain, crypt*"),
        (["--fsstack-size=big"], "*--fsstack-size: 'big' *512M*"),
        (["--fsstack-size=0"], "*--fsstack-size: *64K* 0)"),
        (["--fsstack-size=8388608T"], "*--fsstack-size: '8388608T' * less than *"),
        (["--fsstack-device=/no/such/disk"], "*--fsstack-device: /no/such/disk *`lsblk`*"),
        (["--fsstack-device=/tmp"], "*--fsstack-device: /tmp * dir:/tmp*"),
        (["--fsstack-device=/etc/passwd"], "*/etc/passwd *block device*"),
        (["--fsstack-device=sdb1"], "*'sdb1' * loop, ram*"),
        (["--fsstack-device=dir:/no/such"], "*--fsstack-device: * /no/such*"),
        (["--fsstack-overwrite=/dev/sdz9"], "*--fsstack-overwrite=/dev/sdz9*device is dir:*"),
        (["--fsstack-budget=lots"], "*'lots' *'luks[*]: 30%'*"),
        (["--fsstack-rounds=0"], "--fsstack-rounds: * 1 * 0)"),
        (["--fsstack-alpha=0.5"], "--fsstack-alpha: * 0 * 0.5* 0.5)"),
        (
            ["--fsstack-report=pdf=x"],
            "*'pdf=x' *NAME=FILE; *: bencher, csv, forest, github-benchmark, heatmap, *",
        ),
        (["--fsstack-json=/no/such/dir/x"], "--fsstack-json: * /no/such/dir *"),
        (["--fsstack-label=team"], "--fsstack-label: *KEY=VALUE*'team')"),
        (["--fsstack-dir=/no/such/dir"], "*--fsstack-dir: * /no/such/dir *"),
        (["--fsstack-corpus=/no/such/file"], "*/no/such/file*"),
        (["--fsstack-readahead=much"], "*--fsstack-readahead: 'much' *"),
        (["--fsstack-readahead=1"], "*--fsstack-readahead: * *K* 1)"),
        (["--fsstack-scheduler=none"], "*--fsstack-scheduler: *block device* dir:*"),
        (["--fsstack-discard"], "*--fsstack-discard: *block device* dir:*"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_message_and_exit_code_4(
    project: Project, arguments: list[str], expected: str
) -> None:
    project.write(ONE)
    result = project.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sum(line.startswith("ERROR: ") for line in result.stderr.lines) == 1
    result.stderr.fnmatch_lines([f"ERROR: {expected}"])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        (
            "fsstack('plain', 'crupt')",
            ["*test_it.py::test_it: *'crupt'; * crypt*", "  crupt", "  ^^^^^"],
        ),
        ("fsstack('plain', baselin='plain')", ["*fsstack *'baselin'; * baseline=*"]),
        ("fsstack('plain', baseline=['plain'])", ["*fsstack * baseline= *'plain'*"]),
        ("fsstack('plain', baseline='ext4')", ["*baseline 'ext4' *: plain*"]),
        ("fsstack(3)", ["*test_it.py::test_it: *fsstack * 3)"]),
        ("fsstack()", ["*test_it.py::test_it: *--fsstack-stacks *fsstack_stacks*"]),
        (
            "fsstack('plain')\n@pytest.mark.fsstack_budget(0.3, metrik='x')\n@pytest.mark.fsstack_remark(3)",
            [
                "*fsstack_remark: *",
                "*fsstack_budget: *'metrik'; * metric=*",
            ],
        ),
        (
            "fsstack('plain')\n@pytest.mark.fsstack_table('tables')",
            ["*fsstack_table: *'tables'; *: advantage, change, *"],
        ),
        (
            "fsstack('plain')\n@pytest.mark.fsstack_table(['times'])",
            ["*fsstack_table: *[[]'times']; *: advantage, change, *"],
        ),
        (
            "fsstack('plain')\n@pytest.mark.fsstack_table('matrix', metric='seconds')",
            ["*fsstack_table: 'matrix' *'metric'"],
        ),
    ],
)
def test_a_mistake_in_a_marker_is_one_message_and_exit_code_4(
    project: Project, marker: str, expected: list[str]
) -> None:
    project.write(
        f"import pytest\n\n@pytest.mark.{marker}\n@pytest.mark.benchmark\ndef test_it(fsstack, timed):\n    pass\n"
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {expected[0]}", *expected[1:]])


SIZED = """
import pytest
from dataclasses import dataclass
from pytest_fsstack.workloads.data.scale import Sizes

@dataclass(frozen=True)
class Sized(Sizes):
    files: int

SIZES = dict(smoke=Sized(1, files=1), small=Sized(1, files=10), paper=Sized(1 << 60, files=100))

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.fsstack_sizes(**SIZES)
class TestIt:
    @pytest.mark.benchmark
    def test_it(self, fsstack, timed, sizes):
        with timed():
            pass
        timed.record("files_seen", sizes.files)
"""


@pytest.mark.parametrize(("scale", "files"), [(None, 10), ("smoke", 1)])
def test_a_scale_chooses_the_sizes(project: Project, scale: str | None, files: int) -> None:
    project.write(SIZED)
    result = project.run("--fsstack-rounds=1", *([f"--fsstack-scale={scale}"] if scale else []))
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["files_seen*", f"plain*{files}*baseline*"])


@pytest.mark.parametrize(("alpha", "rounds"), [("0.05", 5), ("0.01", 7)])
def test_the_smallest_scale_runs_as_few_rounds_as_a_verdict_takes(project: Project, alpha: str, rounds: int) -> None:
    project.write(
        SIZED.replace("@pytest.mark.benchmark", "@pytest.mark.fsstack_budget(overhead=9.0, metric='files_seen')")
    )
    result = project.run("--fsstack-scale=smoke", f"--fsstack-alpha={alpha}", "--fsstack-json=all.json")
    result.assert_outcomes(passed=2)
    (chain,) = json.loads((project.pytester.path / "all.json").read_text())["chains"]
    assert len(chain["orders"]) == rounds
    assert chain["derived"]["it"]["crypt"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("old", "new", "words", "message"),
    [
        ("", "", ["--fsstack-scale=paper"], "*--fsstack-scale=paper * 1048576.0 TiB* dir:*"),
        ("(**SIZES)", "(smoke=SIZES['smoke'])", [], "fsstack_sizes: * smoke, small*"),
        ("@pytest.mark.benchmark", "@pytest.mark.fsstack_rounds(1)", [], "fsstack_rounds: *class*"),
        ("@pytest.mark.benchmark", "@pytest.mark.fsstack_remark('slow')", [], "fsstack_remark: *class*"),
        ("@pytest.mark.benchmark", "@pytest.mark.fsstack_table('times')", [], "fsstack_table: *class*"),
    ],
)
def test_wrong_sizes_and_marks_of_a_step_are_refused_before_anything_starts(
    project: Project, old: str, new: str, words: list[str], message: str
) -> None:
    project.write(SIZED.replace(old, new))
    result = project.run("--fsstack-rounds=1", *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: test_it.py::TestIt::test_it: {message}"])


def test_sizes_that_nobody_chose_are_skipped_where_they_cannot_fit(project: Project) -> None:
    project.write(
        SIZED.replace("small=Sized(1,", "small=Sized(1 << 60,")
        + "\n@pytest.mark.fsstack('plain')\ndef test_other(fsstack):\n    pass\n"
    )
    result = project.run("--fsstack-rounds=1", "-rs")
    result.assert_outcomes(skipped=2, passed=1)
    result.stdout.fnmatch_lines(["SKIPPED*--fsstack-scale=small * 1048576.0 TiB* dir:*"])


def test_missing_stacks_are_skipped_with_the_way_to_get_them(project: Project) -> None:
    project.write(ONE)
    result = project.run("--fsstack-rounds=1", "--fsstack-stacks=plain", "--fsstack-stacks=absent", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*absent * dir:* no-such-tool: * no-such-package"])
    result = project.run(
        "--fsstack-rounds=1", "--fsstack-stacks=plain", "--fsstack-stacks=absent", "--fsstack-if-unavailable=fail"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["* no-such-tool: * no-such-package (--fsstack-if-unavailable=fail)"])


KEPT, TWO_RUNS = "--fsstack-budget=plain: seconds <= 60", ("--fsstack-compare=x.json", "--fsstack-max-regression=5%")


@pytest.mark.parametrize(
    ("words", "ret", "judges"),
    [
        ([], 1, False),
        # A limit in seconds needs one stack only.
        ([KEPT], 0, True),
        (["--fsstack-budget=plain: seconds <= 1e-9"], 1, True),
        # Nothing records this metric.
        (["--fsstack-budget=plain: steps <= 3"], 1, False),
        # There is no pair of stacks for the second gate.
        ([KEPT, *TWO_RUNS], 1, False),
    ],
)
def test_a_gate_that_judged_nothing_fails(project: Project, words: list[str], ret: int, judges: bool) -> None:
    project.write(ONE)
    session = ["--fsstack-rounds=6", "--fsstack-stacks=plain"]
    assert project.run(*session, "--fsstack-json=x.json").ret == pytest.ExitCode.OK
    result = project.run(*session, "--fsstack-if-unavailable=fail", *words)
    assert (result.ret, "this gate has measured nothing" not in result.stdout.str()) == (ret, judges)


def test_benchmark_only_and_skip_know_these_tests(project: Project) -> None:
    project.write(ONE + "\ndef test_other():\n    pass\n")
    project.run("--fsstack-rounds=1", "--benchmark-only").assert_outcomes(passed=2, skipped=1)
    project.run("--fsstack-rounds=1", "--benchmark-skip").assert_outcomes(passed=1, skipped=2)


def test_a_session_that_does_not_use_stacks_shows_nothing_of_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("fsstack:*")


def test_markers_are_described(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(
        ["@pytest.mark.fsstack(*stacks, baseline=None, below=None, on=None, keep=())*", "@pytest.mark.fsstack_budget(*"]
    )


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("lod>2", "'lod>2' *; * 'load>2'*"),
        ("load>2, throttled", "* throttled: *"),
    ],
)
def test_rules_by_which_rounds_are_discarded_are_checked_first(project: Project, rules: str, message: str) -> None:
    conftest = project.pytester.path / "conftest.py"
    conftest.write_text(
        conftest.read_text()
        + "\nfrom pytest_fsstack.measuring import load\nload.read = lambda: load.Reading(1.0, 0.5)\n"
    )
    project.write("")
    result = project.run(f"--fsstack-drop-rounds={rules}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --fsstack-drop-rounds: {message}"])
