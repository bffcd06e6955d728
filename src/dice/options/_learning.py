"""Settings of training, of the classifier of labels, and of prediction sets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from dice._arguments import choice, number, said, whole_number
from dice._errors import InputError


@dataclass(frozen=True)
class Mixup:
    """Train the paper's networks on random mixtures of cells with the same label.

    Mixing pulls cells towards the middle of their label. A mixture of m cells keeps (c + 1) / (m c + 1) of the variance
    within its label for concentration c: a third with the defaults. The prior, and everything denoised with it, is then
    sharper by label than what was measured.

    Parameters
    ----------
    points
        Cells in a mixture, at most 100. None is 5, as in the paper.
    probability
        Share of training cells that are replaced by a mixture.
    concentration
        Parameter of the symmetric Dirichlet distribution of the mixing weights.
    """

    points: int | None = None
    probability: float = 0.9
    concentration: float = 1.0

    def __post_init__(self) -> None:
        points = None if self.points is None else whole_number("points", self.points, least=2)
        if points is not None and points > 100:
            raise InputError(f"`points` must be a whole number from 2 to 100, got {points}.")
        _settle(
            self,
            points=points,
            probability=number("probability", self.probability, least=0, most=1),
            concentration=number("concentration", self.concentration, least=0.01, most=1_000_000),
        )


@dataclass(frozen=True)
class Training:
    """How long and on which cells a prior is trained.

    Parameters
    ----------
    max_steps
        Largest number of training steps; None is the preset's.
    batch_size
        Cells in a training step; None is the preset's.
    learning_rate
        Largest learning rate; None is the preset's.
    validation_fraction
        Share of the cells held out to stop the training. With fewer than 5 such cells, a prior of counts is the linear
        filter that training would start at.
    calibration_fraction
        Share of the cells kept from everything (mean, scale, loadings, network, stopping), so that
        :func:`dice.tl.transfer_labels` and :func:`dice.tl.novelty` can calibrate on them. (Loadings that come with
        ``use_rep`` have seen them.) 0 if you need neither.
    max_cells
        Cells that the network learns from and stops on. Beyond, a random subsample is taken, with ``labels_key`` the
        same share of every label but at least 200 cells of it; the PCA is that of all cells.
    checkpoint
        File (.npz) to keep the state of the training in, every 200 steps and on Ctrl-C. Where it exists, the training
        goes on from it, and a call with the same arguments on the same machine ends with the same prior to the bit.
    keep_interrupted
        Whether Ctrl-C ends the training with the best prior so far, and a warning. Otherwise it ends the call, which
        then has written nothing but its checkpoint.
    """

    max_steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    validation_fraction: float = 0.1
    calibration_fraction: float = 0.1
    max_cells: int = 1_000_000
    checkpoint: str | os.PathLike[str] | None = None
    # Without a help text, so without a flag: the command line has one with another default.
    keep_interrupted: bool = True

    def __post_init__(self) -> None:
        rate = self.learning_rate
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise InputError(f"`checkpoint` must be a path such as 'training.npz', got {said(self.checkpoint)}.")
        _settle(
            self,
            max_steps=None if self.max_steps is None else whole_number("max_steps", self.max_steps),
            batch_size=None if self.batch_size is None else whole_number("batch_size", self.batch_size),
            learning_rate=None if rate is None else number("learning_rate", rate, least=1e-12),
            validation_fraction=number("validation_fraction", self.validation_fraction, least=0, most=0.5),
            calibration_fraction=number("calibration_fraction", self.calibration_fraction, least=0, most=0.5),
            max_cells=whole_number("max_cells", self.max_cells, least=2),
            keep_interrupted=bool(self.keep_interrupted),
        )


def _settle(settings: Any, **values: Any) -> None:
    """Set fields of a frozen object to their checked values."""
    for name, value in values.items():
        object.__setattr__(settings, name, value)


_REPRESENTATIONS = ("projection", "denoised", "genes")


@dataclass(frozen=True)
class Sets:
    """How prediction sets of :func:`dice.tl.transfer_labels` are made where the query is like the reference.

    If the query differs as a whole, its views make the sets, and these settings do not count.

    Parameters
    ----------
    method
        Score of the sets. ``"lac"`` makes the smallest ones, ``"aps"`` spreads errors more evenly over easy and hard
        cells, and ``"raps"`` does so with a penalty for long sets.
    per_class
        Calibrate every label on its own cells: coverage then holds for every label, and whatever the composition of
        the query; sets are larger.
    weighted
        Weigh the calibration cells by how likely they are in the query (a density ratio, estimated on the latents),
        for queries whose states are covered by the reference but in other proportions.
    randomize
        Break the steps of ``"aps"`` and ``"raps"`` by random numbers that belong to the cell, which makes coverage
        exact. Without them coverage is at least what was asked for, and no set is left to chance.
    """

    method: Literal["lac", "aps", "raps"] = "lac"
    per_class: bool = False
    weighted: bool = False
    randomize: bool = True

    def __post_init__(self) -> None:
        choice("method", self.method, ("lac", "aps", "raps"))


@dataclass(frozen=True)
class Classifier:
    """What :func:`dice.tl.transfer_labels` classifies cells by: multinomial logistic regression.

    Parameters
    ----------
    representation
        ``"projection"`` (PCA), ``"denoised"`` (posterior mean), ``"genes"`` (standardised expression), or ``"auto"``:
        the mixture of all three that predicts held-out reference cells best, once they are made like the query.
    min_probability
        Cells whose most likely label is less likely than this are ``"unassigned"``; by default all have a label.
    """

    representation: Literal["auto", "projection", "denoised", "genes"] = "auto"
    min_probability: float = 0.0

    def __post_init__(self) -> None:
        choice("classifier", self.representation, ("auto", *_REPRESENTATIONS))
        number("min_probability", self.min_probability, least=0, most=1)
