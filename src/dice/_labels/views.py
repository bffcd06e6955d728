"""Ways to compare a query with the reference. Each view gives every cell probabilities of labels.

No way to remove a shift is the best for every query, and data without labels cannot tell which one is. Errors of
different views differ, so that their mean is about as good as the best of them. There are two families:

* The reference stays as it is: cells as they were measured, and cells without offsets of soft clusters.
* The two are matched: the query has the mean of the reference (``centered``, by latents), its mean and variance
  (``standardized``, by genes), or both are compared along the directions that they share (``correlated``, a canonical
  correlation analysis). Means and variances also depend on how common each label is. The reference is therefore
  reweighted to the composition of the query.

If the composition explains why query and reference differ, the labels of the query also follow its composition
(:func:`label_ratios`), as in the correction for label shift of Saerens, Latinne and Decaestecker (2002).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from sklearn.utils.extmath import randomized_svd

from dice._model.arrays import softmax
from dice._model.logistic import Logistic, fit_logistic
from dice._types import Codes, Floats

#: Views that match query and reference.
MATCHED = ("centered", "standardized", "correlated")
#: Cells of the reference that the composition of a query counts as, and that the moments of its genes count as.
COMPOSITION_CELLS, MOMENT_CELLS = 10.0, 10.0
#: Probabilities are raised to this power before they are summed to a composition. Doubtful cells otherwise give every
#: label of the reference a share, also those that the query lacks.
SHARPENED = 2.0
#: Share of the reference's composition in the one that labels are corrected by: no label is ever ruled out by it.
KEPT_SHARE = 0.1
#: Canonical directions, and fewest cells of a query to find them by.
N_DIRECTIONS, FEWEST_CELLS = 20, 100
#: Inverse penalty of the regression on canonical directions.
STRENGTH = 0.5
#: Weights of the reference's cells are capped at this quantile of themselves.
CAPPED = 0.99


@dataclass(frozen=True)
class LabelMoments:
    """Mean and variance (C, d) of standardised genes in every label of the reference, and its cells (C,)."""

    mean: Floats
    variance: Floats
    counts: Floats

    @property
    def composition(self) -> Floats:
        """Share (C,) of every label among the reference's cells."""
        return np.asarray(self.counts / self.counts.sum(), dtype=np.float64)

    def of(self, composition: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation (d,) that the genes have in cells of this composition (C,)."""
        mean = composition @ self.mean
        variance = composition @ (self.variance + np.square(self.mean)) - np.square(mean)
        return mean, np.sqrt(np.maximum(variance, 1e-6))


@dataclass(frozen=True)
class Anchors:
    """Some cells of the reference: labels (a,), and expression as ``scores @ basis.T + centre``."""

    codes: Codes
    scores: Floats
    #: Leading directions (d, r) of the standardised genes.
    basis: Floats
    centre: Floats


@dataclass(frozen=True)
class OwnScale:
    """Mean and standard deviation (d,) of the genes in a query, and those of the reference at its composition."""

    mean: Floats
    deviation: Floats
    reference_mean: Floats
    reference_deviation: Floats

    @classmethod
    def of(cls, x: Floats, moments: LabelMoments, composition: Floats) -> OwnScale:
        """Measure standardised cells x (n, d) of a query; few cells are shrunk to what the reference has."""
        mean, deviation = moments.of(composition)
        share = len(x) / (len(x) + MOMENT_CELLS)
        own_mean, own_variance = x.mean(0, dtype=np.float64), x.var(0, dtype=np.float64)
        own_deviation = np.sqrt(share * own_variance + (1 - share) * np.square(deviation))
        return cls(share * own_mean + (1 - share) * mean, own_deviation, mean, deviation)


def label_moments(x: Floats, codes: Codes, n_labels: int) -> tuple[Floats, Floats]:
    """Mean and variance (C, d) of genes x (n, d) in every label; zero where it has no cells."""
    mean, variance = np.zeros((2, n_labels, x.shape[1]), dtype=np.float32)
    for label in np.unique(codes):
        mine = x[codes == label]
        mean[label], variance[label] = mine.mean(0), mine.var(0)
    return mean, variance


def leading_directions(centred: Floats, n_components: int, seed: int) -> Floats:
    """Leading right singular vectors (d, r) of centred cells (n, d)."""
    _, _, v = randomized_svd(centred, n_components, n_iter=2, random_state=seed % 2**32)
    return np.ascontiguousarray(v.T, dtype=np.float32)


def composition_of(probabilities: Floats, reference: Floats) -> Floats:
    """Share (C,) of every label in a query with these probabilities (n, C), shrunk to that of the reference (C,)."""
    sharp = np.power(probabilities, SHARPENED)
    counts = (sharp / sharp.sum(1, keepdims=True)).sum(0)
    return np.asarray((counts + COMPOSITION_CELLS * reference) / (len(probabilities) + COMPOSITION_CELLS))


def view_weights(names: Iterable[str], unexplained: float) -> dict[str, float]:
    """Weight of every view in their mean, by the share of the shift that the composition does not explain.

    Cells as they were measured count as far as composition explains the shift. The directions that two data sets share
    depend on their composition, and count as far as it does not. All other views have weight 1.
    """
    special = {"measured": 1 - unexplained, "correlated": unexplained}
    return {name: special.get(name, 1.0) for name in names}


def label_ratios(probabilities: Floats, reference: Floats, unexplained: float) -> Floats:
    """Factors (C,) that replace the composition of the reference in probabilities (n, C) by that of the query.

    A shift that the composition does not explain also distorts the estimated composition. The factors are therefore
    raised to the power ``(1 - unexplained) ** 2``: in full if composition explains everything, not at all if nothing.
    """
    counts = probabilities.sum(0) + COMPOSITION_CELLS * reference
    composition = (1 - KEPT_SHARE) * counts / counts.sum() + KEPT_SHARE * reference
    ratios = np.divide(composition, reference, out=np.ones(len(reference)), where=reference > 0)
    return np.asarray(np.power(ratios, (1 - unexplained) ** 2))


def with_ratios(probabilities: Floats, ratios: Floats) -> Floats:
    """Probabilities (n, C) times the factor (C,) of every label."""
    scaled = probabilities * ratios
    return np.asarray(scaled / scaled.sum(1, keepdims=True))


def excess_of_mean(values: Floats, expected: Floats) -> Floats:
    """How far the mean of values (n, k) exceeds the expected one (k,); few cells are shrunk to no excess."""
    return np.asarray(len(values) / (len(values) + MOMENT_CELLS) * (values.mean(0, dtype=np.float64) - expected))


def unexplained_share(mean: Floats, centres: Floats, composition: Floats, reference: Floats) -> float:
    """Share of the squared distance between the means of query and reference that the composition does not explain.

    Parameters
    ----------
    mean
        Mean latents (k,) of the query.
    centres
        Mean latents (C, k) of the reference's labels.
    composition, reference
        Share (C,) of every label in the query and in the reference.
    """
    expected = composition / composition.sum() @ centres
    rest, explained = np.square(mean - expected).sum(), np.square(expected - reference @ centres).sum()
    return float(rest / max(rest + explained, np.finfo(np.float64).tiny))


def standardized_classifier(classifier: Logistic, own: OwnScale) -> Logistic:
    """A classifier of genes, for cells that are standardised by the query's own moments first."""
    ratio = own.reference_deviation / own.deviation
    slopes = ratio[:, None] * classifier.slopes
    offset = classifier.offset + (own.reference_mean - own.mean * ratio) @ classifier.slopes
    return Logistic(slopes.astype(np.float32), offset.astype(np.float32))


@dataclass(frozen=True)
class Correlated:
    """Canonical directions of a query, as a readout (d, m) of its genes, and a regression on unit vectors."""

    readout: Floats
    offset: Floats
    classifier: Logistic

    @classmethod
    def of(cls, x: Floats, own: OwnScale, anchors: Anchors, weights: Floats, n_labels: int) -> Correlated:
        """Directions that cells x (n, d) of a query share with the reference's cells, weighted (a,).

        With R and Q the two standardised data sets, these are the singular vectors of R Q'. The reference is known by
        its leading components, so that R Q' has at most as many ranks, and nothing larger than them is decomposed.
        """
        used = weights > 0
        root = np.sqrt(weights[used])[:, None]
        scale = own.reference_deviation[:, None]
        shift = (anchors.centre - own.reference_mean)[:, None]
        loadings = np.concatenate([anchors.basis / scale, shift / scale], axis=1)
        readout = loadings / own.deviation[:, None]
        offset = -own.mean @ readout
        scores = np.concatenate([anchors.scores[used], np.ones((used.sum(), 1))], axis=1)
        left, left_triangle = np.linalg.qr(root * scores)
        _, right_triangle = np.linalg.qr(x @ readout + offset)
        u, _, v = np.linalg.svd(left_triangle @ right_triangle.T)
        m = min(N_DIRECTIONS, len(u), len(v))
        directions = left @ u[:, :m] / root
        # Singular vectors of the query as a function of its genes, so that other cells of it can be read as well.
        away = np.linalg.pinv(right_triangle.astype(np.float64), rcond=1e-4) @ v[:m].T
        classifier = fit_logistic(_unit(directions), anchors.codes[used], n_labels, strength=STRENGTH)
        return cls((readout @ away).astype(np.float32), (offset @ away).astype(np.float32), classifier)

    def __call__(self, x: Floats) -> Floats:
        """Probabilities (n, C) of cells (n, d)."""
        return softmax(self.classifier.logits(_unit(x @ self.readout + self.offset)))


def label_weights(composition: Floats, reference: Floats, codes: Codes) -> Floats:
    """Weights (a,) of the reference's cells with these labels that give them another composition (C,)."""
    ratio = np.where(reference > 0, composition / np.maximum(reference, 1e-12), 0.0)[codes]
    ratio = np.minimum(ratio, np.quantile(ratio, CAPPED))
    return np.asarray(ratio / max(ratio.mean(), 1e-12))


def _unit(x: Floats) -> Floats:
    """Rows at length sqrt(m), so that their entries are about 1."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x * np.sqrt(x.shape[1]) / np.maximum(lengths, 1e-12), dtype=np.float32)
