"""Counts, logarithms and scaled genes told apart, at the bounds themselves."""

from __future__ import annotations

import re

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dice
from dice._data.checks import check_expression
from dice._data.value_checks import LOGGED, is_raw, is_scaled, is_unlogged

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(2, size=(40, 20)).astype(np.float32)
LOGGED_CELLS = np.log1p(COUNTS)
KINDS = [np.asarray, sparse.csr_array]


@pytest.mark.parametrize("kind", KINDS)
def test_raw_counts_reach_three(kind):
    assert is_raw(kind(COUNTS))
    assert is_raw(kind(np.minimum(COUNTS, 3)))
    assert not is_raw(kind(np.minimum(COUNTS, 2)))
    assert not is_raw(kind(COUNTS + 0.5))
    assert not is_raw(kind(LOGGED_CELLS))


@pytest.mark.parametrize("kind", KINDS)
def test_values_beyond_any_logarithm(kind):
    fractions = COUNTS * np.float32(LOGGED / COUNTS.max())
    fractions[:, 0] = LOGGED
    assert not is_unlogged(kind(fractions))
    assert is_unlogged(kind(fractions * 1.01))
    assert not is_unlogged(kind(fractions * 1.01 - 1))
    assert is_unlogged(kind(COUNTS))
    endless = fractions.copy()
    endless[0, 0] = np.inf
    assert not is_unlogged(kind(endless))


def centred(values):
    return values - values.mean(0)


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_genes(kind):
    assert not is_scaled(kind(LOGGED_CELLS))
    assert is_scaled(kind(centred(LOGGED_CELLS)))
    assert not is_scaled(kind(centred(LOGGED_CELLS) * np.nan))
    assert not is_scaled(kind(np.full((5, 3), -1.0)))
    without_ties = centred(RNG.normal(size=(400, 20)))
    unit = without_ties / without_ties.std(0)
    for spread, scaled in ((1.0, True), (1.19, True), (1.21, False), (0.81, True), (0.79, False)):
        assert is_scaled(kind(unit * spread)) == scaled, spread
    for moved, scaled in ((0.19, True), (0.21, False)):
        assert is_scaled(kind(unit + moved)) == scaled, moved


@pytest.mark.parametrize(("n", "scaled"), [(16, False), (17, True)])
def test_most_genes_have_to_be_centred(n, scaled):
    """More than four of five: 16 of 20 are not."""
    values = centred(RNG.normal(size=(400, 20)))
    values /= values.std(0)
    values[:, n:] += 5
    assert is_scaled(values) == scaled


def test_each_kind_of_values_is_refused_by_its_name():
    with pytest.raises(dice.DiceError, match=r"^The genes of query were scaled or centred \(the smallest value is -1"):
        check_expression(centred(LOGGED_CELLS), who="query")
    with pytest.raises(dice.DiceError, match=r"^The matrix holds raw counts, .*normalize_total\(query, target_sum=1e4"):
        check_expression(COUNTS, who="query")
    with pytest.raises(dice.DiceError, match=r"^The matrix holds values up to 200\.5, too large for logarithms"):
        check_expression(np.array([[0.0, 200.5]]))


def logged_cells(n=300, n_genes=40):
    rng = np.random.default_rng(1)
    counts = rng.poisson(4 * np.exp(rng.normal(size=(3, n_genes)))[np.arange(n) % 3])
    cells = ad.AnnData(np.log1p(1e3 * counts / counts.sum(1, keepdims=True)).astype(np.float32))
    cells.obs["label"] = [f"type {i % 3}" for i in range(n)]
    return cells


@pytest.fixture(scope="module")
def trained():
    reference = logged_cells()
    training = dice.Training(max_steps=20, calibration_fraction=0.3)
    dice.tl.train_prior(reference, n_latent=4, labels_key="label", training=training)
    return reference


