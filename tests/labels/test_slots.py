"""What label transfer writes, for labels and colours of any kind."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dice._data.colors import MISSING, UNASSIGNED
from dice._labels.slots import _colors_of, _occurring, _set_texts, most_likely

NAMES = ["B", "NK", "T"]
COLORS = ["#ff0000", "#00ff00", "blue"]


def model(colors):
    return SimpleNamespace(names=NAMES, card={} if colors is None else {"colors": colors})


def test_labels_have_the_colours_of_the_reference_by_name():
    label = pd.Categorical(["T", "B", UNASSIGNED], categories=["B", "T", UNASSIGNED])
    assert _colors_of(label, model(COLORS), "x_colors") == {"x_colors": ["#ff0000", "blue", MISSING]}


@pytest.mark.parametrize(
    "odd", [None, [], COLORS[:2], [*COLORS, "red"], ["red", "no colour", "blue"], "red", {"B": "red"}, 3]
)
def test_a_card_without_one_colour_per_label_gives_none(odd):
    assert _colors_of(pd.Categorical(["T"]), model(odd), "x_colors") == {}


def test_unlikely_labels_are_unassigned_and_others_are_the_most_likely():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.3, 0.3], [0.5, 0.5, 0.0]])
    assert list(most_likely(NAMES, probabilities)) == ["B", "T", "B", "B"]
    found = most_likely(NAMES, probabilities, 0.5)  # A label as likely as asked is given.
    assert list(found) == ["B", "T", UNASSIGNED, "B"]
    assert list(found.categories) == ["B", "T", UNASSIGNED]
    assert list(most_likely(NAMES, probabilities, 1.0)) == [UNASSIGNED] * 4
    assert len(most_likely(NAMES, probabilities[:0])) == 0


def test_categories_are_those_that_occur_in_the_known_order():
    found = _occurring(np.array(["T", None, "B"], dtype=object), ["B", "NK", "T", "B"])
    assert list(found.categories) == ["B", "T"]
    assert list(found.codes) == [1, -1, 0]


def test_sets_as_texts_hold_the_labels_of_their_cell():
    sets = np.random.default_rng(0).random((50, 3)) < 0.5
    texts = _set_texts(sets, NAMES)
    for row, text in zip(sets, texts, strict=True):
        assert [name for name in NAMES if name in text.split(" | ")] == [*np.array(NAMES)[row]]
    assert len(_set_texts(sets[:0], NAMES)) == 0
