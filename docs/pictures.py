"""Draw the README's pictures: ``python -m docs.pictures RUN.json``, from what --fsstack-json wrote.

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
from typing import Literal

from pytest_fsstack.records import saved
from pytest_fsstack.records.results import Results
from pytest_fsstack.report import html, terminal
from tests.install import browser

PICTURES = Path(__file__).parent / "pictures"
RUN = ("--fsstack-scenario=encryption_overhead", "--fsstack-rounds=6")
#: Columns of the terminal: all steps of the scenario fit.
COLUMNS = 160
#: The pictures of the page: its width, what is shown of its height, and the colours that the reader has chosen.
SCREENS: dict[str, tuple[int, int, Literal["light", "dark"]]] = {
    "report.png": (1280, 960, "light"),
    "report-dark.png": (1280, 960, "dark"),
    "report-390.png": (390, 1700, "light"),
}


def terminal_svg(results: Results) -> str:
    """What the terminal shows after a session, in its colours."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in terminal.answer_lines(results):
        console.print(Text(line))
    for chain in results.chains:
        for line in ["", *terminal.lines(results, chain, width=COLUMNS, coloured=True)]:
            console.print(Text.from_ansi(line), soft_wrap=False)
    svg = console.export_svg(title=f"pytest {' '.join(RUN)}", unique_id="fsstack")
    # A picture in a page cannot fetch fonts.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines() if line.strip())


def page_pngs(results: Results) -> dict[str, bytes]:
    """The beginning of the HTML report on each of the screens, by file name."""
    from playwright.sync_api import sync_playwright

    pictures = {}
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as started:
        file = Path(directory, "page.html")
        file.write_text(html.report(results))
        chromium = started.chromium.launch(executable_path=browser())
        for name, (width, height, scheme) in SCREENS.items():
            shown = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            shown.goto(file.as_uri())
            pictures[name] = shown.screenshot()
        chromium.close()
    return pictures


def draw(results: Results) -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "terminal.svg").write_text(terminal_svg(results))
    for name, picture in page_pngs(results).items():
        (PICTURES / name).write_bytes(picture)


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
