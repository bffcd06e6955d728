"""What the summary says of small queries and weak results."""

from __future__ import annotations

import re

import anndata as ad
import numpy as np
import pytest
from scipy import sparse

from dice._labels.summary import _next_step, _novel, _views, median_depth


@pytest.mark.parametrize(
    ("n_genes", "n_vars", "confident", "said"),
    [
        (3000, 20_000, 0.9, None),
        # A panel has few genes, but most of them are used.
        (150, 200, 0.9, None),
        (150, 20_000, 0.9, "check that both name genes alike .* 150 of the query's 20,000"),
        (3000, 20_000, 0.3, "coarser labels .*dice.tl.safe_labels"),
    ],
)
def test_what_to_try_next(n_genes, n_vars, confident, said):
    found = _next_step(n_genes, n_vars, confident)
    assert found == {} if said is None else re.match(said, found["try next"])


def test_the_views_of_the_labels_in_words():
    """One view is named; several are counted, with their agreement by weight."""

    def record(weights, agreement):
        names = ["measured", "clusters", "matched"][: len(weights)]
        return {"view": np.array(names), "weight": np.array(weights), "agreement": np.array(agreement)}

    assert _views(record([1.0], [1.0])) == "by the view 'measured'"
    assert _views(record([1.0, 0.0], [1.0, 0.2])) == "by the view 'measured'"
    assert _views(record([0.5, 0.5], [0.9, 0.5])) == "the mean of 2 views, which agree with 70% of the labels"
    assert _views(record([0.2, 0.2, 0.6], [1, 1, 0.5])) == "the mean of 3 views, which agree with 70% of the labels"


@pytest.mark.parametrize(("auc", "single"), [(0.5, "12 single cells"), (0.99, "single cells cannot be tested")])
def test_novel_cells_in_words(auc, single):
    found = _novel({"params": {"shift_auc": auc}, "groups": {"novel": [True, False, True]}}, 12, 1345)
    assert found.startswith(single)
    assert found.endswith("1,345 cells in 2 of 3 fine groups")


def test_the_median_depth_is_that_of_cells_with_counts():
    rng = np.random.default_rng(0)
    counts = rng.poisson(1.0, (48, 60)).astype(np.float32)
    counts[:, 0] = 5
    depth = float(np.median(counts.sum(1)))
    assert median_depth(ad.AnnData(counts), None) == depth
    logged = np.log1p(counts / counts.sum(1, keepdims=True) * 1e4)
    for form in (np.asarray, sparse.csr_matrix):
        assert median_depth(ad.AnnData(form(logged)), None) == pytest.approx(depth)
    cells = ad.AnnData(rng.normal(size=(48, 60)).astype(np.float32), layers={"x": counts})
    assert median_depth(cells, None) is None
    assert median_depth(cells, "x") == depth
    assert median_depth(ad.AnnData(np.abs(cells.X)), None) is None
