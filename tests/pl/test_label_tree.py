"""The tree of labels with cells and F1."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest

import dice
from dice._labels.tree import LabelTree


@pytest.fixture
def query():
    names, given = ["naive", "memory", "mono"], [0, 0, 1, 1, 2, 2]
    cells = ad.AnnData(np.zeros((6, 1), np.float32))
    cells.obs["truth"] = ["naive", "memory", "memory", "memory", "mono", "unknown"]
    cells.obs["t_dice"] = pd.Categorical.from_codes(given, names)
    cells.obs["t_dice_safe"] = ["naive", "T", "T", "memory", "mono", "unresolved"]
    tree = LabelTree.of(names, {"naive": "T", "memory": "T"})
    cells.uns["t_dice_safe"] = tree.to_plain() | {"f1": np.full(5, 0.5), "params": {"learned": False}}
    return cells


def test_cells_and_f1_of_every_node(query):
    ax, _ = dice.pl.label_tree(query, "t", return_fig=True).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["mono (1)", "naive (1)", "memory (1)"]
    assert {text.get_text() for text in ax.texts} == {"T (2)", "unresolved (1)"}
    np.testing.assert_allclose(ax.collections[-1].get_array(), 0.5)


def test_f1_of_known_labels(query):
    ax, _ = dice.pl.label_tree(query, "t", truth_key="truth", return_fig=True).axes
    np.testing.assert_allclose(ax.collections[-1].get_array(), [2 / 3, 0.8, 1, 1, 1])


def test_safe_labels_come_first(query):
    with pytest.raises(dice.DiceError, match=r"dice\.tl\.safe_labels"):
        dice.pl.label_tree(query, "other")
