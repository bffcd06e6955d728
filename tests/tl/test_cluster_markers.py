"""Genes of the splits of a tree of clusters, and their honest p-values."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
from simulation import simulate

import dice


@pytest.fixture(scope="module")
def _pair(clustered):
    return clustered


def test_every_split_has_genes_on_both_sides(query):
    found = dice.tl.cluster_markers(query, n_genes=7)
    assert list(found) == ["group", "reference", *list(_by_scanpy(query))[1:]]
    tree, n_clusters = query.uns["dice_cluster"]["tree"], query.obs["dice_cluster"].nunique()
    assert len(found) == 7 * 2 * (n_clusters - 1)
    sides = found[["group", "reference"]].drop_duplicates()
    assert set(sides["group"]) <= set(tree["names"])
    assert set(query.obs["dice_cluster"]) <= set(sides["group"])
    assert set(map(tuple, sides.to_numpy())) == {pair[::-1] for pair in map(tuple, sides.to_numpy())}
    assert found.groupby(["group", "reference"])["scores"].is_monotonic_decreasing.all()
    # The clearest split comes first.
    assert set(found.iloc[0][["group", "reference"]]) == {tree["names"][node] for node in tree["joined"][-1]}


def _by_scanpy(query):
    sc.tl.rank_genes_groups(query, "dice_cluster")
    return sc.get.rank_genes_groups_df(query, group=None)


def test_genes_are_those_of_the_profiles(query):
    """The sign of every clear gene is that of the mean share of all counts on the two sides."""
    found = dice.tl.cluster_markers(query, n_genes=None)
    clear = found[(found["pvals_adj"] < 1e-6) & (found["scores"] > 0)]
    assert len(clear) > 20
    values, cluster = np.expm1(query.X.toarray()), query.obs["dice_cluster"].astype(str).to_numpy()
    for row in clear.itertuples():
        gene = values[:, query.var_names.get_loc(row.names)]
        sides = [gene[np.isin(cluster, name.split("+"))].mean() for name in (row.group, row.reference)]
        assert sides[0] > sides[1]
        assert row.logfoldchanges > 0


def test_the_order_of_cells_and_chunks_do_not_matter(query):
    expected = dice.tl.cluster_markers(query)
    other = query[np.random.default_rng(0).permutation(query.n_obs)].copy()
    with dice.settings.using(chunk_size=37):
        found = dice.tl.cluster_markers(other)
    assert (found["names"] == expected["names"]).all()
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-6)


def test_one_population_has_no_markers():
    """Leiden cuts noise into many clusters: at a low level they are kept, and no gene differs between them."""
    rng = np.random.default_rng(0)
    profile = rng.gamma(0.5, size=150) + 0.02
    depth = np.exp(rng.normal(np.log(500), 0.4, 300))
    cells = ad.AnnData(rng.poisson(depth[:, None] * profile / profile.sum()).astype(np.float32))
    dice.tl.train_prior(cells, training=dice.Training(max_steps=60))
    dice.tl.cluster(cells)
    assert dice.tl.cluster_markers(cells).empty  # One cluster has no split.
    dice.tl.cluster(cells, level=0.51)
    assert cells.obs["dice_cluster"].nunique() > 5
    found = dice.tl.cluster_markers(cells, n_genes=None)
    assert (found["pvals"] < 0.05).mean() < 0.05
    assert (found["pvals_adj"] > 0.05).all()


def test_genes_are_shown_on_the_tree(query):
    markers = dice.tl.cluster_markers(query)
    figure = dice.pl.clusters(query, markers=markers, return_fig=True)
    shown = [text.get_text() for text in figure.axes[0].texts]
    first = markers[markers["group"] == "0"]["names"].iloc[:3]
    assert ", ".join(first) in shown
    with pytest.raises(ValueError, match="`markers` must be a table"):
        dice.pl.clusters(query, markers=markers["names"], return_fig=True)


def test_what_is_missing_is_named(query, reference):
    bare = query.copy()
    del bare.uns["dice_cluster"]
    with pytest.raises(KeyError, match=r"dice\.tl\.cluster"):
        dice.tl.cluster_markers(bare)
    with pytest.raises(ValueError, match="n_genes"):
        dice.tl.cluster_markers(query, n_genes=0)
    dice.tl.denoise(query, reference, random_state=3)
    with pytest.raises(KeyError, match="denoised again"):
        dice.tl.cluster_markers(query)


def test_values_that_are_no_counts_are_refused():
    reference, query = simulate(600, 0), simulate(300, 1)
    dice.tl.train_prior(reference, n_latent=10, preset="gmm")
    dice.tl.denoise(query, reference)
    with pytest.warns(UserWarning, match="compared by posterior samples"):
        dice.tl.cluster(query)
    with pytest.raises(ValueError, match="found without counts"):
        dice.tl.cluster_markers(query)
