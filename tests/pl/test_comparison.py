from __future__ import annotations

import random

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

from dice import pl
from dice._data import graph as _layout
from dice._errors import InputError, SlotError


def points(ax, label=None):
    """Number of points of one layer of a panel, or of all."""
    layers = [c for c in ax.collections if label in (None, c.get_label())]
    return sum(len(layer.get_offsets()) for layer in layers)


def legend_labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def legend_colors(ax):
    return [to_hex(handle.get_color()) for handle in ax.get_legend().legend_handles]


def colors_drawn(ax):
    return {to_hex(c) for layer in ax.collections for c in layer.get_facecolors()}


@pytest.fixture
def no_umap(monkeypatch):
    """Fail if a map is computed."""

    def refuse(*args, **kwargs):
        raise AssertionError("the cached coordinates were not used")

    monkeypatch.setattr(_layout, "Map", refuse)


def test_one_panel_per_representation_with_all_cells(query):
    axes = pl.comparison(query, color="cell_type", show=False)
    assert [ax.get_title() for ax in axes] == ["PCA projection", "DICE"]
    assert [points(ax) for ax in axes] == [45, 45]
    assert [ax.get_xlabel() for ax in axes] == ["UMAP 1", "UMAP 1"]
    assert axes[0].get_legend() is None
    assert legend_labels(axes[1]) == ["B", "NK", "T"]
    assert colors_drawn(axes[0]) == set(legend_colors(axes[1]))


def test_without_colour_all_cells_look_alike(query):
    axes = pl.comparison(query, show=False)
    assert all(len(colors_drawn(ax)) == 1 for ax in axes)
    assert all(ax.get_legend() is None for ax in axes)


def test_every_colour_is_a_row(query):
    keys = ["cell_type", "dice_uncertainty", "gene1"]
    figure = pl.comparison(query, color=keys, return_fig=True)
    axes = figure.axes
    assert len(axes) == 6
    assert [len(ax.child_axes) for ax in axes] == [0, 0, 0, 1, 0, 1]
    rows = [ax.get_subplotspec().rowspan.start for ax in axes]
    assert rows == [0, 0, 1, 1, 2, 2]
    assert axes[3].child_axes[0].get_ylabel() == "dice_uncertainty"
    np.testing.assert_array_equal(np.sort(query.X[:, 1]), axes[5].collections[0].get_array())


def test_panels_in_a_row(query):
    four = ["cell_type", "dice_uncertainty", "gene1", "gene2"]
    axes = pl.comparison(query, color=four, use_rep="X_dice", show=False)
    assert [ax.get_subplotspec().colspan.start for ax in axes] == [0, 1, 0, 1]


def test_missing_labels_are_grey_and_listed_last(query):
    query.obs.loc[query.obs_names[:10], "cell_type"] = np.nan
    axes = pl.comparison(query, color="cell_type", show=False)
    assert points(axes[0], "NA") == 10
    assert points(axes[0], "cell_type") == 35
    assert legend_labels(axes[1]) == ["B", "NK", "T", "NA"]
    query.obs["cell_type"] = np.nan
    query.obs["cell_type"] = query.obs["cell_type"].astype("category")
    axes = pl.comparison(query, color="cell_type", show=False)
    assert points(axes[0], "NA") == 45
    assert legend_labels(axes[1]) == ["NA"]


def test_missing_numbers_are_grey(query):
    query.obs["score"] = np.where(np.arange(45) < 5, np.nan, np.arange(45.0))
    query.obs.loc["cell7", "score"] = np.inf
    axes = pl.comparison(query, color="score", show=False)
    assert points(axes[0], "NA") == 6


def test_twenty_labels_keep_their_legend_off_the_cells(query):
    query.obs["many"] = [f"a rather long label {i % 20}" for i in range(45)]
    figure = pl.comparison(query, color="many", return_fig=True)
    figure.canvas.draw()
    legend = figure.axes[1].get_legend()
    assert len(legend.get_texts()) == 20
    box = legend.get_window_extent()
    assert all(not box.overlaps(ax.patch.get_window_extent()) for ax in figure.axes)
    assert box.x1 <= figure.bbox.x1
    # The panels stay panels, however large the legend.
    assert figure.axes[0].get_window_extent().width > 2.5 * figure.dpi


