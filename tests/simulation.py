"""Cells of known types."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd

TYPES = ["T/NK naive", "B", "Plasma", "Mono"]


def simulate(n, seed, d=60, spread=0.45):
    """Log-normalised expression of four types, two of which overlap."""
    centres = np.random.default_rng(7).gamma(2, 0.6, size=(4, d))
    centres[2] = centres[1] + 0.15 * np.random.default_rng(8).normal(size=d)
    rng = np.random.default_rng(seed)
    codes = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    expression = np.maximum(centres[codes] + spread * rng.normal(size=(n, d)), 0).astype(np.float32)
    adata = ad.AnnData(expression)
    adata.obs_names = [f"{seed}-{i}" for i in range(n)]
    adata.obs["cell_type"] = pd.Categorical.from_codes(codes, TYPES)
    return adata
