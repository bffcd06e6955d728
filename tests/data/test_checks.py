"""Checks of arguments and of the reference's matrix."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dice
from dice._data import read
from dice._data.checks import (
    check_counts,
    check_expression,
    gene_mask,
    read_batches,
    read_groups,
    read_labels,
)
from dice._data.value_checks import is_counts
from dice._train.cells import check_n_latent

COUNTS = np.random.default_rng(0).poisson(2, size=(30, 20)).astype(np.float32)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_raw_counts_are_refused(convert):
    with pytest.raises(
        dice.DiceError, match=r"sc.pp.normalize_total\(adata, target_sum=1e4\) and sc.pp.log1p\(adata\)"
    ):
        check_expression(convert(COUNTS))
    for harmless in (np.log1p(COUNTS), np.minimum(COUNTS, 1), COUNTS - 1, COUNTS * 0, COUNTS[:0]):
        check_expression(convert(harmless))
    with pytest.raises(dice.DiceError, match=r"values up to \S+, too large for logarithms.*sc.pp.log1p"):
        check_expression(convert(COUNTS * 30.37))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_scaled_genes_are_refused(convert):
    """Negative values alone, as of batch correction, are none; nor are values that were never zero."""
    rng = np.random.default_rng(0)
    logged = np.log1p(rng.poisson(0.2 + rng.gamma(0.5, size=20), size=(200, 20)).astype(np.float32))
    centred = logged - logged.mean(0)
    regressed = centred + rng.normal(0, 0.01, centred.shape)  # What is left of no gene's zeros is alike.
    for scaled in (centred, centred / logged.std(0), regressed / regressed.std(0), np.c_[centred, np.zeros(200)]):
        with pytest.raises(dice.DiceError, match=r"genes of reference were scaled or centred .*reference.raw.to_adata"):
            check_expression(convert(scaled), who="reference")
    batches = rng.normal(0, 0.05, (2, 20))[np.arange(200) % 2]
    for harmless in (logged, logged + batches, logged - 0.1, 3 * rng.normal(size=(200, 20)), -centred[:0], centred * 0):
        check_expression(convert(harmless))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_counts_are_whole_numbers_from_zero_on(convert):
    for counts in (COUNTS, COUNTS * 0, COUNTS[:0], np.minimum(COUNTS, 1)):
        assert is_counts(convert(counts))
        assert is_counts(convert(counts), least=20) == (np.count_nonzero(counts) >= 20)
    for other in (COUNTS - 1, COUNTS / 2, np.where(COUNTS > 3, np.inf, COUNTS), np.where(COUNTS > 3, np.nan, COUNTS)):
        assert not is_counts(convert(other))


def cells(**obs):
    return ad.AnnData(np.zeros((4, 3), np.float32), obs=pd.DataFrame(obs, index=list("abcd")))


def test_labels():
    labels = read_labels(cells(t=pd.Categorical(["x", None, "y", "x"], categories=["x", "y", "unused"])), "t")
    assert list(labels.categories) == ["x", "y"]
    assert list(labels.codes) == [0, -1, 1, 0]
    with pytest.raises(dice.DiceError, match=r"no column 'u' in adata.obs; available: \['t'\]"):
        read_labels(cells(t=list("xyxy")), "u")
    with pytest.raises(dice.DiceError, match=r"must hold at least two labels, got 1"):
        read_labels(cells(t=["x"] * 4), "t")


@pytest.mark.parametrize("blank", ["", " ", "\t"])
@pytest.mark.parametrize("kind", [list, pd.Categorical])
def test_a_name_without_a_letter_is_missing(blank, kind):
    adata = cells(t=kind(["x", blank, "y", "x"]))
    for found in (read_labels(adata, "t"), read_groups(adata, "t")):
        assert list(found.categories) == ["x", "y"]
        assert list(found.codes) == [0, -1, 1, 0]
    assert list(read.labels(adata, "t", "labels_key")) == ["x", None, "y", "x"]
    assert list(adata.obs["t"]) == ["x", blank, "y", "x"]
    with pytest.raises(dice.DiceError, match=r"must hold at least two labels"):
        read_labels(cells(t=kind(["x", blank, "x", "x"])), "t")
    with pytest.raises(dice.DiceError, match="has no groups"):
        read_groups(cells(t=kind([blank] * 4)), "t")


def test_batches():
    assert list(read_batches(cells(b=[2, 1, 1, 2]), "b").codes) == [1, 0, 0, 1]
    with pytest.raises(dice.DiceError, match=r"1 cells have no value in adata.obs\['b'\], for example \['b'\]"):
        read_batches(cells(b=["x", None, "y", "x"]), "b")
    with pytest.raises(dice.DiceError, match="different values with the same text"):
        read_batches(cells(b=[1, "1", 2, 2]), "b")


def test_names_of_cells_are_no_batches():
    """A handful of cells may be of a donor each."""
    assert len(read_batches(cells(b=list("wxyz")), "b").categories) == 4
    many = ad.AnnData(np.zeros((40, 3), np.float32))
    many.obs["barcode"] = many.obs["pair"] = many.obs_names
    many.obs.loc[many.obs_names[:2], "pair"] = "twins"
    many.obs["donor"] = [str(i // 2) for i in range(40)]
    assert len(read_batches(many, "donor").categories) == 20
    with pytest.raises(dice.DiceError, match=r"reference.obs\['barcode'\] holds .* values for .* cells, like .*donor"):
        read_batches(many, "barcode", "reference")
    with pytest.raises(dice.DiceError, match=r"holds 39 values for 40 cells"):
        read_batches(many, "pair")


@pytest.mark.parametrize("n_latent", [0, 10, 2.5, True, "many"])
def test_impossible_numbers_of_latents(n_latent):
    with pytest.raises(dice.DiceError, match=r"must be a number from 1 to|larger reference"):
        check_n_latent(n_latent, n_cells=10, n_genes=50)


@pytest.mark.parametrize("n_latent", [1, 9, np.int64(3), "elbow"])
def test_possible_numbers_of_latents(n_latent):
    """Nine of ten cells are the most; one cell fewer, and nine are refused."""
    assert accepts(n_latent, n_cells=10)
    assert accepts(n_latent, n_cells=9) == (n_latent != 9)


def accepts(n_latent, n_cells):
    try:
        check_n_latent(n_latent, n_cells=n_cells, n_genes=50)
    except dice.DiceError:
        return False
    return True


def test_mask():
    adata = cells()
    adata.var["hv"] = [True, False, True]
    adata.var["score"] = [0.1, 0.2, 0.3]
    assert gene_mask(adata, None) == gene_mask(adata, "auto") == (None, None)
    for mask, column in (("hv", "hv"), (np.array([True, False, True]), None)):
        genes, named = gene_mask(adata, mask)
        assert (list(genes), named) == ([0, 2], column)
    for mask in ("score", np.zeros(3, bool), np.ones(2, bool)):
        with pytest.raises(dice.DiceError, match="True for at least one gene"):
            gene_mask(adata, mask)
    with pytest.raises(dice.DiceError, match=r"no column 'hvg' in adata\.var"):
        gene_mask(adata, "hvg")
    adata.var["highly_variable"] = [False, True, True]
    genes, named = gene_mask(adata, "auto")
    assert (list(genes), named) == ([1, 2], "highly_variable")


def test_colors_of_labels():
    adata = cells(t=pd.Categorical(list("xyxy")))
    assert read.stored_colors(adata, "t") is None
    adata.uns["t_colors"] = np.array(["red", "blue"])
    assert read.stored_colors(adata, "t") == {"x": "red", "y": "blue"}
    adata.uns["t_colors"] = np.array(["red", "blue", "green"])
    assert read.stored_colors(adata, "t") is None


def test_latents_have_to_leave_room_in_both_dimensions():
    for n_cells, n_genes, most in ((50, 10, 9), (10, 50, 9), (5000, 5000, 1000)):
        check_n_latent(most, n_cells, n_genes)
        with pytest.raises(dice.DiceError, match=f"must be a number from 1 to {most} or 'elbow'"):
            check_n_latent(most + 1, n_cells, n_genes)
    check_n_latent(1, 2, 2)
    for n_cells, n_genes in ((1, 50), (50, 1)):
        with pytest.raises(dice.DiceError, match=f"No prior can be learned from {n_cells} cells and {n_genes} genes"):
            check_n_latent("elbow", n_cells, n_genes)


def test_what_does_not_hold_counts_is_named():
    adata = ad.AnnData(np.log1p(COUNTS), layers={"counts": COUNTS, "half": COUNTS / 2})
    check_counts(adata, "counts")
    with pytest.raises(dice.DiceError, match=r"^adata.X does not hold raw counts.*of \['counts', 'half'\]"):
        check_counts(adata, None)
    with pytest.raises(dice.DiceError, match=r"^adata.layers\['half'\] does not hold raw .*of \['counts'\]"):
        check_counts(adata, "half")


def test_labels_that_no_file_can_hold_are_refused():
    """A lone surrogate in a label ended a training with an error about the prior's card."""
    adata = ad.AnnData(np.zeros((4, 2), np.float32), obs={"label": ["x", "y\ud800", "x", "y\ud800"]})
    with pytest.raises(dice.DiceError, match=r"obs\['label'\] holds names that files cannot store, .*: rename them"):
        read_labels(adata, "label")
