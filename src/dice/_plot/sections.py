"""Sections of a report: the columns of its map, and what the calls on a query left in ``uns``, as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
from anndata import AnnData

from dice._data import read
from dice._data.colors import Colors, read_colors
from dice._keys import AnnotateKeys
from dice._plot import draw
from dice._plot.layout import layout
from dice._plot.page import Explorer, bullets, table

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
