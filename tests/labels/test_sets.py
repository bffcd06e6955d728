"""Warnings of sets at their bounds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dice._labels.sets import _warn
from dice._query.shift import DomainShift
from dice.options import Sets


def shifted(auc, n=24):
    return DomainShift(np.ones(n), np.ones(3), auc)


def warned(settings, shift, codes):
    model = SimpleNamespace(calibration_codes=np.asarray(codes), names=["a", "b", "c", "d", "e"])
    _warn(settings, 0.125, model, shift, np.ones((3, 5), dtype=bool), 0.2, 0.0)


@pytest.mark.filterwarnings("error")
def test_three_cells_beyond_alpha_are_enough_for_weights():
    """3 / 0.125 = 24 effective cells are enough, one fewer is not."""
    everybody = np.repeat(np.arange(5), 20)
    warned(Sets(weighted=True), shifted(0.9, 24), everybody)
    with pytest.warns(UserWarning, match=r"leave 23 effective calibration cells of 100, too few .* alpha=0\.125"):
        warned(Sets(weighted=True), shifted(0.9, 23), everybody)


def test_rare_labels_are_named():
    codes = [0] * 20 + [1] * 7 + [2] * 6
    with pytest.warns(
        UserWarning, match=r"^3 labels have fewer than 7 calibration cells .*for example \['c', 'd', 'e'\]"
    ):
        warned(Sets(per_class=True), shifted(0.5), codes)


def test_a_query_that_differs():
    with pytest.warns(UserWarning, match=r"\(AUC 0\.90\): about 20% of the labels may be wrong, and sets hold 5\.0"):
        warned(Sets(), shifted(0.9), [0] * 20)


def test_the_number_of_cells_that_count():
    assert DomainShift(np.array([1.0, 1, 0, 0]), np.ones(1), 0.7).params == {
        "effective_calibration": 2,
        "shift_auc": 0.7,
    }
    assert shifted(0.66).doubtful
    assert not shifted(0.65).doubtful
