from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

import dice
from dice._data.colors import MISSING, SAFE, distinct, read_colors, read_groups, read_numbers


@pytest.mark.parametrize("n", [0, 1, 10, 11, 20, 28, 60, 102])
def test_colours_are_distinct(n):
    assert len({color.lower() for color in distinct(n)}) == n


def test_few_labels_have_safe_colours_and_too_many_repeat():
    assert distinct(10) == list(SAFE)
    assert len(distinct(300)) == 300


def test_unassigned_cells_look_like_those_without_a_value(labelled):
    colors = read_colors(labelled, "cell_type_dice").labels
    assert colors["unassigned"] == MISSING
    assert [colors[name] for name in ("B", "NK", "T")] == list(SAFE[:3])


@pytest.mark.parametrize("dtype", ["category", "object", "string", "bool"])
def test_kinds_of_labels(query, dtype):
    query.obs["label"] = pd.Series(np.arange(45) % 2 == 0, index=query.obs_names).astype(dtype)
    colors = read_colors(query, "label")
    assert list(colors.legend) == ["False", "True"]
    assert {color for _, color, _ in colors.groups} == set(SAFE[:2])


@pytest.mark.parametrize("dtype", ["int64", "float32", "Int64"])
def test_kinds_of_numbers(query, dtype):
    query.obs["number"] = pd.array(np.arange(45), dtype=dtype)
    colors = read_colors(query, "number")
    assert colors.legend == {}
    np.testing.assert_array_equal(colors.values, np.arange(45))


def test_nullable_numbers_and_unused_categories(query):
    query.obs["number"] = pd.array([None, *range(44)], dtype="Int64")
    assert read_colors(query, "number").missing.sum() == 1
    query.obs["cell_type"] = query.obs["cell_type"].cat.set_categories(["X", "T", "B"])
    # An unused category keeps its colour, so that subsets look like the whole.
    assert read_colors(query, "cell_type").legend == {"T": SAFE[1], "B": SAFE[2], "NA": MISSING}


def test_groups_hold_every_cell_once(query):
    query.obs.loc[query.obs_names[:4], "cell_type"] = np.nan
    colors = read_colors(query, "cell_type")
    assert [(name, color) for name, color, _ in colors.groups] == list(colors.legend.items())
    assert (np.sum([mine for *_, mine in colors.groups], axis=0) == 1).all()


def test_numbers_are_no_groups_and_labels_no_numbers(query):
    query.obs["number"] = np.arange(45.0)
    with pytest.raises(
        dice.DiceError, match=r"obs\['number'\] must hold labels, got numbers: set truth_key to a column of labels"
    ):
        read_groups(query, "number", argument="truth_key")
    with pytest.raises(
        dice.DiceError, match=r"obs\['cell_type'\] must hold numbers, got labels: set key to a column of numbers"
    ):
        read_numbers(query, "cell_type", step=None)
    assert read_groups(query, "cell_type").labels
    assert read_numbers(query, "number", step=None).labels is None


def test_too_few_stored_colours_are_replaced(query):
    query.uns["cell_type_colors"] = ["#111111"]
    assert read_colors(query, "cell_type").legend["B"] == SAFE[0]


@pytest.mark.parametrize("n", [3, 12, 37, 60])
def test_colours_are_told_apart_and_seen_on_white(n):
    places = lab(distinct(n))
    apart = np.linalg.norm(places[:, None] - places, axis=-1) + 1e3 * np.eye(n)
    assert apart.min() > (22 if n <= 37 else 18)
    # Neither pastels nor greys, which are for cells without a label.
    assert places[:, 0].max() < 75
    assert np.hypot(places[:, 1], places[:, 2]).min() > 20
    assert np.linalg.norm(places - lab([MISSING]), axis=1).min() > 25


def lab(colors):
    """Colours in CIELAB (n, 3), where distances are what eyes see: from sRGB by the white of screens."""
    rgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear @ to_xyz.T / to_xyz.sum(1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.column_stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])])
