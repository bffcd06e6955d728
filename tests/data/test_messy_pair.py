"""One line on a typical messy pair: ``dice.tl.denoise(query, reference)``."""

from __future__ import annotations

import logging

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import dice

N_GENES = 120


def cells(n, seed):
    """Log-normalised cells of three types; the types are the same for all seeds."""
    rng = np.random.default_rng(seed)
    types = rng.integers(3, size=n)
    rates = np.exp(np.random.default_rng(99).normal(0, 1, size=(3, N_GENES)))[types]
    counts = rng.poisson(3 * rates)
    x = np.log1p(counts / counts.sum(1, keepdims=True) * 1e4)
    obs = pd.DataFrame({"cell_type": pd.Categorical.from_codes(types, list("abc"))}, index=[f"c{i}" for i in range(n)])
    return ad.AnnData(x.astype(np.float32), obs=obs, var=pd.DataFrame(index=[f"gene_{i}" for i in range(N_GENES)]))


@pytest.fixture(scope="module")
def reference():
    adata = cells(400, seed=1)
    dice.tl.train_prior(adata, n_latent=5, preset="gmm")
    return adata


@pytest.fixture(scope="module")
def clean():
    """The query as it should be."""
    return cells(80, seed=2)


def messy(clean):
    """The same with another order of genes, a fifth of them missing, unknown ones, CSC float64, categorical names."""
    rng = np.random.default_rng(3)
    genes = rng.permutation(N_GENES)[: int(0.8 * N_GENES)]
    x = np.hstack([clean.X[:, genes], rng.poisson(2, size=(clean.n_obs, 30))]).astype(np.float64)
    names = [*clean.var_names[genes], *(f"unknown_{i}" for i in range(30))]
    order = rng.permutation(len(names))
    both = np.repeat(np.arange(clean.n_obs), 2)
    adata = ad.AnnData(
        sparse.csc_matrix(x[np.ix_(both, order)]),
        obs=pd.DataFrame(
            {"cell_type": clean.obs["cell_type"].to_numpy()[both]},
            index=pd.CategoricalIndex([f"{clean.obs_names[i]}{'x' * (j % 2)}" for j, i in enumerate(both)]),
        ),
        var=pd.DataFrame(index=pd.CategoricalIndex(np.array(names)[order])),
    )
    return adata[np.arange(adata.n_obs) % 2 == 0]


def content(x):
    return [part.tobytes() for part in (x.data, x.indices, x.indptr)]


def relative_error(found, expected):
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_it_just_works(clean, reference, caplog):
    query = messy(clean)
    assert query.is_view
    stored = reference.uns["dice"]["sha256"]
    before, expression = content(query.X), reference.X.tobytes()
    with caplog.at_level(logging.INFO, logger="dice"):
        result = dice.tl.denoise(query, reference, copy=True)
    assert "96/120 genes found" in caplog.text
    assert query.is_view
    assert content(query.X) == before
    assert reference.X.tobytes() == expression
    assert reference.uns["dice"]["sha256"] == stored
    assert result.obsm["X_dice"].shape == (80, 5)
    assert np.isfinite(result.obsm["X_dice"]).all()
    # What four fifths of the genes say is close to what all of them say.
    complete = dice.tl.denoise(clean, reference, copy=True)
    assert relative_error(result.obsm["X_dice"], complete.obsm["X_dice"]) < 0.3


# AnnData says so when a view becomes an object of its own, as with every tool that writes to it.
@pytest.mark.filterwarnings("ignore:Setting element:anndata.ImplicitModificationWarning")
def test_a_view_is_written_like_scanpy_does(clean, reference):
    query = messy(clean)
    dice.tl.denoise(query, reference)
    assert not query.is_view
    assert query.obsm["X_dice"].shape == (80, 5)


def test_a_missing_gene_is_not_a_zero(clean, reference):
    """Zeros in place of the missing fifth move the cells; leaving it out does so less.

    Removing the shift mends part of what zeros do, so that it is left out of the comparison.
    """
    genes = np.random.default_rng(0).permutation(N_GENES)[:96]
    zeros = clean.copy()
    zeros.X[:, np.setdiff1d(np.arange(N_GENES), genes)] = 0
    complete, missing, zeroed = (
        dice.tl.denoise(adata, reference, copy=True, shift=False).obsm["X_dice"]
        for adata in (clean, clean[:, genes].copy(), zeros)
    )
    assert relative_error(missing, complete) < 0.5 * relative_error(zeroed, complete)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_order_and_unknown_genes_change_nothing(data, clean, reference):
    expected = dice.tl.denoise(clean, reference, copy=True).obsm["X_dice"]
    n_unknown = data.draw(st.integers(0, 20))
    rows = np.array(data.draw(st.permutations(range(clean.n_obs))))
    columns = np.array(data.draw(st.permutations(range(N_GENES + n_unknown))))
    noise = np.random.default_rng(n_unknown).uniform(0, 8, size=(clean.n_obs, n_unknown))
    x = np.hstack([clean.X, noise.astype(np.float32)])
    names = np.array([*clean.var_names, *(f"unknown_{i}" for i in range(n_unknown))])
    shuffled = ad.AnnData(x, obs=clean.obs, var=pd.DataFrame(index=names))[rows][:, columns].copy()
    with dice.settings.using(chunk_size=data.draw(st.integers(1, 100))):
        dice.tl.denoise(shuffled, reference)
    np.testing.assert_allclose(shuffled.obsm["X_dice"], expected[rows], atol=1e-4, rtol=1e-5)


def test_the_report_is_stored(clean, reference):
    query = clean[:, ::-1][:, :100].copy()
    dice.tl.denoise(query, reference)
    report = query.uns["X_dice"]["genes"]
    assert report["text"] == "100/120 genes found"
    assert list(report["missing"]) == sorted(f"gene_{i}" for i in range(20))[:10]


@pytest.mark.filterwarnings("ignore:20/120 genes found:dice.DiceWarning")
def test_checks_can_be_told_to_stand_back(clean, reference):
    """Names in a column, few genes, and values that were logged twice."""
    query = clean[:30, :20].copy()
    query.var["symbol"], query.var_names = query.var_names, [f"ENSG{i:011}" for i in range(20)]
    query.X = np.log1p(query.X)
    steps = [
        ({"gene_key": "symbol"}, "gene_key='symbol'"),
        ({"check": dice.Checks(min_gene_overlap=0.1)}, r"check=dice\.Checks\(min_gene_overlap=0.16\)"),
        ({"check": dice.Checks(values=False, min_gene_overlap=0.1)}, r"np\.expm1"),
    ]
    arguments: dict[str, object] = {}
    for change, sentence in steps:
        with pytest.raises(dice.DiceError, match=sentence):
            dice.tl.denoise(query, reference, **arguments)
        assert not query.obsm
        arguments |= change
    dice.tl.denoise(query, reference, method=dice.Gibbs(n_iterations=5, fast=True), **arguments)
    assert np.isfinite(query.obsm["X_dice"]).all()
