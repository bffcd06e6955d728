"""The page of :func:`dice.pl.report` and :func:`dice.pl.explore`: one HTML file with its data as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from anndata import AnnData

from dice._data import read
from dice._files import atomic, check_target

#: Scripts of the page, in the order in which they need each other.
SCRIPTS = ("data", "levels", "map", "selection", "corrections", "panels", "sections", "main")


@dataclass(frozen=True, repr=False)
class Page:
    """A page that notebooks show, and that :meth:`save` writes to a file."""

    content: dict[str, Any]
    title: str = "dice"

    @property
    def html(self) -> str:
        """The page as text."""
        folder = files("dice._plot").joinpath("page_files")
        template, style = (folder.joinpath(name).read_text("utf-8") for name in ("page.html", "page.css"))
        script = "\n".join(["", *(folder.joinpath(f"{name}.js").read_text("utf-8") for name in SCRIPTS)])
        # The browser itself then refuses the network, and every script but this one.
        policy = (
            f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'"
        )
        # A label may hold "</script>": without "<" nothing can end the element or start another.
        data = json.dumps(self.content, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
        slots = {"policy": policy, "style": style, "script": script, "data": data, "title": escape(self.title)}
        # In one pass: inserted text is never searched again.
        return re.sub(r"\{\{(\w+)\}\}", lambda found: slots[found[1]], template)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, for example ``"report.html"``."""
        check_target(path)
        with atomic(path) as draft:
            draft.write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"Page of {self.content['n']:,} cells: show it in a notebook, or write it with .save('report.html')."

    def _repr_html_(self) -> str:
        # Sandboxed: the page has no access to the notebook around it.
        look = 'sandbox="allow-scripts allow-downloads" style="width:100%;height:900px;border:0"'
        return f'<iframe {look} srcdoc="{escape(self.html)}"></iframe>'


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def records(adata: AnnData) -> dict[str, dict[str, Any]]:
    """Return the records of calls in ``uns`` as text."""
    found = {key: read.record(adata, key) for key in read.names(adata, "uns")}
    return {
        key: _texts(record)
        for key, record in found.items()
        if isinstance(record, Mapping) and {"params", "call"} & set(record)
    }


def _texts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, warnings, genes and summaries of a call."""
    shown: dict[str, Any] = {
        part: {str(name): _plain(value) for name, value in sorted(record[part].items())}
        for part in ("params", "call")
        if isinstance(record.get(part), Mapping)
    }
    shown |= {part: str(record[part]) for part in ("reference", "summary") if isinstance(record.get(part), str)}
    shown["warnings"] = [str(text) for text in np.ravel(record.get("warnings", []))]
    if isinstance(genes := record.get("genes"), Mapping):
        missing = [str(gene) for gene in np.ravel(genes.get("missing", []))]
        shown["genes"] = {"text": str(genes.get("text", "")), "missing": missing}
    return shown


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain(part)}" for name, part in sorted(value.items()))
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, np.ndarray | list | tuple) else str(value)
