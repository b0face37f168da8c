"""The site: Sphinx reads the Markdown pages as they are, and those that generate.py makes. `make docs` builds it."""

import re
import sys
from importlib.metadata import version as installed
from pathlib import Path

from sphinx import addnodes
from sphinx.environment.adapters.toctree import TocTree

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]

from generate import PROJECT, generate  # noqa: E402 (next to this file)

generate()

project = "Bertie"
author = "The Bertie authors"
copyright = "The Bertie authors. Apache License 2.0"
version = release = installed("bertie")
language = "en"
smartquotes = False  # values in quotes are copied into programs

extensions = ["myst_nb"]  # Markdown as myst_parser reads it, and notebooks
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "off"  # outputs are those in the file; a slow test runs the notebook
myst_heading_anchors = 4  # links such as page.md#a-heading, as a Git host makes them
exclude_patterns = ["README.md", "README.ko.md", "_build"]  # index.md and index.ko.md are these with a tree of pages

html_theme = "furo"
html_title = f"Bertie {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]


def setup(app):
    """Registers `korean_page` before the theme's own function, which has the priority 500."""
    app.connect("html-page-context", korean_page, priority=400)
    app.connect("source-read", project_links)


def project_links(app, name, source):
    """Pages next to docs/ are in project/ on the site; records of measurements are files to download."""
    up = "../" * name.count("/")
    text = re.sub(rf"\]\({up}\.\./({'|'.join(PROJECT)})\)", rf"]({up}project/\1)", source[0])
    source[0] = re.sub(rf"\[([^\]]+)\]\(({up}\.\./benchmarks/[^)#]+)[^)]*\)", r"{download}`\1 <\2>`", text)


def korean_page(app, name, template, context, doctree):
    """Marks a Korean page as Korean, for fonts and screen readers, and gives it the tree of the Korean list."""
    if not name.endswith(".ko"):
        return
    context["language"] = "ko"

    def toctree(**options):
        trees = app.env.get_doctree("index.ko").findall(addnodes.toctree)
        found = (TocTree(app.env).resolve(name, app.builder, tree, prune=False, **options) for tree in trees)
        return "".join(app.builder.render_partial(tree)["fragment"] for tree in found if tree)

    context["toctree"] = toctree
