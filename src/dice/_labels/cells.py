"""Inputs of the label classifiers: labels of reference cells, and latents and genes of query cells."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._data.checks import read_labels
from dice._data.read import stored_colors
from dice._errors import InputError
from dice._labels.tree import LabelTree
from dice._model.arrays import Logistic
from dice._model.offsets import Offsets
from dice._model.prior import LearnedPrior
from dice._model.training_data import ROLES, assign_roles
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask
from dice.options import Training

#: Maximum number of query cells from which composition, moments and the self-taught regression are learned.
LABEL_SAMPLE = 4000
#: Fine groups are small k-means clusters: mean number of cells in one, maximum number of groups, and maximum number of
#: cells to learn groups from.
GROUP_CELLS, MOST_GROUPS, LEARNED_CELLS = 25, 400, 10_000


@dataclass(frozen=True)
class Labelled:
    """Labels of a reference and the roles of its cells."""

    #: The column of the labels.
    key: str
    #: Node (n,) of every cell in the tree: a label or, for cells with only a coarse label, an inner node; -1 for none.
    nodes: Codes
    names: list[str]
    roles: Codes
    #: Colour of every label, where the reference has them.
    colors: list[str] | None
    #: The tree of labels, if the reference has one.
    tree: LabelTree | None = None

    @property
    def codes(self) -> Codes:
        """Label (n,) of every cell; -1 for cells without a label or with only a coarse one."""
        return np.where(self.nodes < len(self.names), self.nodes, -1)

    @property
    def n_coarse(self) -> int:
        """Number of cells that have only a coarse label."""
        return int((self.nodes >= len(self.names)).sum())

    def cells(self, *roles: str, coarse: bool = False) -> Codes:
        """Positions of the cells with any of these roles and a label; with `coarse`, coarse labels count, too."""
        known = (self.nodes if coarse else self.codes) >= 0
        return np.flatnonzero(np.isin(self.roles, [ROLES.index(role) for role in roles]) & known)


def check_labelled(labelled: Labelled) -> Labelled:
    """Return labels that have training and calibration cells, or raise an error that says what is missing."""
    if not len(labelled.cells("train")):
        advice = "label some, or call dice.tl.train_prior(reference) again"
        raise InputError(f"No training cell of the reference has a label in obs[{labelled.key!r}]: {advice}.")
    if not len(labelled.cells("calibration")):
        advice = "train its prior with training=dice.Training(calibration_fraction=0.1)"
        raise InputError(f"No calibration cell of the reference has a label in obs[{labelled.key!r}]: {advice}.")
    return labelled


def check_roles(reference: AnnData, labels_key: str, training: Training, seed: int) -> None:
    """Raise an error before a training that would leave no labelled cells to learn from or to calibrate on."""
    shares = training.validation_fraction, training.calibration_fraction
    check_labelled(labels_of(reference, labels_key, assign_roles(reference.n_obs, *shares, seed).astype(np.intp)))


def labels_of(
    reference: AnnData, labels_key: str, roles: Codes, who: str = "reference", labels: pd.Categorical | None = None
) -> Labelled:
    """Return labels, colours and roles of reference cells. Labels with one cell are left out; errors name `who`."""
    labels = read_labels(reference, labels_key, who) if labels is None else labels
    counts = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.categories))
    if (counts == 1).any():
        single = [str(name) for name in labels.categories[counts == 1]]
        _log.warn(
            f"Labels with only one cell are left out ({len(single)}, for example {single[:5]}): merge them with others."
        )
        labels = labels.remove_categories(labels.categories[counts == 1])
    if len(labels.categories) < 2:
        raise InputError(
            f"{who}.obs[{labels_key!r}] must hold two labels or more, each with two cells or more: pass another one."
        )
    known = stored_colors(reference, labels_key) or {}
    colors = [known[name] for name in labels.categories] if set(labels.categories) <= set(known) else None
    names = [str(name) for name in labels.categories]
    return Labelled(labels_key, labels.codes.astype(np.intp), names, roles, colors)


@dataclass(frozen=True)
class LabelCells:
    """Cells of a query as measured, in PCA units."""

    query: Query
    #: Noisy and clean latents (n, k).
    y: Floats
    clean: Floats

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
        return self.standardized(self.query.matrix.take(cells), cells)[place]

    def standardized(self, chunk: Chunk, rows: slice | Codes) -> Floats:
        """Return dense expression (n, d) of a chunk, standardised as in the reference."""
        x = self.query.likelihood.standardizer(self.query.expression(chunk, rows)).dense()
        return np.asarray(x, dtype=np.float32)

    def each(self, function: Callable[[Floats, Codes], tuple[Any, ...]]) -> list[Any]:
        """Apply a function of standardised genes and positions to all cells, in chunks. Return its arrays joined."""
        if len(self.sampled) == len(self):
            return [part[np.argsort(self.sampled)] for part in function(self.sample, self.sampled)]
        parts = self.query.matrix.each(
            lambda chunk, rows: function(self.standardized(chunk, rows), np.arange(rows.start, rows.stop))
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


def sums_by_group(values: Chunk, groups: Codes, n_groups: int) -> Floats:
    """Return sums (G, p) of cells (n, p) per group (n,). Cells with the code -1 are left out."""
    known = np.flatnonzero(groups >= 0)
    members = sparse.csr_array((np.ones(len(known)), (groups[known], known)), shape=(n_groups, len(groups)))
    sums = members @ values
    return np.asarray(sums.toarray() if sparse.issparse(sums) else sums, dtype=np.float64)
