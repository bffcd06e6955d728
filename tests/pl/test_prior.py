"""Plots of a prior: training and scree."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot as plt

from dice import pl
from dice._errors import InputError, PriorFormatError, SlotError


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def curve(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line.get_xydata()


def test_training_marks_the_best_step(reference):
    ax = pl.training(reference, show=False)
    np.testing.assert_allclose(curve(ax, "held-out loss")[:, 1], [0.9, 0.6, 0.5, 0.55], rtol=1e-6)
    assert labels(ax) == ["held-out loss", "training loss", "linear denoiser", "kept: step 150"]
    left, right = ax.figure.axes
    np.testing.assert_allclose(curve(right, "training loss")[:, 0], [50, 100, 150, 200])
    assert (left.get_xlabel(), right.get_ylabel()) == ("step", "training loss")


def test_presets_of_the_paper_keep_the_last_step(reference):
    config = reference.uns["dice"]["config"]
    reference.uns["dice"]["config"] = config.replace("default", "paper-small")
    assert labels(pl.training(reference, show=False))[-1] == "kept: step 200"


def test_training_of_a_mixture(reference):
    history = {"n_components": np.array([1.0, 2, 4, 8]), "log_likelihood": np.array([-9.0, -5, -4, -6])}
    reference.uns["dice"]["history"] = history
    ax = pl.training(reference, show=False)
    assert labels(ax) == ["held-out log-likelihood", "kept: 4 components"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "4", "8"]


def test_training_with_one_evaluation_or_none(reference):
    history = reference.uns["dice"]["history"]
    reference.uns["dice"]["history"] = {name: values[:1] for name, values in history.items()}
    assert labels(pl.training(reference, show=False))[-1] == "kept: step 50"
    for empty in ({}, {name: values[:0] for name, values in history.items()}):
        reference.uns["dice"]["history"] = empty
        with pytest.raises(InputError, match="has no held-out losses"):
            pl.training(reference)


def test_scree_tells_what_was_kept(reference):
    ax = pl.scree(reference, show=False)
    kept, rest = ax.collections
    assert (len(kept.get_offsets()), len(rest.get_offsets())) == (5, 95)
    assert labels(ax) == ["kept: 5 latents", "left as noise"]
    np.testing.assert_allclose(kept.get_offsets()[:, 1], reference.uns["dice"]["singular_values"][:5])
    assert ax.lines[-1].get_xdata()[0] == 5.5
    short = pl.scree(reference, n_values=2, log=True, show=False)
    assert len(short.collections[0].get_offsets()) == 5
    assert short.get_yscale() == "log"


@pytest.mark.parametrize("plot", [pl.training, pl.scree])
def test_own_axes_figures_and_files(reference, plot, tmp_path):
    figure, axes = plt.subplots(1, 2)
    assert plot(reference, ax=axes[1], title="here") is axes[1]
    assert axes[1].get_title() == "here"
    assert not axes[0].lines
    assert plot(reference, ax=figure.add_subfigure(axes[0].get_subplotspec()).subplots(), return_fig=True) is figure
    plt.close(figure)
    assert plot(reference, save=tmp_path / "a.svg") is None
    assert (tmp_path / "a.svg").exists()
    assert plt.get_fignums() == []


@pytest.mark.parametrize("plot", [pl.training, pl.scree])
def test_other_keys_and_errors(reference, plot):
    reference.uns["other"] = reference.uns.pop("dice")
    plot(reference, prior_key="other")
    with pytest.raises(SlotError, match=r"run dice\.tl\.train_prior first"):
        plot(reference)
    reference.uns["dice"] = {"config": "{"}
    with pytest.raises(PriorFormatError, match=r"call dice.tl.train_prior again"):
        plot(reference)
    with pytest.raises(InputError):
        plot(3)


def test_trained_priors_and_files(tmp_path):
    import dice

    reference, _ = dice.datasets.mismatch(n_reference=300)
    dice.tl.train_prior(reference, n_latent=5, preset="gmm")
    dice.Prior.from_anndata(reference).save(tmp_path / "prior.h5ad")
    sources = (reference, dice.Prior.from_anndata(reference), tmp_path / "prior.h5ad")
    curves = [curve(pl.training(source, show=False), "held-out log-likelihood") for source in sources]
    assert len(curves[0]) >= 2
    np.testing.assert_array_equal(curves[0], curves[1])
    np.testing.assert_array_equal(curves[0], curves[2])
    assert {labels(pl.scree(source, show=False))[0] for source in sources} == {"kept: 5 latents"}