def test_stored_colours_are_respected(query):
    query.uns["cell_type_colors"] = ["#111111", "#222222", "#333333"]
    axes = pl.comparison(query[query.obs["cell_type"] != "B"].copy(), color="cell_type", show=False)
    assert legend_labels(axes[1]) == ["NK", "T"]
    axes = pl.comparison(query, color="cell_type", show=False)
    assert legend_colors(axes[1]) == ["#111111", "#222222", "#333333"]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 16])
def test_few_cells(query, n):
    cells = query[:n].copy()
    axes = pl.comparison(cells, color=["cell_type", "dice_uncertainty"], show=False)
    assert [points(ax) for ax in axes] == [n] * 4
    assert axes[0].get_xlabel() == ("UMAP 1" if n > 3 else "latent 1")
    assert cells.obsm["X_dice_umap"].shape == (n, 2)
    axes[0].figure.canvas.draw()


def test_one_label_one_dimension_and_cells_that_coincide(query):
    query.obs["all"] = "the same"
    query.obsm["X_dice"] = query.obsm["X_dice"][:, :1]
    query.obsm["X_dice_pca"] = np.zeros((45, 3))
    axes = pl.comparison(query, color="all", show=False)
    assert legend_labels(axes[1]) == ["the same"]
    assert np.isfinite(query.obsm["X_dice_umap"]).all()
    assert np.isfinite(query.obsm["X_dice_pca_umap"]).all()


def test_coordinates_are_computed_once(query, request):
    pl.comparison(query)
    kept = query.obsm["X_dice_umap"]
    assert kept.shape == (45, 2)
    assert kept.dtype == np.float32
    request.getfixturevalue("no_umap")
    axes = pl.comparison(query, show=False)
    np.testing.assert_array_equal(axes[1].collections[0].get_offsets(), kept)
    axes = pl.comparison(query[::-3], show=False)
    np.testing.assert_array_equal(axes[1].collections[0].get_offsets(), kept[::-3])


def test_coordinates_survive_files(query, tmp_path, request):
    pl.comparison(query)
    query.write_h5ad(tmp_path / "query.h5ad")
    query.write_zarr(tmp_path / "query.zarr")
    request.getfixturevalue("no_umap")
    for read, name in ((ad.read_h5ad, "query.h5ad"), (ad.read_zarr, "query.zarr")):
        axes = pl.comparison(read(tmp_path / name), show=False)
        np.testing.assert_array_equal(axes[1].collections[0].get_offsets(), query.obsm["X_dice_umap"])


def test_stale_coordinates_are_not_used(query):
    pl.comparison(query)
    before = query.obsm["X_dice_umap"]
    query.obsm["X_dice"] = query.obsm["X_dice"] + np.float32(0.5)
    pl.comparison(query)
    assert not np.array_equal(before, query.obsm["X_dice_umap"])


def test_a_view_stays_a_view(query):
    view = query[:30]
    axes = pl.comparison(view, color="cell_type", show=False)
    assert points(axes[0]) == 30
    assert view.is_view
    assert "X_dice_umap" not in query.obsm


def test_dask_and_data_frames(query):
    da = pytest.importorskip("dask.array")
    plain = query.copy()
    pl.comparison(plain)
    query.obsm["X_dice"] = da.from_array(query.obsm["X_dice"], chunks=(20, 5))
    query.obsm["X_dice_pca"] = pd.DataFrame(query.obsm["X_dice_pca"], index=query.obs_names)
    query.X = da.from_array(query.X, chunks=(20, 4))
    pl.comparison(query, color="gene0")
    for key in ("X_dice_umap", "X_dice_pca_umap"):
        np.testing.assert_array_equal(query.obsm[key], plain.obsm[key])


