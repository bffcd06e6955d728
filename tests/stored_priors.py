"""Small priors of every kind in files, made once for each process: 20 genes, 3 latents, as few weights as possible."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest import mock

import anndata as ad
import numpy as np
import pandas as pd

import dice
from dice._model import networks

#: By what they have: a network of Gaussian noise, the paper's, a mixture, a mixture with all optional tables, a network
#: of the noise of counts, and labels with their card beside it.
KINDS = ("plain", "paper", "gmm", "whole", "counts", "labels")
PRESETS = {"paper": "paper-small", "gmm": "gmm", "whole": "gmm"}


def cells(n: int = 300, *, counts: bool = True) -> ad.AnnData:
    """Cells of three labels, as log-normalised counts or as Gaussian values that are at least 0."""
    rng = np.random.default_rng(0)
    codes, profiles = np.arange(n) % 3, np.exp(rng.normal(size=(3, 20)))
    if counts:
        drawn = rng.poisson(4 * profiles[codes]).astype(np.float32)
        values = np.log1p(1e3 * drawn / drawn.sum(1, keepdims=True))
    else:
        values = np.abs(np.log1p(profiles[codes]) + 0.3 * rng.normal(size=(n, 20))).astype(np.float32)
    adata = ad.AnnData(values)
    adata.var_names = [f"GENE{i}" for i in range(20)]
    adata.obs_names = [f"cell{i}" for i in range(n)]
    adata.obs["label"] = pd.Categorical.from_codes(codes, ["alpha", "beta/gamma", "δ"])
    adata.uns["label_colors"] = ["#111111", "#222222", "#333333"]
    return adata


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="dice-priors-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def path(kind: str) -> Path:
    """The .h5ad file of a prior."""
    reference, preset = cells(counts=kind in ("counts", "labels")), PRESETS.get(kind, "default")
    whole = kind in ("whole", "counts", "labels")
    training = dice.Training(
        max_steps=None if preset == "gmm" else 60, calibration_fraction=0.2 if whole else 0.0, validation_fraction=0.2
    )
    network, recipe = networks.by_preset()[preset]
    small = {**network.presets, preset: replace(recipe, size={"width": 8, "depth": 2} if recipe.training else {})}
    with mock.patch.object(network, "presets", small):
        dice.tl.train_prior(
            reference, n_latent=3, preset=preset, training=training, labels_key="label" if kind == "labels" else None
        )
    prior = dice.Prior.from_anndata(reference)
    if not whole:
        prior = replace(prior, soft_clusters=None)
    kept = ad.AnnData(
        reference.X[:8], obs=reference.obs[[]][:8], var=reference.var[[]], uns={"dice": prior.to_arrays()}
    )
    place = _folder() / f"prior_{kind}.h5ad"
    kept.write_h5ad(place)
    return place
