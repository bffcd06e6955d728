from __future__ import annotations

import importlib
import sys
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))
PROTEINS = [
    *(f"P{i}" for i in range(160)),
    *("CD3-1", "CD3-2", "Notch-1", "Notch-2", "TCR-1", "TCR-2", "Rat-IgG1-1", "Rat-IgG1-2", "CD9-1"),
]


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Scripts of benchmarks/ as modules, by name; they import each other so, and their tables land in `tmp_path`."""
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    importlib.import_module("report").OUT = tmp_path
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if FOLDER in Path(getattr(sys.modules[name], "__file__", None) or "").parents:
            del sys.modules[name]


@pytest.fixture
def citeseq() -> ad.AnnData:
    """600 cells in the layout of pbmc_seurat_v4.h5ad; five of them fail a filter each."""
    rng = np.random.default_rng(0)
    kind = np.repeat(np.arange(4), [300, 200, 98, 2])
    level = rng.gamma(2.0, 2.0, size=(4, 300))
    counts = rng.poisson(level[kind]).astype(np.float32)
    proteins = rng.poisson(20.0, size=(600, len(PROTEINS))) + 1
    counts[0, -1] = 5000  # mitochondrial
    proteins[1] = 1  # few protein counts: log 169 < 7.6
    proteins[2] = 1000  # many
    proteins[3, :20] = 0  # detected: 149 of 169, and 148 of 168 with the clones of CD3 as one
    names = np.array(["CD4 Naive", "B naive", "NK", "ASDC", "Doublet"])[kind]
    names[4] = "Doublet"
    index = [f"E2L{i % 3}_{i}" for i in range(600)]
    obs = pd.DataFrame(
        {
            "orig.ident": "P1_0",
            "lane": [f"L{i % 3}" for i in range(600)],
            "celltype.l1": "PBMC",
            "celltype.l2": pd.Categorical(names),
        },
        index=index,
    )
    genes = [*(f"gene{i}" for i in range(299)), "MT-CO1"]
    return ad.AnnData(
        sparse.csr_matrix(counts),
        obs=obs,
        var=pd.DataFrame(index=genes),
        obsm={"protein_counts": pd.DataFrame(proteins, index=index, columns=PROTEINS)},
    )
