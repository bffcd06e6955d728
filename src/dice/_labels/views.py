"""Views: ways to compare a query with the reference. Each view gives label probabilities of every cell.

No method to remove a shift is the best for every query, and the best one cannot be found without labels. Different
views make different errors, so their mean is about as good as the best view. There are two families:

* Views that do not change the reference: cells as measured, and cells without offsets of soft clusters.
* Views that match query and reference: the mean of the latents (``centered``), the mean and variance of genes
  (``standardized``), or the directions that both share (``correlated``, a canonical correlation analysis). Means and
  variances also depend on the composition. Both are therefore reweighted to one composition (:func:`balanced`).

If the composition explains the difference between query and reference, probabilities are corrected for it
(:func:`label_ratios`), as in the label-shift correction of Saerens, Latinne and Decaestecker (2002).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from dice._model.arrays import softmax
from dice._model.logistic import Logistic, fit_logistic
from dice._types import Codes, Floats

#: Views that match query and reference.
MATCHED = ("centered", "standardized", "correlated")
#: Weight of the reference, in cells, in the estimated composition and in the estimated gene moments of a query.
COMPOSITION_CELLS, MOMENT_CELLS = 10.0, 10.0
#: Power applied to probabilities before they are summed to a composition. Otherwise uncertain cells would give a share
#: to every label of the reference, even to labels that the query lacks.
SHARPENED = 2.0
#: Number of cells of a label at which it counts by half where query and reference are matched.
RARE_CELLS = 20.0
#: Share of the reference composition in the corrected composition, so that no label is ruled out.
KEPT_SHARE = 0.1
#: Number of canonical directions, and the minimum number of query cells.
N_DIRECTIONS, FEWEST_CELLS = 20, 100
#: Inverse penalty of the regression on canonical directions.
STRENGTH = 0.5
#: Quantile at which the weights of reference cells are capped.
CAPPED = 0.99


@dataclass(frozen=True)
class LabelMoments:
    """Mean and variance (C, d) of standardised genes in every label of the reference, and its number of cells (C,)."""

    mean: Floats
    variance: Floats
    counts: Floats

    @property
    def composition(self) -> Floats:
        """Share (C,) of every label among the reference cells."""
        return np.asarray(self.counts / self.counts.sum(), dtype=np.float64)

    def of(self, composition: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation (d,) of genes at this composition (C,)."""
        mean = composition @ self.mean
        variance = composition @ (self.variance + np.square(self.mean)) - np.square(mean)
        return mean, np.sqrt(np.maximum(variance, 1e-6))


@dataclass(frozen=True)
class Anchors:
    """A sample of reference cells: labels (a,), and expression as ``scores @ basis.T + centre``."""

    codes: Codes
    scores: Floats
    #: Leading directions (d, r) of the standardised genes.
    basis: Floats
    centre: Floats


@dataclass(frozen=True)
class OwnScale:
    """Mean and standard deviation (d,) of genes in a query and in the reference, at one composition."""

    mean: Floats
    deviation: Floats
    reference_mean: Floats
    reference_deviation: Floats

    @classmethod
    def of(cls, x: Floats, moments: LabelMoments, composition: Floats, weights: Floats | None = None) -> OwnScale:
        """Estimate the moments of standardised query cells x (n, d), shrunk to those of the reference."""
        mean, deviation = moments.of(composition)
        share = len(x) / (len(x) + MOMENT_CELLS)
        x = x.astype(np.float64)
        own_mean = np.average(x, axis=0, weights=weights)
        own_variance = np.average(np.square(x - own_mean), axis=0, weights=weights)
        own_deviation = np.sqrt(share * own_variance + (1 - share) * np.square(deviation))
        return cls(share * own_mean + (1 - share) * mean, own_deviation, mean, deviation)

    def matched(self, x: Floats) -> Floats:
        """Return query cells (n, d) with the moments of the reference."""
        scaled = (x - self.mean) * (self.reference_deviation / self.deviation) + self.reference_mean
        return scaled.astype(np.float32)


def label_moments(x: Floats, codes: NDArray[np.integer], n_labels: int) -> tuple[Floats, Floats]:
    """Return the mean and variance (C, d) of genes x (n, d) in every label; zero for labels without cells."""
    mean, variance = np.zeros((2, n_labels, x.shape[1]), dtype=x.dtype)
    for label in np.unique(codes):
        mine = x[codes == label]
        mean[label], variance[label] = mine.mean(0), mine.var(0)
    return mean, variance


def leading_directions(centred: Floats, n_components: int, seed: int) -> Floats:
    """Return the leading right singular vectors (d, r) of centred cells (n, d)."""
    _, _, v = randomized_svd(centred, n_components, n_iter=2, random_state=seed % 2**32)
    return np.ascontiguousarray(v.T, dtype=np.float32)


def composition_of(probabilities: Floats, reference: Floats) -> Floats:
    """Return the composition (C,) of a query with these probabilities (n, C), shrunk to the reference (C,)."""
    counts = _sharpened(probabilities).sum(0)
    return np.asarray((counts + COMPOSITION_CELLS * reference) / (len(probabilities) + COMPOSITION_CELLS))


