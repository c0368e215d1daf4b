"""How Sphinx makes the site: ``tox -e docs`` builds it in build/site, ``tox -e links`` follows links to other sites."""

from __future__ import annotations

project = "pytest-fsstack"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
source_suffix = {".md": "markdown"}

# What README.md and these pages write for GitHub is right here as well: links to headings, diagrams in fences.
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
html_title = "pytest-fsstack"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
# Beside the pages, under the name that the package has it by.
html_extra_path = ["../pytest_fsstack/judging/results.schema.json"]
html_copy_source = False
html_show_copyright = False

linkcheck_timeout = 30
linkcheck_retries = 3
