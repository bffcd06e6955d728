"""Small data sets with the slots that dice.tl writes, built by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import anndata as ad
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import stored_priors

import dice

mpl.use("Agg")

TYPES = ["B", "NK", "T"]


def make(n: int, *, n_samples: int = 0, seed: int = 0) -> ad.AnnData:
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    # The same three centres for every seed, so that references and queries share them.
    clean = (np.random.default_rng(99).normal(size=(3, 5)) * 6)[codes] + rng.normal(size=(n, 5))
    cells = ad.AnnData(
        X=rng.random((n, 4)).astype(np.float32),
        obs=pd.DataFrame(
            {
                "cell_type": pd.Categorical(np.array(TYPES)[codes], categories=TYPES),
                "dice_uncertainty": (codes + rng.random(n)).astype(np.float32),
            },
            index=[f"cell{i}" for i in range(n)],
        ),
        var=pd.DataFrame(index=[f"gene{i}" for i in range(4)]),
    )
    cells.obsm["X_dice"] = clean.astype(np.float32)
    cells.obsm["X_dice_pca"] = (clean + rng.normal(size=(n, 5))).astype(np.float32)
    if n_samples:
        cells.obsm["X_dice_samples"] = (clean[:, None] + 0.5 * rng.normal(size=(n, n_samples, 5))).astype(np.float32)
    return cells


def make_prior(history: dict | None = None, **changed: object) -> dict:
    """A stored prior with losses and a spectrum that are known."""
    if history is None:
        history = {
            "step": [50, 100, 150, 200],
            "loss": [1.0, 0.6, 0.5, 0.45],
            "validation": [0.9, 0.6, 0.5, 0.55],
        }
    prior = dice.Prior.load(stored_priors.path("gmm"))
    projection = replace(prior.projection, singular_values=np.geomspace(100, 1, 150).astype(np.float32))
    history = {name: np.asarray(values, np.float32) for name, values in history.items()}
    return replace(prior, projection=projection, history=history, **{"preset": "default", **changed}).to_arrays()


def add_labels(cells: ad.AnnData, key: str = "cell_type_dice", *, alpha: float = 0.1) -> None:
    """Labels as tl.transfer_labels leaves them: T cells are taken for NK cells half of the time."""
    codes = cells.obs["cell_type"].cat.codes.to_numpy().copy()
    codes[(codes == 2) & (np.arange(cells.n_obs) % 2 == 0)] = 1
    probabilities = np.full((cells.n_obs, 3), 0.1)
    probabilities[np.arange(cells.n_obs), codes] = 0.8
    sets = probabilities > 0.5
    sets[codes > 0, 2] = True
    names = np.array([*TYPES, "unassigned"], dtype=object)
    labels = np.where(np.arange(cells.n_obs) == 0, 3, codes)
    cells.obs[key] = pd.Categorical(names[labels], categories=names)
    cells.obs[f"{key}_prob"] = probabilities.max(1)
    cells.obs[f"{key}_set"] = pd.Categorical([" | ".join(names[:3][row]) for row in sets])
    cells.obs[f"{key}_status"] = pd.Categorical(np.where(sets.sum(1) == 1, "confident", "ambiguous"))
    frame = {"index": cells.obs_names, "columns": TYPES}
    cells.obsm[f"{key}_prob"] = pd.DataFrame(probabilities, **frame)
    cells.obsm[f"{key}_set"] = pd.DataFrame(sets, **frame)
    cells.uns[key] = {"labels": np.array(TYPES), "call": {"alpha": alpha}, "params": {}, "warnings": np.array([])}


@pytest.fixture
def labelled() -> ad.AnnData:
    cells = make(45)
    add_labels(cells)
    return cells


@pytest.fixture
def query() -> ad.AnnData:
    return make(45, n_samples=40)


@pytest.fixture
def reference() -> ad.AnnData:
    cells = make(60, seed=1)
    cells.uns["dice"] = make_prior()
    return cells


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    import matplotlib.pyplot as plt

    settings = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == settings
