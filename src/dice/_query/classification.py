"""Classifiers of a query: what they look at, how they are weighed against each other, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dice import _log
from dice._anndata import lazy
from dice._core.labels.classify import (
    GENE_STRENGTH,
    LATENT_STRENGTH,
    Predictor,
    blend,
    fit_logistic,
    fit_neighbors,
    log_loss,
    macro_f1,
)
from dice._query.query import Query
from dice._query.reference import Labelled
from dice._types import Chunk, Codes, Floats
from dice.options import CLASSIFIERS, REPRESENTATIONS, Classifier

#: Cells that a classifier of genes is fitted to at most: they are dense in memory.
MAX_GENE_CELLS = 5000
#: Fewer held-out cells than this cannot tell classifiers apart: all cells are then held out in turn, in so many folds.
MIN_HELD_OUT, FOLDS = 50, 5
#: Candidates with a smaller weight are left out of the blend.
MIN_WEIGHT = 0.02

#: A representation and a classifier of it.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Represented:
    """Cells of a query under every representation, without their shift; PCA units."""

    query: Query
    y: Floats
    mean: Floats
    #: Posterior samples (n, S, k).
    samples: Floats
    #: The shift (n, k) that was taken away.
    away: Floats | None = None

    @classmethod
    def of(cls, query: Query) -> Represented:
        """Project and denoise all cells."""
        y, mean, samples = lazy.together(query.latents.y, query.posterior.mean, query.posterior.samples)
        offsets = query.decided.offsets
        away = None if offsets is None else offsets.of(y, slice(None))
        return cls(query, y if away is None else y - away, mean, samples, away)

    def __len__(self) -> int:
        return len(self.mean)

    def genes(self, rows: Codes) -> Floats:
        """Standardised expression (len(rows), d) of some cells, dense."""
        wanted = np.zeros(self.query.matrix.n_cells, dtype=bool)
        wanted[rows] = True
        parts = self.query.matrix.each(lambda chunk, cells: self._standardized(chunk, cells)[wanted[cells]])
        return np.concatenate(parts)[np.searchsorted(np.flatnonzero(wanted), rows)]

    def _standardized(self, chunk: Chunk, rows: slice) -> Floats:
        """Expression (n, d) of a chunk as the reference's would be, dense."""
        likelihood = self.query.likelihood
        x = likelihood.standardizer(self.query.expression(chunk, rows)).dense()
        # What separates a query lies in the span of the loadings; what these leave unexplained stays as it is.
        return x if self.away is None else x - self.away[rows] @ likelihood.loadings.T

    def predict(self, representation: str, predictor: Predictor, rows: Codes | None = None) -> Floats:
        """Class probabilities (n, C) of some or all cells."""
        if representation == "genes":
            if not self.query.matrix.n_cells:
                return predictor(np.empty((0, self.query.matrix.n_genes), dtype=np.float32))
            if rows is not None:
                return predictor(self.genes(rows))
            parts = self.query.matrix.each(
                lambda chunk, cells: predictor(self._standardized(chunk, cells)), desc="Classifying"
            )
            return np.concatenate(parts)
        scale = self.query.prior.latent_scale
        chosen = slice(None) if rows is None else rows
        if representation == "samples":
            draws = [predictor(self.samples[chosen, i] / scale) for i in range(self.samples.shape[1])]
            return np.mean(draws, axis=0)
        return predictor((self.mean if representation == "denoised" else self.y)[chosen] / scale)

    def fit(self, candidate: tuple[str, str], rows: Codes, codes: Codes, n_classes: int, seed: int) -> Predictor:
        """Train the classifier of a candidate (representation, classifier) on some cells with their classes."""
        representation, kind = candidate
        if representation == "genes":
            rows, codes = _thin(rows, codes, seed)
            return fit_logistic(self.genes(rows), codes, n_classes, strength=GENE_STRENGTH)
        # Samples are classified by what was learned from means: the prior already knows how they scatter.
        x = (self.y if representation == "projection" else self.mean)[rows] / self.query.prior.latent_scale
        train = fit_neighbors if kind == "knn" else partial(fit_logistic, strength=LATENT_STRENGTH)
        return train(x, codes, n_classes)


def candidates(classifier: Classifier, *, shifted: bool) -> list[Pair]:
    """Pairs (representation, classifier) that a call allows.

    Of a query that shares little ground with its reference, the posterior is pulled to wrong types, and neighbours are
    misled alike: linear classifiers of what was measured are left (docs/labels.md).
    """
    pairs = [(r, c) for r in REPRESENTATIONS for c in CLASSIFIERS if (r, c) != ("genes", "knn")]
    kind, representation = classifier.kind, classifier.representation
    pairs = [(r, c) for r, c in pairs if kind in ("auto", c) and representation in ("auto", r)]
    robust = [(r, c) for r, c in pairs if r in ("projection", "genes") and c == "logistic"]
    return robust if shifted and robust else pairs


