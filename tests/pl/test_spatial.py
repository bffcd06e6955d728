"""The picture of a tissue."""

from __future__ import annotations

import importlib.machinery
import sys
import types

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
    low, high = axes[0].get_ylim()
    assert low > high
    assert (tmp_path / "tissue.png").exists()
    with pytest.raises(KeyError, match="no 'elsewhere'"):
        dice.pl.spatial(adata, "label", spatial_key="elsewhere")


def test_squidpy_draws_if_it_is_installed(monkeypatch):
    """A stand-in for squidpy gets the colours, the coordinates and the sections."""
    import matplotlib.pyplot as plt

    asked = {}

    def spatial_scatter(adata, **arguments):
        asked.update(arguments)
        return plt.subplots(1, 2)[1]

    module = types.ModuleType("squidpy")
    module.pl = types.SimpleNamespace(spatial_scatter=spatial_scatter)
    module.__spec__ = importlib.machinery.ModuleSpec("squidpy", None)
    monkeypatch.setitem(sys.modules, "squidpy", module)
    adata = ad.AnnData(np.ones((4, 1), np.float32), obsm={"place": np.ones((4, 2))})
    adata.obs["label"], adata.obs["section"] = list("aabb"), list("1212")
    axes = dice.pl.spatial(adata, "label", spatial_key="place", batch_key="section", show=False)
    assert len(axes) == 2
    assert asked["color"] == ["label"]
    assert (asked["spatial_key"], asked["library_key"], asked["shape"]) == ("place", "section", None)
    plt.close("all")
