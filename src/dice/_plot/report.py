"""The page of :func:`dice.pl.report`: its sections, tables and the map to explore."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._data.colors import SEQUENTIAL, Colors
from dice._types import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray
from dataclasses import replace

from anndata import AnnData

from dice._data import read
from dice._data.colors import read_colors
from dice._data.layout import layout
from dice._keys import AnnotateKeys
from dice._plot import draw

#: Labels beyond this are names rather than groups: they are shown, but no colour can tell them apart.
MAX_LABELS = 256


@dataclass(frozen=True)
class Explorer:
    """What the interactive map shows."""

    names: Sequence[str]
    #: Titles and coordinates (n, 2) of the maps to switch between.
    maps: Mapping[str, Floats]
    columns: Sequence[Colors]
    #: Names of the columns that appear beside a cell that is pointed at, and of the one that colours it first.
    hover: Sequence[str]
    color: str | None

    def json(self) -> str:
        """All of it as JSON that can stand inside a script element."""
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        names = [column.name for column in self.columns]
        content = {
            "n": len(self.names),
            "names": [str(name) for name in self.names],
            "maps": [{"title": title, "xy": _pixels(where)} for title, where in self.maps.items()],
            "columns": [_column(column) for column in self.columns],
            "hover": [names.index(name) for name in self.hover],
            "color": names.index(self.color) if self.color in names else -1,
            "scale": [to_hex(color) for color in colormaps[SEQUENTIAL](np.linspace(0, 1, 256))],
        }
        # A label may hold "</script>": without "<" nothing can end the element or start another.
        return json.dumps(content, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")


def page(explorer: Explorer, **parts: str) -> str:
    """The page; `parts` are its title and summary as text, and its sections as HTML."""
    folder = files("dice._plot").joinpath("page_files")
    template, style, script = (folder.joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css", "js"))
    # The browser itself then refuses the network, and every script but this one.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    texts = {name: escape(parts.pop(name)) for name in ("title", "summary")}
    slots = {"policy": policy, "style": style, "script": script, "data": explorer.json(), **texts, **parts}
    # In one pass: what was put in is never looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: slots[found[1]], template)


def table(rows: Iterable[tuple[str, Any]]) -> str:
    """Names and values as an HTML table."""
    lines = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table>{lines}</table>"


def bullets(items: Iterable[str]) -> str:
    """Sentences as an HTML list."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def picture(png: bytes, caption: str) -> str:
    """A figure inside the page."""
    source = base64.b64encode(png).decode("ascii")
    image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{source}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>\n"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def _encode(values: NDArray[Any]) -> str:
    little = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def _pixels(where: Floats) -> str:
    """Coordinates in 1/65535 of the longer side: all x, then all y, centred."""
    if not len(where):
        return ""
    low, high = where.min(0), where.max(0)
    extent = float((high - low).max()) or 1.0
    centred = 0.5 + (where - (low + high) / 2) / extent
    return _encode(np.rint(centred.T * 65535).clip(0, 65535).astype(np.uint16))


def _column(column: Colors) -> dict[str, Any]:
    """A column as the script reads it: codes of labels, one beyond the last where missing; or numbers."""
    if column.labels is None:
        known = column.values[~column.missing].astype(np.float32)
        ends = [float(known.min()), float(known.max())] if len(known) else [0.0, 1.0]
        return {
            "name": column.name,
            "dtype": "float32",
            "values": _encode(column.values.astype(np.float32)),
            "range": ends,
        }
    codes = np.where(column.missing, len(column.labels), column.values)
    dtype = np.min_scalar_type(len(column.labels))
    return {
        "name": column.name,
        "dtype": dtype.name,
        "values": _encode(codes.astype(dtype)),
        "labels": list(column.labels),
        "colors": list(column.labels.values()) if len(column.labels) <= MAX_LABELS else None,
    }


#: Columns that are shown beside a cell whenever it is pointed at, and what their names end with.
HOVER = ("dice_uncertainty", "dice_novelty")
HOVER_ENDS = ("_dice", "_dice_prob", "_dice_set")


