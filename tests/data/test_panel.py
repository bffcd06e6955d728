"""Panels are normalised on the genes that both sides have, to the counts of the query."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest

import dice

RNG = np.random.default_rng(0)
QUERY, REFERENCE = RNG.poisson(3, (30, 20)).astype(np.float32), RNG.poisson(5, (40, 60)).astype(np.float32)


def pair() -> tuple[ad.AnnData, ad.AnnData]:
    query, reference = ad.AnnData(QUERY.copy()), ad.AnnData(REFERENCE.copy())
    query.var_names = [f"g{i}" for i in (*range(15), *range(100, 105))]
    reference.var_names = [f"g{i}" for i in range(60)]
    return query, reference


def test_both_sides_sum_to_the_counts_of_the_query_in_the_shared_genes():
    query, reference = pair()
    dice.pp.normalize_panel(query, reference)
    target = np.expm1(query.layers["dice_panel"]).sum(1)[0, 0]
    assert target == pytest.approx(np.median(QUERY[:, :15].sum(1)), rel=0.1)  # by a sample of the cells
    for adata, counts in ((query, QUERY), (reference, REFERENCE)):
        values = adata.layers["dice_panel"].toarray()
        expected = np.log1p(counts[:, :15] / counts[:, :15].sum(1, keepdims=True) * target)
        np.testing.assert_allclose(values[:, :15], expected, rtol=1e-5)
        assert not values[:, 15:].any()
        np.testing.assert_array_equal(adata.X, counts)
    assert reference.var["dice_genes"].tolist() == [True] * 15 + [False] * 45


def test_logarithms_and_counts_are_normalised_alike():
    """A reference in counts per ten thousand of all its genes must not be compared with totals of a panel."""
    (query, reference), (other, logged) = pair(), pair()
    logged.X = np.log1p(logged.X / logged.X.sum(1, keepdims=True) * 1e4)
    dice.pp.normalize_panel(query, reference)
    dice.pp.normalize_panel(other, logged)
    both = (each.layers["dice_panel"].toarray() for each in (reference, logged))
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5)


def test_sizes_replace_totals():
    query, reference = pair()
    query.obs["volume"] = np.linspace(1, 3, query.n_obs)
    dice.pp.normalize_panel(query, reference, size_key="volume")
    counts = np.expm1(query.layers["dice_panel"].toarray()[:, :15]) * query.obs["volume"].to_numpy()[:, None]
    ratio = counts[QUERY[:, :15] > 0] / QUERY[:, :15][QUERY[:, :15] > 0]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)
    query.obs.iloc[3, 0] = 0
    with pytest.raises(ValueError, match="must hold positive numbers, got others for"):
        dice.pp.normalize_panel(query, reference, size_key="volume")


def test_no_cell_is_dropped():
    query, reference = pair()
    query.X[0] = 0
    dice.pp.normalize_panel(query, reference)
    assert query.n_obs == 30
    assert not query.layers["dice_panel"][0].nnz
