from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex

from dice import pl
from dice._data.colors import MISSING, SAFE
from dice._errors import InputError, SlotError


def test_map_and_boxes_by_median(query):
    axes = pl.distribution(query, groupby="cell_type", show=False)
    assert len(axes[0].collections[0].get_offsets()) == 45
    # Uncertainty grows from B over NK to T.
    assert [label.get_text() for label in axes[1].get_yticklabels()] == ["T", "NK", "B"]
    assert [to_hex(box.get_facecolor()) for box in axes[1].patches] == [
        color.lower() for color in (SAFE[2], SAFE[1], SAFE[0])
    ]
    medians = query.obs.groupby("cell_type", observed=True)["dice_uncertainty"].median()
    drawn = axes[1].collections[-1].get_offsets()[:, 0]
    np.testing.assert_allclose(drawn, medians[["T", "NK", "B"]], rtol=1e-6)
    assert axes[1].get_ylim()[0] > axes[1].get_ylim()[1]
    assert query.obsm["X_dice_umap"].shape == (45, 2)


def test_histogram_without_labels(query):
    axes = pl.distribution(query, show=False)
    assert sum(bar.get_height() for bar in axes[1].patches) == 45
    assert axes[0].get_title() == "DICE"


def test_missing_labels_come_last_and_missing_numbers_are_left_out(query):
    query.obs.loc[query.obs_names[:9], "cell_type"] = np.nan
    query.obs.loc[query.obs["cell_type"] == "B", "dice_uncertainty"] = np.nan
    axes = pl.distribution(query, groupby="cell_type", show=False)
    assert [label.get_text() for label in axes[1].get_yticklabels()] == ["T", "NK", "NA"]
    assert to_hex(axes[1].patches[-1].get_facecolor()) == MISSING.lower()


def test_sixty_labels_can_be_read(query):
    query.obs["many"] = [f"label {i}" for i in range(45)]
    figure = pl.distribution(query, groupby="many", return_fig=True)
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[1].get_yticklabels()]
    assert len(boxes) == 45
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))


@pytest.mark.parametrize("n", [0, 1, 4])
def test_few_cells_and_views(query, n):
    for groupby in (None, "cell_type"):
        axes = pl.distribution(query[:n], groupby=groupby, show=False)
        axes[0].figure.canvas.draw()
    assert "X_dice_umap" not in query.obsm


def test_errors_name_the_fix(query):
    with pytest.raises(InputError, match="column of numbers"):
        pl.distribution(query, "cell_type")
    with pytest.raises(InputError, match="column of labels"):
        pl.distribution(query, groupby="dice_uncertainty")
    with pytest.raises(SlotError, match="set key to one of"):
        pl.distribution(query, "novelty")
    del query.obs["dice_uncertainty"]
    with pytest.raises(SlotError, match=r"run dice\.tl\.denoise first"):
        pl.distribution(query)


@pytest.mark.parametrize("n_groups", [3, 12, 37, 45])
def test_the_map_is_as_high_as_the_boxes(query, n_groups):
    query.obs["many"] = [f"label {i % n_groups}" for i in range(45)]
    figure = pl.distribution(query, groupby="many", return_fig=True)
    figure.canvas.draw()
    left, right = (ax.get_window_extent() for ax in figure.axes)
    assert left.height > 0.85 * right.height
    # Beside the map there is room for the colour bar and the names, and for nothing else.
    assert left.width > 0.3 * figure.bbox.width
