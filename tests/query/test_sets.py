"""Sets that are widened, and warnings at their bounds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dice._core.labels.likeness import smallest_sets, tempered
from dice._query.sets import DomainShift, Predicted, _warn, _widened
from dice.options import Sets

P = np.array([[0.8, 0.15, 0.05], [0.6, 0.3, 0.1], [0.9, 0.05, 0.05]])
SETS = P > 0.5


def shifted(auc, n=24):
    return DomainShift(np.ones(n), np.ones(3), auc)


@pytest.mark.parametrize(("error", "auc"), [(None, 0.9), (None, 0.5), (0.4, 0.5), (0.4, 0.65)])
def test_sets_stay_where_nothing_speaks_against_them(error, auc):
    found = _widened(SETS, 0.1, SimpleNamespace(error=error, probabilities=P), shifted(auc), np.ones(3, dtype=bool))
    np.testing.assert_array_equal(found.sets, SETS)
    assert (found.expected, found.calibrated) == (0.9, 0.9)


def test_sets_hold_what_classifiers_disagree_about():
    found = _widened(SETS, 0.1, SimpleNamespace(error=0.4, probabilities=P), shifted(0.9), np.ones(3, dtype=bool))
    doubted = tempered(P, 0.4)
    wide = SETS | smallest_sets(doubted, 0.1)
    assert wide.sum() > SETS.sum()
    np.testing.assert_array_equal(found.sets, wide)
    assert found.calibrated == pytest.approx((doubted * SETS).sum() / 3)
    assert found.expected == pytest.approx(max((doubted * wide).sum() / 3, 0.9))


def test_cells_without_expression_neither_widen_sets_nor_are_widened():
    empty, seen = np.full((1, 3), 1 / 3), np.array([True, True, True, False])
    found = SimpleNamespace(error=0.4, probabilities=np.concatenate([P, empty]))
    sets = np.concatenate([SETS, [[True, False, False]]])
    alone = _widened(SETS, 0.1, SimpleNamespace(error=0.4, probabilities=P), shifted(0.9), seen[:3])
    both = _widened(sets, 0.1, found, shifted(0.9), seen)
    np.testing.assert_array_equal(both.sets[:3], alone.sets)
    np.testing.assert_array_equal(both.sets[3], sets[3])
    assert (both.expected, both.calibrated) == (alone.expected, alone.calibrated)


def warned(settings, shift, codes, predicted=None):
    model = SimpleNamespace(calibration_codes=np.asarray(codes), names=["a", "b", "c", "d", "e"])
    _warn(settings, 0.125, model, shift, predicted or Predicted(np.ones((3, 5), dtype=bool), 0.9, 0.9))


@pytest.mark.filterwarnings("error")
def test_three_cells_beyond_alpha_are_enough_for_weights():
    """3 / 0.125 = 24 effective cells are enough, one fewer is not."""
    everybody = np.repeat(np.arange(5), 20)
    warned(Sets(weighted=True), shifted(0.9, 24), everybody)
    with pytest.warns(UserWarning, match=r"leave 23 effective calibration cells of 100: sets at alpha=0\.125"):
        warned(Sets(weighted=True), shifted(0.9, 23), everybody)


def test_rare_labels_are_named():
    codes = [0] * 20 + [1] * 7 + [2] * 6
    with pytest.warns(
        UserWarning, match=r"^3 labels have fewer than 7 calibration cells .*for example \['c', 'd', 'e'\]"
    ):
        warned(Sets(per_class=True), shifted(0.5), codes)


@pytest.mark.parametrize(
    ("calibrated", "said"), [(0.6, "about 60% .* widened to 5.0 labels"), (0.9, "less often than 88%")]
)
def test_a_query_that_differs(calibrated, said):
    predicted = Predicted(np.ones((3, 5), dtype=bool), 0.9, calibrated)
    with pytest.warns(UserWarning, match=rf"AUC of 0\.90\), so that sets .*{said}"):
        warned(Sets(), shifted(0.9), [0] * 20, predicted)


def test_the_number_of_cells_that_count():
    assert DomainShift(np.array([1.0, 1, 0, 0]), np.ones(1), 0.7).params == {
        "effective_calibration": 2,
        "shift_auc": 0.7,
    }
    assert shifted(0.66).doubtful
    assert not shifted(0.65).doubtful
