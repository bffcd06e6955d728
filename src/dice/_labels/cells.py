"""Cells of a query as input of the label classifiers, and self-teaching on the query's own certain cells.

The self-taught view is a regression on the query's latents, learned from its most certain cells of each label. A shift
moves the cells of a type together, so certain cells help to label uncertain cells next to them. Each cell is predicted
by a regression that was fitted without it, because otherwise the regression would confirm its errors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy import sparse

from dice._model.arrays import LATENT_STRENGTH, Logistic, fit_logistic
from dice._model.prior import LearnedPrior
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask
from dice.options import Shift

#: Maximum number of query cells from which composition, moments and the self-taught regression are learned.
LABEL_SAMPLE = 4000
#: Fine groups are small k-means clusters: mean number of cells per group, maximum number of groups, and maximum number
#: of cells to learn groups from.
GROUP_CELLS, MOST_GROUPS, LEARNED_CELLS = 25, 400, 10_000
#: Share of the cells of each label that are used for teaching, and the minimum number of teaching cells per label.
CERTAIN, FEWEST_TAUGHT = 0.7, 5
#: Number of folds. Each fold is predicted from the other folds.
TAUGHT_FOLDS = 5
#: Largest weight of the regression, and the number of teaching cells of a label at which half of this weight is used.
WEIGHT, HALF_WEIGHT = 0.5, 20.0
#: Self-teaching never removes a label that at least this many cells had before.
KEPT_CELLS = 5
#: Number of nearest cells in a tissue whose labels are averaged.
TISSUE_NEIGHBORS = 10


@dataclass(frozen=True)
class LabelCells:
    """Cells of a query as measured or without their shift, in PCA units."""

    query: Query
    #: Noisy and clean latents (n, k).
    y: Floats
    clean: Floats
    #: The shift that was removed from the noisy latents, (n, k) or (1, k); None for cells as measured.
    away: Floats | None = None

    @classmethod
    def of(cls, query: Query) -> Self:
        """Project and denoise all cells, with the shift still in them."""
        plain = replace(query, options=replace(query.options, shift=False))
        cells = cls(plain, plain.latents.y, plain.posterior.mean)
        # If the prior has a model of the measured noise, classifiers were trained on latents denoised by this model.
        read_again = plain.prior.measured and not plain.measured
        return replace(cells, clean=cells.cleaned(cells.y)) if read_again else cells

    def __len__(self) -> int:
        return len(self.y)

    @property
    def prior(self) -> LearnedPrior:
        return self.query.prior

    @property
    def seen(self) -> Mask:
        """Mask (n,) of the cells with expression. Empty cells carry no information about the query."""
        return ~self.query.latents.empty

    def cleaned(self, y: Floats, rows: Codes | None = None) -> Floats:
        """Return clean latents (n, k) of noisy latents, with the depth of the cells at `rows`, or of a typical cell."""
        if self.prior.measured:
            depths = np.full(len(y), np.nan) if rows is None else self.query.latents.log_depth[rows]
            return self.prior.mean(y, depths)
        return self.prior.mean(y, rho=self.query.plan.level)

    def without(self, shift: Shift | Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """Return the cells without a shift, which is found or read from a record, and the record of its offsets."""
        offsets, record = self.query.find_shift(shift)
        if offsets is None:
            return self, record
        away = offsets.of(self.y, slice(None))
        y = self.y - away
        clean = self.clean - offsets.of(self.clean, slice(None)) if self.query.measured else self.cleaned(y)
        return replace(self, y=y, clean=clean, away=away), record

    @cached_property
    def sampled(self) -> Codes:
        """Positions of the cells with the smallest seeds, to learn from. File order does not matter."""
        return self.query.expressing[:LABEL_SAMPLE]

    @cached_property
    def fine(self) -> pd.Categorical:
        """Fine groups (n,) of the cells with expression: small k-means clusters of noisy latents."""
        return fine_groups(self.y, self.query.expressing)

    @cached_property
    def sample(self) -> Floats:
        """Standardised expression (m, d) of the sampled cells."""
        return self.genes(self.sampled)

    def genes(self, rows: Codes) -> Floats:
        """Return dense standardised expression (len(rows), d) of the cells at `rows`."""
        if not len(rows):
            return np.empty((0, len(self.query.match.prior)), dtype=np.float32)
        cells, place = np.unique(rows, return_inverse=True)
        return self.query.standardized(self.query.matrix.take(cells), cells)[place]

    def each(self, function: Callable[[Floats, Codes], tuple[Any, ...]]) -> list[Any]:
        """Apply a function of standardised genes and positions to all cells, in chunks. Return the joined arrays."""
        if len(self.sampled) == len(self):
            return [part[np.argsort(self.sampled)] for part in function(self.sample, self.sampled)]
        parts = self.query.matrix.each(
            lambda chunk, rows: function(self.query.standardized(chunk, rows), np.arange(rows.start, rows.stop))
        )
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def observed(self, classifier: Logistic) -> Logistic:
        """Return a classifier for the query's genes. Missing genes are replaced by their conditional mean."""
        query, match = self.query, self.query.match
        if len(match.prior) == len(classifier.slopes):
            return classifier
        slopes, likelihood = classifier.slopes[match.prior], query.likelihood
        if likelihood.filled:
            hidden = np.setdiff1d(np.arange(len(classifier.slopes)), match.prior)
            carried = self.prior.projection.loadings[hidden].T @ classifier.slopes[hidden]
            slopes = slopes + likelihood.loadings @ (likelihood.filter @ carried)
        return Logistic(slopes.astype(np.float32), classifier.offset)


