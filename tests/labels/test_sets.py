"""Warnings of sets at their bounds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dice._labels.sets import _warn
from dice.options import Sets


def warned(settings, auc, codes):
    model = SimpleNamespace(calibration_codes=np.asarray(codes), names=["a", "b", "c", "d", "e"])
    _warn(settings, 0.125, model, auc, np.ones((3, 5), dtype=bool), 0.2, 0.0)


def test_rare_labels_are_named():
    codes = [0] * 20 + [1] * 7 + [2] * 6
    with pytest.warns(
        UserWarning, match=r"^3 labels have fewer than 7 calibration cells .*for example \['c', 'd', 'e'\]"
    ):
        warned(Sets(per_class=True), 0.5, codes)


def test_a_query_that_differs():
    with pytest.warns(UserWarning, match=r"\(AUC 0\.90\): about 20% of the labels may be wrong, and sets hold 5\.0"):
        warned(Sets(), 0.9, [0] * 20)
