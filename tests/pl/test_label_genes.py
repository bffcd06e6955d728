from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dice import pl


@pytest.fixture
def table():
    """Four genes of three groups, as of tl.label_genes."""
    rng = np.random.default_rng(0)
    groups = ["B", "T", "3"]
    return pd.DataFrame(
        {
            "group": np.repeat(groups, 4),
            "label": np.repeat(["B", "T", "T"], 4),
            "versus": np.repeat(["others", "others", "B"], 4),
            "gene": [f"gene{i}" for i in range(12)],
            "contribution": [2.0, -1.0, 0.5, 0.1] * 3,
            "mean": rng.random(12),
            "reference_mean": 3 * rng.random(12),
            "fraction": rng.random(12),
            "reference_fraction": rng.random(12),
        }
    )


def test_bars_and_dots_are_the_table(table):
    axes = pl.label_genes(table, show=False)
    axes[0].figure.canvas.draw()
    assert [ax.get_title() for ax in axes[::2]] == ["B", "T", "3: T, not B"]
    for bars, dots, (_, rows) in zip(axes[::2], axes[1::2], table.groupby("group", sort=False), strict=True):
        assert [bar.get_height() for bar in bars.patches] == rows["contribution"].tolist()
        assert len({bar.get_facecolor() for bar in bars.patches}) == 2
        assert [text.get_text() for text in dots.get_xticklabels()] == rows["gene"].tolist()
        for points, prefix in zip(dots.collections, ("", "reference_"), strict=True):
            np.testing.assert_array_equal(points.get_array(), rows[f"{prefix}mean"])
            np.testing.assert_allclose(points.get_sizes(), 110 * rows[f"{prefix}fraction"])
            assert points.get_clim() == (0, table["reference_mean"].max())
    assert [text.get_text() for text in axes[1].get_yticklabels()] == ["query", "reference"]
    assert [text.get_text() for text in axes[3].get_yticklabels()] == ["", ""]


def test_groups_go_in_rows_that_fit_a_page(table):
    few = table.groupby("group").head(2)
    many = pd.concat([few.assign(group=few["group"].astype(str) + suffix) for suffix in "abcd"])
    axes = pl.label_genes(many, show=False)
    axes[0].figure.canvas.draw()
    assert [len(ax.patches) for ax in axes[::2]] == [2] * 12
    left = [ax.get_position().x0 for ax in axes[::2]]
    assert left[0] == pytest.approx(left[6])
    assert left[1] > left[0]


def test_a_prior_alone_knows_no_fractions(table):
    table["reference_fraction"] = np.nan
    dots = pl.label_genes(table, show=False)[1]
    assert len(dots.collections[0].get_paths()[0].vertices) > 5  # a circle
    assert len(dots.collections[1].get_paths()[0].vertices) == 5  # a square
    np.testing.assert_array_equal(dots.collections[1].get_sizes(), 55)


def test_errors_name_the_fix(table):
    with pytest.raises(ValueError, match=r"from dice\.tl\.label_genes, got 12 rows without the columns \['gene'\]"):
        pl.label_genes(table.drop(columns="gene"))
    with pytest.raises(ValueError, match="must be a non-empty table"):
        pl.label_genes(table[:0])
