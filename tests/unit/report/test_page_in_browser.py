"""The page in a browser: everything is drawn, nothing complains, and tables sort."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.report import html, vega
from tests.unit.report.test_charts import specifications
from tests.unit.report.test_report import made

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt install chromium"),
    pytest.mark.skipif(bool(vega.missing()), reason=vega.MISSING),
]

#: Nothing of a browser that looks for the network or for another user's settings.
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
OFFLINE = ("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=60000")


def shown(page: str, directory: Path, *, then: str = "") -> str:
    """The page as the browser has it in the end, after running `then`; fails if the console has something to say."""
    file = directory / "page.html"
    file.write_text(page.removesuffix("</html>\n") + f"<script>{then}</script></html>\n")
    logging = ("--enable-logging=stderr", "--v=0", f"--user-data-dir={directory / 'profile'}")
    assert CHROMIUM
    command = [CHROMIUM, *QUIET, *OFFLINE, *logging, "--dump-dom", f"file://{file}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout


def cells(page: str) -> list[str]:
    """The first column of the first table."""
    body = page[page.index("<tbody>") : page.index("</tbody>")]
    return re.findall(r'<th scope="row"[^>]*>([^<]*)</th>', body)


def test_every_picture_is_drawn(tmp_path: Path) -> None:
    page = html.report(made())
    drawn = shown(page, tmp_path)
    assert len(re.findall(r'<svg[^>]*class="marks"', drawn)) == len(specifications(page))
    assert ">x4.50 FAIL</text>" in drawn


def test_a_table_sorts_by_a_column_in_both_directions(tmp_path: Path) -> None:
    page = html.report(made())
    click = "document.querySelectorAll('thead button')[1].click();"
    before, up, down = (cells(shown(page, tmp_path, then=click * times)) for times in (0, 1, 2))
    assert before[0] == "ext4"
    assert sorted(before) == sorted(up)
    # By the number, and not by its text: what was not measured comes last.
    assert (up[-2:], down[0]) == (["ext4+gocryptfs", "absent"], "absent")
    assert up == down[::-1]
