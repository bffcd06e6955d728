"""Sphinx configuration. The build needs no network: no intersphinx, no remote inventories."""

from __future__ import annotations

import sys
from importlib.metadata import metadata
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "_ext"))

_package = metadata("scdice")

project = "dice"
author = "The dice developers"
copyright = "2026, the dice developers"
version = release = _package["Version"]

extensions = [
    "mathml",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]

root_doc = "index"
# The first one is what autosummary writes.
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
templates_path = ["_templates"]
exclude_patterns = ["_build", "**.ipynb_checkpoints", "tutorials/README.md"]

# API pages are written from the docstrings; signatures carry the types, so the text need not.
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False

napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_preprocess_types = False
# Prose, lists and definitions as they are written: napoleon takes every line for the type of a value.
napoleon_custom_sections = ["Returns"]

default_role = "code"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Notebooks are shown with the outputs that `make tutorials` stored.
nb_execution_mode = "off"
html_math_renderer = "mathml"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "sphinx_book_theme"
html_title = "dice"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_theme_options = {
    "repository_url": "https://github.com/scdice/dice",
    "repository_branch": "main",
    "path_to_docs": "docs",
    "use_repository_button": True,
    "use_issues_button": True,
    "navbar_persistent": [],
    "show_navbar_depth": 1,
    "show_toc_level": 2,
}
