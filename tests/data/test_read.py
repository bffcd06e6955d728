"""Readers of slots: plain arrays, or one sentence that says how to fill the slot."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

from dice._data import read
from dice._errors import InputError, SlotError


@pytest.fixture
def cells():
    adata = ad.AnnData(sparse.csr_matrix(np.arange(6.0).reshape(3, 2)))
    adata.var_names = ["gene0", "gene1"]
    adata.obs["label"] = ["a", "b", "a"]
    adata.obsm["X_dice"] = np.arange(6).reshape(3, 2)
    adata.obsp["c"] = sparse.csc_matrix(np.eye(3))
    adata.uns["graph"] = {}
    return adata


def test_names_of_slots(cells):
    assert read.names(cells, "obs") == ["label"]
    assert read.names(cells, "obsm", "uns") == ["X_dice", "graph"]


def test_columns_and_genes(cells):
    assert read.column(cells, "label").tolist() == ["a", "b", "a"]
    assert read.column(cells, "gene1").tolist() == [1, 3, 5]
    with pytest.raises(SlotError, match=r"no column 'gene1': run dice\.tl\.novelty first"):
        read.column(cells, "gene1", step="dice.tl.novelty")
    with pytest.raises(SlotError, match=r"set groupby to one of \['label'\]"):
        read.column(cells, "X_dice", argument="groupby")


def test_arrays_and_embeddings(cells):
    assert read.array(cells, "X_dice", rows=[2, 0]).tolist() == [[4, 5], [0, 1]]
    assert read.embedding(cells, "X_dice").dtype == np.float32
    with pytest.raises(SlotError, match=r"no 'other': run dice\.tl\.denoise first"):
        read.array(cells, "other")
    with pytest.raises(SlotError, match=r"reference\.obsm has no 'other': run dice\.tl\.train_prior first"):
        read.embedding(cells, "other", name="reference")
    cells.obsm["X_dice"] = np.full((3, 2), np.nan)
    with pytest.raises(InputError, match=r"adata\.obsm\['X_dice'\] cannot be used\. "):
        read.embedding(cells, "X_dice")


def test_records(cells):
    assert read.record(cells, "other") is None
    with pytest.raises(SlotError, match=r"no prior in adata\.uns\['other'\]: run dice\.tl\.train_prior first"):
        read.record(cells, "other", what="prior", step="dice.tl.train_prior")