def read_columns(adata: AnnData, color: str | None) -> list[Colors]:
    """All columns of ``obs``, lazy numbers that wait in ``obsm``, and `color` where it is neither."""
    keys = read.names(adata, "obs")
    lazy = [key for key in HOVER if key in read.names(adata, "obsm")]
    return [read_colors(adata, key) for key in dict.fromkeys([*keys, *lazy, *([] if color is None else [color])])]


def first_color(adata: AnnData, columns: list[Colors]) -> str | None:
    """Transferred labels, or else the first column of labels with more than one and not too many of them."""
    labels, records = [column for column in columns if column.labels is not None], read.names(adata, "uns")
    transferred = [column for column in labels if column.name.endswith("_dice") and column.name in records]
    groups = [column for column in labels if 1 < len(set(column.legend) - {"NA"}) <= 100]
    return next((column.name for column in (*transferred, *groups, *labels)), None)


def explorer(
    adata: AnnData, keys: list[str], columns: list[Colors], color: str | None, *, max_cells: int, **options: Any
) -> Explorer:
    """The map to explore, with at most `max_cells` of the cells; `options` are those of UMAP."""
    maps = {draw.TITLES.get(key, key): layout(adata, key, **options) for key in keys}
    cells: Any = slice(None)
    if adata.n_obs > max_cells:
        rng = np.random.default_rng(options["random_state"])
        cells = np.sort(rng.choice(adata.n_obs, max_cells, replace=False))
    return Explorer(
        names=list(adata.obs_names[cells]),
        maps={title: where[cells] for title, where in maps.items()},
        columns=[replace(column, values=column.values[cells]) for column in columns],
        hover=[column.name for column in columns if column.name in HOVER or column.name.endswith(HOVER_ENDS)],
        color=color,
    )


def _records(adata: AnnData) -> dict[str, Mapping[str, Any]]:
    """What the calls left in ``uns``, without the coordinates of plots."""
    found = {key: read.record(adata, key) for key in read.names(adata, "uns")}
    return {
        key: record
        for key, record in found.items()
        if isinstance(record, Mapping)
        and {"params", "call"} & set(record)
        and not key.endswith(("_umap", "_umap_reference"))
    }


def overview(adata: AnnData) -> str:
    """The summary of :func:`dice.tl.annotate`, where it was called."""
    record = read.record(adata, AnnotateKeys().uns)
    text = record.get("summary") if isinstance(record, Mapping) else None
    if not isinstance(text, str):
        return ""
    rows = [tuple(part.strip() for part in line.split("  ", 1)) for line in text.splitlines()]
    return f'<section id="overview"><h2>Summary</h2>{table(row for row in rows if len(row) == 2)}</section>'


def warnings(adata: AnnData) -> str:
    """Every warning of every call, once."""
    found = [str(text) for record in _records(adata).values() for text in np.ravel(record.get("warnings", []))]
    if not found:
        return '<p class="quiet">No warnings.</p>'
    return f'<section class="warnings"><h2>Warnings</h2>{bullets(dict.fromkeys(found))}</section>'


def genes(adata: AnnData) -> str:
    """Which genes of the reference were found, and which were not."""
    rows = []
    for key, record in _records(adata).items():
        found = record.get("genes")
        if isinstance(found, Mapping):
            rows.append((key, found.get("text", "")))
            missing = [str(gene) for gene in np.ravel(found.get("missing", []))]
            if missing:
                rows.append(("not in the query", ", ".join(missing)))
    return table(rows) if rows else "<p>No gene report.</p>"


def parameters(adata: AnnData) -> str:
    """What was asked for, and what was decided."""
    parts = [
        f"<h3>{escape(key)}: {what}</h3>" + table((name, _plain(value)) for name, value in sorted(record[part].items()))
        for key, record in _records(adata).items()
        for part, what in (("params", "what was decided"), ("call", "what was asked for"))
        if isinstance(record.get(part), Mapping)
    ]
    parts += [
        f"<h3>{escape(key)}: the reference</h3><pre>{escape(record['reference'])}</pre>"
        for key, record in _records(adata).items()
        if isinstance(record.get("reference"), str)
    ]
    return "".join(parts) or "<p>No parameters.</p>"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain(part)}" for name, part in sorted(value.items()))
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, np.ndarray | list | tuple) else str(value)
