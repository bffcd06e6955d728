"""Clusters that two measurements agree on."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse
from simulation import simulate
from sklearn.metrics import adjusted_rand_score

import dice


@pytest.fixture(scope="module")
def _pair(clustered):
    return clustered


def test_types_are_found_without_a_resolution(query):
    found, record = query.obs["dice_cluster"], query.uns["dice_cluster"]
    assert adjusted_rand_score(query.obs["cell_type"], found) > 0.9
    assert list(found.cat.categories) == [str(i) for i in range(found.nunique())]
    assert found.value_counts(sort=False).is_monotonic_decreasing
    assert len(query.uns["dice_cluster_colors"]) == found.nunique()
    assert record["choice"]["n_clusters"] == found.nunique()
    assert str(found.nunique()) in record["choice"]["why"]
    tree = record["tree"]
    assert (tree["separation"] == np.sort(tree["separation"])).all()
    assert len(tree["names"]) == len(tree["sizes"]) + len(tree["joined"]) == 2 * len(tree["sizes"]) - 1
    assert (tree["agreement"] >= record["choice"]["level"]).sum() == found.nunique() - 1
    assert tree["sizes"].sum() == query.n_obs


def test_confidence_is_a_share_of_the_halves(query):
    confidence = query.obs["dice_cluster_confidence"]
    assert confidence.between(0, 1).all()
    np.testing.assert_allclose(confidence * 8, np.round(confidence * 8), atol=1e-5)
    assert confidence.mean() > 0.9


def test_scanpy_takes_the_graph_and_the_clusters(query):
    sc.tl.umap(query, neighbors_key="dice_cluster")
    sc.tl.rank_genes_groups(query, "dice_cluster")
    assert abs(query.obsp["dice_cluster_connectivities"] - query.obsp["dice_cluster_connectivities"].T).max() < 1e-6


def test_the_order_of_cells_does_not_matter(query):
    order = np.random.default_rng(0).permutation(query.n_obs)
    other = query[order].copy()
    dice.tl.cluster(other)
    assert (other.obs["dice_cluster"] == query.obs["dice_cluster"].iloc[order]).all()
    np.testing.assert_array_equal(
        other.obs["dice_cluster_confidence"], query.obs["dice_cluster_confidence"].iloc[order]
    )
    graph = query.obsp["dice_cluster_connectivities"][order][:, order]
    assert abs(other.obsp["dice_cluster_connectivities"] - graph).max() < 1e-6


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_neither_do_chunks_and_kinds_of_matrices(query, kind):
    other = ad.AnnData(kind(query.X.toarray()), obs=query.obs[[]], var=query.var, uns=query.uns)
    with dice.settings.using(chunk_size=37):
        dice.tl.cluster(other)
    assert (other.obs["dice_cluster"] == query.obs["dice_cluster"]).all()


def test_copies_views_and_keys(query):
    bare = query.copy()
    del bare.obs["dice_cluster"], bare.uns["dice_cluster"]
    before = set(bare.obs), set(bare.uns)
    result = dice.tl.cluster(bare, copy=True, key_added="mine")
    assert (set(bare.obs), set(bare.uns)) == before
    assert {"mine", "mine_confidence"} <= set(result.obs)
    assert {"mine", "mine_colors"} <= set(result.uns)
    view = query[query.obs["dice_cluster"].isin(["0", "1", "2"])]
    with pytest.warns(ad.ImplicitModificationWarning):
        dice.tl.cluster(view)
    assert view.obs["dice_cluster"].nunique() == 3


def test_levels_cut_the_same_tree(query, monkeypatch):
    monkeypatch.setattr("dice.tl._cluster.find_clusters", None)  # Nothing is computed again.
    default = query.obs["dice_cluster"].copy()
    for level, finer in (("fine", True), (0.6, True), ("coarse", False), (0.999999, False)):
        dice.tl.cluster(query, level=level)
        found = query.obs["dice_cluster"]
        table = np.array(pd.crosstab(default, found)) > 0
        # Nested: cells of a finer cluster are in one coarser cluster, whose name theirs begins with.
        assert (table.sum(0 if finer else 1) == 1).all()
        for name in found.cat.categories:
            inside = set(default[found == name])
            assert inside == ({name.split(".")[0]} if finer else set(name.split("+")))
        assert query.uns["dice_cluster"]["choice"]["n_clusters"] == found.nunique()
    dice.tl.cluster(query, level="default")
    assert (query.obs["dice_cluster"] == default).all()
    with pytest.raises(ValueError, match="`level` must be"):
        dice.tl.cluster(query, level=1.5)


def test_names_are_those_of_the_tree_in_a_part_of_the_cells(query):
    part = query[query.obs["dice_cluster"].isin(["1", "4"])].copy()
    dice.tl.cluster(part, level="fine")
    assert {name.split(".")[0] for name in part.obs["dice_cluster"].cat.categories} == {"1", "4"}
    found = part.obs["dice_cluster"].nunique()
    assert part.uns["dice_cluster"]["choice"]["n_clusters"] == len(part.uns["dice_cluster_colors"]) == found
    assert f"{found} clusters" in part.uns["dice_cluster"]["choice"]["why"]
    single = query[query.obs["dice_cluster"] == "4"].copy()
    dice.tl.cluster(single, level="default")
    assert "one cluster" in single.uns["dice_cluster"]["choice"]["why"]
    dice.tl.cluster(part)
    assert set(part.obs["dice_cluster"]) == {"0", "1"}
    assert "2 clusters" in part.uns["dice_cluster"]["choice"]["why"]


@pytest.fixture(scope="module")
def donors():
    """Cells of four types from two donors, which differ by a factor in every gene."""
    rng = np.random.default_rng(1)
    profiles, factors = rng.gamma(0.3, size=(4, 300)), rng.lognormal(sigma=0.4, size=(2, 300))
    types, donor = np.arange(800) % 4, rng.integers(2, size=800)
    obs = pd.DataFrame(
        {"cell_type": types.astype(str), "donor": donor.astype(str)}, index=[f"c{i}" for i in range(800)]
    )
    cells = ad.AnnData(rng.poisson(4 * profiles[types] * factors[donor]).astype(np.float32), obs=obs)
    dice.tl.cluster(cells)
    return cells


def test_a_type_of_several_batches_is_one_cluster(donors):
    cells, embedding = donors.copy(), donors.obsm["X_dice"]
    assert cells.obs["dice_cluster"].nunique() == 8
    dice.tl.cluster(cells, batch_key="donor")
    assert adjusted_rand_score(cells.obs["cell_type"], cells.obs["dice_cluster"]) > 0.95
    assert cells.uns["dice_cluster"]["call"]["batch_key"] == "donor"
    np.testing.assert_array_equal(cells.obsm["X_dice"], embedding)
    order = np.random.default_rng(0).permutation(cells.n_obs)
    other = donors[order].copy()
    dice.tl.cluster(other, batch_key="donor")
    assert (other.obs["dice_cluster"] == cells.obs["dice_cluster"].iloc[order]).all()


def test_a_level_keeps_the_tree_only_if_it_is_of_the_same_batches(donors):
    cells = donors.copy()
    dice.tl.cluster(cells, batch_key="donor", level="default")
    assert cells.obs["dice_cluster"].nunique() == 4
    tree = cells.uns["dice_cluster"]["tree"]["joined"]
    for batch_key in ("donor", None):
        dice.tl.cluster(cells, batch_key=batch_key, level="coarse")
        np.testing.assert_array_equal(cells.uns["dice_cluster"]["tree"]["joined"], tree)


def test_batches_must_be_two_or_more(donors):
    clustered = dice.tl.cluster(donors, batch_key="donor", copy=True)
    cells = clustered[donors.obs["donor"] == "0"].copy()
    dice.tl.cluster(cells, batch_key="donor", level="fine")  # A cut needs no batches.
    assert cells.obs["dice_cluster"].nunique() == 4
    with pytest.raises(ValueError, match=r"must hold two or more batches: pass another batch_key"):
        dice.tl.cluster(cells, batch_key="donor")


def test_the_tree_of_other_cells_is_refused(donors):
    more = donors[:50].copy()
    more.obs_names = [f"{name}, again" for name in more.obs_names]
    twice = ad.concat([donors, more], uns_merge="first")
    with pytest.raises(KeyError, match=r"tree of clusters belongs to other cells: call .* without `level`"):
        dice.tl.cluster(twice, level="fine")
    fewer = ad.concat([donors[donors.obsm["dice_cluster_leaves"][:, 0] == 0]], uns_merge="first")
    fewer.obsm["dice_cluster_leaves"][:5, 0] = 999
    with pytest.raises(KeyError, match="other cells"):
        dice.tl.cluster(fewer, level="fine")


def test_leidenalg_finds_the_same(query):
    other = dice.tl.cluster(query, flavor="leidenalg", copy=True)
    assert adjusted_rand_score(other.obs["dice_cluster"], query.obs["dice_cluster"]) > 0.9
    with pytest.raises(ValueError, match="flavor"):
        dice.tl.cluster(query, flavor="louvain")


def test_a_data_set_by_itself_needs_no_second_call(reference):
    dice.tl.cluster(reference)
    assert adjusted_rand_score(reference.obs["cell_type"], reference.obs["dice_cluster"]) > 0.9
    assert reference.obsm["X_dice"].shape[0] == reference.n_obs
    assert reference.uns["X_dice"]["params"]["measured"]
    expected = reference.obs["dice_cluster"].copy()
    dice.tl.cluster(reference)
    assert (reference.obs["dice_cluster"] == expected).all()


def counted(profiles, codes, depth, seed=0):
    """Log-normalised Poisson counts of cells with some profiles at some depths."""
    rng = np.random.default_rng(seed)
    shares = profiles / profiles.sum(1, keepdims=True)
    cells = ad.AnnData(sparse.csr_matrix(rng.poisson(depth[:, None] * shares[codes]).astype(np.float32)))
    cells.obs["cell_type"] = codes.astype(str)
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    dice.tl.train_prior(cells, training=dice.Training(max_steps=60))
    dice.tl.cluster(cells)
    return cells


def test_many_types_are_not_cut():
    rng = np.random.default_rng(0)
    codes = np.arange(1500) % 15
    cells = counted(rng.gamma(0.3, size=(15, 300)) + 0.01, codes, np.full(1500, 1000.0))
    assert cells.obs["dice_cluster"].nunique() == 15
    assert adjusted_rand_score(cells.obs["cell_type"], cells.obs["dice_cluster"]) > 0.98


@pytest.mark.parametrize("deeper", [1, 10])
def test_two_types_are_found_at_any_depths(deeper):
    """However coarse the resolution has to be, and whatever depth knows of the type."""
    profiles = np.random.default_rng(3).gamma(0.5, size=(2, 300)) + 0.02
    codes = np.arange(600) % 2
    cells = counted(profiles, codes, np.where(codes == 0, 300.0, 300.0 * deeper))
    assert adjusted_rand_score(codes, cells.obs["dice_cluster"]) > 0.95


def test_cells_of_two_depths_are_one_cluster_though_no_edge_connects_them():
    rng = np.random.default_rng(0)
    profile = rng.gamma(0.5, size=300)
    depth = np.where(rng.random(400) < 0.5, 100, 4000)
    cells = ad.AnnData(rng.poisson(depth[:, None] * profile / profile.sum()).astype(np.float32))
    dice.tl.cluster(cells)
    assert cells.uns["dice_cluster"]["choice"]["n_clusters"] == 1


def test_a_type_that_differs_in_depth_too_is_kept():
    rng = np.random.default_rng(0)
    profile = rng.gamma(0.5, size=300) + 0.02
    other = profile * np.where(rng.permutation(300) < 60, 5.0, 1.0)
    codes = np.arange(600) % 2
    cells = counted(np.stack([profile, other]), codes, np.where(codes == 0, 1000.0, 2000.0))
    assert adjusted_rand_score(codes, cells.obs["dice_cluster"]) > 0.95


def without_structure(n=400, d=150, seed=0):
    """Counts of one profile whose depths span a factor of a hundred."""
    rng = np.random.default_rng(seed)
    depth = np.exp(rng.uniform(np.log(60), np.log(6000), n))
    profile = rng.gamma(0.5, size=d)
    cells = ad.AnnData(sparse.csr_matrix(rng.poisson(depth[:, None] * profile / profile.sum()).astype(np.float32)))
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    return cells


@pytest.mark.parametrize("seed", range(2))
def test_no_structure_is_one_cluster(seed):
    cells = without_structure(seed=seed)
    dice.tl.train_prior(cells, training=dice.Training(max_steps=100), random_state=seed)
    dice.tl.cluster(cells)
    assert set(cells.obs["dice_cluster"]) == {"0"}
    assert "one cluster" in cells.uns["dice_cluster"]["choice"]["why"]
    assert (cells.obs["dice_cluster_confidence"] == 1).all()


def test_samples_take_the_place_of_halves_where_there_are_no_counts():
    reference, query = simulate(600, 0), simulate(300, 1)
    dice.tl.train_prior(reference, n_latent=10, preset="gmm")
    dice.tl.denoise(query, reference)
    with pytest.warns(UserWarning, match="compared by posterior samples"):
        dice.tl.cluster(query)
    assert adjusted_rand_score(query.obs["cell_type"], query.obs["dice_cluster"]) > 0.5
    assert "posterior samples" in query.uns["dice_cluster"]["choice"]["why"]
    assert "posterior samples" in query.uns["dice_cluster"]["warnings"][0]


def test_cells_without_expression_have_no_cluster(query, reference):
    query.X = sparse.diags((np.arange(query.n_obs) != 3).astype(np.float32)).tocsr() @ query.X
    with pytest.warns(UserWarning, match="express no gene"):
        dice.tl.denoise(query, reference)
    dice.tl.cluster(query)
    # It was said of this object already; it is recorded all the same.
    assert "express no gene" in query.uns["dice_cluster"]["warnings"][0]
    assert query.obs["dice_cluster"].isna().to_numpy().nonzero()[0].tolist() == [3]
    assert np.isnan(query.obs["dice_cluster_confidence"].iloc[3])


@pytest.mark.parametrize("n", [1, 5, 15])
def test_few_cells_give_a_sentence(query, reference, n):
    with pytest.raises(ValueError, match=f"{n} cells with expression are too few for n_neighbors=15"):
        dice.tl.cluster(query[:n].copy(), reference)


def test_sixteen_cells_are_enough(query, reference):
    few = query[:16].copy()
    dice.tl.cluster(few, reference)
    assert few.obs["dice_cluster"].notna().all()


@pytest.mark.parametrize("logged", [False, True])
def test_an_object_without_a_prior_gets_one(capsys, logged):
    rng, codes = np.random.default_rng(0), np.arange(400) % 4
    cells = ad.AnnData(rng.poisson(3 * rng.gamma(0.3, size=(4, 300))[codes]).astype(np.float32))
    if logged:
        sc.pp.normalize_total(cells, target_sum=1e4)
        sc.pp.log1p(cells)
    before = cells.X.copy()
    dice.tl.cluster(cells)
    assert "training a prior on its 400 cells" in capsys.readouterr().err
    assert adjusted_rand_score(codes, cells.obs["dice_cluster"]) > 0.95
    np.testing.assert_array_equal(cells.X, before)
    assert {"dice", "X_dice", "dice_cluster"} <= set(cells.uns)
    assert ("dice_lognorm" in cells.layers) is not logged


@pytest.mark.parametrize("marked", [False, True])
def test_a_prior_is_learned_from_variable_genes(marked, monkeypatch):
    """All genes would add the noise of those that do not vary. Genes that the user has marked are used as they are."""
    monkeypatch.setattr("dice.tl._cluster.N_TOP_GENES", 40)
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=300)
    cells = ad.AnnData(rng.poisson(3 * rng.gamma(0.3, size=(3, 300))[codes]).astype(np.float32))
    if marked:
        cells.var["highly_variable"] = np.arange(300) < 50
    dice.tl.cluster(cells)
    column = "highly_variable" if marked else "dice_genes"
    np.testing.assert_array_equal(cells.varm["dice_loadings"].any(1), cells.var[column])
    assert cells.var[column].sum() == (50 if marked else 40)
    assert ("dice_genes" in cells.var) is not marked
    assert adjusted_rand_score(codes, cells.obs["dice_cluster"]) > 0.9


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_column_like_a_technology_is_named(shift, capsys):
    rng = np.random.default_rng(0)
    codes, tech = np.arange(400) % 4, np.arange(400) % 8 // 4
    rates = 3 * rng.gamma(0.3, size=(4, 300))[codes] * np.exp(shift * rng.normal(size=(2, 300)))[tech]
    cells = ad.AnnData(rng.poisson(rates).astype(np.float32))
    cells.obs["tech"] = tech.astype(str)
    dice.tl.cluster(cells)
    assert ("pass batch_key='tech' if all its values contain the same cell types" in capsys.readouterr().err) == (
        shift > 0
    )


@pytest.mark.parametrize("n", [0, 1, 15])
def test_no_prior_is_trained_on_cells_that_are_too_few_to_cluster(query, monkeypatch, n):
    monkeypatch.setattr("dice.tl._cluster.train_prior", None)
    with pytest.raises(ValueError, match=f"{n} cells with expression are too few for n_neighbors=15"):
        dice.tl.cluster(ad.AnnData(query.X[:n].copy()))


def test_nothing_is_written_where_clustering_fails(query):
    empty = sparse.csr_matrix((10, query.n_vars), dtype=np.float32)
    cells = ad.AnnData(sparse.vstack([query.X[:10], empty], format="csr"))
    with (
        pytest.warns(UserWarning, match="express no gene"),
        pytest.raises(ValueError, match="10 cells with expression"),
    ):
        dice.tl.cluster(cells)
    assert not cells.uns
    assert not cells.obsm


def test_the_number_of_clusters_and_its_reason_are_said(query, capsys):
    """They were shown at verbosity 2 alone, so that one cluster was found silently."""
    for part in (query.copy(), query[query.obs["dice_cluster"] == "0"].copy()):
        for level in (None, "fine"):
            dice.tl.cluster(part, level=level)
            assert part.uns["dice_cluster"]["choice"]["why"] in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_everything_is_kept_in_files(query, ending, tmp_path):
    path = tmp_path / f"query.{ending}"
    getattr(query, f"write_{ending}")(path)
    found = getattr(ad, f"read_{ending}")(path)
    assert (found.obs["dice_cluster"] == query.obs["dice_cluster"]).all()
    assert found.uns["dice_cluster"]["choice"]["why"] == query.uns["dice_cluster"]["choice"]["why"]
    for name, values in query.uns["dice_cluster"]["tree"].items():
        np.testing.assert_array_equal(found.uns["dice_cluster"]["tree"][name], values)
    dice.tl.cluster(found, level="coarse")
    dice.tl.cluster(found, level="default")
    assert (found.obs["dice_cluster"] == query.obs["dice_cluster"]).all()
    figure = dice.pl.clusters(found, return_fig=True)
    assert figure.axes[1].get_title() == f"{query.obs['dice_cluster'].nunique()} clusters"


def test_nothing_of_the_users_is_overwritten(query, reference):
    query.obsm["X_other"] = np.zeros((query.n_obs, 2))
    with pytest.raises(KeyError, match="was not made by dice"):
        dice.tl.cluster(query, reference, use_rep="X_other")
    dice.tl.denoise(query, reference, key_added="X_second")
    for taken in ("X_dice", "dice_uncertainty"):
        with pytest.raises(ValueError, match="taken"):
            dice.tl.cluster(query, reference, use_rep="X_second", key_added=taken)
    with pytest.raises(ValueError, match="taken"):
        dice.tl.cluster(reference, key_added="dice_split")


@pytest.mark.parametrize("key", ["log1p", "dice_cluster"])
def test_a_key_that_is_no_embedding_is_named(query, reference, key):
    query.uns["log1p"] = {"base": None}
    with pytest.raises(KeyError, match="was not written by dice"):
        dice.tl.cluster(query, reference, use_rep=key, key_added="mine")


def test_another_prior_is_refused(query, reference):
    other = reference.copy()
    dice.tl.train_prior(other, preset="gmm", n_latent=5)
    with pytest.raises(ValueError, match="another prior"):
        dice.tl.cluster(query, other)


def test_an_embedding_that_was_dropped_is_written_again(query, reference):
    expected = query.obsm.pop("X_dice")
    dice.tl.cluster(query, reference)
    np.testing.assert_array_equal(query.obsm["X_dice"], expected)


def test_a_value_that_is_no_count_is_no_trouble(query, reference):
    query.X[0, query.X[0].indices[:3]] = 1e-20
    with pytest.warns(UserWarning, match="1 of 200 cells"):
        dice.tl.denoise(query, reference, check=False)
    dice.tl.cluster(query, reference)
    assert "1 of 200 cells" in query.uns["dice_cluster"]["warnings"][0]
    assert query.obs["dice_cluster"].notna().all()