@dataclass(frozen=True)
class Chosen:
    """Candidates with their weights in the blend, and how each did on held-out cells."""

    pairs: list[Pair]
    weights: Floats
    table: dict[str, Any]

    @property
    def name(self) -> str:
        parts = sorted(zip(self.weights, names_of(self.pairs), strict=True), reverse=True)
        return " + ".join(f"{weight:.2f} {name}" for weight, name in parts if weight > 0)


def choose(reference: Represented, labelled: Labelled, pairs: list[Pair], seed: int) -> Chosen:
    """Weigh the candidates by how well their mixture predicts reference cells that the network was not trained on."""
    if len(pairs) == 1:
        return Chosen(pairs, np.ones(1), {"candidate": np.array(names_of(pairs)), "weight": np.ones(1)})
    found: list[list[Floats]] = [[] for _ in pairs]
    truth: list[Codes] = []
    n_classes = len(labelled.names)
    for fit, test in _folds(labelled, seed):
        truth.append(labelled.codes[test])
        for predictions, pair in zip(found, pairs, strict=True):
            predictor = reference.fit(pair, fit, labelled.codes[fit], n_classes, seed)
            predictions.append(reference.predict(pair[0], predictor, test))
    codes, probabilities = np.concatenate(truth), [np.concatenate(parts) for parts in found]
    weights = blend(probabilities, codes)
    weights = np.where(weights < MIN_WEIGHT, 0, weights)
    weights /= weights.sum()
    mixed = sum(weight * p for weight, p in zip(weights, probabilities, strict=True))
    rows = [*probabilities, np.asarray(mixed)]
    table = {
        "candidate": np.array([*names_of(pairs), "blend"]),
        "weight": np.append(weights, 1.0),
        "log_loss": np.array([log_loss(p, codes) for p in rows]),
        "accuracy": np.array([float((p.argmax(1) == codes).mean()) for p in rows]),
        "macro_f1": np.array([macro_f1(p, codes) for p in rows]),
        "n_cells": len(codes),
    }
    return Chosen(pairs, weights, table)


def classify(
    query: Represented, reference: Represented, labelled: Labelled, chosen: Chosen, seed: int
) -> tuple[Floats, Floats]:
    """Class probabilities of the query (n, C) and of the calibration cells (m, C).

    The classifiers see every labelled cell but those of the calibration.
    """
    fit, calibration = labelled.cells("train", "validation"), labelled.cells("calibration")
    never = [name for code, name in enumerate(labelled.names) if code not in labelled.codes[fit]]
    if never:
        _log.warn(f"All cells of {never[:5]} were kept for calibration, so that these labels are never given.")
    totals = [np.zeros((n, len(labelled.names))) for n in (len(query), len(calibration))]
    for weight, pair in zip(chosen.weights, chosen.pairs, strict=True):
        if weight > 0:
            predictor = reference.fit(pair, fit, labelled.codes[fit], len(labelled.names), seed)
            totals[0] += weight * query.predict(pair[0], predictor)
            totals[1] += weight * reference.predict(pair[0], predictor, calibration)
    return totals[0], totals[1]


def _folds(labelled: Labelled, seed: int) -> Iterator[tuple[Codes, Codes]]:
    """Cells to fit and to judge by: those that stopped the training, or all in turn where they are too few."""
    train, validation = labelled.cells("train"), labelled.cells("validation")
    if len(validation) >= MIN_HELD_OUT:
        yield train, validation
        return
    cells = np.random.default_rng(seed).permutation(np.concatenate([train, validation]))
    for fold in range(FOLDS):
        test = np.arange(len(cells)) % FOLDS == fold
        if test.any() and not test.all():
            yield cells[~test], cells[test]


def _thin(rows: Codes, codes: Codes, seed: int) -> tuple[Codes, Codes]:
    """At most `MAX_GENE_CELLS` cells, the rare classes whole."""
    if len(rows) <= MAX_GENE_CELLS:
        return rows, codes
    rng = np.random.default_rng(seed)
    counts = np.bincount(codes)
    share = np.maximum(MAX_GENE_CELLS / len(rows), np.minimum(1, 50 / np.maximum(counts, 1)))[codes]
    kept = np.flatnonzero(rng.random(len(rows)) < share)
    return rows[kept], codes[kept]


def names_of(pairs: list[Pair]) -> list[str]:
    return [f"{classifier} on {representation}" for representation, classifier in pairs]
