from __future__ import annotations

import numpy as np
import pytest

import dice
from dice import pl


@pytest.fixture(scope="module")
def pair():
    """A reference with a prior and a query of a type that it lacks."""
    reference, query = dice.datasets.mismatch("more", n_reference=300, n_query=60)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    return reference, query


def drawn(ax, label):
    return np.asarray(next(c for c in ax.collections if c.get_label() == label).get_offsets())


def test_cells_move_the_further_the_larger_rho(pair):
    reference, query = pair
    axes = pl.rho(query, reference, rhos=[0.1, 60], color="cell_type", show=False)
    assert [ax.get_title() for ax in axes] == ["PCA projection", "rho = 0.1", "rho = 60"]
    grounds = [drawn(ax, "reference") for ax in axes]
    assert [len(ground) for ground in grounds] == [300] * 3
    np.testing.assert_array_equal(grounds[0], grounds[2])
    # Cells are shuffled alike in all panels.
    start, little, much = (drawn(ax, "cell_type") for ax in axes)
    moved = [np.linalg.norm(where - start, axis=1).mean() for where in (little, much)]
    assert moved[1] > 5 * moved[0]
    assert axes[0].get_xlim() == axes[2].get_xlim()


def test_default_rhos_follow_the_prior_and_nothing_is_written(pair):
    reference, query = pair
    slots = set(query.obsm), set(query.uns), set(reference.obsm)
    axes = pl.rho(query, reference, n_cells=20, show=False)
    scale = reference.uns["dice"]["latent_scale"]
    assert [ax.get_title() for ax in axes[1:]] == [f"rho = {step * scale:.3g}" for step in (0.1, 0.5, 2)]
    assert len(drawn(axes[0], "cells")) == len(drawn(axes[0], "reference")) == 20
    assert (set(query.obsm), set(query.uns), set(reference.obsm)) == slots


def test_a_prior_alone_few_cells_and_views(pair):
    reference, query = pair
    prior = dice.Prior.from_anndata(reference)
    axes = pl.rho(query, prior, rhos=[5], show=False)
    assert [c.get_label() for c in axes[0].collections] == ["cells"]
    view = query[:1]
    pl.rho(view, reference, rhos=[5], show=False)[0].figure.canvas.draw()
    assert view.is_view


def test_priors_under_other_keys(pair):
    reference, query = pair[0].copy(), pair[1]
    reference.uns["atlas"], reference.obsm["X_atlas_pca"] = reference.uns.pop("dice"), reference.obsm.pop("X_dice_pca")
    axes = pl.rho(query, reference, rhos=[5], prior_key="atlas", show=False)
    assert len(drawn(axes[0], "reference")) == 300
    with pytest.raises(KeyError, match="No prior found"):
        pl.rho(query, reference, rhos=[5])


def test_arguments_of_an_earlier_call_are_used_again(pair):
    reference, query = pair
    query = query.copy()
    query.layers["mine"], query.X = query.X, np.full_like(query.X, np.nan)
    dice.tl.denoise(query, reference, layer="mine", key_added="X_mine")
    axes = pl.rho(query, reference, rhos=[5], use_rep="X_mine", show=False)
    assert len(drawn(axes[1], "cells")) == 60


@pytest.fixture
def tuned(pair):
    """A query with a curve, as tl.tune_rho leaves it."""
    query = pair[1].copy()
    grid, loss = np.array([0.0, 2.0, 5.0, 20.0]), np.array([4.0, 2.0, 1.0, 3.0])
    query.uns["dice_rho"] = {"grid": grid, "loss": loss, "error": 0.1 * loss, "rho": 5.0, "criterion": "genes"}
    return query


def test_the_tuning_curve_comes_first(pair, tuned):
    axes = pl.rho(tuned, pair[0], show=False)
    assert [ax.get_title() for ax in axes[1:]] == ["PCA projection", "rho = 2", "rho = 5", "rho = 20"]
    np.testing.assert_array_equal(axes[0].lines[0].get_data(), [tuned.uns["dice_rho"][x] for x in ("grid", "loss")])
    assert axes[0].lines[1].get_xdata()[0] == 5
    assert (axes[0].get_title(), axes[0].get_ylabel()) == ("best: rho = 5", "loss (genes)")


def test_the_curve_alone(tuned):
    (ax,) = pl.rho(tuned, show=False)
    assert ax.get_xlabel() == "rho (PCA units)"


def test_errors_name_the_fix(pair):
    reference, query = pair
    with pytest.raises(ValueError, match="`rhos` is empty"):
        pl.rho(query, reference, rhos=[])
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        pl.rho(query, reference, n_cells=0)
    with pytest.raises(KeyError, match="set color to one of"):
        pl.rho(query, reference, color="nothing")


@pytest.mark.parametrize(("n_panels", "columns"), [(2, 2), (3, 3), (4, 2), (5, 3), (7, 3)])
def test_panels_go_in_rows_that_fit_a_page(pair, n_panels, columns):
    axes = pl.rho(pair[1], pair[0], rhos=range(1, n_panels), n_cells=20, show=False)
    assert axes[0].get_gridspec().ncols == columns


def test_many_groups_and_rhos_fit_a_page(pair):
    reference, query = pair
    query = query.copy()
    query.obs["many"] = [f"a long name {i % 30}" for i in range(query.n_obs)]
    figure = pl.rho(query, reference, rhos=[1, 10, 30], color="many", return_fig=True)
    # Panels beside each other and their legend were 4,585 pixels wide, 30 inches.
    assert figure.get_figwidth() < 13
    axes = [ax for ax in figure.axes if ax.get_title()]
    assert len({round(ax.get_position().y0, 2) for ax in axes}) == 2
    assert all(len(ax.texts) == 30 for ax in axes)
