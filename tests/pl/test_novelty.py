from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dice import pl


@pytest.fixture
def novel(query):
    query.obs["dice_novelty"] = query.obs["dice_uncertainty"]
    query.obs["dice_novel"] = query.obs["dice_uncertainty"] > 2.5
    return query


def test_novel_cells_are_ringed_and_counted(novel):
    axes = pl.distribution(novel, "dice_novelty", groupby="cell_type", show=False)
    rings = next(c for c in axes[0].collections if c.get_label() == "novel")
    called = novel.obs["dice_novel"].to_numpy()
    np.testing.assert_array_equal(rings.get_offsets(), novel.obsm["X_dice_pca_umap"][called])
    share = called.sum() / 15
    assert [label.get_text() for label in axes[1].get_yticklabels()] == [f"T ({share:.0%})", "NK (0%)", "B (0%)"]
    assert axes[0].get_title() == f"{called.sum()} of 45 cells are novel"


@pytest.fixture
def grouped(novel):
    """Groups were tested, and one of them was called."""
    novel.obs["cluster"] = pd.Categorical(novel.obs["cell_type"].astype(str) + "1", categories=["B1", "NK1", "T1"])
    novel.obs["dice_novel_group"] = (novel.obs["cluster"] == "T1").to_numpy()
    novel.uns["dice_novelty"] = {"call": {"groupby": "cluster"}}
    return novel


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_novel_groups_are_named(grouped):
    """Without a column of labels the groups that were tested are drawn."""
    axes = pl.distribution(grouped, "dice_novelty", show=False)
    assert texts(axes[0]) == ["T1"]
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["novel"]
    # The name stands on its cells.
    own = grouped.obsm["X_dice_pca_umap"][(grouped.obs["cluster"] == "T1").to_numpy()]
    assert np.linalg.norm(own - axes[0].texts[0].get_position(), axis=1).min() < 1e-3
    assert [label.get_text().split(" ")[0] for label in axes[1].get_yticklabels()] == ["T1", "NK1", "B1"]


def test_names_of_groups_in_one_place_do_not_cover_each_other(grouped):
    grouped.obs["cluster"] = pd.Categorical(np.where(np.arange(45) % 2, "even", "odd"))
    grouped.obs["dice_novel_group"] = True
    ax = pl.distribution(grouped, "dice_novelty", show=False)[0]
    ax.figure.canvas.draw()
    one, other = (text.get_window_extent() for text in ax.texts[:2])
    assert not one.overlaps(other)


def test_other_labels_leave_novel_groups_on_the_map(grouped):
    axes = pl.distribution(grouped, "dice_novelty", groupby="cell_type", show=False)
    assert texts(axes[0]) == ["T1"]


def test_where_nothing_is_novel_nothing_is_marked(grouped):
    grouped.obs["dice_novel"] = False
    grouped.obs["dice_novel_group"] = False
    grouped.obs.loc[grouped.obs_names[:3], "cluster"] = np.nan
    axes = pl.distribution(grouped, "dice_novelty", show=False)
    assert texts(axes[0]) == []
    assert axes[0].get_legend() is None
    assert axes[0].get_title() == "0 of 45 cells are novel"


def test_the_map_grows_with_the_labels(novel):
    """Beside many labels a small map would leave a gap below."""
    novel.obs["name"] = [f"label {i % 28}" for i in range(45)]
    axes = pl.distribution(novel, "dice_novelty", groupby="name", show=False)
    axes[0].figure.canvas.draw()
    boxes = [ax.get_window_extent() for ax in axes]
    assert boxes[0].height > 0.9 * boxes[1].height


def test_without_labels(novel):
    axes = pl.distribution(novel, "dice_novelty", show=False)
    assert sum(bar.get_height() for bar in axes[1].patches) == 45


@pytest.mark.parametrize("n", [0, 1, 20])
def test_few_cells_views_and_missing_values(novel, n):
    novel.obs.loc[novel.obs_names[:5], "cell_type"] = np.nan
    novel.obs.loc[novel.obs_names[3:8], "dice_novelty"] = np.nan
    for groupby in (None, "cell_type"):
        pl.distribution(novel[:n], "dice_novelty", groupby=groupby, show=False)[0].figure.canvas.draw()
    assert "X_dice_pca_umap" not in novel.obsm


def test_errors_name_the_fix(query):
    with pytest.raises(KeyError, match=r"run dice\.tl\.novelty first"):
        pl.distribution(query, "dice_novelty")
