"""The plot of a prior: spectrum and training."""

from __future__ import annotations

import numpy as np
import pytest

from dice import pl
from dice._errors import InputError, PriorFormatError, SlotError

from .conftest import make_prior


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def curve(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line.get_xydata()


def test_training_marks_the_best_step(reference):
    _, ax = pl.prior(reference, show=False)
    np.testing.assert_allclose(curve(ax, "held-out loss")[:, 1], [0.9, 0.6, 0.5, 0.55], rtol=1e-6)
    assert labels(ax) == ["held-out loss", "training loss", "linear denoiser", "kept: step 150"]
    right = ax.figure.axes[-1]
    np.testing.assert_allclose(curve(right, "training loss")[:, 0], [50, 100, 150, 200])
    assert (ax.get_xlabel(), right.get_ylabel()) == ("step", "training loss")


def test_presets_of_the_paper_keep_the_last_step(reference):
    reference.uns["dice"] = make_prior(preset="paper-small")
    assert labels(pl.prior(reference, show=False)[1])[-1] == "kept: step 200"


def test_training_of_a_mixture(reference):
    reference.uns["dice"] = make_prior({"n_components": [1, 2, 4, 8], "log_likelihood": [-9, -5, -4, -6]})
    _, ax = pl.prior(reference, show=False)
    assert labels(ax) == ["held-out log-likelihood", "kept: 4 components"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "4", "8"]


def test_training_with_one_evaluation_or_none(reference):
    history = reference.uns["dice"]["history"]
    reference.uns["dice"] = make_prior({name: values[:1] for name, values in history.items()})
    assert labels(pl.prior(reference, show=False)[1])[-1] == "kept: step 50"
    for empty in ({}, {name: values[:0] for name, values in history.items()}):
        reference.uns["dice"] = make_prior(empty)
        with pytest.raises(InputError, match="has no held-out losses"):
            pl.prior(reference)


def test_the_spectrum_tells_what_was_kept(reference):
    ax, _ = pl.prior(reference, show=False)
    values = reference.uns["dice"]["singular_values"]
    np.testing.assert_allclose(curve(ax, "kept: 3 latents")[:, 1], values[:3])
    np.testing.assert_allclose(curve(ax, "left as noise")[:, 1], values[:100])
    assert labels(ax) == ["left as noise", "kept: 3 latents"]
    assert ax.lines[-1].get_xdata()[0] == 3.5


def test_other_keys_and_errors(reference):
    reference.uns["other"] = reference.uns.pop("dice")
    pl.prior(reference, prior_key="other")
    with pytest.raises(SlotError, match=r"call dice\.tl\.train_prior"):
        pl.prior(reference)
    reference.uns["dice"] = {"config": "{"}
    with pytest.raises(PriorFormatError, match="not a stored prior"):
        pl.prior(reference)
    with pytest.raises(InputError):
        pl.prior(3)


def test_trained_priors_and_files(tmp_path):
    import dice

    reference, _ = dice.datasets.mismatch(n_reference=300)
    dice.tl.train_prior(reference, n_latent=5, preset="gmm")
    dice.Prior.from_anndata(reference).save(tmp_path / "prior.h5ad")
    sources = (reference, dice.Prior.from_anndata(reference), tmp_path / "prior.h5ad")
    drawn = [pl.prior(source, show=False) for source in sources]
    curves = [curve(ax, "held-out log-likelihood") for _, ax in drawn]
    assert len(curves[0]) >= 2
    # Files hold float32.
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-6)
    np.testing.assert_allclose(curves[0], curves[2], rtol=1e-6)
    assert {labels(ax)[1] for ax, _ in drawn} == {"kept: 5 latents"}
