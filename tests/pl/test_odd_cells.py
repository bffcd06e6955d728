"""Every plot of cells on what users have: one cell, one label, sixty, missing ones, views, lazy embeddings."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest

import dice
from dice import pl

N = 66
PLOTS = {
    "comparison": lambda a, r: pl.comparison(a, color="kind", show=False),
    "comparison in one map": lambda a, r: pl.comparison(a, color="kind", reference=r, show=False),
    "posterior": lambda a, r: pl.posterior(a, 0, reference=r, show=False),
    "uncertainty": lambda a, r: pl.distribution(a, groupby="kind", show=False),
    "novelty": lambda a, r: pl.distribution(a, "dice_novelty", groupby="kind", show=False),
    "transfer": lambda a, r: pl.transfer(a, "kind", groupby="kind", show=False),
    "reliability": lambda a, r: pl.reliability(a, "kind", truth_key="kind", show=False),
    "rho": lambda a, r: pl.rho(a, r, rhos=[0.5, 2.0], color="kind", show=False),
}


@pytest.fixture(scope="module")
def pair():
    """Sixty kinds of cells, and all that the tools write of a query."""
    rng = np.random.default_rng(0)
    kinds = np.arange(400) % 60
    cells = ad.AnnData((8 * rng.normal(size=(60, 12))[kinds] + rng.normal(size=(400, 12))).astype(np.float32))
    cells.obs["kind"] = pd.Categorical([f"kind {kind:02}" for kind in kinds])
    reference, query = cells[N:].copy(), cells[:N].copy()
    dice.tl.train_prior(
        reference, n_latent=6, scale=False, preset="gmm", training=dice.Training(calibration_fraction=0.3), check=False
    )
    query.obs["true"] = query.obs["kind"]
    dice.tl.denoise(query, reference, n_samples=10, check=False)
    simple = dice.Classifier("projection")
    dice.tl.transfer_labels(query, reference, "kind", check=False, classifier=simple)
    dice.tl.novelty(query, reference, check=False)
    # Maps are drawn once and used again; other tests draw without them.
    pl.comparison(query, reference=reference, show=False)
    pl.comparison(query, show=False)
    return reference, query


def one_cell(query):
    return query[:1].copy()


def one_label(query):
    query = query[query.obs["kind"] == "kind 00"].copy()
    query.obs["kind"] = query.obs["kind"].cat.remove_unused_categories()
    return query


def missing_labels(query):
    query = query.copy()
    query.obs["kind"] = query.obs["kind"].where(np.arange(N) % 3 > 0)
    return query


def lazy(query):
    import dask.array as da

    query = query.copy()
    for name in ("X_dice", "X_dice_pca", "X_dice_samples"):
        query.obsm[name] = da.from_array(query.obsm[name], chunks=40)
    return query


@pytest.mark.parametrize("odd", [lambda query: query.copy(), one_cell, one_label, missing_labels, lazy])
@pytest.mark.parametrize("name", list(PLOTS))
@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_every_plot_takes_what_users_have(pair, name, odd):
    reference, query = pair
    figure = PLOTS[name](odd(query), reference)
    axes = figure if isinstance(figure, list | np.ndarray) else [figure]
    assert all(ax.has_data() or not ax.axison for ax in axes)
    axes[0].figure.canvas.draw()


@pytest.mark.parametrize("name", list(PLOTS))
@pytest.mark.filterwarnings("ignore::anndata.ImplicitModificationWarning", "ignore::dice.DiceWarning")
def test_views_are_drawn_and_the_original_stays(pair, name):
    reference, query = pair
    before = set(query.obsm), set(query.uns)
    PLOTS[name](query[::2], reference)
    assert (set(query.obsm), set(query.uns)) == before
