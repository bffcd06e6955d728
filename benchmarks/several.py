"""Several references at once: references split in two, and two that lack types of each other.

    python benchmarks/several.py [--seeds 1] [--data ...]

`split` has two references of the same types, mostly parts of one data set by study, site, batch, donor or chemistry;
`lacking` takes a random half of the types out of the first and the other half out of the second. `first` and `second`
are the references alone, `both` are the labels of ``dice.tl.annotate(query, [first, second])``. Scored are query cells
whose type one of the references has. Every seed leaves out a tenth of all cells, and at most 3,000 of a side are used.
"""

from __future__ import annotations

from collections.abc import Iterator

import anndata as ad
import numpy as np
import pandas as pd
from data import load
from report import repeat, save, summary
from shifts import Cells, _where
from sklearn.metrics import f1_score

import dice
from dice._keys import LabelKeys
from dice._labels import several

KEY, FIGURES, MAX_CELLS = "cell_type", ["accuracy", "macro_f1"], 3000
ATLAS, BARON, HUMAN = "pancreas_cellhint_atlas", Cells("pancreas_baron_h1"), "pancreas_human_baron_came"
BMMC, LIU, MOP, TEASEQ = "bmmc_neurips_cite", "pbmc_liu_covid_citeseq", "mop_mouse_10x_500genes", "pbmc_teaseq"
MOUSE, SITES = Cells("pancreas_mouse_baron"), ("site1", "site2", "site3", "site4")
FASOLINO = Cells(ATLAS, _where("batch", "Fasolino et al. 2022"))
OTHERS = Cells(ATLAS, _where("batch", "Tritschler et al. 2022", "Muraro et al. 2016"))
NUCLEI, WHOLE = (Cells(ATLAS, _where("suspension_type", kind)) for kind in ("nucleus", "cell"))
Parts = tuple[Cells, Cells, Cells]


def of_batches(file: str, column: str, *parts: tuple[str, ...]) -> Parts:
    """First reference, second reference and query by the values of a column."""
    first, second, query = (Cells(file, _where(column, *values)) for values in parts)
    return first, second, query


def of_condition(condition: str) -> Cells:
    """Liu's cells of one condition in the first batch."""
    batch, group = _where("batch", "B1"), _where("cond_group", condition)
    return Cells(LIU, lambda adata: batch(adata) & group(adata))


def libraries(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"lib{i}" for i in range(first, last + 1))


#: Two references and a query; None are two fifths, two fifths and a fifth of TEA-seq by chance.
PAIRS: dict[str, Parts | None] = {
    "pancreas nuclei, cells -> Baron": (NUCLEI, WHOLE, BARON),
    "Fasolino, Tritschler and Muraro -> Baron": (FASOLINO, OTHERS, BARON),
    "Fasolino, Tritschler and Muraro -> nuclei": (FASOLINO, OTHERS, NUCLEI),
    "bmmc sites 3, 1-2 -> 4": of_batches(BMMC, "site", SITES[2:3], SITES[:2], SITES[3:]),
    "bmmc sites 2, 3-4 -> 1": of_batches(BMMC, "site", SITES[1:2], SITES[2:], SITES[:1]),
    "bmmc sites 1, 3-4 -> 2": of_batches(BMMC, "site", SITES[:1], SITES[2:], SITES[1:2]),
    "bmmc sites 4, 1-2 -> 3": of_batches(BMMC, "site", SITES[3:], SITES[:2], SITES[2:3]),
    "Liu 1, 2 -> 3": of_batches(LIU, "batch", ("B1",), ("B2",), ("B3",)),
    "Liu 1, 3 -> 2": of_batches(LIU, "batch", ("B1",), ("B3",), ("B2",)),
    "Liu 1 healthy, severe -> 2": (of_condition("HC"), of_condition("Severe"), Cells(LIU, _where("batch", "B2"))),
    **{
        f"{one}, {other} -> {query}": of_batches("pbmc_symphony_3chem", "batch", (one,), (other,), (query,))
        for one, other, query in (("3pv1", "3pv2", "5p"), ("3pv1", "5p", "3pv2"), ("3pv2", "5p", "3pv1"))
    },
    "human donors 1-2, 4 -> 3": of_batches(HUMAN, "donor", ("human1", "human2"), ("human4",), ("human3",)),
    "human donors 1-2, mouse -> human donor 3": (
        Cells(HUMAN, _where("donor", "human1", "human2")), MOUSE, Cells(HUMAN, _where("donor", "human3")),
    ),
    "human donors 1-2, 3-4 -> mouse": (
        Cells(HUMAN, _where("donor", "human1", "human2")), Cells(HUMAN, _where("donor", "human3", "human4")), MOUSE,
    ),
    "MOp libraries 1-4, 5-8 -> 9-16": of_batches(MOP, "batch", libraries(1, 4), libraries(5, 8), libraries(9, 16)),
    "TEA-seq, random parts": None,
}  # fmt: skip
#: Pairs that are measured with missing types as well.
LACKING = (
    "pancreas nuclei, cells -> Baron",
    "bmmc sites 3, 1-2 -> 4",
    "Liu 1, 2 -> 3",
    "3pv2, 5p -> 3pv1",
    "human donors 1-2, 4 -> 3",
    "TEA-seq, random parts",
)


