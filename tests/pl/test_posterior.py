from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from dice import pl


def layers(ax):
    return {layer.get_label(): layer for layer in ax.collections}


def legend_labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_one_panel_per_cell_over_the_grey_reference(query, reference):
    before = set(query.obsm), set(query.uns), set(reference.obsm)
    axes = pl.posterior(query, ["cell4", "cell0"], reference=reference, show=False)
    assert [ax.get_title() for ax in axes] == ["cell4", "cell0"]
    for ax in axes:
        found = layers(ax)
        counts = {name: len(found[name].get_offsets()) for name in ("reference", "samples", "observed")}
        assert counts == {"reference": 60, "samples": 40, "observed": 1}
        assert len(found["90% of samples"].get_paths()[0]) > 10
    assert legend_labels(axes[-1]) == ["observed", "samples", "90% of samples", "reference"]
    assert (set(query.obsm), set(query.uns), set(reference.obsm)) == before


def test_samples_lie_with_their_type(query, reference):
    (ax,) = pl.posterior(query, "cell0", reference=reference, show=False)
    ground, samples = (np.asarray(layers(ax)[x].get_offsets()) for x in ("reference", "samples"))
    nearest = np.linalg.norm(samples[:, None] - ground, axis=-1).argmin(1)
    assert set(reference.obs["cell_type"].iloc[nearest]) == {query.obs["cell_type"].iloc[0]}


def test_picture_does_not_depend_on_the_other_cells(query, reference):
    alone = pl.posterior(query, 3, reference=reference, show=False)[0]
    among = pl.posterior(query, [7, 3, -1], reference=reference, show=False)[1]
    for name in ("samples", "observed"):
        np.testing.assert_array_equal(layers(alone)[name].get_offsets(), layers(among)[name].get_offsets())


def test_without_reference_the_query_is_the_ground(query):
    axes = pl.posterior(query, np.array([1, 2]), show=False)
    assert [ax.get_title() for ax in axes] == ["cell1", "cell2"]
    assert len(layers(axes[0])["all cells"].get_offsets()) == 45
    assert legend_labels(axes[1])[-1] == "all cells"


def test_coloured_ground(query, reference):
    (ax,) = pl.posterior(query, 0, reference=reference, color="cell_type", level=0.5, show=False)
    assert legend_labels(ax) == ["observed", "samples", "50% of samples", "B", "NK", "T"]
    sample = to_hex(layers(ax)["samples"].get_facecolors()[0])
    ground = {to_hex(color) for color in layers(ax)["cell_type"].get_facecolors()}
    assert len(ground) == 3
    assert sample not in ground


def test_few_samples_have_no_contour(query):
    query.obsm["X_dice_samples"] = query.obsm["X_dice_samples"][:, :4]
    (ax,) = pl.posterior(query, 0, show=False)
    assert set(layers(ax)) == {"all cells", "samples", "observed"}


@pytest.mark.parametrize("n", [1, 3, 6])
def test_few_cells_and_equal_samples(query, n):
    query.obsm["X_dice_samples"][:] = 1
    (ax,) = pl.posterior(query[:n].copy(), 0, show=False)
    ax.figure.canvas.draw()
    assert "90% of samples" in layers(ax)


def test_views_and_dask(query, reference):
    da = pytest.importorskip("dask.array")
    (ax,) = pl.posterior(query[10:20], "cell12", reference=reference, show=False)
    expected = layers(ax)["samples"].get_offsets()
    query.obsm["X_dice_samples"] = da.from_array(query.obsm["X_dice_samples"], chunks=(10, -1, -1))
    (again,) = pl.posterior(query, "cell12", reference=reference, show=False)
    np.testing.assert_array_equal(layers(again)["samples"].get_offsets(), expected)


@pytest.mark.parametrize(
    ("cells", "arguments", "message"),
    [
        ([], {}, r"got \[\]"),
        ("nobody", {}, r"\['nobody'\]"),
        (45, {}, "positions below 45"),
        ([True], {}, "positions below 45"),
        (0, {"level": 1.0}, "between 0 and 1"),
    ],
)
def test_errors_name_the_fix(query, cells, arguments, message):
    with pytest.raises(ValueError, match=message):
        pl.posterior(query, cells, **arguments)


def test_errors_of_slots(query, reference):
    query.obsm["X_dice_samples"][0] = np.nan
    with pytest.raises(ValueError, match="finite samples"):
        pl.posterior(query, 0)
    query.obsm["X_dice_samples"] = query.obsm["X_dice_samples"][..., :2]
    with pytest.raises(ValueError, match="denoised with"):
        pl.posterior(query, 1, reference=reference)
    del query.obsm["X_dice_samples"]
    with pytest.raises(KeyError, match=r"run dice\.tl\.denoise with n_samples=200 first"):
        pl.posterior(query, 0)


def test_samples_lie_above_the_marker(query, reference):
    (ax,) = pl.posterior(query, "cell0", reference=reference, show=False)
    found = layers(ax)
    order = [found[name].get_zorder() for name in ("reference", "observed", "samples", "90% of samples")]
    assert order == sorted(order)


def test_many_groups_are_named_below_the_samples(query, reference):
    reference.obs["many"] = [f"type {i % 30}" for i in range(reference.n_obs)]
    (ax,) = pl.posterior(query, "cell0", reference=reference, color="many", show=False)
    assert legend_labels(ax) == ["observed", "samples", "90% of samples"]
    assert len(ax.texts) == 30
    assert max(text.get_zorder() for text in ax.texts) < layers(ax)["observed"].get_zorder()
