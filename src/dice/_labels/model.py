"""Labels of a reference, and the label model of its prior, which labels queries without the reference cells.

The model holds classifiers, their logits on calibration cells, and the moments of every gene in every label: a few MB
of plain arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dice._errors import InputError, PriorFormatError
from dice._labels.novelty import Groups
from dice._labels.tree import LabelTree
from dice._labels.views import LabelMoments
from dice._model.arrays import Logistic, softmax
from dice._model.schema import check_arrays
from dice._model.training_data import ROLES
from dice._types import Codes, Floats

#: Maximum number of labels listed in the text.
LISTED = 100
#: Inputs of the classifiers: scaled noisy latents, scaled clean latents, standardised genes.
REPRESENTATIONS = ("projection", "denoised", "genes")
#: Maximum numbers of calibration cells and of labels.
MOST_CELLS, MOST_LABELS = 2000, 10_000
#: Smallest probability in the log-loss.
FLOOR = 1e-4
#: Axes of the stored arrays: labels C, latents k, genes d and calibration cells m.
_ARRAYS = {
    "counts": "C", "centres": "Ck", "whiten": "kk", "calibration_codes": "m", "calibration_y": "mk",
    "gene_means": "Cd", "gene_variances": "Cd", "temperature": "1", "batch_evidence": "2",
}  # fmt: skip
#: Axes of the arrays of every classifier: slopes, offset, and logits of calibration cells.
_OF_CLASSIFIERS = {
    f"{name}_{part}": axes
    for name in REPRESENTATIONS
    for part, axes in (("slopes", "dC" if name == "genes" else "kC"), ("offset", "C"), ("calibration", "mC"))
}


@dataclass(frozen=True)
class Labelled:
    """Labels of a reference and the roles of its cells."""

    #: The column of the labels.
    key: str
    #: Node (n,) of every cell in the tree: a label or, for cells with only a coarse label, an inner node; -1 for none.
    nodes: Codes
    names: list[str]
    roles: Codes
    #: Colour of every label; None if the reference has no colours.
    colors: list[str] | None
    #: Checksum of the labels of all cells, which tells whether labels were edited since the training.
    checksum: str
    #: The tree of labels, if the reference has one.
    tree: LabelTree | None = None

    @property
    def codes(self) -> Codes:
        """Label (n,) of every cell; -1 for cells without a label or with only a coarse label."""
        return np.where(self.nodes < len(self.names), self.nodes, -1)

    @property
    def n_coarse(self) -> int:
        """Number of cells that have only a coarse label."""
        return int((self.nodes >= len(self.names)).sum())

    def cells(self, *roles: str, coarse: bool = False) -> Codes:
        """Positions of the cells with any of these roles and a label. With `coarse`, the label may be coarse."""
        known = (self.nodes if coarse else self.codes) >= 0
        return np.flatnonzero(np.isin(self.roles, [ROLES.index(role) for role in roles]) & known)


@dataclass(frozen=True, eq=False)
class LabelModel:
    """Classifiers of the labels, one for each of `REPRESENTATIONS`, and statistics of the reference cells."""

    names: list[str]
    classifiers: Mapping[str, Logistic]
    #: Logits (m, C) of every classifier on calibration cells.
    logits: Mapping[str, Floats]
    #: Number of training cells (C,) of every label, and their mean latents (C, k) in PCA units.
    counts: Floats
    centres: Floats
    #: Rotation and scaling (k, k) that whitens the scatter within labels.
    whiten: Floats
    calibration_codes: Codes
    #: Latents (m, k) of the calibration cells in PCA units.
    calibration_y: Floats
    #: Mean and variance (C, d) of the standardised genes in every label.
    gene_means: Floats
    gene_variances: Floats
    #: Temperature (1,) of the cosines of cells and mean profiles of the labels.
    temperature: Floats
    #: Numbers of wrong and of expected wrong labels between batches of the reference (2,).
    batch_evidence: Floats
    #: Description of the reference: labels with cell numbers, accuracy and F1, source, versions.
    card: Mapping[str, Any]

    def moments(self, genes: Codes | slice = slice(None)) -> LabelMoments:
        """Return the moments of some genes in every label."""
        mean, variance = (values[:, genes].astype(np.float64) for values in (self.gene_means, self.gene_variances))
        return LabelMoments(mean, variance, self.counts)

    def weights(self, names: Sequence[str] = REPRESENTATIONS, *, by_loss: bool = False) -> dict[str, float]:
        """Return the weights of classifiers: equal, or `by_loss` inverse to their log-loss on calibration cells."""
        known = [softmax(self.logits[name]) for name in names]
        each = np.array([1 / max(log_loss(p, self.calibration_codes), 1e-3) if by_loss else 1.0 for p in known])
        return dict(zip(names, (each / each.sum()).tolist(), strict=True))

    def calibration(self, weights: Mapping[str, float] | None = None) -> Floats:
        """Return the weighted mean (m, C) of the classifiers' probabilities for calibration cells."""
        parts = (self.weights() if weights is None else weights).items()
        return np.asarray(sum(weight * softmax(self.logits[name]) for name, weight in parts))

    def scores(self, weights: Mapping[str, float]) -> dict[str, Any]:
        """Return the scores of each classifier, and of their weighted mean, on calibration cells."""
        codes = self.calibration_codes
        found = [*(self.calibration({name: 1.0}) for name in weights), self.calibration(weights)]
        f1 = [self.tree.f1(codes, p.argmax(1))[: len(self.names)] for p in found]
        return {
            "candidate": np.array([*weights, "blend"]), "n_cells": len(codes),
            "weight": np.array([*weights.values(), 1.0]),
            "accuracy": np.array([(p.argmax(1) == codes).mean() for p in found]),
            "log_loss": np.array([log_loss(p, codes) for p in found]), "macro_f1": np.nanmean(f1, axis=1),
        }  # fmt: skip

    @property
    def confusion(self) -> Floats:
        """Mean probability (C, C) of every label (columns) in calibration cells of each label (rows).

        For a label without calibration cells, its own probability is 1.
        """
        found, codes = np.eye(len(self.names)), self.calibration_codes
        probabilities = self.calibration()
        for label in np.unique(codes):
            found[label] = probabilities[codes == label].mean(0)
        return found

    @cached_property
    def tree(self) -> LabelTree:
        """Tree of the labels, from the reference or, if the reference has no tree, learned from calibration cells."""
        parents = self.card.get("hierarchy")
        if parents is None:
            return LabelTree.learn(self.names, self.confusion)
        return LabelTree.of(self.names, parents, self.card.get("levels", ()))

    def groups(self, latent_scale: float) -> tuple[Groups, Floats, Codes]:
        """Return the labels as known groups, and the latents (m, k) and groups (m,) of calibration cells."""
        used, place = np.flatnonzero(self.counts > 0), np.full(len(self.names), -1)
        place[used] = np.arange(len(used))
        classifier, means = self.classifiers["projection"], self.centres[used] @ self.whiten
        predict = Logistic(classifier.slopes[:, used], classifier.offset[used])
        known = Groups(self.whiten, means, predict, latent_scale, self.counts[used])
        return known, self.calibration_y, place[self.calibration_codes]

    def to_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return all arrays. Names and card are text and are stored elsewhere."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for name, known in self.classifiers.items():
            arrays |= {f"{name}_slopes": known.slopes, f"{name}_offset": known.offset}
            arrays[f"{name}_calibration"] = self.logits[name]
        return {name: np.asarray(array, np.float32) for name, array in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], card: Mapping[str, Any], n_latent: int, n_genes: int) -> Self:
        """Check stored arrays, then build the model."""
        names = _labels_of(card)
        sizes = {"C": len(names), "k": n_latent, "d": n_genes, "1": 1, "2": 2}
        sizes["m"] = np.size(arrays.get("calibration_codes", ()))
        shapes = {name: tuple(sizes[axis] for axis in axes) for name, axes in (_ARRAYS | _OF_CLASSIFIERS).items()}
        check_arrays(arrays, shapes, "labels")
        codes = arrays["calibration_codes"]
        for name, holds, rule in (
            ("counts", arrays["counts"].any(), "must not be all zero"),
            ("calibration_codes", np.isin(codes, np.arange(len(names))).all(), "must be codes of its labels"),
            ("temperature", (arrays["temperature"] > 0).all(), "must be positive"),
        ):
            if not holds:
                raise PriorFormatError(f"The stored prior's 'labels/{name}' {rule}.")
        common = {name: arrays[name] for name in _ARRAYS} | {"calibration_codes": codes.astype(np.intp)}
        classifiers = {name: Logistic(arrays[f"{name}_slopes"], arrays[f"{name}_offset"]) for name in REPRESENTATIONS}
        logits = {name: arrays[f"{name}_calibration"] for name in REPRESENTATIONS}
        return cls(names=names, classifiers=classifiers, logits=logits, card=card, **common)


