from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from dice import pl
from dice._errors import InputError, SlotError


def matrix(ax):
    """Shares that are drawn, by the names of rows (without counts) and columns."""
    rows = [label.get_text().rsplit(" (", 1)[0] for label in ax.get_yticklabels()]
    columns = [label.get_text() for label in ax.get_xticklabels()]
    return pd.DataFrame(np.asarray(ax.images[0].get_array()), rows, columns)


def test_known_labels_against_transferred_ones(labelled):
    axes = pl.transfer(labelled, "cell_type", groupby="cell_type", show=False)
    expected = pd.crosstab(labelled.obs["cell_type"], labelled.obs["cell_type_dice"], normalize="index")
    shares = matrix(axes[0])
    assert list(shares.columns) == ["B", "NK", "T", "unassigned"]
    np.testing.assert_allclose(shares, expected.loc[shares.index, shares.columns])
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["B (15)", "NK (15)", "T (15)"]
    written = {text.get_text() for text in axes[0].texts}
    assert {"100", "53", "47", "93", "7"} == written


def test_sizes_of_the_sets(labelled):
    axes = pl.transfer(labelled, "cell_type", groupby="cell_type", show=False)
    bars = {c.get_label(): [bar.get_width() for bar in c] for c in axes[1].containers}
    # Sets of B are {B}; those of NK and of half of the T cells hold NK and T; the other T cells have {T}.
    assert list(bars) == ["1 label", "2 labels"]
    np.testing.assert_allclose(bars["1 label"], [1, 0, 7 / 15])
    np.testing.assert_allclose(np.sum(list(bars.values()), axis=0), 1)


def test_without_groups_rows_tell_what_the_sets_hold(labelled):
    axes = pl.transfer(labelled, "cell_type", show=False)
    shares = matrix(axes[0])
    assert list(shares.index) == ["B", "NK", "T", "unassigned"]
    assert list(shares.columns) == ["B", "NK", "T"]
    assert shares.loc["NK"].tolist() == [0, 1, 1]
    assert axes[0].get_ylabel() == "cell_type, transferred"


def test_missing_and_other_groups(labelled):
    labelled.obs["cluster"] = pd.Categorical(["x"] * 40 + [None] * 5)
    axes = pl.transfer(labelled, "cell_type", groupby="cluster", show=False)
    assert list(matrix(axes[0]).index) == ["x", "NA"]


@pytest.mark.parametrize("n", [1, 4])
def test_few_cells_and_views(labelled, n):
    view = labelled[:n]
    for groupby in (None, "cell_type"):
        pl.transfer(view, "cell_type", groupby=groupby, show=False)[0].figure.canvas.draw()
    pl.reliability(view, "cell_type", show=False)[0].figure.canvas.draw()
    assert view.is_view


def test_sixty_labels_can_be_read(labelled):
    from itertools import pairwise

    labelled.obs["many"] = [f"label {i:02}" for i in range(45)]
    figure = pl.transfer(labelled, "cell_type", groupby="many", return_fig=True)
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(boxes) == 45
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_reliability(labelled):
    axes = pl.reliability(labelled, "cell_type", show=False)
    (curve,) = [line for line in axes[0].lines if line.get_label() == "share that is right"]
    right = 1 - 8 / 45
    np.testing.assert_allclose(curve.get_data(), [[0.8], [right]])
    assert axes[0].get_title() == f"accuracy {right:.1%}, reliability error {abs(0.8 - right):.3f}"


def test_coverage_per_label(labelled):
    labelled.obsm["cell_type_dice_set"].iloc[:9, 0] = False
    axes = pl.reliability(labelled, "cell_type", show=False)
    names = [label.get_text() for label in axes[1].get_yticklabels()]
    assert [name.rsplit(" (", 1)[0] for name in names] == ["all cells", "B", "NK", "T"]
    assert names[3] == "T (1.5)"
    drawn = next(c for c in axes[1].collections if c.get_label() == "coverage").get_offsets()[:, 0]
    np.testing.assert_allclose(drawn, [42 / 45, 12 / 15, 1, 1])
    assert axes[1].lines[0].get_xdata()[0] == pytest.approx(0.9)
    # Wilson's interval for 12 of 15, as in the literature.
    segment = next(c for c in axes[1].collections if c.get_label() != "coverage").get_segments()[1]
    np.testing.assert_allclose(segment[:, 0], [0.548, 0.930], atol=1e-3)


def test_labels_that_the_reference_lacks_are_left_out_and_counted(labelled):
    labelled.obs["true"] = labelled.obs["cell_type"].astype(str).replace("B", "other")
    labelled.obs.loc[labelled.obs_names[-3:], "true"] = np.nan
    axes = pl.reliability(labelled, "cell_type", truth_key="true", show=False)
    assert axes[0].figure.get_suptitle() == "28 cells, 14 with labels unknown to the reference left out"


def test_set_sizes_have_colours_of_their_own():
    from dice.pl._transfer import _SIZES

    assert len({to_hex(color) for color in _SIZES.values()}) == 4


def test_errors_name_the_fix(labelled):
    with pytest.raises(SlotError, match=r"run dice\.tl\.transfer_labels\(adata, reference, 'nothing'\) first"):
        pl.transfer(labelled, "nothing")
    # Labels of the query's own column were looked for in place of transferred ones.
    with pytest.raises(SlotError, match="There are no labels 'author_dice': set key='cell_type_dice', or run"):
        pl.transfer(labelled, "author")
    with pytest.raises(InputError, match="set groupby to a column of labels"):
        pl.transfer(labelled, "cell_type", groupby="dice_uncertainty")
    labelled.obs["other"] = "something"
    with pytest.raises(InputError, match="has none of the labels"):
        pl.reliability(labelled, "cell_type", truth_key="other")


def test_labels_never_given_keep_their_column(labelled):
    labelled.obs["cell_type_dice"] = labelled.obs["cell_type_dice"].astype(str).replace("NK", "B").astype("category")
    shares = matrix(pl.transfer(labelled, "cell_type", groupby="cell_type", show=False)[0])
    assert list(shares.columns) == ["B", "NK", "T", "unassigned"]
    assert (shares["NK"] == 0).all()


def test_groups_keep_the_order_of_their_column(labelled):
    names = [str(i) for i in range(12)]
    labelled.obs["leiden"] = pd.Categorical([names[i % 12] for i in range(44)] + [None], categories=names)
    axes = pl.transfer(labelled, "cell_type", groupby="leiden", show=False)
    assert list(matrix(axes[0]).index) == [*names, "NA"]
