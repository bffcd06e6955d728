"""The averaged neighbour graph."""

from __future__ import annotations

import numpy as np
import pytest
import scanpy as sc

import dice
from dice.tl._neighbors import posterior_samples

KEY = "dice_neighbors"


def test_zero_spread_gives_scanpys_graph(query, reference):
    dice.tl.denoise(query, reference)
    query.obsm["X_dice_samples"] = np.repeat(query.obsm["X_dice"][:, None], 3, axis=1)
    dice.tl.neighbors(query, n_samples=3)
    sc.pp.neighbors(query, use_rep="X_dice", key_added="plain")
    for part in ("connectivities", "distances"):
        expected = query.obsp[f"plain_{part}"].toarray()
        if part == "connectivities":
            expected[expected < 1e-3] = 0
        np.testing.assert_allclose(query.obsp[f"{KEY}_{part}"].toarray(), expected, rtol=1e-5, atol=1e-6)
    assert set(query.uns["plain"]) <= set(query.uns[KEY])
    assert query.uns[KEY]["params"] == query.uns["plain"]["params"]


def test_scanpy_takes_the_graph(query, reference):
    dice.tl.denoise(query, reference, rho=30, n_samples=5)
    dice.tl.neighbors(query, n_samples=5)
    graph = query.obsp[f"{KEY}_connectivities"]
    assert (abs(graph - graph.T) > 1e-6).nnz == 0
    assert graph.max() <= 1
    sc.tl.leiden(query, neighbors_key=KEY, flavor="igraph", n_iterations=2, directed=False)
    sc.tl.umap(query, neighbors_key=KEY)
    sc.tl.paga(query, groups="leiden", neighbors_key=KEY)
    sc.tl.diffmap(query, neighbors_key=KEY)
    assert {"X_umap", "X_diffmap"} <= set(query.obsm)


def test_samples_are_drawn_where_there_are_none(query, reference):
    dice.tl.denoise(query, reference, rho=30, n_samples=4)
    dice.tl.neighbors(query, n_samples=4)
    expected = query.obsp[f"{KEY}_connectivities"].toarray()
    del query.obsm["X_dice_samples"]
    dice.tl.neighbors(query, reference, n_samples=4)
    assert "X_dice_samples" not in query.obsm
    np.testing.assert_allclose(query.obsp[f"{KEY}_connectivities"].toarray(), expected, atol=1e-3)


def test_samples_are_drawn_as_the_embedding_was(query, reference):
    """Also where genes have other names and the noise is not the default."""
    query.var["symbol"] = query.var_names
    query.var_names = [f"other_{i}" for i in range(query.n_vars)]
    arguments = {"gene_key": "symbol", "likelihood": dice.Gaussian(0.9), "rho": 20}
    dice.tl.denoise(query, reference, n_samples=2, **arguments)
    stored = query.obsm["X_dice_samples"]
    dice.tl.denoise(query, reference, **arguments)
    np.testing.assert_allclose(posterior_samples(query, reference, 2, "X_dice"), stored, atol=1e-2)


def test_permuting_cells_permutes_the_graph(query, reference):
    dice.tl.denoise(query, reference, n_samples=3)
    order = np.random.default_rng(0).permutation(query.n_obs)
    shuffled = query[order].copy()
    for adata in (query, shuffled):
        dice.tl.neighbors(adata, n_samples=3)
    np.testing.assert_allclose(
        shuffled.obsp[f"{KEY}_connectivities"].toarray(),
        query.obsp[f"{KEY}_connectivities"].toarray()[np.ix_(order, order)],
        atol=1e-5,
    )


def test_errors(query, reference):
    with pytest.raises(dice.DiceError, match=r"call dice.tl.denoise\(adata, reference\) first"):
        dice.tl.neighbors(query)
    dice.tl.denoise(query, reference, n_samples=1)
    with pytest.raises(dice.DiceError, match=r"`n_neighbors` must be .*got 1"):
        dice.tl.neighbors(query, n_neighbors=1)
    with pytest.raises(dice.DiceError, match="5 cells are too few"):
        dice.tl.neighbors(query[:5].copy(), n_samples=1)
    assert KEY not in query.uns


def test_a_part_of_the_cells_has_the_noise_of_all(query, reference):
    """The clean half of a query is not sampled as if it had been alone."""
    noisy = np.arange(query.n_obs) % 2 == 0
    query.X[noisy] += np.random.default_rng(0).normal(size=query.X[noisy].shape).astype(np.float32) * 3
    dice.tl.denoise(query, reference, rho=0.0, n_samples=4, shift=False)
    part = query[~noisy].copy()
    expected = part.obsm["X_dice_samples"].copy()
    del part.obsm["X_dice_samples"]
    np.testing.assert_allclose(posterior_samples(part, reference, 4, "X_dice"), expected, rtol=1e-4, atol=1e-3)


def test_other_results_are_not_overwritten(query, reference, tmp_path):
    dice.tl.denoise(query, reference, n_samples=2)
    query.uns["dice"] = reference.uns["dice"]
    for key in ("X_dice", "dice"):
        with pytest.raises(dice.DiceError, match=f"key_added='{key}' is taken"):
            dice.tl.neighbors(query, n_samples=2, key_added=key)
    with pytest.raises(dice.DiceError, match="must be a non-empty name without"):
        dice.tl.neighbors(query, n_samples=2, use_rep=np.array(["X_dice", "dice"]))
    query.write_h5ad(tmp_path / "query.h5ad")
    backed = sc.read_h5ad(tmp_path / "query.h5ad", backed="r")
    with pytest.raises(dice.DiceError, match="on disk"):
        dice.tl.neighbors(backed, n_samples=2, copy=True)
