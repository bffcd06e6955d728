"""A trial of any script, as tests/benchmarks/test_scripts.py makes it: does it start, and come to its table?

    DICE_TRIAL=FOLDER make bench-depth ARGS="--seeds 1"

takes a few hundred simulated cells for every data set, trains priors for a few steps, and leaves the tables in FOLDER.
Its figures mean nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse

#: Where a trial leaves its files; None where a script is to measure.
FOLDER = Path(os.environ["DICE_TRIAL"]) if os.environ.get("DICE_TRIAL") else None
N_CELLS, N_GENES, N_STEPS = 400, 100, 5
#: What scripts choose cells by; types are those that clusters.py takes for homogeneous.
COLUMNS = {
    "cell_type": ("CD14+ Mono", "T.CD4.Memory", "B_Naive", "beta"),
    "site": ("site1", "site2", "site3", "site4"),
    "suspension_type": ("cell", "nucleus"),
    "batch": ("B1", "B2", "B3"),
    "cond_group": ("HC",),
    "condition": ("control", "stimulated"),
}
CHEMISTRIES = ("3pv1", "3pv2", "5p")


def file(name: str) -> Path:
    """The simulated file that stands for a data set."""
    path = FOLDER / "data" / f"{name}.h5ad"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _cells(name).write_h5ad(path)
    return path


def _cells(name: str) -> ad.AnnData:
    """Counts of four types with the columns of all data sets; the chemistries are normalised already."""
    rng = np.random.default_rng(0)
    columns = COLUMNS | ({"batch": CHEMISTRIES} if name == "pbmc_symphony_3chem" else {})
    obs = pd.DataFrame({key: rng.choice(values, N_CELLS) for key, values in columns.items()})
    obs["cell_type_l2"] = obs["cell_type"]
    rates = rng.gamma(0.5, 4.0, size=(4, N_GENES))
    codes = pd.Categorical(obs["cell_type"]).codes
    counts = rng.poisson(rates[codes]).astype(np.float32)
    if name == "pbmc_symphony_3chem":
        counts = np.log1p(counts / counts.sum(1, keepdims=True) * 1e4)
    obs.index = [f"cell {i}" for i in range(N_CELLS)]
    adata = ad.AnnData(sparse.csr_matrix(counts), obs=obs)
    adata.var_names = [f"gene {i}" for i in range(N_GENES)]
    adata.obsm["protein"] = rng.poisson(rng.gamma(2.0, 10.0, size=(4, 8))[codes]).astype(np.float32)
    return adata


def some(values: Sequence) -> Sequence:
    """All values; the first of them in a trial."""
    return values if FOLDER is None else values[:1]


def shorten() -> None:
    """Train every prior of this process for a few steps, where it is a trial."""
    if FOLDER is None:
        return
    import dice

    train = dice.tl.train_prior

    def train_shortly(adata: ad.AnnData, *, training: dice.Training | None = None, **options: object) -> object:
        training = training or dice.Training()
        # A mixture is fitted at once.
        steps = None if options.get("preset") == "gmm" else N_STEPS
        return train(adata, training=replace(training, max_steps=steps), **options)

    dice.tl.train_prior = train_shortly
