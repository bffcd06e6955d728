"""Warnings about predicted features, and what is written of them."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from dice._features.transfer import FOLDS, Judged, _depth_share, _warn, folds_of

NAMES = [f"P{i}" for i in range(9)]


def said(correlation=0.9, width=1.0, *, auc=0.5, batch_key=None, alpha=0.1, widened=1.5):
    """What is warned of nine features."""
    nine = np.ones(9)
    judged = Judged(correlation * nine, width * nine, 10 * nine, np.full(9, 100))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _warn(judged, auc, widened, NAMES, batch_key, alpha)
    return [str(warning.message) for warning in caught]


def test_nothing_is_said_of_good_features():
    assert said() == []


def test_features_are_named_by_five_of_them():
    five = "for example ['P0', 'P1', 'P2', 'P3', 'P4']: "
    (text,) = said(correlation=np.nan)
    assert text == f"9 features hardly vary in the reference, {five}do not use them."
    (text,) = said(correlation=0.1, width=10.0)
    assert text.startswith(f"9 of 9 features cannot be predicted from expression, {five}their")
    unbounded, useless = said(correlation=0.1, width=np.inf)
    assert unbounded.startswith(f"9 features are measured in too few cells for alpha=0.1, {five}their intervals")
    assert useless.startswith("9 of 9 features cannot")


@pytest.mark.parametrize(
    ("batch_key", "what"),
    [(None, "1.5 times as wide as in the reference"), ("batch", "calibrated between batches of the reference")],
)
def test_a_query_that_differs(batch_key, what):
    (text,) = said(auc=0.8, batch_key=batch_key)
    assert f"(AUC 0.80): intervals are {what}, but may contain fewer than" in text
    assert text.endswith("90% of the values.")


@pytest.mark.parametrize(("depth", "share"), [(-1.0, np.exp(-1)), (-0.11, np.exp(-0.11)), (-0.1, 1.0), (2.0, 1.0)])
def test_the_share_of_counts_that_is_left(depth, share):
    """More than nine of ten counts are all of them."""
    depths = np.array([depth, depth, np.nan])
    query = SimpleNamespace(
        prior=SimpleNamespace(typical=0.0),
        measured=True,
        latents=SimpleNamespace(log_depth=depths),
    )
    assert _depth_share(query) == pytest.approx(share)
    query.measured = False
    assert _depth_share(query) == 1.0
    query.measured, query.latents.log_depth = True, np.full(3, np.nan)
    assert _depth_share(query) == 1.0


def test_every_cell_is_held_out_once():
    folds = folds_of(np.arange(100, 260), 0)
    assert len(folds) == FOLDS
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(100, 260))
    assert all(not set(fit) & set(test) for fit, test in folds)


def test_batches_stay_together():
    cells, batches = np.arange(50, 150), np.arange(100) % 7
    folds = folds_of(cells, 0, batches)
    assert len(folds) == FOLDS
    for fit, test in folds:
        assert not set(batches[fit - 50]) & set(batches[test - 50])
    assert folds_of(cells, 0, np.zeros(100, int)) == []