def fine_groups(latents: Floats, order: Codes) -> pd.Categorical:
    """Return k-means groups (n,) of cells with latents (n, k); missing for cells that are not in `order`.

    `order` holds the positions of the cells to group. Groups are learned from the first cells, so the order should be
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


def sums_by_group(values: Chunk, groups: Codes, n_groups: int) -> Floats:
    """Return sums (G, p) of cells (n, p) per group (n,). Cells with the code -1 are left out."""
    known = np.flatnonzero(groups >= 0)
    members = sparse.csr_array((np.ones(len(known)), (groups[known], known)), shape=(n_groups, len(groups)))
    sums = members @ values
    return np.asarray(sums.toarray() if sparse.issparse(sums) else sums, dtype=np.float64)


def taught(cells: LabelCells, probabilities: Floats, rows: Codes) -> Floats:
    """Return the probabilities (n, C) of the cells `rows` after self-teaching on scaled latents (panels: on genes)."""
    if cells.prior.is_panel:
        genes = cells.genes(rows)
        latents = (genes - genes.mean(0)) / np.maximum(genes.std(0), 1e-6)
    else:
        latents = np.concatenate([cells.clean[rows], cells.y[rows]], axis=1, dtype=np.float32) / np.float32(
            cells.prior.latent_scale
        )
    # The fold of a cell depends only on its name.
    parts = (cells.query.seeds[rows] % TAUGHT_FOLDS).astype(np.intp)
    return teach(probabilities, latents, parts, np.isin(rows, cells.sampled))


def teach(probabilities: Floats, latents: Floats, parts: Codes, among: Mask) -> Floats:
    """Return the mean (n, C) of the probabilities of the views and of the self-taught regression.

    The regression is on scaled latents (n, p). `parts` (n,) is the fold of every cell, from 0 to `TAUGHT_FOLDS` - 1.
    `among` (n,) is a mask of the cells that may be used for teaching.
    """
    labels, teaching = probabilities.argmax(1), among.copy()
    teaching[teaching] = certain_cells(probabilities[teaching])
    own = probabilities.copy()
    for part in range(TAUGHT_FOLDS):
        learned = teaching & (parts != part)
        if len(np.unique(labels[learned])) > 1 and (parts == part).any():
            predict = fit_logistic(
                latents[learned], labels[learned], probabilities.shape[1], strength=LATENT_STRENGTH, max_iter=40
            )
            own[parts == part] = predict(latents[parts == part])
    n_teaching = np.bincount(labels[teaching], minlength=probabilities.shape[1])
    share = (WEIGHT * n_teaching / (n_teaching + HALF_WEIGHT))[labels][:, None]
    return with_all_labels((1 - share) * probabilities + share * own, probabilities)


def certain_cells(probabilities: Floats) -> Mask:
    """Return a mask (n,) of the most certain cells of each label."""
    labels, best = probabilities.argmax(1), probabilities.max(1)
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        n = min(max(int(np.ceil(CERTAIN * len(mine))), FEWEST_TAUGHT), len(mine))
        chosen[mine[np.argsort(-best[mine], kind="stable")[:n]]] = True
    return chosen


def with_all_labels(taught: Floats, probabilities: Floats) -> Floats:
    """Restore labels that several cells have by the views, but that no cell has after self-teaching."""
    before, n_labels = probabilities.argmax(1), taught.shape[1]
    given = np.bincount(before, minlength=n_labels) >= KEPT_CELLS
    # Restoring a label may remove the last cells of another label, hence the loop.
    while (lost := given & (np.bincount(taught.argmax(1), minlength=n_labels) == 0)).any():
        taught = np.where(lost[before][:, None], probabilities, taught)
    return taught


def with_tissue(probabilities: Floats, positions: Floats) -> tuple[Floats, float]:
    """Average probabilities (n, C) over the nearest cells in a tissue. Return the mean and the weight of neighbours.

    The weight is Cohen's kappa of the labels of cells and of their neighbours: 0 if neighbours agree by chance alone.
    """
    from sklearn.neighbors import NearestNeighbors

    n_neighbors = min(TISSUE_NEIGHBORS, len(positions) - 1)
    if n_neighbors < 1:
        return probabilities, 0.0
    nearest = NearestNeighbors(n_neighbors=n_neighbors).fit(positions).kneighbors(return_distance=False)
    around = probabilities[nearest].mean(1)
    given = [np.eye(probabilities.shape[1])[values.argmax(1)] for values in (probabilities, around)]
    agreed, chance = (given[0] * given[1]).sum(1).mean(), given[0].mean(0) @ given[1].mean(0)
    # If all cells have one label, agreement is chance.
    weight = float(np.clip((agreed - chance) / max(1 - chance, 1e-12), 0, 1))
    return (probabilities + weight * around) / (1 + weight), weight
