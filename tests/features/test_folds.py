"""Folds of reference cells, and features that too few cells have."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dice._data.features import FEWEST_MEASURED
from dice._errors import InputError
from dice._features.transfer import FOLDS, _check_folds, _depth_share, folds_of
from dice._model.counts import WHOLE_SHARE


@pytest.mark.parametrize("n", [1, 2, 4, 5, 6, 57])
def test_every_cell_is_held_out_once(n):
    cells = 3 * np.arange(n) + 7
    folds = folds_of(cells, seed=0)
    assert len(folds) == (min(n, FOLDS) if n > 1 else 0)
    for train, test in folds:
        assert sorted([*train, *test]) == cells.tolist()
        assert min(len(train), len(test)) > 0
    if folds:
        assert sorted(np.concatenate([test for _, test in folds])) == cells.tolist()
        sizes = [len(test) for _, test in folds]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("n_batches", [1, 2, 5, 9])
def test_batches_are_held_out_as_a_whole(n_batches):
    cells, batches = np.arange(90), np.random.default_rng(0).integers(n_batches, size=90)
    folds = folds_of(cells, 0, batches)
    assert len(folds) == (min(n_batches, FOLDS) if n_batches > 1 else 0)
    for train, test in folds:
        assert not set(batches[train]) & set(batches[test])
        assert len(train) + len(test) == 90
    if folds:
        assert sorted(np.concatenate([test for _, test in folds])) == cells.tolist()


def test_features_of_too_few_cells_are_named():
    n = 4 * FEWEST_MEASURED
    values = np.zeros((n, 7))
    fit, names = np.arange(n), [f"P{i}" for i in range(7)]
    half = [(fit[: n // 2], fit[n // 2 :]), (fit[n // 2 :], fit[: n // 2])]
    _check_folds(SimpleNamespace(values=values, names=names), fit, half, "donor")
    values[FEWEST_MEASURED:, 2] = np.nan
    with pytest.raises(InputError, match=r"1 features are measured in too few batches .*'donor'.* example \['P2'\]"):
        _check_folds(SimpleNamespace(values=values, names=names), fit, half, "donor")
    values[FEWEST_MEASURED - 1, 2] = np.nan
    with pytest.raises(
        InputError, match=rf"1 features are measured in fewer than {FEWEST_MEASURED} .* example \['P2'\]"
    ):
        _check_folds(SimpleNamespace(values=values, names=names), fit, half, "donor")
    with pytest.raises(InputError, match=r"reference.obs\['donor'\] holds a single batch, which cannot be held out"):
        _check_folds(SimpleNamespace(values=values, names=names), fit, [], "donor")


@pytest.mark.parametrize(("share", "expected"), [(0.1, 0.1), (0.5, 0.5), (2.0, 1.0), (1.0, 1.0)])
def test_a_reference_is_thinned_to_the_median_depth_of_the_query_and_never_deepened(share, expected):
    depths = np.log(share * 1000) + np.array([-1, 0, 0.5, np.nan])
    query = SimpleNamespace(
        latents=SimpleNamespace(log_depth=depths), measured=True, prior=SimpleNamespace(typical=np.log(1000))
    )
    assert _depth_share(query) == pytest.approx(expected)
    query.measured = False
    assert _depth_share(query) == 1
    query.measured, query.latents.log_depth = True, np.full(4, np.nan)
    assert _depth_share(query) == 1
    query.latents.log_depth = np.log([WHOLE_SHARE * 1000])
    assert _depth_share(query) == 1
