"""The curve of agreement beside the map of clusters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dice import pl
from dice._errors import SlotError


def clustered(query, n_clusters):
    """A query with the slots of dice.tl.cluster, written by hand."""
    codes = np.arange(query.n_obs) % n_clusters
    query.obs["dice_cluster"] = pd.Categorical.from_codes(codes, [str(i) for i in range(n_clusters)])
    query.obs["dice_cluster_confidence"] = np.linspace(0, 1, query.n_obs)
    ring = sparse.coo_matrix(
        (np.ones(query.n_obs), (np.arange(query.n_obs), (np.arange(query.n_obs) + 1) % query.n_obs))
    ).tocsr()
    query.obsp["dice_cluster_connectivities"] = ring + ring.T
    query.uns["dice_cluster"] = {
        "connectivities_key": "dice_cluster_connectivities",
        "params": {"use_rep": "X_dice", "method": "umap"},
        "curve": {
            "resolution": np.array([0.1, 0.5, 1.0, 2.0]),
            "n_clusters": np.array([1.0, 3.0, 5.0, 9.0]),
            "agreement": np.array([1.0, 0.95, 0.9, 0.4]),
            "spread": np.full(4, 0.05),
        },
        "choice": {"resolution": 1.0, "agreement": 0.9, "n_clusters": n_clusters},
        "call": {"min_agreement": 0.85},
    }
    return query


@pytest.mark.parametrize("n_clusters", [3, 40])
def test_every_cluster_is_named_on_the_map_and_the_choice_on_the_curve(query, n_clusters):
    axes = pl.clusters(clustered(query, n_clusters), show=False)
    assert [text.get_text() for text in axes[1].texts] == [str(i) for i in range(n_clusters)]
    assert axes[1].get_legend() is None
    assert axes[1].get_title() == f"{n_clusters} clusters"
    where = query.obsm["X_dice_umap"]
    for text, code in zip(axes[1].texts, range(n_clusters), strict=True):
        own = where[query.obs["dice_cluster"] == str(code)]
        assert np.isclose(own, text.get_position()).all(1).any()
    assert f"{n_clusters} clusters" in [text.get_text() for text in axes[0].texts]
    np.testing.assert_allclose(axes[0].collections[-1].get_offsets(), [[1.0, 0.9]])
    np.testing.assert_allclose(axes[2].collections[0].get_array(), np.linspace(0, 1, query.n_obs))


def test_one_cluster_without_a_choice(query):
    cells = clustered(query, 1)
    cells.uns["dice_cluster"]["choice"] = {"n_clusters": 1}
    axes = pl.clusters(cells, title="all of them", show=False)
    assert axes[1].get_title() == "all of them"
    assert not any("cluster" in text.get_text() and text.get_text()[0] == "1" for text in axes[0].texts)


def test_cells_without_a_cluster_are_grey_and_unnamed(query):
    cells = clustered(query, 3)
    cells.obs.loc[cells.obs_names[:5], "dice_cluster"] = np.nan
    axes = pl.clusters(cells, show=False)
    assert axes[1].get_title() == "3 clusters"
    assert [text.get_text() for text in axes[1].texts] == ["0", "1", "2"]


def test_what_is_missing_is_said(query):
    with pytest.raises(SlotError, match=r"dice\.tl\.cluster"):
        pl.clusters(query)
