"""The tree of clusters beside their map."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dice import pl
from dice._clusters.separation import CONTINUUM
from dice._clusters.tree import CUT_LEVELS, Cut, Tree
from dice._errors import SlotError


def comb(n_leaves):
    """A tree in which each merge adds one leaf, all of them well apart."""
    joined = [[0, 1]] + [[n_leaves + i - 1, i + 1] for i in range(1, n_leaves - 1)]
    joined = np.array(joined[: n_leaves - 1], dtype=np.intp).reshape(-1, 2)
    return Tree(n_leaves, joined, np.linspace(4, 9, n_leaves - 1), np.full(n_leaves, 10.0))


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
    } | Cut(comb(n_clusters), CUT_LEVELS["default"]).record()
    return query


@pytest.mark.parametrize("n_clusters", [3, 40])
def test_every_cluster_is_named_on_the_map_and_in_the_tree(query, n_clusters):
    axes = pl.clusters(clustered(query, n_clusters), show=False)
    assert [text.get_text() for text in axes[1].texts] == [str(i) for i in range(n_clusters)]
    assert axes[1].get_legend() is None
    assert axes[1].get_title() == f"{n_clusters} clusters"
    where = query.obsm["X_dice_umap"]
    for text, code in zip(axes[1].texts, range(n_clusters), strict=True):
        own = where[query.obs["dice_cluster"] == str(code)]
        assert np.isclose(own, text.get_position()).all(1).any()
    rows = [text.get_text() for text in axes[0].get_yticklabels()]
    assert sorted(rows, key=int) == [str(i) for i in range(n_clusters)]
    lines = [line.get_xdata() for line in axes[0].lines if len(line.get_xdata()) == 4]
    np.testing.assert_allclose(sorted(max(x) for x in lines), np.linspace(4, 9, n_clusters - 1))
    assert any(np.allclose(line.get_xdata(), CONTINUUM) for line in axes[0].lines if line.get_linestyle() == ":")
    np.testing.assert_allclose(axes[2].collections[0].get_array(), np.linspace(0, 1, query.n_obs))


def test_every_cluster_is_where_its_branch_begins(query):
    axes = pl.clusters(clustered(query, 6), show=False)
    begins = [(x, y) for line in axes[0].lines if len(line.get_xdata()) == 4
              for x, y in (line.get_xydata()[0], line.get_xydata()[-1]) if x == 0]  # fmt: skip
    assert sorted(y for _, y in begins) == list(range(6))


def test_one_cluster(query):
    axes = pl.clusters(clustered(query, 1), show=False)
    assert axes[1].get_title() == "1 cluster"
    assert [text.get_text() for text in axes[0].get_yticklabels()] == ["0"]


def test_cells_without_a_cluster_are_grey_and_unnamed(query):
    cells = clustered(query, 3)
    cells.obs.loc[cells.obs_names[:5], "dice_cluster"] = np.nan
    axes = pl.clusters(cells, show=False)
    assert axes[1].get_title() == "3 clusters"
    assert [text.get_text() for text in axes[1].texts] == ["0", "1", "2"]


def test_what_is_missing_is_said(query):
    with pytest.raises(SlotError, match=r"dice\.tl\.cluster"):
        pl.clusters(query)
