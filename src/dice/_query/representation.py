"""What classifiers can look at: the projection of cells, their posterior, or their genes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dice._anndata import lazy
from dice._core.labels.classify import (
    GENE_STRENGTH,
    LATENT_STRENGTH,
    Floats,
    Predictor,
    fit_logistic,
    fit_neighbors,
)
from dice._core.standardize import Chunk
from dice._query.cells import Cells
from dice._query.posterior import Posterior, run_plan
from dice._query.query import Query

CLASSIFIERS = ("knn", "logistic")
REPRESENTATIONS = ("projection", "denoised", "samples", "genes")
#: Cells that a classifier of genes is fitted to at most: they are dense in memory.
MAX_GENE_CELLS = 5000


@dataclass(frozen=True)
class Represented:
    """Cells of a query under every representation; PCA units."""

    query: Query
    cells: Cells
    mean: Floats
    #: Posterior samples (n, S, k).
    samples: Floats
    #: What was found of the query's shift, and the shift (n, k) itself; `cells` is what is left.
    calibration: dict[str, Any]
    shift: Floats | None = None

    @classmethod
    def of(cls, query: Query, device: str | torch.device) -> Represented:
        """Project and denoise all cells."""
        cells = query.read()
        calibration = query.calibrate(cells, device)
        shift = calibration.shift
        plan, _, each = query.settle(cells, shift)
        posterior = Posterior(query.prior, query.projector, plan, each, query.keys, device, shift)
        result = run_plan(posterior, query.matrix, cells)
        points, mean, samples = lazy.together(cells.y, result.mean, result.samples)
        away = None if shift is None else shift.of(points, slice(None))
        points = points if away is None else points - away
        return cls(query, Cells(points, cells.residual, cells.empty), mean, samples, calibration.record, away)

    def genes(self, rows: NDArray[np.intp]) -> Floats:
        """Standardised expression (len(rows), d) of some cells, dense."""
        wanted = np.zeros(self.query.matrix.n_cells, dtype=bool)
        wanted[rows] = True
        parts = self.query.matrix.each(lambda chunk, cells: self._standardized(chunk, cells)[wanted[cells]])
        return np.concatenate(parts)[np.searchsorted(np.flatnonzero(wanted), rows)]

    def _standardized(self, chunk: Chunk, rows: slice) -> Floats:
        """Expression (n, d) of a chunk as the reference's would be, dense."""
        likelihood = self.query.likelihood
        x = likelihood.standardizer(chunk).dense()
        # Of a shallow cell, what the loadings leave unexplained is mostly noise, and is not stretched.
        return x if self.shift is None else x - self.shift[rows] @ likelihood.loadings.T

    def predict(self, representation: str, predictor: Predictor, rows: NDArray[np.intp] | None = None) -> Floats:
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
        return predictor((self.mean if representation == "denoised" else self.cells.y)[chosen] / scale)

    def fit(
        self, candidate: tuple[str, str], rows: NDArray[np.intp], codes: NDArray[np.intp], n_classes: int, seed: int
    ) -> Predictor:
        """Train the classifier of a candidate (representation, classifier) on some cells with their classes."""
        representation, kind = candidate
        if representation == "genes":
            rows, codes = _thin(rows, codes, seed)
            return fit_logistic(self.genes(rows), codes, n_classes, strength=GENE_STRENGTH)
        # Samples are classified by what was learned from means: the prior already knows how they scatter.
        x = (self.cells.y if representation == "projection" else self.mean)[rows] / self.query.prior.latent_scale
        train = fit_neighbors if kind == "knn" else partial(fit_logistic, strength=LATENT_STRENGTH)
        return train(x, codes, n_classes)


def candidates(classifier: str, representation: str, *, shifted: bool) -> list[tuple[str, str]]:
    """Pairs (representation, classifier) that a call allows.

    Of a query that shares little ground with its reference, the posterior is pulled to wrong types, and neighbours are
    misled alike: linear classifiers of what was measured are left (docs/labels.md).
    """
    pairs = [(r, c) for r in REPRESENTATIONS for c in CLASSIFIERS if (r, c) != ("genes", "knn")]
    pairs = [(r, c) for r, c in pairs if classifier in ("auto", c) and representation in ("auto", r)]
    robust = [(r, c) for r, c in pairs if r in ("projection", "genes") and c == "logistic"]
    return robust if shifted and robust else pairs


def _thin(rows: NDArray[np.intp], codes: NDArray[np.intp], seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """At most `MAX_GENE_CELLS` cells, the rare classes whole."""
    if len(rows) <= MAX_GENE_CELLS:
        return rows, codes
    rng = np.random.default_rng(seed)
    counts = np.bincount(codes)
    share = np.maximum(MAX_GENE_CELLS / len(rows), np.minimum(1, 50 / np.maximum(counts, 1)))[codes]
    kept = np.flatnonzero(rng.random(len(rows)) < share)
    return rows[kept], codes[kept]


def names_of(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{classifier} on {representation}" for representation, classifier in pairs]
