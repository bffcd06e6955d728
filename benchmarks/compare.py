"""Methods on the same cells: mean ranks, and paired differences with intervals, which show what is more than noise.

`report.save` puts both on every page that is named in `COMPARISONS`. Pages that are there are drawn again, from
their .csv and without measuring anything, by

    python benchmarks/clusters.py --seeds 0 --null-seeds 0
    python benchmarks/transfer.py --seeds 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats


@dataclass(frozen=True)
class Comparison:
    """What is compared on a page.

    Parameters
    ----------
    ours, plain
        Names of our method, and of the one that every other has to be better than.
    figures
        Columns that are compared; of all of them more is better. The first says who is the best peer.
    across
        Column of the data sets.
    beside
        Other .csv files with rows of the same cells, or of more data sets.
    where
        What headings say of the data sets; with it the means over them are shown as well.
    """

    ours: str
    plain: str
    figures: tuple[str, ...]
    across: str = "data"
    beside: tuple[str, ...] = ()
    where: str = ""


CLUSTERS, BATCHED = (
    Comparison(ours, "PCA, resolution 1", ("ari", "ami", "types_found", "agreement"), beside=("clusters_peers",))
    for ours in ("DICE cluster", "DICE cluster, batches")
)
LABELS = Comparison("DICE", "LR on PCA", ("accuracy", "macro_f1"), across="pair", beside=("transfer_peers",))
FEATURES = Comparison(
    "DICE", "ridge on PCA", ("correlation", "held"), across="pair", beside=("features_peers",)
)  # fmt: skip
#: By page. Rows without the first figure of a comparison are not part of it.
COMPARISONS: dict[str, tuple[Comparison, ...]] = {
    "clusters": (replace(CLUSTERS, beside=()), replace(BATCHED, beside=())),
    # One of these queries is of one batch.
    "clusters_others": (replace(CLUSTERS, beside=()),),
    "clusters_whole": (CLUSTERS, BATCHED),
    "panels": (Comparison("DICE", "LR on genes", ("accuracy", "macro_f1"), across="pair", beside=("panels_peers",)),),
    "transfer": (LABELS,),
    "features": (FEATURES,),
    "unseen": (
        Comparison("DICE", "LR on PCA", ("accuracy", "macro_f1"), beside=("unseen_peers",)),
        Comparison(
            "DICE",
            "LR on PCA",
            ("accuracy", "macro_f1"),
            beside=("unseen_peers", "transfer", "transfer_peers"),
            where=", these sets and those of transfer",
        ),
        Comparison("DICE cluster", "PCA, resolution 1", ("ari", "ami", "types_found")),
    ),
}


def tables(name: str, rows: pd.DataFrame, folder: Path) -> dict[str, pd.DataFrame]:
    """Tables of a page by heading; none for a page that is not compared, or without our method."""
    found: dict[str, pd.DataFrame] = {}
    for asked in COMPARISONS.get(name, ()):
        paths = [folder / f"{file}.csv" for file in asked.beside]
        others = [pd.read_csv(path).rename(columns={"pair": asked.across}) for path in paths if path.exists()]
        all_rows = pd.concat([rows, *others], ignore_index=True)
        if asked.figures[0] in all_rows:
            measured = all_rows[all_rows[asked.figures[0]].notna()]
            # A run that both files have is that of the other tools' file.
            found |= _compared(measured.drop_duplicates([asked.across, "seed", "method"], keep="last"), asked)
    return found


def _compared(rows: pd.DataFrame, asked: Comparison) -> dict[str, pd.DataFrame]:
    """Ranks and paired differences of one comparison, on the data sets of our method."""
    rows = rows[rows[asked.across].isin(rows.loc[rows["method"] == asked.ours, asked.across])]
    if asked.ours not in set(rows["method"]) or rows["method"].nunique() < 2:
        return {}
    others = [method for method in rows["method"].unique() if method != asked.ours]
    best = best_peer(rows, asked)
    roles = {asked.plain: "plain"} | {best: "plain, best peer" if best == asked.plain else "best peer"}
    found = paired(rows, asked.ours, others, asked.figures, asked.across)
    found.insert(1, "which is", [roles.get(method, "") for method in others])
    shown = {"Means": means(rows, asked)} if asked.where else {}
    shown |= _ranked(rows, asked) | {f"{asked.ours}, paired differences": found}
    return {f"{heading}{asked.where}": table for heading, table in shown.items()}


def means(rows: pd.DataFrame, asked: Comparison) -> pd.DataFrame:
    """Means over data sets of the means over seeds, of methods that have all of them."""
    found = _everywhere(rows, asked.figures, asked.across, rows[asked.across].nunique()).groupby("method").mean()
    return found.sort_values(asked.figures[0], ascending=False).map("{:.3f}".format).reset_index()


def _ranked(rows: pd.DataFrame, asked: Comparison) -> dict[str, pd.DataFrame]:
    """Ranks over all figures, and once more over those that every method has, where some lack one."""
    missing = rows[list(asked.figures)].isna().groupby(rows["method"]).all().any()
    found = {}
    for figures in ([*asked.figures], [figure for figure in asked.figures if not missing[figure]]):
        ranked = ranks(rows, figures, asked.across) if figures else ()
        if len(ranked) > 1 and asked.ours in set(ranked["method"]):
            found[f"Mean rank over {', '.join(figures)}"] = ranked
    return found


def best_peer(rows: pd.DataFrame, asked: Comparison) -> str | None:
    """The method of others with the best mean on all data sets, picked after the fact."""
    peers = rows[~rows["method"].str.startswith("DICE")]
    found = _everywhere(peers, asked.figures[:1], asked.across, rows[asked.across].nunique())
    return None if found.empty else str(found[asked.figures[0]].groupby("method").mean().idxmax())


def ranks(rows: pd.DataFrame, figures: Sequence[str], across: str = "data") -> pd.DataFrame:
    """Mean rank of every method over data sets and figures, by means over seeds; 1 is best.

    A method that lacks a data set or a figure cannot be ranked with the others and is left out.
    """
    means = _everywhere(rows, figures, across, rows[across].nunique())
    ranked = means.groupby(across).rank(ascending=False).groupby("method").mean()
    ranked.insert(0, "mean", ranked.mean(axis=1))
    return ranked.sort_values("mean").map("{:.2f}".format).reset_index()


def _everywhere(rows: pd.DataFrame, figures: Sequence[str], across: str, n_sets: int) -> pd.DataFrame:
    """Means over seeds by data set and method, of methods that have every figure on every set."""
    means = rows.groupby([across, "method"])[list(figures)].mean().dropna()
    sets = means.groupby("method").size().reindex(means.index.get_level_values("method"))
    return means[(sets == n_sets).to_numpy()]


def paired(
    rows: pd.DataFrame, ours: str, others: Sequence[str], figures: Sequence[str], across: str = "data"
) -> pd.DataFrame:
    """Our figures minus theirs on the same cells, with intervals over seeds of the mean over the sets that both have.

    Those over seeds tell what to expect on these sets again, those over sets what on others, if they are like these.
    Seeds that lack some of these sets are left out: their mean would be one over other cells. ``sets`` is
    how many these are, and ``ahead`` on how many of them we are, by the first figure.
    """
    table = rows.set_index([across, "seed", "method"])[list(figures)]
    own, found = table.xs(ours, level="method"), []
    for method in others:
        apart = (own - table.xs(method, level="method")).dropna(how="all")
        n_sets = apart[figures[0]].groupby("seed").transform("size")
        apart = apart[n_sets == n_sets.max()]
        by_set = apart[figures[0]].groupby(across).mean()
        row = {"to": method} | {figure: interval(apart[figure].groupby("seed").mean()) for figure in figures}
        row |= {f"{figure}, over sets": interval(apart[figure].groupby(across).mean()) for figure in figures}
        found.append(row | {"sets": len(by_set), "ahead": int((by_set > 0).sum())})
    return pd.DataFrame(found)


def interval(values: pd.Series) -> str:
    """Mean and half the width of its 95 % interval (Student's t)."""
    values = values.dropna()
    if len(values) < 2:
        return f"{values.mean():.3f}" if len(values) else "-"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.3f} ± {half:.3f}"
