"""The paper's experiment across studies: fetal neocortex of Nowakowski 2017 cleans up that of Polioudakis 2019.

    python benchmarks/neocortex.py [--seeds 5] [--methods ...] [--n-latent 5 10 15 20 25 50 100 200]
    python benchmarks/neocortex.py --stand-in FOLDER --steps 50 --seeds 1

reads what neocortex_cells.py gives (it downloads the reference; the query is downloaded by hand), and writes
docs/benchmarks/neocortex.csv and .md and a picture. Every seed draws other 1,000 query cells. The other options are
those of paper_cells.py.

Polioudakis' cells have no labels. The paper transfers them by Seurat v3, an R package; here a logistic regression on
the shared genes does, which no embedding has a part in. The files hold no counts, so that scVI cannot be run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import anndata as ad
import neocortex_cells
import numpy as np
import pandas as pd
from data import hold_out
from paper_cells import DICE, LABELS, Cells, Experiment, Pair, main
from transfer import METHODS as CLASSIFIERS

NOTE = """\
Reference: Nowakowski 2017; query: 1,000 random cells of Polioudakis 2019, others with every seed. The genes that are
variable in both (5,000 of each). The paper prints:

| paper, printed | ARI | cLISI | NMI | V |
|---|---|---|---|---|
| DICE (trained with labels) | 0.393 | 1.406 | 0.553 | 0.559 |
| PCA | 0.347 | 1.496 | 0.496 | 0.525 |
| ALRA | 0.310 | 1.526 | 0.474 | 0.512 |
| kNN-5 | 0.275 | 1.837 | 0.349 | 0.405 |
| kNN-10 | 0.285 | 1.750 | 0.440 | 0.451 |
| kNN-15 | 0.268 | 1.701 | 0.442 | 0.450 |
| MAGIC | 0.317 | 1.451 | 0.502 | 0.509 |
| NMF | 0.209 | 2.237 | 0.220 | 0.291 |

The query's labels are those of a logistic regression on the genes; the paper's are Seurat's. Rows with `labels` trained
on the reference's labels. The paper's NMI is `nmi_max`."""


def load(arguments: argparse.Namespace) -> Pair:
    paths = stand_in(arguments.stand_in) if arguments.stand_in else {}
    return neocortex_cells.neocortex(**paths)


def split(studies: Pair, seed: int, small: bool) -> Cells:
    reference, query = neocortex_cells.paper_neocortex_pair(*studies, n_top_genes=200 if small else 5000)
    _, query = hold_out(query, 150 if small else 1000, seed)
    query.obs[LABELS] = pd.Categorical(CLASSIFIERS["LR on genes"](reference, query, LABELS, seed))
    return Cells((reference, query), (reference, query))


def stand_in(folder: Path) -> dict[str, Path]:
    """300 and 400 cells of five types in the layout of gEAR's files, from studies that measure genes unequally well."""
    rng = np.random.default_rng(0)
    profiles = rng.gamma(0.5, 4.0, size=(5, 420))
    paths = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, n_cells, genes in (("reference", 300, np.arange(400)), ("query", 400, np.arange(419, 19, -1))):
        codes = rng.integers(5, size=n_cells)
        counts = rng.poisson(profiles[codes][:, genes] * rng.gamma(10.0, 0.1, size=len(genes)))
        values = np.log1p(counts / counts.sum(1, keepdims=True) * 1e4).astype(np.float32)
        var = pd.DataFrame({"gene_symbol": [f"GENE{i}" for i in genes]}, index=[f"ENSG{i:03}" for i in genes])
        cells = ad.AnnData(values, obs=pd.DataFrame({"age": 10}, index=[f"c{i}" for i in range(n_cells)]), var=var)
        if name == "reference":
            cells.obs[LABELS] = np.array(["RG", "IPC", "nEN", "EN", "IN"])[codes]
        paths[name] = folder / f"{name}.h5ad"
        cells.write_h5ad(paths[name])
    return paths


EXPERIMENT = Experiment(
    name="neocortex",
    title="Neocortex across studies, as in the paper",
    n_latent=15,
    methods=["PCA", "kNN-5", "kNN-10", "kNN-15", "MAGIC", "ALRA", "NMF", *DICE],
    load=load,
    split=split,
    note=NOTE,
)

if __name__ == "__main__":
    main(EXPERIMENT)
