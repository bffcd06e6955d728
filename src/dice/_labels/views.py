"""Views: ways to compare a query with the reference. Each view gives label probabilities of every cell.

No method to remove a shift is the best for every query, and the best method cannot be found without labels. Different
views make different errors, so their mean is about as good as the best view. There are two families:

* Views that do not change the reference: cells as measured, and cells without offsets of soft clusters.
* Views that match query and reference: the mean of the latents (``centered``), the mean and variance of genes
  (``standardized``), or the mean of genes before cells are compared with the mean profile of every label
  (``profiles``). Means and variances also depend on the composition. Both are therefore reweighted to one composition
  (:func:`balanced`).

If the composition explains the difference between query and reference, probabilities are corrected for it
(:func:`label_ratios`), as in the label-shift correction of Saerens, Latinne and Decaestecker (2002).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from dice._model.arrays import Logistic, softmax
from dice._types import Codes, Floats, Mask

#: Views that match query and reference.
MATCHED = ("centered", "standardized", "profiles")
#: Weight of the reference, in cells, in the estimated composition and in the estimated gene moments of a query.
COMPOSITION_CELLS, MOMENT_CELLS = 10.0, 10.0
#: Power applied to probabilities before they are summed to a composition. Otherwise uncertain cells would give a share
#: to every label of the reference, even to labels that the query lacks.
SHARPENED = 2.0
#: Number of cells at which a label has half its weight when query and reference are matched.
RARE_CELLS = 20.0
#: Share of the reference composition in the corrected composition, so that no label is ruled out.
KEPT_SHARE = 0.1
#: The weight of a gene in a profile is its standard deviation to this power. With 1, profiles are those of
#: log-expression and variable genes decide. With 0, all genes have equal weight and rare genes add noise.
PROFILE_POWER = 0.5
#: Smallest and largest temperature of cosines.
TEMPERATURES = 0.01, 1.0
#: Up to the first separation (AUC) of query and reference, calibration cells are used in full. From the second on, they
#: are not used. Sets change gradually between the two.
LIKE, UNLIKE_AUC = 0.6, 0.7
#: Number of standard errors added to the measured AUC.
POSSIBLE = 3.0


@dataclass(frozen=True)
class LabelMoments:
    """Mean and variance (C, d) of standardised genes in every label of the reference, and numbers of cells (C,)."""

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
class OwnScale:
    """Mean and standard deviation (d,) of genes in a query and in the reference, at one composition."""

    mean: Floats
    deviation: Floats
    reference_mean: Floats
    reference_deviation: Floats

    @classmethod
    def of(cls, x: Floats, moments: LabelMoments, composition: Floats, weights: Floats | None = None) -> Self:
        """Estimate the moments of standardised query cells x (n, d), shrunk to the moments of the reference."""
        mean, deviation = moments.of(composition)
        share = len(x) / (len(x) + MOMENT_CELLS)
        x = x.astype(np.float64)
        own_mean = np.average(x, axis=0, weights=weights)
        own_variance = np.average(np.square(x - own_mean), axis=0, weights=weights)
        own_deviation = np.sqrt(share * own_variance + (1 - share) * np.square(deviation))
        return cls(share * own_mean + (1 - share) * mean, own_deviation, mean, deviation)

    def matched(self, x: Floats) -> Floats:
        """Return query cells (n, d) rescaled to the moments of the reference."""
        scaled = (x - self.mean) * (self.reference_deviation / self.deviation) + self.reference_mean
        return scaled.astype(np.float32)


def label_moments(x: Floats, codes: NDArray[np.integer], n_labels: int) -> tuple[Floats, Floats]:
    """Return the mean and variance (C, d) of genes x (n, d) in every label; zero for labels without cells."""
    mean, variance = np.zeros((2, n_labels, x.shape[1]), dtype=x.dtype)
    for label in np.unique(codes):
        mine = x[codes == label]
        mean[label], variance[label] = mine.mean(0), mine.var(0)
    return mean, variance


def composition_of(probabilities: Floats, reference: Floats) -> Floats:
    """Return the composition (C,) of a query with these probabilities (n, C), shrunk to the reference (C,)."""
    counts = _sharpened(probabilities).sum(0)
    return np.asarray((counts + COMPOSITION_CELLS * reference) / (len(probabilities) + COMPOSITION_CELLS))


def balanced(probabilities: Floats, reference: Floats, unexplained: float) -> tuple[Floats, Floats]:
    """Return weights (n,) of query cells with these probabilities (n, C), and the composition (C,) that results.

    A shift that the composition does not explain may differ between labels. With equal weights of cells, the shift of
    the most common label would be removed from all other labels, which would then look like that label. A label of n
    cells therefore has the weight ``n ** (1 - unexplained)``: n if the composition explains the shift, and 1, like all
    other labels, if it explains nothing. Labels of few cells have less weight, because the query may lack them.
    """
    sharp = _sharpened(probabilities)
    counts = sharp.sum(0) + COMPOSITION_CELLS * reference
    factors = np.power(counts, 1 - unexplained) / (counts + RARE_CELLS)
    weights, target = sharp @ factors, counts * factors
    # Uncertain cells count for several labels, so the composition is not exactly the target.
    found = weights @ sharp / weights.mean() + COMPOSITION_CELLS * target / target.sum()
    return weights, np.asarray(found / found.sum())


def _sharpened(probabilities: Floats) -> Floats:
    sharp = np.power(probabilities, SHARPENED)
    return np.asarray(sharp / sharp.sum(1, keepdims=True))


def label_ratios(probabilities: Floats, reference: Floats, unexplained: float) -> Floats:
    """Return factors (C,) that convert probabilities (n, C) to the composition of the query.

    A shift that the composition does not explain also distorts the estimated composition. The factors are therefore
    raised to the power ``(1 - unexplained) ** 2``: 1 if the composition explains all, 0 if it explains nothing.
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
    """Return the mean of values (n, k) minus the expected mean (k,), shrunk towards zero if there are few cells."""
    mean = np.average(values.astype(np.float64), axis=0, weights=weights)
    return np.asarray(len(values) / (len(values) + MOMENT_CELLS) * (mean - expected))


