"""Several references at once: references split in two, and two that lack types of each other.

    python benchmarks/several.py

`split` divides the cells of a reference by study or site; `lacking` takes every other type out of each half, so that
each half knows types that the other does not. `first` and `second` are the references alone, `both` are the labels of
``dice.tl.annotate(query, [first, second])``. Scored are all query cells whose type one of the references has.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from data import load
from report import save, summary
from sklearn.metrics import f1_score

import dice
from dice._keys import LabelKeys
from dice._labels import several

KEY, FIGURES = "cell_type", ["accuracy", "macro_f1"]
#: Reference, the column that divides it, its first values or their share of the cells, query, and the query's value.
PAIRS = {
    "pancreas atlas -> Baron": ("pancreas_cellhint_atlas", "batch", 0.5, "pancreas_baron_h1", None),
    "bmmc sites 1-3 -> site 4": ("bmmc_neurips_cite", "site", ("site1", "site2"), "bmmc_neurips_cite", "site4"),
}


def main() -> None:
    warnings.simplefilter("ignore")
    dice.settings.verbosity = 0
    rows = pd.DataFrame([row for name in PAIRS for kind in ("split", "lacking") for row in run(name, kind)])
    tables = {kind.capitalize(): summary(own, ["data", "method"], FIGURES) for kind, own in rows.groupby("kind")}
    save("several", "Several references at once", rows, tables, "\n\n".join(__doc__.strip().split("\n\n")[2:]))


def run(name: str, kind: str) -> Iterator[dict[str, object]]:
    first, second, query = parts(name, kind)
    known = {*first.obs[KEY].astype(str), *second.obs[KEY].astype(str)}
    query = query[query.obs[KEY].astype(str).isin(known).to_numpy()].copy()
    keys, opinions = LabelKeys(f"{KEY}_dice"), []
    for place, reference in enumerate((first, second), 1):
        labelled = dice.tl.annotate(query, reference, KEY, copy=True)
        opinions.append(several._opinion(labelled, keys, f"reference {place}", {}))
    yield from rows_of(name, kind, query.obs[KEY].astype(str).to_numpy(), opinions, keys)


def rows_of(name: str, kind: str, truth: np.ndarray, opinions: list, keys: LabelKeys) -> Iterator[dict[str, object]]:
    """Scores of each reference alone and of both, as ``dice.tl.annotate`` combines them."""
    for method, used in (("first", opinions[:1]), ("second", opinions[1:]), ("both", opinions)):
        labels = several.combined(used, keys, {}).obs[keys.label].astype(str)
        f1 = f1_score(truth, labels, labels=sorted(set(truth)), average="macro", zero_division=0)
        row = {"kind": kind, "data": name, "method": method, "seed": 0, "n_cells": len(truth)}
        row |= {"accuracy": float(np.mean(truth == labels)), "macro_f1": float(f1)}
        print(row, flush=True)
        yield row


def parts(name: str, kind: str):
    """The two references, and the query."""
    file, column, chosen, other, site = PAIRS[name]
    cells, query = load(file), load(other)
    if site is not None:
        query, cells = query[(query.obs[column] == site).to_numpy()], cells[(cells.obs[column] != site).to_numpy()]
    if isinstance(chosen, tuple):
        one = cells.obs[column].isin(chosen).to_numpy()
    else:  # Studies in order, until half of the cells are reached.
        sizes = cells.obs[column].value_counts().sort_index()
        one = cells.obs[column].isin(sizes.index[sizes.cumsum() <= max(chosen * cells.n_obs, sizes.iloc[0])]).to_numpy()
    types = cells.obs[KEY].astype("category").cat.codes.to_numpy()
    halves = []
    for half, part in enumerate((one, ~one)):
        own = cells[part & (types % 2 == half)] if kind == "lacking" else cells[part]
        halves.append(enough(own.copy()))
    return *halves, query.copy()


def enough(cells):
    """Without types of fewer than five cells."""
    counts = cells.obs[KEY].value_counts()
    cells = cells[cells.obs[KEY].isin(counts.index[counts >= 5]).to_numpy()].copy()
    cells.obs[KEY] = cells.obs[KEY].astype(str).astype("category")
    return cells


if __name__ == "__main__":
    main()
