"""The inputs of label classifiers for a query: noisy latents, clean latents and genes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from dice._keys import PANEL_LAYER
from dice._model.arrays import Logistic
from dice._model.offsets import Offsets
from dice._model.prior import LearnedPrior
from dice._query.query import Query
from dice._query.shift import query_order
from dice._types import Chunk, Codes, Floats, Mask

#: Maximum number of query cells from which composition, moments and the self-taught regression are learned.
LABEL_SAMPLE = 4000
#: Mean number of cells per fine group, maximum number of groups, and maximum number of cells to learn groups from.
GROUP_CELLS, MOST_GROUPS, LEARNED_CELLS = 25, 400, 10_000


def is_panel(prior: LearnedPrior) -> bool:
    """Return whether a prior was learned on the values of a panel."""
    return bool(prior.params.get("layer") == PANEL_LAYER)


@dataclass(frozen=True)
class LabelCells:
    """Cells of a query as measured, in PCA units."""

    query: Query
    #: Noisy and clean latents (n, k).
    y: Floats
    clean: Floats

    @classmethod
    def of(cls, query: Query) -> LabelCells:
        """Project and denoise all cells without removing a shift."""
        plain = replace(query, options=replace(query.options, shift=False))
        cells = cls(plain, plain.latents.y, plain.posterior.mean)
        # Classifiers were trained on clean latents of the measured noise if the prior has a model of it.
        read_again = plain.prior.measured and not plain.measured
        return replace(cells, clean=cells.cleaned(cells.y)) if read_again else cells

    def __len__(self) -> int:
        return len(self.y)

    @property
    def is_panel(self) -> bool:
        """Whether the prior was learned on the few genes of a panel."""
        return is_panel(self.query.prior)

    @property
    def scale(self) -> float:
        return self.query.prior.latent_scale

    @property
    def seen(self) -> Mask:
        """Mask (n,) of the cells with expression. Empty cells carry no information about the query."""
        return ~self.query.latents.empty

    def cleaned(self, y: Floats, rows: Codes | None = None) -> Floats:
        """Return clean latents (n, k) of noisy latents, with the depth of the cells at `rows`, or of a typical cell."""
        prior = self.query.prior
        if prior.measured:
            return prior.mean(y, np.full(len(y), np.nan) if rows is None else self.query.latents.log_depth[rows])
        return prior.mean(y, rho=self.query.plan.level)

    def without(self, offsets: Offsets | None) -> tuple[Floats, Floats, Floats | None]:
        """Return noisy and clean latents (n, k) without the shift, and the shift (n, k) of the noisy ones."""
        if offsets is None:
            return self.y, self.clean, None
        away = offsets.of(self.y, slice(None))
        if not self.query.measured:
            return self.y - away, self.cleaned(self.y - away), away
        return self.y - away, self.clean - offsets.of(self.clean, slice(None)), away

    @cached_property
    def sampled(self) -> Codes:
        """Positions of the cells to learn from: those with the smallest seeds, so that file order does not matter."""
        return query_order(self.query)[:LABEL_SAMPLE]

    @cached_property
    def fine(self) -> pd.Categorical:
        """Fine groups (n,) of the cells with expression."""
        return fine_groups(self.y, query_order(self.query))

    @cached_property
    def sample(self) -> Floats:
        """Standardised expression (m, d) of the sampled cells."""
        return self.genes(self.sampled)

    def genes(self, rows: Codes) -> Floats:
        """Return dense standardised expression (len(rows), d) of the cells at `rows`."""
        if not len(rows):
            return np.empty((0, len(self.query.match.prior)), dtype=np.float32)
        cells, place = np.unique(rows, return_inverse=True)
        return self.standardized(self.query.matrix.take(cells), cells)[place]

    def standardized(self, chunk: Chunk, rows: slice | Codes) -> Floats:
        """Return dense expression (n, d) of a chunk, standardised as in the reference."""
        x = self.query.likelihood.standardizer(self.query.expression(chunk, rows)).dense()
        return np.asarray(x, dtype=np.float32)

    def each(self, function: Callable[[Floats, Codes], Floats]) -> Floats:
        """Apply a function of standardised genes and positions to all cells, in chunks. Return one row per cell."""
        if len(self.sampled) == len(self):
            found = function(self.sample, self.sampled)
            result = np.empty_like(found)
            result[self.sampled] = found
            return result
        parts = self.query.matrix.each(
            lambda chunk, rows: function(self.standardized(chunk, rows), np.arange(rows.start, rows.stop))
        )
        return np.concatenate(parts)

    def observed(self, classifier: Logistic) -> Logistic:
        """Return a classifier for the query's genes. Missing genes are replaced by their conditional mean."""
        query, match = self.query, self.query.match
        if len(match.prior) == len(classifier.slopes):
            return classifier
        slopes, likelihood = classifier.slopes[match.prior], query.likelihood
        if likelihood.filled:
            hidden = np.setdiff1d(np.arange(len(classifier.slopes)), match.prior)
            carried = query.prior.projection.loadings[hidden].T @ classifier.slopes[hidden]
            slopes = slopes + likelihood.loadings @ (likelihood.filter @ carried)
        return Logistic(slopes.astype(np.float32), classifier.offset)


def fine_groups(latents: Floats, order: Codes) -> pd.Categorical:
    """Return k-means groups (n,) of cells with latents (n, k); none for cells that are not in `order`.

    `order` holds the positions of the cells to group. Groups are learned from the first ones, so the order should be
    random and independent of the file.
    """
    from sklearn.cluster import KMeans

    codes = np.full(len(latents), -1, dtype=np.intp)
    if len(order):
        cells = np.ascontiguousarray(latents[order], dtype=np.float32)
        learned = cells[:LEARNED_CELLS]
        n_groups = int(np.clip(len(order) // GROUP_CELLS, 1, MOST_GROUPS))
        model = KMeans(min(n_groups, len(np.unique(learned, axis=0))), n_init=1, random_state=0).fit(learned)
        codes[order] = model.predict(cells)
    return pd.Categorical.from_codes(codes, [str(code) for code in range(codes.max(initial=-1) + 1)])