def unexplained_share(mean: Floats, centres: Floats, composition: Floats, reference: Floats) -> float:
    """Return the share of the squared distance between query and reference means that composition does not explain.

    `mean` (k,) is the mean of the query, and `centres` (C, k) are the means of the labels in the reference.
    `composition` and `reference` are the shares (C,) of the labels in the query and in the reference.
    """
    expected = composition / composition.sum() @ centres
    rest, explained = np.square(mean - expected).sum(), np.square(expected - reference @ centres).sum()
    return float(rest / max(rest + explained, np.finfo(np.float64).tiny))


def shift_strength(auc: float, n_cells: int | None = None) -> float:
    """Return the strength of the shift, from 0 (use calibration cells in full) to 1 (do not use them).

    The AUC of few cells is uncertain. With `n_cells`, the function uses the largest AUC that is compatible with the
    measured AUC, which is the cautious choice for sets. Without `n_cells`, it uses the measured AUC, which is the best
    guess for labels.
    """
    error = 0.0 if n_cells is None else np.sqrt(1 / (12 * max(n_cells, 1)))
    return float(np.clip((auc + POSSIBLE * error - LIKE) / (UNLIKE_AUC - LIKE), 0, 1))


def standardized_classifier(classifier: Logistic, own: OwnScale) -> Logistic:
    """Return a gene classifier that first standardises cells by the moments of the query."""
    ratio = own.reference_deviation / own.deviation
    slopes = ratio[:, None] * classifier.slopes
    offset = classifier.offset + (own.reference_mean - own.mean * ratio) @ classifier.slopes
    return Logistic(slopes.astype(np.float32), offset.astype(np.float32))


@dataclass(frozen=True)
class Profiles:
    """Mean expression profile of every label. Cells are compared with the profiles by cosine.

    A regression rarely predicts a label of few cells, and its slopes fit the reference alone. Mean profiles have no
    such bias: a label of twenty cells counts as much as a label of a thousand cells. Technologies change the size of
    the differences between labels, but the cosine does not depend on this size.
    """

    #: Profiles (C, d) of unit length around the mean of the reference, and the mean (d,) of the query.
    directions: Floats
    centre: Floats
    #: Weight (d,) of every gene, and the temperature of the cosines.
    weight: Floats
    temperature: float

    @classmethod
    def of(cls, own: OwnScale, moments: LabelMoments, scale: Floats, temperature: float = 1.0) -> Self:
        """Return the profiles of the labels, for query and reference at one composition.

        `scale` (d,) are the standard deviations that genes were divided by.
        """
        weight = np.power(scale, PROFILE_POWER)
        directions = _unit((moments.mean - own.reference_mean) * weight)
        directions[moments.counts == 0] = 0
        return cls(directions, own.mean, weight, temperature)

    @property
    def known(self) -> Mask:
        """Labels (C,) that have a profile."""
        return np.asarray(self.directions.any(1))

    def cosines(self, x: Floats) -> Floats:
        """Return the cosine (n, C) of the profiles and of standardised cells (n, d)."""
        return np.asarray(_unit((x - self.centre) * self.weight) @ self.directions.T)

    def __call__(self, x: Floats) -> Floats:
        """Return probabilities (n, C) of cells (n, d)."""
        logits = np.where(self.known, self.cosines(x) / self.temperature, -np.inf)
        return softmax(logits.astype(np.float32))

    def learn_temperature(self, x: Floats, codes: Codes) -> float:
        """Return the temperature with the smallest log-loss on cells x (n, d) with these labels (n,)."""
        known = self.known
        cosines, codes = self.cosines(x[known[codes]]), codes[known[codes]]
        if not len(codes):
            return float(np.sqrt(np.prod(TEMPERATURES)))
        excess = cosines[:, known] - cosines[np.arange(len(codes)), codes][:, None]

        def loss(log_temperature: float) -> float:
            return float(logsumexp(excess / np.exp(log_temperature), axis=1).mean())

        found = minimize_scalar(loss, bounds=np.log(TEMPERATURES), method="bounded")
        return float(np.exp(found.x))


def _unit(x: Floats) -> Floats:
    """Return the rows scaled to length 1."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), dtype=np.float32)
