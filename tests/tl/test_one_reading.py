"""``annotate`` reads its query once, and gives the results of its steps, called one by one."""

from __future__ import annotations

import warnings
from collections import Counter

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dice
from dice._data.matrix import Matrix
from dice._query import query

TRAINING = dice.Training(max_steps=20, calibration_fraction=0.3)
#: Passes over the query's matrix: the latents, the halves of the counts, the genes of labels.
PASSES = 3


@pytest.fixture(scope="module")
def pair():
    """Log-normalised counts of five types; the query lacks a tenth of the genes, and one cell is empty."""
    rng = np.random.default_rng(0)
    codes = rng.integers(5, size=900)
    counts = rng.poisson(2 * rng.gamma(0.3, size=(5, 300))[codes]).astype(np.float32)
    counts[800] = 0
    x = np.log1p(counts / np.maximum(counts.sum(1, keepdims=True), 1) * 1e4)
    obs = pd.DataFrame({"cell_type": codes.astype(str)}, index=[f"cell {i}" for i in range(900)])
    cells = ad.AnnData(sparse.csr_matrix(x), obs=obs)
    reference, query = cells[:600].copy(), cells[600:, 30:].copy()
    query.obsm["X_umap"] = np.zeros((300, 2))  # umap compiles for seconds.
    dice.tl.train_prior(reference, labels_key="cell_type", training=TRAINING)
    return reference, query


def test_passes_over_the_query(pair, monkeypatch):
    reference, cells = pair[0].copy(), pair[1].copy()
    read, matched = Counter(), Counter()
    for name in ("each", "total", "__iter__"):
        kept = getattr(Matrix, name)

        def count(self, *args, kept=kept, **kwargs):
            read[self.n_cells] += 1
            return kept(self, *args, **kwargs)

        monkeypatch.setattr(Matrix, name, count)
    match = query.match_genes
    monkeypatch.setattr(
        query, "match_genes", lambda adata, *args, **kwargs: (matched.update("m"), match(adata, *args, **kwargs))[1]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dice.DiceWarning)
        dice.tl.annotate(cells, reference, "cell_type", random_state=3)
        assert read[cells.n_obs] <= PASSES
        assert matched["m"] == 1
        # Also where the prior is learned first: finite values are found by a sum.
        read.clear()
        del reference.uns["dice"]
        dice.tl.annotate(cells, reference, "cell_type", training=TRAINING)
    assert read[cells.n_obs] <= PASSES


def test_results_are_those_of_the_steps(pair):
    reference, together, single = pair[0], pair[1].copy(), pair[1].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dice.DiceWarning)
        dice.tl.annotate(together, reference, "cell_type", random_state=3)
        dice.tl.denoise(single, reference, random_state=3)
        dice.tl.cluster(single, reference, random_state=3)
        dice.tl.transfer_labels(single, reference, "cell_type", groupby="auto", random_state=3)
        dice.tl.novelty(single, reference, groupby="auto", labels_key="cell_type")
    for key in single.obsm:
        np.testing.assert_array_equal(together.obsm[key], single.obsm[key], err_msg=key)
    for key in (*single.obsp,):
        np.testing.assert_array_equal(together.obsp[key].toarray(), single.obsp[key].toarray(), err_msg=key)
    # The status is settled by annotate, which knows of novel groups.
    for key in set(single.obs) - {"cell_type_dice_status"}:
        pd.testing.assert_series_equal(together.obs[key], single.obs[key])
    for key in ("X_dice", "dice_cluster", "cell_type_dice", "dice_novelty"):
        assert sorted(together.uns[key]["warnings"]) == sorted(single.uns[key]["warnings"]), key
        # That of the empty cell is in all of them.
        assert len(single.uns[key]["warnings"]), key


def test_nothing_is_shared_outside(pair):
    reference, cells = pair[0], pair[1].copy()
    with query.one_reading():
        found = [query.once("key", object) for _ in range(2)]
        assert found[0] is found[1]
    assert query.once("key", object) is not found[0]
    options, prior = query.Options(), dice.Prior.from_anndata(reference)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dice.DiceWarning)
        one, other = (query.Query.of(cells, prior, options) for _ in range(2))
        assert one.matrix is not other.matrix
        sums = one.latents.gene_sums
        with query.one_reading():
            shared = query.Query.of(cells, prior, options)
            assert query.Query.of(cells, prior, options).latents.y is shared.latents.y
            np.testing.assert_array_equal(shared.latents.gene_sums, sums)
