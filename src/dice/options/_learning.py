"""Settings of training, label classifiers and prediction sets."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from dice._arguments import choice, number, said, settle, whole_number
from dice._errors import InputError


@dataclass(frozen=True)
class Mixup:
    """Train the paper's networks on random mixtures of cells with the same label.

    Mixing pulls cells towards the middle of their label. With concentration c, a mixture of m cells has the share
    (c + 1) / (m c + 1) of the variance within its label: a third with the defaults. In the prior and after denoising,
    labels are then further apart than they are in the measured cells.

    Parameters
    ----------
    points
        Number of cells in a mixture, at most 100.
    probability
        Share of training cells that are replaced by a mixture.
    concentration
        Parameter of the symmetric Dirichlet distribution of the mixing weights.
    """

    points: int = 5
    probability: float = 0.9
    concentration: float = 1.0

    def __post_init__(self) -> None:
        if (points := whole_number("points", self.points, least=2)) > 100:
            raise InputError(f"`points` must be a whole number from 2 to 100, got {points}.")
        settle(
            self,
            points=points,
            probability=number("probability", self.probability, least=0, most=1),
            concentration=number("concentration", self.concentration, least=0.01, most=1_000_000),
        )


@dataclass(frozen=True)
class Training:
    """Settings of the training of a prior.

    Parameters
    ----------
    max_steps
        Maximum number of training steps; None uses the value of the preset.
    batch_size
        Number of cells per training step; None uses the value of the preset.
    learning_rate
        Maximum learning rate; None uses the value of the preset.
    validation_fraction
        Share of the cells that are held out to stop the training. With fewer than 5 such cells, a prior of counts is a
        linear filter, and its network is not trained.
    calibration_fraction
        Share of the cells that are held out from all of training (mean, scale, loadings, network, stopping).
        :func:`dice.tl.transfer_labels` and :func:`dice.tl.novelty` use these cells for calibration. Pass 0 if you use
        neither function.
    checkpoint
        File (.npz) for the state of the training, written every 200 steps and on Ctrl-C. The training resumes from an
        existing file. With the same arguments on the same machine, the prior is then the same to the bit as without
        interruption.
    """

    max_steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    validation_fraction: float = 0.1
    calibration_fraction: float = 0.1
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        rate = self.learning_rate
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise InputError(f"`checkpoint` must be a path such as 'training.npz', got {said(self.checkpoint)}.")
        settle(
            self,
            max_steps=None if self.max_steps is None else whole_number("max_steps", self.max_steps),
            batch_size=None if self.batch_size is None else whole_number("batch_size", self.batch_size),
            learning_rate=None if rate is None else number("learning_rate", rate, least=1e-12),
            validation_fraction=number("validation_fraction", self.validation_fraction, least=0, most=0.5),
            calibration_fraction=number("calibration_fraction", self.calibration_fraction, least=0, most=0.5),
        )


@dataclass(frozen=True)
class Sets:
    """Settings of the prediction sets of :func:`dice.tl.transfer_labels`, for a query that is like the reference.

    If the query differs from the reference as a whole, sets follow from the views of the query, and these settings have
    no effect.

    Parameters
    ----------
    method
        Conformal score of the sets. ``"lac"`` gives the smallest sets. ``"aps"`` distributes errors more evenly over
        easy and hard cells.
    per_class
        Calibrate every label on its own cells. Coverage then holds for every label and for any composition of the
        query, but sets are larger.
    """

    method: Literal["lac", "aps"] = "lac"
    per_class: bool = False

    def __post_init__(self) -> None:
        choice("method", self.method, ("lac", "aps"))


@dataclass(frozen=True)
class Classifier:
    """Settings of the classifier of :func:`dice.tl.transfer_labels`, a multinomial logistic regression.

    Parameters
    ----------
    representation
        ``"projection"`` (PCA), ``"denoised"`` (posterior mean), ``"genes"`` (standardised expression), or ``"auto"``:
        the mean of all three.
    min_probability
        Cells whose most likely label has a smaller probability are ``"unassigned"``. By default all cells get a label.
    spatial_key
        Key of ``obsm`` with positions in a tissue. Labels of the nearest cells are then one more view. Its weight grows
        with the agreement of neighbours beyond chance. Cell types that mix at a small scale are blurred. Move sections
        apart, so that cells of different sections are not neighbours.
    """

    representation: Literal["auto", "projection", "denoised", "genes"] = "auto"
    min_probability: float = 0.0
    spatial_key: str | None = None

    def __post_init__(self) -> None:
        choice("classifier", self.representation, ("auto", "projection", "denoised", "genes"))
        number("min_probability", self.min_probability, least=0, most=1)


@dataclass(frozen=True)
class Levels:
    """Labels at several levels, as a tree: pass it as ``labels_key=``. You can also pass a list of columns.

    Reference cells that have only a coarse label, such as "T cell", are also used. Such a cell counts as a cell with
    one of the labels below its coarse label.

    Parameters
    ----------
    key
        Column of ``reference.obs`` with the finest labels.
    hierarchy
        Parent of every label and node, for example ``{"CD4 naive": "T cell", "T cell": "lymphocyte"}``; a ``.csv`` file
        with the columns ``child`` and ``parent``; or an ``.obo`` file of the Cell Ontology, if the labels are ids or
        exact names of its terms.
    columns
        Columns of ``reference.obs`` with coarser labels, from coarse to fine, instead of `hierarchy`. The labels of
        each column must be nested in the labels of the column before.
    """

    key: str
    hierarchy: Mapping[str, str] | str | os.PathLike[str] | None = None
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        settle(self, columns=tuple(self.columns))
        names = (*self.columns, self.key)
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise InputError(f"`labels_key` must be different columns from coarse to fine, got {list(names)}.")
        if self.columns and self.hierarchy is not None:
            raise InputError("`hierarchy` and `columns` both describe the tree of labels: pass one of them.")
        if not isinstance(self.hierarchy, Mapping | str | os.PathLike | None):
            raise InputError(f"`hierarchy` must be a dict from child to parent, or a file, got {said(self.hierarchy)}.")

    @property
    def flat(self) -> bool:
        """Whether the labels have no tree."""
        return self.hierarchy is None and not self.columns

    @classmethod
    def of(cls, labels_key: "LabelsKey | None") -> Self | None:
        """Return a `labels_key` as an object: one column, several columns, or already an object; None stays None."""
        if labels_key is None or isinstance(labels_key, cls):
            return labels_key
        if isinstance(labels_key, list | tuple) and labels_key:
            return cls(labels_key[-1], columns=labels_key[:-1])
        return cls(labels_key)  # type: ignore[arg-type]


#: A column of labels, several columns from coarse to fine, or a column and a hierarchy.
LabelsKey: TypeAlias = str | Sequence[str] | Levels
