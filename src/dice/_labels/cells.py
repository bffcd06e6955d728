"""Cells of a query as classifiers of labels see them: noisy latents, clean latents and genes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from dice._data import lazy
from dice._model.logistic import Logistic
from dice._model.offsets import Offsets
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask

#: Cells of a query that its composition, its own moments and what it teaches itself are learned from.
LABEL_SAMPLE = 4000


@dataclass(frozen=True)
class LabelCells:
    """Cells of a query as they were measured; PCA units."""

    query: Query
    #: Noisy and clean latents (n, k).
    y: Floats
    clean: Floats

    @classmethod
    def of(cls, query: Query) -> LabelCells:
        """Project and denoise all cells, whatever shift the query was asked for."""
        plain = replace(query, options=replace(query.options, shift=False))
        y, clean = lazy.together(plain.latents.y, plain.posterior.mean)
        cells = cls(plain, y, clean)
        # Classifiers know clean latents of measured noise, wherever the prior has them.
        read_again = plain.prior.measured and not plain.measured
        return replace(cells, clean=cells.cleaned(y)) if read_again else cells

    def __len__(self) -> int:
        return len(self.y)

    @property
    def scale(self) -> float:
        return self.query.prior.latent_scale

    @property
    def seen(self) -> Mask:
        """Cells (n,) with expression: the others say nothing of the query as a whole."""
        return ~self.query.latents.empty

    def cleaned(self, y: Floats) -> Floats:
        """Clean latents (n, k) of noisy ones whose depth is unknown."""
        prior = self.query.prior
        if prior.measured:
            return prior.mean(y, np.full(len(y), prior.typical))
        noise = torch.as_tensor(self.query.decided.cell_noise)
        with torch.inference_mode():
            return np.asarray(prior.denoise(torch.as_tensor(y.astype(np.float32)), noise))

    def without(self, offsets: Offsets | None) -> tuple[Floats, Floats, Floats | None]:
        """Noisy and clean latents (n, k) without a shift, and what was taken away (n, k) from the former."""
        if offsets is None:
            return self.y, self.clean, None
        away = offsets.of(self.y, slice(None))
        if not self.query.measured:
            return self.y - away, self.cleaned(self.y - away), away
        return self.y - away, self.clean - offsets.of(self.clean, slice(None)), away

    @cached_property
    def sampled(self) -> Codes:
        """Positions of the cells to learn from: those with the smallest seeds, wherever they are in the file."""
        order = np.argsort(self.query.seeds, kind="stable")
        return order[self.seen[order]][:LABEL_SAMPLE]

    @cached_property
    def sample(self) -> Floats:
        """Standardised genes (m, d) of the sampled cells."""
        return self.genes(self.sampled)

    def genes(self, rows: Codes) -> Floats:
        """Standardised expression (len(rows), d) of some cells, dense."""
        wanted = np.zeros(self.query.matrix.n_cells, dtype=bool)
        wanted[rows] = True
        if not wanted.any():
            return np.empty((0, len(self.query.match.prior)), dtype=np.float32)
        cells = np.flatnonzero(wanted)
        return self.standardized(self.query.matrix.take(cells), cells)[np.searchsorted(cells, rows)]

    def standardized(self, chunk: Chunk, rows: slice | Codes) -> Floats:
        """Expression (n, d) of the cells at `rows`, standardised as the reference's, dense."""
        x = self.query.likelihood.standardizer(self.query.expression(chunk, rows)).dense()
        return np.asarray(x, dtype=np.float32)

    def each(self, function: Callable[[Floats, Codes], Floats]) -> Floats:
        """What a function makes of the standardised genes of all cells and their positions, one row for each cell."""
        if len(self.sampled) == len(self):
            found = function(self.sample, self.sampled)
            result = np.empty_like(found)
            result[self.sampled] = found
            return result
        parts = self.query.matrix.each(lambda chunk, rows: function(self.standardized(chunk, rows), _positions(rows)))
        return np.concatenate(parts)

    def observed(self, classifier: Logistic) -> Logistic:
        """A classifier for the genes at hand; the prior's other genes are filled in by their mean given these."""
        query, match = self.query, self.query.match
        if match.complete:
            return classifier
        slopes, completion = classifier.slopes[match.prior], query.likelihood.completion
        if completion is not None:
            hidden = np.setdiff1d(np.arange(len(classifier.slopes)), match.prior)
            carried = query.prior.projection.loadings[hidden].T @ classifier.slopes[hidden]
            slopes = slopes + completion.loadings @ (completion.filter @ carried)
        return Logistic(slopes.astype(np.float32), classifier.offset)


def _positions(rows: slice) -> Codes:
    return np.arange(rows.start, rows.stop)
