"""Maps with many groups: names on the map, none over another, and no legend that is wider than the map."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dice
from dice._plot import PANEL
from dice._plot.draw import MANY, place_boxes, side

from .conftest import make


def many(n: int, n_groups: int):
    cells = make(n)
    cells.obs["group"] = pd.Categorical([f"CD4+ T activated {i % n_groups}" for i in range(n)])
    return cells


def boxes(ax):
    figure = ax.figure
    figure.canvas.draw()
    names = [text for text in ax.texts if text.get_text().startswith("CD4+")]
    return [text.get_window_extent() for text in names], names


@pytest.mark.parametrize("n_groups", [3, 12])
def test_few_groups_have_a_legend(n_groups):
    figure = dice.pl.comparison(many(120, n_groups), color="group", return_fig=True)
    assert not any(ax.texts for ax in figure.axes)
    assert len(figure.axes[-1].get_legend().get_texts()) == n_groups


@pytest.mark.parametrize("n_groups", [37, 60])
def test_many_groups_are_named_on_the_map(n_groups):
    figure = dice.pl.comparison(many(300, n_groups), color="group", return_fig=True)
    assert all(ax.get_legend() is None for ax in figure.axes)
    # Nothing but two maps: the legend took 60 % of the width.
    assert figure.get_figwidth() == pytest.approx(2 * side(n_groups), rel=0.05)
    for ax in figure.axes:
        found, names = boxes(ax)
        assert len({name.get_text() for name in names}) == n_groups
        crossed = [a.overlaps(b) for i, a in enumerate(found) for b in found[:i]]
        assert sum(crossed) <= 0.02 * len(crossed)


def test_cells_without_a_label_stay_in_the_legend():
    cells = many(300, 37)
    cells.obs["group"] = cells.obs["group"].astype(str).where(np.arange(300) % 9 > 0, "unassigned")
    cells.obs.loc[cells.obs_names[:5], "group"] = None
    figure = dice.pl.comparison(cells, color="group", return_fig=True)
    assert [text.get_text() for text in figure.axes[-1].get_legend().get_texts()] == ["unassigned", "NA"]
    assert "unassigned" not in {text.get_text() for text in figure.axes[0].texts}


def test_boxes_lie_apart_within_the_square_and_off_the_points():
    rng = np.random.default_rng(0)
    points = 0.4 + 0.04 * rng.normal(size=(500, 2))
    half = np.column_stack([rng.uniform(0.02, 0.16, 40), np.full(40, 0.012)])
    at = place_boxes(points[:40], half, points)
    assert (at - half >= -1e-6).all()
    assert (at + half <= 1 + 1e-6).all()
    overlap = (half[:, None] + half - np.abs(at[:, None] - at) > 1e-6).all(-1)
    assert overlap.sum() == len(at)  # each with itself
    covered = (np.abs(points[:, None] - at) < half).all(-1).any(1)
    assert covered.mean() < 0.35


def test_maps_grow_with_their_names():
    assert side(MANY) == PANEL < side(37) < side(60) <= PANEL + 2.5
