"""How Sphinx makes the site: ``tox -e docs`` builds it in build/site, ``tox -e links`` follows links to other sites."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from docutils import nodes

from pytest_fsstack.records import saved

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "pytest-fsstack"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
source_suffix = {".md": "markdown"}
# Options begin with two hyphens, and quotes are typed as they are shown.
smartquotes = False

# What README.md and these pages write for GitHub is right here as well: links to headings, diagrams in fences.
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
html_title = "pytest-fsstack"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_copyright = False

linkcheck_timeout = 30
linkcheck_retries = 3


def name_pages(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Show the title of a page for a link that is its file's name, as it is on GitHub."""
    for link in doctree.findall(nodes.reference):
        text = link.astext()
        if link.get("internal") and text.endswith(".md"):
            name = (PurePosixPath(page).parent / text).with_suffix("").as_posix()
            title = app.env.titles.get(name)
            if title is not None:
                link.children = [nodes.Text(title.astext())]


def mend_for_screen_readers(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a level to the theme's headings in the navigation, and let the keyboard scroll blocks of code."""
    for name in ("body", "furo_navigation_tree"):
        text = context.get(name) or ""
        text = text.replace('role="heading">', 'role="heading" aria-level="2">')
        context[name] = text.replace('<div class="highlight"><pre>', '<div class="highlight"><pre tabindex="0">')


def write_schema(app: Sphinx, error: Exception | None) -> None:
    """Put the JSON Schema of the results beside the pages."""
    if error is None:
        path = Path(app.outdir) / "results.schema.json"
        path.write_text(json.dumps(saved.schema(), indent=2) + "\n")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", write_schema)
    app.connect("html-page-context", mend_for_screen_readers, priority=900)
    app.connect("doctree-resolved", name_pages)
