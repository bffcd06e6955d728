from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dice import pl
from dice._errors import InputError

TABLE = pd.DataFrame(
    {"silhouette": [0.2, 0.3], "ari": [0.5, 0.6], "clisi": [1.5, 1.2], "protocol": "embedding"},
    index=pd.Index(["X_dice_pca", "X_dice"], name="representation"),
)


def test_representations_are_bars():
    axes = pl.evaluation(TABLE, columns=["silhouette", "clisi"], show=False)
    assert [bar.get_width() for bar in axes[1].patches] == [1.5, 1.2]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["PCA projection", "DICE"]
    assert axes[1].get_title() == "cLISI (lower is better)"


def test_numbers_are_a_curve_in_their_order():
    table = TABLE.set_index(pd.Index([50, 10], name="latents"))
    (ax,) = pl.evaluation(table, columns=["ari"], show=False)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0.6, 0.5])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["10", "50"]
    assert ax.get_xlabel() == "latents"


@pytest.mark.parametrize(("columns", "rows"), [(["nothing"], 2), ([], 2), (["ari"], 0)])
def test_errors_name_the_fix(columns, rows):
    with pytest.raises(InputError, match=r"`columns` must be some of|with at least one"):
        pl.evaluation(TABLE[:rows], columns=columns)
