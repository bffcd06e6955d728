"""Types that the reference lacks, in queries of another technology: each type left out in turn.

    python benchmarks/novelty_shifted.py [--seeds 1] [--pairs ...]

Groups are the fine ones of `dice.tl.novelty(groupby="auto")`. A called group is new if most of its cells have the
left-out type. "precision" is the share of new groups among those called, "found" how many of the left-out types with at
least 30 query cells have a called group, and "false" the number of groups called with nothing left out. A left-out type
is a sister if its mean is nearer to a known type than half of the types are to their nearest one. Novelty reads
projections alone, so that the network is not trained.
"""

from __future__ import annotations

from collections.abc import Iterator

import anndata as ad
import numpy as np
import pandas as pd
from report import repeat, save
from shifts import PAIRS, pair_of

import dice

LEAST_CELLS, NOTHING = 30, "nothing"


def main() -> None:
    repeat("novelty_shifted", PAIRS, run, show, across="pair", option="--pairs")


def show(rows: pd.DataFrame) -> None:
    told = {"all pairs": rows} | dict(list(rows.groupby("pair", sort=False)))
    table = pd.DataFrame([{"pair": name} | figures(some) for name, some in told.items()])
    save("novelty_shifted", "Novelty under a shift", rows, {"Groups": table}, __doc__.split("\n\n")[2])


def figures(rows: pd.DataFrame) -> dict[str, str]:
    """Sums over types and seeds: single ones are yes or no."""
    left, whole = rows[rows["left_out"] != NOTHING], rows[rows["left_out"] == NOTHING]
    row = {"precision": f"{left['new'].sum():.0f} of {left['called'].sum():.0f}"}
    for name, some in (("found", left), ("found, sisters", left[left["sister"] == 1])):
        row[name] = f"{(some['new'] > 0).sum()} of {len(some)}"
    return row | {"false": f"{whole['called'].mean():.2f}"}


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    reference, query = pair_of(name, seed)
    types = reference.obs["cell_type"].astype(str)
    yield {"left_out": NOTHING, "sister": 0, **called(reference, query, None, seed)}
    counts, near = query.obs["cell_type"].astype(str).value_counts(), nearest(reference)
    for left in sorted(set(types) & set(counts.index[counts >= LEAST_CELLS])):
        some = reference[(types != left).to_numpy()].copy()
        sister = int(near[left] < near.median())
        yield {"left_out": left, "sister": sister, **called(some, query.copy(), left, seed)}


def nearest(reference: ad.AnnData) -> pd.Series:
    """Distance of every type's mean expression to the nearest other one."""
    types = reference.obs["cell_type"].astype(str)
    by_type = {name: reference[(types == name).to_numpy()].X.mean(0) for name in sorted(set(types))}
    means = pd.DataFrame({name: np.asarray(mean).ravel() for name, mean in by_type.items()})
    square = np.square(means.to_numpy()[:, :, None] - means.to_numpy()[:, None]).sum(0)
    np.fill_diagonal(square, np.inf)
    return pd.Series(np.sqrt(square.min(0)), means.columns)


def called(reference: ad.AnnData, query: ad.AnnData, left: str | None, seed: int) -> dict[str, int]:
    """Groups that are called, and how many of them are mostly cells of the left-out type."""
    dice.tl.train_prior(reference, labels_key="cell_type", training=dice.Training(max_steps=1), random_state=seed)
    dice.tl.novelty(query, reference, groupby="auto", labels_key="cell_type")
    groups = query.uns["dice_novelty"]["groups"]
    names = np.asarray(groups["group"])[np.asarray(groups["novel"], dtype=bool)]
    group = query.obs["dice_novelty_group"].astype(str)
    share = [float((query.obs["cell_type"].astype(str)[group == name] == left).mean()) for name in names]
    return {"called": len(names), "new": int(np.sum(np.array(share) > 0.5))}


if __name__ == "__main__":
    main()
