"""The picture of a tissue."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest

import dice


def test_one_panel_for_every_column_and_section(tmp_path):
    rng = np.random.default_rng(0)
    adata = ad.AnnData(np.ones((60, 3), np.float32), obsm={"spatial": rng.random((60, 2)) * [300, 100]})
    adata.obs["label"], adata.obs["section"] = np.tile(["a", "b", "c"], 20), np.repeat(["s1", "s2"], 30)
    adata.obs["sure"] = rng.random(60)
    axes = dice.pl.spatial(adata, ["label", "sure"], batch_key="section", show=False, save=tmp_path / "tissue.png")
    assert [ax.get_title() for ax in axes] == ["label, s1", "label, s2", "sure, s1", "sure, s2"]
    assert sum(len(points.get_offsets()) for points in axes[0].collections) == 30
    # Each section had colours of its own for the same numbers.
    assert [ax.collections[0].get_clim() for ax in axes[2:]] == [(adata.obs["sure"].min(), adata.obs["sure"].max())] * 2
    assert [len(ax.child_axes) for ax in axes[2:]] == [0, 1]
    low, high = axes[0].get_ylim()
    assert low > high
    assert (tmp_path / "tissue.png").exists()
    with pytest.raises(KeyError, match=r"There is no key 'elsewhere' in adata.obsm; available: "):
        dice.pl.spatial(adata, "label", spatial_key="elsewhere")
