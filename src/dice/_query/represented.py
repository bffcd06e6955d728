"""Cells of a query as classifiers see them, without their shift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dice._anndata import lazy
from dice._core.labels.classify import Logistic
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask


@dataclass(frozen=True)
class Represented:
    """Cells of a query under every representation, without their shift; PCA units."""

    query: Query
    y: Floats
    mean: Floats
    #: The shift (n, k) that was taken away.
    away: Floats | None = None

    @classmethod
    def of(cls, query: Query) -> Represented:
        """Project and denoise all cells."""
        y, mean = lazy.together(query.latents.y, query.posterior.mean)
        offsets, prior = query.decided.offsets, query.prior
        away = None if offsets is None else offsets.of(y, slice(None))
        y = y if away is None else y - away
        if prior.measured and not query.measured:
            # Classifiers know clean latents of measured noise: cells that are no counts are read at the typical depth.
            mean = prior.mean(y, np.full(len(y), prior.typical))
        return cls(query, y, mean, away)

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def seen(self) -> Mask:
        """Cells (n,) with expression: the others say nothing of the query as a whole."""
        return ~self.query.latents.empty

    def latents(self, representation: str) -> Floats:
        """Scaled latents (n, k)."""
        return (self.mean if representation == "denoised" else self.y) / self.query.prior.latent_scale

    def genes(self, rows: Codes) -> Floats:
        """Standardised expression (len(rows), d) of some cells, dense."""
        wanted = np.zeros(self.query.matrix.n_cells, dtype=bool)
        wanted[rows] = True
        parts = self.query.matrix.each(lambda chunk, cells: self.standardized(chunk, cells)[wanted[cells]])
        return np.concatenate(parts)[np.searchsorted(np.flatnonzero(wanted), rows)]

    def standardized(self, chunk: Chunk, rows: slice) -> Floats:
        """Expression (n, d) of a chunk as the reference's would be, dense."""
        likelihood = self.query.likelihood
        x = likelihood.standardizer(self.query.expression(chunk, rows)).dense()
        # What separates a query lies in the span of the loadings; what these leave unexplained stays as it is.
        return x if self.away is None else x - self.away[rows] @ likelihood.loadings.T

    def logits(self, representation: str, classifier: Logistic) -> Floats:
        """Logits (n, C) of all cells by a classifier of all of the prior's genes, or of latents."""
        if representation != "genes":
            return classifier.logits(self.latents(representation))
        known = self.observed(classifier)
        if not self.query.matrix.n_cells:
            return np.empty((0, len(known.offset)), dtype=np.float32)
        parts = self.query.matrix.each(lambda chunk, cells: known.logits(self.standardized(chunk, cells)))
        return np.concatenate(parts)

    def observed(self, classifier: Logistic) -> Logistic:
        """The same classifier of the genes at hand; the others are filled in by their conditional mean."""
        query, match = self.query, self.query.match
        if match.complete:
            return classifier
        slopes, completion = classifier.slopes[match.prior], query.likelihood.completion
        if completion is not None:
            hidden = np.setdiff1d(np.arange(len(classifier.slopes)), match.prior)
            carried = query.prior.projection.loadings[hidden].T @ classifier.slopes[hidden]
            slopes = slopes + completion.loadings @ (completion.filter @ carried)
        return Logistic(slopes.astype(np.float32), classifier.offset)