def balanced(probabilities: Floats, reference: Floats, unexplained: float) -> tuple[Floats, Floats]:
    """Return weights (n,) of query cells with these probabilities (n, C), and the composition (C,) that results.

    A shift that the composition does not explain may be another one in every label. If all cells counted alike, the
    shift of the most common label would be removed from all others, and would make them look like that label. A label
    of n cells therefore counts by ``n ** (1 - unexplained)``: by its cells if the composition explains the shift, and
    like every other label if it explains nothing. Labels of few cells, which the query may lack, count less.
    """
    sharp = _sharpened(probabilities)
    counts = sharp.sum(0) + COMPOSITION_CELLS * reference
    factors = np.power(counts, 1 - unexplained) / (counts + RARE_CELLS)
    weights, target = sharp @ factors, counts * factors
    # Doubtful cells count for several labels, so that the composition is not exactly the target.
    found = weights @ sharp / weights.mean() + COMPOSITION_CELLS * target / target.sum()
    return weights, np.asarray(found / found.sum())


def _sharpened(probabilities: Floats) -> Floats:
    sharp = np.power(probabilities, SHARPENED)
    return np.asarray(sharp / sharp.sum(1, keepdims=True))


def view_weights(names: Iterable[str], unexplained: float) -> dict[str, float]:
    """Return the weight of every view, given the share of the shift that the composition does not explain.

    The view of cells as measured has the explained share as weight. The view of shared directions, which depend on the
    composition, has the unexplained share. All other views have weight 1.
    """
    special = {"measured": 1 - unexplained, "correlated": unexplained}
    return {name: special.get(name, 1.0) for name in names}


def label_ratios(probabilities: Floats, reference: Floats, unexplained: float) -> Floats:
    """Return factors (C,) that convert probabilities (n, C) to the composition of the query.

    A shift that the composition does not explain also distorts the estimated composition. The factors are therefore
    raised to the power ``(1 - unexplained) ** 2``, from 1 (composition explains all) to 0 (it explains nothing).
    """
    counts = probabilities.sum(0) + COMPOSITION_CELLS * reference
    composition = (1 - KEPT_SHARE) * counts / counts.sum() + KEPT_SHARE * reference
    ratios = np.divide(composition, reference, out=np.ones(len(reference)), where=reference > 0)
    return np.asarray(np.power(ratios, (1 - unexplained) ** 2))


def with_ratios(probabilities: Floats, ratios: Floats) -> Floats:
    """Return probabilities (n, C) multiplied by the factor (C,) of every label, normalised."""
    scaled = probabilities * ratios
    return np.asarray(scaled / scaled.sum(1, keepdims=True))


def excess_of_mean(values: Floats, expected: Floats, weights: Floats | None = None) -> Floats:
    """Return the mean of values (n, k) minus the expected mean (k,), shrunk to zero if there are few cells."""
    mean = np.average(values.astype(np.float64), axis=0, weights=weights)
    return np.asarray(len(values) / (len(values) + MOMENT_CELLS) * (mean - expected))


def unexplained_share(mean: Floats, centres: Floats, composition: Floats, reference: Floats) -> float:
    """Return the share of the squared distance between mean query and mean reference not explained by composition.

    `mean` are latents (k,) of the query, `centres` those (C, k) of the labels in the reference. `composition` and
    `reference` are the shares (C,) of the labels in the query and in the reference.
    """
    expected = composition / composition.sum() @ centres
    rest, explained = np.square(mean - expected).sum(), np.square(expected - reference @ centres).sum()
    return float(rest / max(rest + explained, np.finfo(np.float64).tiny))


def standardized_classifier(classifier: Logistic, own: OwnScale) -> Logistic:
    """Return a gene classifier that first standardises cells by the moments of the query."""
    ratio = own.reference_deviation / own.deviation
    slopes = ratio[:, None] * classifier.slopes
    offset = classifier.offset + (own.reference_mean - own.mean * ratio) @ classifier.slopes
    return Logistic(slopes.astype(np.float32), offset.astype(np.float32))


@dataclass(frozen=True)
class Correlated:
    """Directions that query and reference share, as weights (d, m) of the genes, and a classifier on them."""

    readout: Floats
    offset: Floats
    classifier: Logistic

    @classmethod
    def of(cls, x: Floats, own: OwnScale, anchors: Anchors, weights: Floats, n_labels: int) -> Correlated:
        """Find the directions that query cells x (n, d) share with reference cells of these weights (a,).

        They are the singular vectors of R Q', where R and Q are the standardised data sets. The reference is stored as
        leading components, so the rank of R Q' is small and only small matrices are decomposed.
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
        # The singular vectors become a function of genes, so that it applies to all cells of the query.
        away = np.linalg.pinv(right_triangle.astype(np.float64), rcond=1e-4) @ v[:m].T
        classifier = fit_logistic(_unit(directions), anchors.codes[used], n_labels, strength=STRENGTH)
        return cls((readout @ away).astype(np.float32), (offset @ away).astype(np.float32), classifier)

    def __call__(self, x: Floats) -> Floats:
        """Return probabilities (n, C) of cells (n, d)."""
        return softmax(self.classifier.logits(_unit(x @ self.readout + self.offset)))


def label_weights(composition: Floats, reference: Floats, codes: Codes) -> Floats:
    """Return weights (a,) that give reference cells with these labels another composition (C,)."""
    ratio = np.where(reference > 0, composition / np.maximum(reference, 1e-12), 0.0)[codes]
    ratio = np.minimum(ratio, np.quantile(ratio, CAPPED))
    return np.asarray(ratio / max(ratio.mean(), 1e-12))


def _unit(x: Floats) -> Floats:
    """Return the rows scaled to length sqrt(m), so that entries are about 1."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x * np.sqrt(x.shape[1]) / np.maximum(lengths, 1e-12), dtype=np.float32)
