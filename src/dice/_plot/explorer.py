"""The data of the interactive page: maps, columns, labels and clusters with their trees, genes, records of calls."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib import colormaps
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from dice._clusters.tree import stored_cut
from dice._data import read
from dice._data.colors import MOST_COLORS, SEQUENTIAL, Colors, distinct, read_colors
from dice._data.graph import layout
from dice._keys import AMBIGUOUS, CONFIDENT, UNLIKE, ClusterKeys, LabelKeys, SafeKeys
from dice._labels.tree import LabelTree
from dice._plot import draw
from dice._types import Floats

#: Columns with more labels are shown without colours, because readers could not tell the colours apart.
MAX_LABELS = 256
#: Maximum number of cells that are drawn.
MOST_ON_MAP = 50_000
#: Number of labels per cell with probabilities on the page (the most likely labels), and maximum number of genes with
#: expression on the page.
KEPT_LABELS, KEPT_GENES = 16, 64
#: Columns that are shown when the mouse is over a cell, and endings of names of further such columns.
HOVER = ("dice_uncertainty", "dice_novelty")
HOVER_ENDS = ("_dice", "_dice_prob", "_dice_set", "_dice_status")
#: Parts of the record of a call that the page shows.
SHOWN_PARTS = ("params", "call", "reference", "summary", "genes", "warnings")
#: Colours of the status of labels: pale for labels that can be used, bright for doubtful labels.
STATUS_COLORS = {CONFIDENT: "#7fa8c4", AMBIGUOUS: "#e69f00", UNLIKE: "#b5305f"}


def read_columns(adata: AnnData, color: str | None) -> list[Colors]:
    """Return all columns of ``obs``, and `color` if it is a gene."""
    keys = read.names(adata, "obs")
    found = [read_colors(adata, key) for key in dict.fromkeys([*keys, *([] if color is None else [color])])]
    for i, one in enumerate(found):
        if one.names and STATUS_COLORS.keys() >= set(one.names):
            found[i] = replace(one, labels={name: STATUS_COLORS[name] for name in one.names})
    return found


def transferred(adata: AnnData) -> list[str]:
    """Return the keys of all transferred labels in `adata` whose slots are complete."""
    there, tables = read.names(adata, "obs"), read.names(adata, "obsm")
    labelled = [key for key in there if LabelKeys(key).probability in tables and LabelKeys(key).status in there]
    return [key for key in read.names(adata, "uns") if key in labelled and "labels" in read.record(adata, key)]


def first_color(adata: AnnData, columns: list[Colors], *, status: bool = False) -> str | None:
    """Return the column that colours the map first.

    This is the column of transferred labels or, with `status`, of their status. Without transferred labels, it is the
    first column with 2 to 100 labels.
    """
    labels = [LabelKeys(key).status if status else key for key in transferred(adata)]
    groups = [column.name for column in columns if 1 < len(column.legend) <= 100]
    return next(iter([*labels, *groups]), None)


def cells_of(adata: AnnData, keys: list[str], columns: list[Colors], color: str | None) -> dict[str, Any]:
    """Return all cells with their columns. At most `MOST_ON_MAP` cells are drawn."""
    maps = {draw.TITLES.get(key, key): layout(adata, key) for key in keys}
    names = [column.name for column in columns]
    drawn = np.sort(np.random.default_rng(0).permutation(adata.n_obs)[:MOST_ON_MAP])
    hover = [at for at, name in enumerate(names) if name in HOVER or name.endswith(HOVER_ENDS)]
    return {
        "n": adata.n_obs,
        "n_genes": adata.n_vars,
        "names": [str(name) for name in adata.obs_names],
        "drawn": encode(drawn.astype(np.uint32)),
        "maps": [{"title": title, "xy": _pixels(where)} for title, where in maps.items()],
        "columns": [_column(column) for column in columns],
        "hover": hover,
        "color": names.index(color) if color in names else -1,
        "spare": distinct(MOST_COLORS),
        "scale": [to_hex(shade) for shade in colormaps[SEQUENTIAL](np.linspace(0, 1, 256))],
    }


def labels_of(adata: AnnData, key: str, genes: pd.DataFrame | None = None) -> dict[str, Any]:
    """Return the probabilities of transferred labels, their tree, the labels of each view, and the genes of labels."""
    keys, record = LabelKeys(key), read.record(adata, key)
    names = [str(name) for name in record["labels"]]
    probabilities = read.array(adata, keys.probability).astype(np.float64)
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :KEPT_LABELS]
    tree = _tree(adata, key, names)
    rows = [] if genes is None else genes.groupby("label", sort=False)[["gene", "contribution", "reference_mean"]]
    return {
        "key": key,
        "names": names,
        "kept": best.shape[1],
        "codes": encode(best.astype(np.uint16)),
        "probabilities": encode(np.rint(np.take_along_axis(probabilities, best, 1) * 65535).astype(np.uint16)),
        "tree": {"names": list(tree.names), "parents": tree.parents.tolist()},
        "alpha": float(record["call"]["alpha"]),
        "views": _views(adata, keys, record, names),
        "genes": {str(label): part.to_dict("records") for label, part in rows},
    }


def _tree(adata: AnnData, key: str, names: list[str]) -> LabelTree:
    """Return the tree of :func:`dice.tl.safe_labels` or, if it is missing, a tree with all labels below the root."""
    if SafeKeys(key).uns in read.names(adata, "uns"):
        tree = LabelTree.from_plain(read.record(adata, SafeKeys(key).uns))
        if list(tree.names[: tree.n_labels]) == names:
            return tree
    return LabelTree.of(names, {})


def _views(adata: AnnData, keys: LabelKeys, record: Mapping[str, Any], names: list[str]) -> dict[str, Any] | None:
    """Return the label that each view of the query gives to every cell, and its probability."""
    if keys.views not in read.names(adata, "obsm"):
        return None
    table, views = read.feature_table(adata, keys.views), [str(view) for view in np.ravel(record["views"]["view"])]
    codes = np.stack([pd.Index(names).get_indexer(table[view].astype(str)) for view in views], axis=1)
    given = np.stack([table[f"{view}_prob"].to_numpy(dtype=float) for view in views], axis=1)
    return {
        "names": views,
        "weights": [float(weight) for weight in np.ravel(record["views"]["weight"])],
        "codes": encode(codes.astype(np.uint16)),
        "probabilities": encode(np.rint(given * 65535).astype(np.uint16)),
    }


def clusters_of(adata: AnnData) -> dict[str, Any] | None:
    """Return the tree of :func:`dice.tl.cluster`, its cut, and the leaf of every cell."""
    keys = ClusterKeys()
    record = read.record(adata, keys.uns)
    tables = read.names(adata, "obsm")
    if not isinstance(record, Mapping) or "tree" not in record or keys.leaves not in tables:
        return None
    cut, leaves = stored_cut(record), read.array(adata, keys.leaves)[:, 0].astype(np.int64)
    return {
        "key": keys.cluster,
        "names": [str(name) for name in record["tree"]["names"]],
        "joined": cut.tree.joined.tolist(),
        "agreement": np.nan_to_num(np.asarray(record["tree"]["agreement"], dtype=float)).tolist(),
        "cut": [int(node) for node in cut.nodes],
        "leaves": encode(np.where(leaves < 0, cut.tree.n_leaves, leaves).astype(np.uint16)),
        "why": cut.why,
    }


def expression_of(adata: AnnData, genes: Sequence[str], layer: str | None) -> dict[str, Any] | None:
    """Return the expression of a few genes in all cells, in units of 1/255 of the largest value."""
    from dice._data.matrix import Matrix

    found = [gene for gene in dict.fromkeys(genes) if gene in adata.var_names][:KEPT_GENES]
    if not found or not adata.n_obs:
        return None
    at = np.array([int(np.flatnonzero(adata.var_names == gene)[0]) for gene in found])
    values = Matrix(adata, layer=layer, genes=at).apply(read.dense)
    most = float(values.max()) or 1.0
    return {"genes": found, "most": most, "values": encode(np.rint(values.clip(0) / most * 255).astype(np.uint8))}


def records(adata: AnnData) -> dict[str, Any]:
    """Return the parts of the records of calls that the page shows, with all values as text."""
    found = {key: read.record(adata, key) for key in read.names(adata, "uns")}
    calls = {key: made for key, made in found.items() if isinstance(made, Mapping) and {"params", "call"} & {*made}}
    return {key: {part: _text(made[part]) for part in SHOWN_PARTS if part in made} for key, made in calls.items()}


def _text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _text(part) for name, part in sorted(value.items())}
    if isinstance(value, np.ndarray | list | tuple):
        return [_text(part) for part in value]
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def encode(values: NDArray[Any]) -> str:
    """Encode numbers as base64, little-endian."""
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _pixels(where: Floats) -> str:
    """Encode centred coordinates in units of 1/65535 of the longer side, first all x, then all y."""
    if not len(where):
        return ""
    low, high = where.min(0), where.max(0)
    extent = float((high - low).max()) or 1.0
    centred = 0.5 + (where - (low + high) / 2) / extent
    return encode(np.rint(centred.T * 65535).clip(0, 65535).astype(np.uint16))


def _column(column: Colors) -> dict[str, Any]:
    """Return a column for the page: numbers, or codes of labels. Missing labels have the code after the last label."""
    name, given, labels = column.name, np.asarray(column.values), column.labels
    if labels is None:
        numbers = given.astype(np.float32)
        known = numbers[~column.missing]
        ends = [float(known.min()), float(known.max())] if len(known) else [0, 1]
        return {"name": name, "dtype": "float32", "values": encode(numbers), "range": ends}
    codes = np.where(column.missing, len(labels), given).astype(np.min_scalar_type(len(labels)))
    colors = list(labels.values()) if len(labels) <= MAX_LABELS else None
    values = {"dtype": codes.dtype.name, "values": encode(codes)}
    return {"name": name, "labels": list(labels), "colors": colors, **values}
