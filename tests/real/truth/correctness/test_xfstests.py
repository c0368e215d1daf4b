"""The run of xfstests in its namespaces, with a script in the place of its program `check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.truth.correctness import xfstests
from tests.real.conftest import built

pytestmark = pytest.mark.root

CHECK = """#!/bin/sh
. "$HOST_OPTIONS"
stat -c %a "$TMPDIR" >{seen}
ls "$TMPDIR" >>{seen}
echo $$ >>{seen}
touch "$TMPDIR/$$"
echo '<testsuite><testcase name="generic/001" time="0"/></testsuite>' >"$RESULT_BASE/result.xml"
"""


def test_each_run_has_temporary_files_of_its_own(tmp_path: Path, context: BuildContext) -> None:
    check, place, runs = tmp_path / "check", tmp_path / "place", []
    place.mkdir()
    check.write_text(CHECK.format(seen=tmp_path / "seen"))
    check.chmod(0o755)
    with built("bind", DirectoryDevice(place), context) as stack:
        for _ in range(2):
            cases = xfstests.run(Timed(stack), stack, stack.path, tmp_path, ["generic/001"], 60)
            assert cases.passed == {"generic/001"}
            runs.append((tmp_path / "seen").read_text().split())
    # Process numbers repeat in a pid namespace of its own, so names made of them would meet in a shared directory.
    assert runs[0] == runs[1]
    assert len(runs[0]) == 2
    assert runs[0][0] == "1777"