def test_global_state_and_scanpy_slots_are_untouched(query):
    query.obsm["X_umap"] = np.zeros((45, 2))
    query.uns["neighbors"] = {"mine": 1}
    random.seed(3)
    states = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    pl.comparison(query, color="cell_type")
    assert random.getstate() == states[0]
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert not query.obsm["X_umap"].any()
    assert query.uns["neighbors"] == {"mine": 1}
    assert "cell_type_colors" not in query.uns


def test_reference_is_a_grey_ground_shared_by_all_panels(query, reference):
    before = reference.copy()
    axes = pl.comparison(query, color="cell_type", reference=reference, show=False)
    assert [points(ax, "reference") for ax in axes] == [60, 60]
    assert [points(ax, "cell_type") for ax in axes] == [45, 45]
    grounds = [ax.collections[0].get_offsets() for ax in axes]
    np.testing.assert_array_equal(*grounds)
    assert axes[0].get_xlim() == axes[1].get_xlim()
    assert legend_labels(axes[1]) == ["B", "NK", "T", "reference"]
    assert query.obsm["X_dice_umap_reference"].shape == (45, 2)
    assert "X_dice_umap" not in query.obsm
    assert set(reference.obsm) == set(before.obsm)
    assert set(reference.uns) == set(before.uns)
    # Types lie on their own: each query cell's nearest reference cell has its type.
    where, ground = query.obsm["X_dice_umap_reference"], np.asarray(grounds[0])
    nearest = np.linalg.norm(where[:, None] - ground, axis=-1).argmin(1)
    assert (reference.obs["cell_type"].to_numpy()[nearest] == query.obs["cell_type"]).all()


def test_map_of_the_reference_is_kept_for_the_next_figure(query, reference, request):
    pl.comparison(query, reference=reference)
    request.getfixturevalue("no_umap")
    axes = pl.comparison(query, color="dice_uncertainty", reference=reference, show=False)
    assert legend_labels(axes[1]) == ["reference"]


def test_tiny_references(query, reference):
    axes = pl.comparison(query, reference=reference[:2].copy(), show=False)
    assert points(axes[0], "reference") == 2
    np.testing.assert_array_equal(query.obsm["X_dice_umap_reference"], query.obsm["X_dice"][:, :2])
    axes = pl.comparison(query[:1].copy(), reference=reference, show=False)
    assert points(axes[0], "cells") == 1


def test_show_save_and_return(query, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))
    assert pl.comparison(query, save=tmp_path / "a.png") is None
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert plt.get_fignums() == []
    # Neither saved nor shown: it is there for plt.savefig.
    assert pl.comparison(query) is None
    assert len(plt.gcf().axes) == 2
    plt.close("all")
    assert pl.comparison(query, save=str(tmp_path / "a.pdf"), show=True) is None
    assert [figure.number for figure in shown] == plt.get_fignums()
    assert len(pl.comparison(query, return_fig=True).axes) == 2
    # A backend with a window, or a notebook's: shown without being asked.
    monkeypatch.setattr(plt, "get_backend", lambda: "module://matplotlib_inline.backend_inline")
    assert pl.comparison(query) is None
    assert len(shown) == 2


def test_points_are_rasterised(query):
    axes = pl.comparison(query, show=False)
    assert axes[0].collections[0].get_rasterized()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"use_rep": "X_none"}, SlotError, "run dice.tl.denoise first"),
        ({"use_rep": []}, InputError, "use_rep is empty"),
        ({"color": "nothing"}, SlotError, "set color to one of"),
        ({"use_rep": "X_dice_samples"}, InputError, "cannot be used"),
    ],
)
def test_errors_name_the_fix(query, arguments, error, message):
    with pytest.raises(error, match=message):
        pl.comparison(query, **arguments)
    assert plt.get_fignums() == []


def test_errors_of_the_reference(query, reference):
    reference.obsm["short"] = reference.obsm["X_dice"][:, :3]
    with pytest.raises(InputError, match="denoised with"):
        pl.comparison(query, reference=reference, reference_rep="short")
    with pytest.raises(SlotError, match=r"reference\.obsm has no 'X_none': run dice\.tl\.train_prior"):
        pl.comparison(query, reference=reference, reference_rep="X_none")
    assert "X_dice_umap_reference" not in query.obsm