@pytest.mark.parametrize("value", [200.0, 1e38, -3.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_one_wild_value_is_named_and_refused_by_every_verb(trained, value, kind):
    """`annotate` took the whole query for raw counts and logged it once more."""
    query = logged_cells(150)
    query.X[3, 5] = value
    query.X = kind(query.X)
    what = "negative" if value < 0 else "too large for logarithms"
    sentence = rf"1 values in \w+\.X are {what}, unlike.* {re.escape(f'{value:.4g}')} of gene '5' in cell '3'"
    calls = [
        lambda: dice.tl.annotate(query, trained, "label"),
        lambda: dice.tl.denoise(query, trained),
        lambda: dice.tl.transfer_labels(query, trained, "label"),
        lambda: dice.tl.novelty(query, trained),
        lambda: dice.tl.train_prior(query, n_latent=4, training=dice.Training(max_steps=5)),
        lambda: dice.tl.annotate(logged_cells(100), query, training=dice.Training(max_steps=5)),
    ]
    for call in calls:
        with pytest.raises(dice.DiceError, match=sentence):
            call()
    assert not query.uns
    assert not query.obsm
    assert not [key for key in query.layers if key is not None]


@pytest.mark.parametrize("share", [0.12, 0.5, 1.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_one_wild_gene_is_named_and_refused_by_every_verb(trained, share, kind):
    """Wild values in more than a tenth of the cells, such as a gene that is no logarithm, had all others logged."""
    query, n = logged_cells(150), int(150 * share)
    query.X[:n, 5] = 200.0
    query.X = kind(query.X)
    calls = [
        lambda: dice.tl.annotate(query, trained, "label"),
        lambda: dice.tl.denoise(query, trained),
        lambda: dice.tl.train_prior(query, n_latent=4, training=dice.Training(max_steps=5)),
        lambda: dice.tl.annotate(logged_cells(100), query, training=dice.Training(max_steps=5)),
    ]
    for call in calls:
        with pytest.raises(
            dice.DiceError, match=rf"^{n} values in \w+\.X are too large .* 200 of gene '5' in cell '0'"
        ):
            call()


@pytest.mark.parametrize("place", [slice(0, 150), slice(1850, 2000), slice(900, 1000)], ids=["first", "last", "inside"])
@pytest.mark.parametrize("mostly", ["logarithms", "counts"])
def test_a_batch_of_other_values_is_refused_wherever_it_is(trained, place, mostly):
    """A batch at either end fills a place of the sample: all cells were logged, of which most were logarithms."""
    logged, counted = logged_cells(2000).X, counted_logged_cells(2000)
    query = ad.AnnData((logged if mostly == "logarithms" else counted).copy())
    query.X[place] = (counted if mostly == "logarithms" else logged)[place]
    what = "too large for logarithms" if mostly == "logarithms" else "not counts"
    with pytest.raises(dice.DiceError, match=rf"^\d+ values in adata\.X are {what}, unlike all others"):
        dice.tl.annotate(query, trained, "label")
    assert not [key for key in query.layers if key is not None]


def counted_logged_cells(n):
    """The counts of the same cells."""
    rng = np.random.default_rng(1)
    return rng.poisson(4 * np.exp(rng.normal(size=(3, 40)))[np.arange(n) % 3]).astype(np.float32)


def test_a_wild_gene_that_is_not_used_changes_nothing(trained):
    query, wider = logged_cells(150), logged_cells(150)
    wider = ad.concat(
        [wider, ad.AnnData(np.full((150, 1), 5e3, np.float32), var=pd.DataFrame(index=["counts"]))], axis=1
    )
    for cells in (query, wider):
        dice.tl.denoise(cells, trained)
    assert not [key for key in wider.layers if key is not None]
    np.testing.assert_array_equal(wider.obsm["X_dice"], query.obsm["X_dice"])


def test_unlogged_values_of_all_sizes_are_no_mistakes():
    rng = np.random.default_rng(3)
    values = np.expm1(logged_cells().X) * 0.7
    assert is_unlogged(values)
    for quantile in (0.5, 0.9, 0.99):  # However few of them are too large for logarithms.
        assert is_unlogged(values * (30 / np.quantile(values[values > 0], quantile)))
    assert not is_unlogged(np.where(rng.random(values.shape) < 0.01, 200.0, logged_cells().X))


def counted_cells(n=300, n_genes=40):
    """Raw counts up to about 20, which could be logarithms if they were not whole."""
    rng = np.random.default_rng(1)
    cells = ad.AnnData(rng.poisson(2 * np.exp(rng.normal(size=(3, n_genes)) / 2)[np.arange(n) % 3]).astype(np.float32))
    cells.obs["label"] = [f"type {i % 3}" for i in range(n)]
    return cells


@pytest.mark.parametrize("value", [3.7, -1.0, 1e38])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_one_fraction_among_counts_is_named_and_refused_by_every_verb(trained, value, kind):
    """The whole query was taken for log-normalised expression."""
    cells = counted_cells(150)
    cells.X[3, 5] = value
    cells.X = kind(cells.X)
    assert is_raw(cells.X)
    sentence = (
        rf"^1 values in .+\.X are not counts, unlike all others, for example {re.escape(f'{value:.4g}')} of gene '5' "
    )
    few = dice.Training(max_steps=5)
    calls = [
        lambda: dice.tl.annotate(cells, trained, "label"),
        lambda: dice.tl.annotate(counted_cells(100), cells, training=few),
        lambda: dice.tl.denoise(cells, trained),
        lambda: dice.tl.transfer_labels(cells, trained, "label"),
        lambda: dice.tl.novelty(cells, trained),
        lambda: dice.tl.train_prior(cells, n_latent=4, training=few),
        lambda: dice.pp.prepare(cells, min_genes=1),
        lambda: dice.pp.shared_genes(cells, counted_cells(100), n_top_genes=20),
    ]
    for call in calls:
        with pytest.raises(dice.DiceError, match=sentence):
            call()
    assert not cells.uns
    assert not [key for key in cells.layers if key is not None]


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_negative_values_of_many_cells_and_rounding_are_no_mistakes(trained):
    """Corrected expression has them in every cell, and a sum that was taken back a few tiny ones."""
    query = logged_cells(150)
    query.X[3, 5] = -1e-4
    dice.tl.denoise(query, trained)
    query.X[::5, 5] = -1.5
    dice.tl.denoise(query, trained, key_added="many_dice")
    assert np.isfinite(query.obsm["many_dice"]).all()


def test_counts_are_whole_in_seven_of_eight_cells():
    cells = counted_cells(100).X
    cells[:13, 0] += 0.5
    assert is_raw(cells)
    cells[13, 0] += 0.5
    assert not is_raw(cells)
    # Cells without values tell nothing.
    assert not is_raw(np.vstack([np.zeros((900, 40)), cells]))


def test_values_without_logarithm_are_still_seen():
    cells = logged_cells(100)
    assert not is_unlogged(cells.X)
    assert is_unlogged(np.expm1(cells.X))
    cells.X[:9, 0] = 300
    assert not is_unlogged(cells.X)
    cells.X[:, 0] = 300
    assert not is_unlogged(cells.X)  # One gene of forty, in however many cells.
    cells.X[:, 1:6] = 300
    assert is_unlogged(cells.X)


def test_complex_values_are_refused(trained):
    """The imaginary part was dropped."""
    query = logged_cells(20)
    query.X = query.X.astype(np.complex64)
    with pytest.raises(dice.DiceError, match=r"adata\.X must hold real numbers, got complex64"):
        dice.tl.transfer_labels(query, trained, "label")
