from __future__ import annotations

import numpy as np
import pytest

from dice import pl
from dice._errors import SlotError


@pytest.fixture
def novel(query):
    query.obs["dice_novelty"] = query.obs["dice_uncertainty"]
    query.obs["dice_novel"] = query.obs["dice_uncertainty"] > 2.5
    return query


def test_novel_cells_are_ringed_and_counted(novel):
    axes = pl.novelty(novel, groupby="cell_type", show=False)
    rings = next(c for c in axes[0].collections if c.get_label() == "novel")
    called = novel.obs["dice_novel"].to_numpy()
    np.testing.assert_array_equal(rings.get_offsets(), novel.obsm["X_dice_pca_umap"][called])
    share = called.sum() / 15
    assert [label.get_text() for label in axes[1].get_yticklabels()] == [f"T ({share:.0%})", "NK (0%)", "B (0%)"]
    assert axes[0].get_title() == f"{called.sum()} of 45 cells are novel"


def test_without_labels(novel):
    axes = pl.novelty(novel, title="here", show=False)
    assert axes[0].get_title() == "here"
    assert sum(bar.get_height() for bar in axes[1].patches) == 45


@pytest.mark.parametrize("n", [0, 1, 20])
def test_few_cells_views_and_missing_values(novel, n):
    novel.obs.loc[novel.obs_names[:5], "cell_type"] = np.nan
    novel.obs.loc[novel.obs_names[3:8], "dice_novelty"] = np.nan
    for groupby in (None, "cell_type"):
        pl.novelty(novel[:n], groupby=groupby, show=False)[0].figure.canvas.draw()
    assert "X_dice_pca_umap" not in novel.obsm


def test_errors_name_the_fix(query):
    with pytest.raises(SlotError, match=r"run dice\.tl\.novelty first"):
        pl.novelty(query)