def main() -> None:
    show(repeat("several", PAIRS, run, show))


def show(rows: pd.DataFrame) -> None:
    tables = {}
    for kind, own in rows.groupby("kind"):
        means = own.groupby(["method", "seed"], sort=False)[FIGURES].mean().reset_index()
        own = pd.concat([own, means.assign(data=f"mean over {own['data'].nunique()}")])
        tables[str(kind).capitalize()] = summary(own, ["data", "method"], FIGURES)
    save("several", "Several references at once", rows, tables, "\n\n".join(__doc__.strip().split("\n\n")[2:]))


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    for kind in ("split", "lacking") if name in LACKING else ("split",):
        truth, opinions = opinions_of(name, kind, seed)
        yield from rows_of(name, kind, truth, opinions)


def opinions_of(name: str, kind: str, seed: int) -> tuple[np.ndarray, list[several.Opinion]]:
    """Return the types of the query, and what each reference says of them."""
    first, second, query = parts(name, kind, seed)
    known = {*first.obs[KEY], *second.obs[KEY]}
    query = query[query.obs[KEY].astype(str).isin(known).to_numpy()].copy()
    opinions = []
    for place, reference in enumerate((first, second), 1):
        labelled = dice.tl.annotate(query, reference, KEY, random_state=seed, copy=True)
        opinions.append(several.Source.of(reference, place, KEY).opinion(labelled))
    return query.obs[KEY].astype(str).to_numpy(), opinions


def rows_of(name: str, kind: str, truth: np.ndarray, opinions: list[several.Opinion]) -> Iterator[dict[str, object]]:
    """Scores of each reference alone and of both, as ``dice.tl.annotate`` combines them."""
    keys = LabelKeys(f"{KEY}_dice")
    for method, used in (("first", opinions[:1]), ("second", opinions[1:]), ("both", opinions)):
        labels = several.combined(used, keys, {}).obs[keys.label].astype(str)
        f1 = f1_score(truth, labels, labels=sorted(set(truth)), average="macro", zero_division=0)
        row = {"kind": kind, "method": method, "n_cells": len(truth)}
        row |= {"accuracy": float(np.mean(truth == labels)), "macro_f1": float(f1)}
        print(name, row, flush=True)
        yield row


def parts(name: str, kind: str, seed: int) -> tuple[ad.AnnData, ad.AnnData, ad.AnnData]:
    """Return the two references and the query."""
    chosen, rng = PAIRS[name], np.random.default_rng(seed)
    if chosen is None:
        cells = load(TEASEQ)
        fifth = np.random.default_rng(seed).integers(5, size=cells.n_obs)
        sides = [cells[np.isin(fifth, own)] for own in ((0, 1), (2, 3), (4,))]
    else:
        sides = [side.load() for side in chosen]
    first, second, query = (some(side, rng) for side in sides)
    if kind == "lacking":
        types = np.random.default_rng(seed).permutation(sorted({*first.obs[KEY], *second.obs[KEY]}))
        first, second = (
            side[side.obs[KEY].isin(types[half::2]).to_numpy()] for half, side in enumerate((first, second))
        )
    return enough(first), enough(second), query


def some(cells: ad.AnnData, rng: np.random.Generator) -> ad.AnnData:
    """Nine tenths of the cells, and at most `MAX_CELLS`."""
    cells = cells[rng.random(cells.n_obs) >= 0.1]
    if cells.n_obs > MAX_CELLS:
        cells = cells[np.sort(rng.choice(cells.n_obs, MAX_CELLS, replace=False))]
    return cells.copy()


def enough(cells: ad.AnnData) -> ad.AnnData:
    """Without types of fewer than five cells."""
    counts = cells.obs[KEY].value_counts()
    cells = cells[cells.obs[KEY].isin(counts.index[counts >= 5]).to_numpy()].copy()
    cells.obs[KEY] = cells.obs[KEY].astype(str).astype("category")
    return cells


if __name__ == "__main__":
    main()
