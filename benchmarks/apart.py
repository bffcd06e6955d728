"""How far queries stand apart from their reference, and what held-out genes say about rho.

    python benchmarks/apart.py [--seeds 2]

The data sets are those of benchmarks/real.py.

* ``pull``      how many times harder than held-out reference cells the prior pulls the query at a noise of 0.35 latent
                scales: beyond 1.2 the default of rho is 0,
* ``rho``       the default that was used, in latent scales,
* ``by_genes``  the rho that predicts held-out genes best (``dice.tl.tune_rho``), in latent scales, and
* ``lost``      how much larger the squared error of held-out genes is at half a latent scale, in per cent.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
from real import FILES, PAIRS, cells_of
from report import resume, save, summary

import dice

DATA = [*FILES, "bmmc by site", *PAIRS]


def main() -> None:
    parser = argparse.ArgumentParser(description="How far queries stand apart from their reference.")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    dice.settings.verbosity = 0
    warnings.simplefilter("ignore")
    rows, done = resume("apart", ["data", "seed"])
    for seed in range(arguments.seeds):
        for name in DATA:
            if (name, seed) not in done:
                rows.append({"data": name, "seed": seed} | run(name, seed))
                print(rows[-1], flush=True)
                show(pd.DataFrame(rows))


def show(rows: pd.DataFrame) -> None:
    tables = {"All data sets": summary(rows, ["data"], ["pull", "rho", "by_genes", "lost"])}
    save("apart", "Queries that stand apart", rows, tables, __doc__.split("\n\n", 2)[2])


def run(name: str, seed: int) -> dict[str, float]:
    reference, query = cells_of(name, seed)
    dice.tl.train_prior(reference, training=dice.Training(calibration_fraction=0.0), random_state=seed)
    scale = dice.Prior.from_anndata(reference).latent_scale
    dice.tl.denoise(query, reference, method=dice.Direct(uncertainty=False))
    dice.tl.tune_rho(query, reference, criterion="genes", random_state=seed)
    tuned = query.uns["dice_rho"]
    half = np.interp(scale / 2, tuned["grid"], tuned["loss"])
    return {
        "pull": query.uns["X_dice"]["apart"],
        "rho": query.uns["X_dice"]["params"]["rho"] / scale,
        "by_genes": tuned["rho"] / scale,
        "lost": 100 * float(half / np.min(tuned["loss"]) - 1),
    }


if __name__ == "__main__":
    main()
