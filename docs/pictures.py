"""Draw the README's pictures: ``python docs/pictures.py RUN.json``, from the results that --fsstack-json wrote.

Without a file it makes the run first, which needs root and a machine that does nothing else for some minutes. The
picture of the page needs Chromium.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pytest_fsstack.judging import saved
from pytest_fsstack.judging.results import Results
from pytest_fsstack.report import html, terminal
from tests.install import browser

PICTURES = Path(__file__).parent / "pictures"
RUN = ("--fsstack-study=encryption_overhead", "--fsstack-rounds=8")
#: Columns of the terminal: all steps of the study fit.
COLUMNS = 160
#: Pixels of the page that are shown.
SCREEN = {"width": 1000, "height": 900}


def terminal_svg(results: Results) -> str:
    """What the terminal shows after a session, in its colours."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for chain in results.chains:
        for line in terminal.lines(results, chain, width=COLUMNS, coloured=True):
            console.print(Text.from_ansi(line), soft_wrap=False)
    svg = console.export_svg(title=f"pytest {' '.join(RUN)}", unique_id="fsstack")
    # A picture in a page cannot fetch fonts.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines() if line.strip())


def page_png(results: Results) -> bytes:
    """The first screen of the HTML report."""
    from playwright.sync_api import sync_playwright

    page = html.report(results)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as started:
        file = Path(directory, "page.html")
        file.write_text(page)
        chromium = started.chromium.launch(executable_path=browser())
        shown = chromium.new_page(viewport={"width": SCREEN["width"], "height": SCREEN["height"]})
        shown.goto(file.as_uri())
        count = page.count('class="chart"')
        shown.wait_for_function(f"document.querySelectorAll('svg.marks').length >= {count}")
        picture = shown.screenshot()
        chromium.close()
    return picture


def draw(results: Results) -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "terminal.svg").write_text(terminal_svg(results))
    (PICTURES / "report.png").write_bytes(page_png(results))


def run(file: Path) -> None:
    """The run of the README's first command."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *RUN, f"--fsstack-json={file}"]
    subprocess.run(command, cwd=file.parent, check=True)


def main(arguments: list[str]) -> None:
    """Draw from the file that is named, or from a run of its own."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(arguments[0]) if arguments else Path(directory, "run.json")
        if not arguments:
            run(file)
        draw(saved.loads(file.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