def _labels_of(card: Mapping[str, Any]) -> list[str]:
    """Return the labels that a card lists, after checking them and their tree."""
    names, parents, levels = card.get("labels"), card.get("hierarchy", {}), card.get("levels", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        names = []
    if not 1 < len(set(names)) == len(names) <= MOST_LABELS:
        raise PriorFormatError("The stored prior's 'card' does not list its labels.")
    try:
        named = all(isinstance(name, str) for name in [*parents.values(), *levels]) and len(parents) <= MOST_LABELS
        if not named or LabelTree.of(names, parents).depths.max() > len(levels) > 0:
            raise InputError("The nodes of the tree must have text as names, and every level must have a name.")
    except (InputError, AttributeError, TypeError) as error:
        raise PriorFormatError(f"The stored prior's 'card' has no tree of its labels: {error}") from error
    return names


def log_loss(probabilities: Floats, codes: NDArray[np.integer]) -> float:
    """Return the mean negative log probability of the true classes (n,)."""
    return float(-np.log(np.maximum(probabilities[np.arange(len(codes)), codes], FLOOR)).mean())


def describe(card: Mapping[str, Any]) -> str:
    """Return a card as text. The card may come from an untrusted file."""
    versions = card.get("versions")
    packages = ", ".join(f"{name} {number}" for name, number in versions.items()) if isinstance(versions, dict) else ""
    lines = [
        f"learned from {_printable(card.get('cells'))} cells and {_printable(card.get('genes'))} genes"
        + (f", {_printable(card['source'])}" if card.get("source") else ""),
        f"labels {_printable(card.get('labels_key'))!r}: accuracy {_printable(card.get('accuracy', 'unknown'))} on "
        f"{_printable(card.get('held_out'))} held-out cells",
        f"  {'cells':>7}  {'F1':>6}  label",
    ]
    entries = (card.get(name) for name in ("labels", "label_cells", "f1"))
    names, counts, scores = (entry if isinstance(entry, list) else [] for entry in entries)
    for i, name in enumerate(names[:LISTED]):
        n, f1 = (values[i] if i < len(values) else None for values in (counts, scores))
        lines.append(f"  {_printable(n):>7}  {'-' if f1 is None else _printable(f1):>6}  {_printable(name)}")
    if len(names) > LISTED:
        lines.append(f"  and {len(names) - LISTED} more")
    return "\n".join([*lines, _printable(packages)])


def _printable(value: Any) -> str:
    """Return a value as one line of at most 200 printable characters."""
    return "".join(filter(str.isprintable, " ".join(str(value).split())))[:200]
