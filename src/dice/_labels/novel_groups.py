"""Whether a group of cells is unlike the reference, where none of its cells is by itself.

The noise of single cells averages out in a group. What is left is how far its mean is from where its cells should be
if they were what they are taken for: the means of known groups, mixed as the classifier mixes them. Cells of a known
type are not spread around one mean alone, and a cluster may be any part of a type: that parts of known groups are
displaced as well is measured on calibration cells, and allowed for as a variance between groups; where most groups of a
query are displaced further, as by another technology, so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dice._labels.conformal import effective_size
from dice._labels.novelty import Groups
from dice._types import Floats, Mask

#: Groups with fewer cells are not tested, and parts of known groups with fewer are not compared with.
LEAST_CELLS, LEAST_KNOWN = 10, 5
#: Known groups are allowed this much more displacement than was measured, and never less than the other.
MARGIN, LEAST_ALLOWED = 1.5, 0.04
#: Under a shift, a group is called where its displacement, and its distance to the nearest known group, are so many
#: times those of the query's median group; fewest groups to tell. On 8 shifted pairs with each type left out
#: 13 of 14 called groups were new, and none was called with nothing left out (docs/labels.md).
FARTHER, FEWEST_GROUPS = 5.0, 8
#: Calibration cells that the common scatter counts as, where that of a label is measured.
COMMON_CELLS = 10


@dataclass(frozen=True)
class Displaced:
    """How far the means of groups (G,) are from where they should be, as shares of the variance of their cells."""

    square: Floats
    #: What the mean of so few cells, around means of so few known cells, has by chance.
    by_chance: Floats
    #: Directions that the scatter of a group has, a number between 1 and k.
    directions: Floats
    #: Known group that most of the cells are taken for.
    label: NDArray[np.integer]

    @property
    def excess(self) -> Floats:
        """Squared displacement beyond chance; not a number for groups with too few cells."""
        return self.square - self.by_chance

    def only(self, mask: Mask, *, drop: bool = False) -> Displaced:
        """Those of a mask (G,): others are not numbers, or dropped."""
        values = np.stack([self.square, self.by_chance, self.directions])
        values, label = (values[:, mask], self.label[mask]) if drop else (np.where(mask, values, np.nan), self.label)
        return Displaced(values[0], values[1], values[2], label)

    def noise(self, allowed: float) -> Floats:
        """Variance of the excess by chance, around a displacement of `allowed`."""
        return self.by_chance * (self.by_chance + 2 * allowed) * 2 / self.directions

    def freedom(self, allowed: float, spread: float) -> Floats:
        """Degrees of freedom of a scaled chi-squared variable with the mean and variance of the squared displacement.

        `allowed` and `spread` are mean and variance of that beyond chance.
        """
        variance = spread + self.noise(allowed)
        return np.clip(2 * (allowed + self.by_chance) ** 2 / variance, 1, self.directions)


def compare_groups(
    groups: Groups, query: Floats, codes: NDArray[np.integer], calibration: Floats, known: NDArray[np.integer]
) -> tuple[Floats, Floats, float]:
    """P-values (G,) of groups of query cells, their displacement (G,), and that which known groups may have.

    Parameters
    ----------
    groups
        Known groups.
    query, calibration
        Latents (n, k) and (m, k).
    codes, known
        Groups (n,) and known groups (m,) of these cells; -1 for none.

    Returns
    -------
    Not a number for groups with too few cells, and for all of them where no known group has calibration cells enough.
    """
    scatter = _scatter(groups, calibration)
    found = displacement(groups, query, codes, scatter)
    found = found.only(np.bincount(codes[codes >= 0], minlength=len(found.square)) >= LEAST_CELLS)
    # A cluster may be a part of a known group: that is split into as many parts as clusters are taken for it.
    n_parts = np.bincount(found.label[~np.isnan(found.square)], minlength=len(groups.means))
    parts = displacement(groups, calibration, split(calibration @ groups.whiten, known, n_parts), scatter)
    parts = parts.only(~np.isnan(parts.square), drop=True)
    if not len(parts.square):
        return np.full(len(found.square), np.nan), found.excess, np.nan
    allowed, spread, known_freedom = _allowance(parts)
    # Another technology displaces all groups, and a new type its own: what most groups of the query have is usual. Of
    # Baron's pancreas cells under an atlas of other studies, nine of ten clusters were novel without it.
    tested = found.excess[~np.isnan(found.excess)]
    usual = float(np.quantile(tested, 0.5, method="lower")) if len(tested) else 0.0
    larger = max(MARGIN * usual / allowed, 1.0)
    allowed, spread = larger * allowed, larger**2 * spread
    # The scale of the squared displacement is itself known from few parts: by the chi-squared test, 140 held-out blood
    # cells with 56 calibration cells had a false group, and 20 k-means clusters of bmmc were false in 20 % (13 % now).
    ratio, freedom = found.square / (allowed + found.by_chance), found.freedom(allowed, spread)
    return stats.f.sf(ratio, freedom, known_freedom), found.excess, allowed


def farther_groups(groups: Groups, query: Floats, codes: NDArray[np.integer]) -> Mask:
    """Groups (G,) of a shifted query that are much further from the reference than most of its groups.

    A shift moves all groups, and a new type is apart from what is known besides. A group has to be far from where its
    cells should be. Without the displacement that most groups have in common, it also has to be far from every known
    group, relative to the distance between that group and its nearest neighbour.

    Parameters
    ----------
    groups
        Known groups.
    query
        Latents (n, k).
    codes
        Groups (n,) of these cells; -1 for none.
    """
    n_groups = int(codes.max(initial=-1)) + 1
    n = np.bincount(codes[codes >= 0], minlength=n_groups)
    tested = np.flatnonzero(n >= LEAST_CELLS)
    called = np.zeros(n_groups, dtype=bool)
    if len(tested) < FEWEST_GROUPS or len(groups.means) < 2:
        return called
    offsets, _ = _offsets(groups, query)
    points = query.astype(np.float64) @ groups.whiten
    means, away, by_chance = [], [], []
    for code in tested:
        mine = codes == code
        means.append(points[mine].mean(0))
        away.append(offsets[mine].mean(0))
        by_chance.append(points[mine].var(0).sum() / n[code])
    common = _weighted_median(np.array(away), n[tested])
    displaced = np.square(away).sum(1)
    between = np.square(groups.means[:, None] - groups.means).sum(2)
    np.fill_diagonal(between, np.inf)
    distance = np.square((np.array(means) - common)[:, None] - groups.means).sum(2)
    nearest = distance.argmin(1)
    apart = np.maximum(distance.min(1) - by_chance, 0) / between.min(1)[nearest]
    far = [values > FARTHER * max(float(np.median(values)), 1e-12) for values in (displaced, apart)]
    called[tested] = far[0] & far[1]
    return called


def _weighted_median(values: Floats, weights: NDArray[np.integer]) -> Floats:
    """Median (k,) of rows (G, k) that count as many times as their weights (G,) say."""
    return np.asarray(np.median(np.repeat(values, weights, axis=0), axis=0))


def _allowance(parts: Displaced) -> tuple[float, float, float]:
    """Mean and variance of the displacement beyond chance that parts of known groups have, with a margin.

    The last figure is the degrees of freedom of the mean.
    """
    weight = 1 / (parts.by_chance + LEAST_ALLOWED)
    weight /= weight.sum()
    mean = float(weight @ parts.excess)
    spread = float(weight @ (parts.excess - mean) ** 2)
    # What few parts say is uncertain: one standard error more.
    mean = max(mean, 0.0) + float(np.sqrt(spread / effective_size(weight)))
    spread = max(spread - float(weight @ parts.noise(mean)), 0.0)
    allowed, spread = max(MARGIN * mean, LEAST_ALLOWED), MARGIN**2 * spread
    return allowed, spread, effective_size(weight) * float(weight @ parts.freedom(allowed, spread))


def displacement(groups: Groups, y: Floats, codes: NDArray[np.integer], scatter: Floats) -> Displaced:
    """Displacement of groups `codes` of cells y (n, k); `scatter` (C,) is the variance around known groups."""
    n_groups = int(codes.max(initial=-1)) + 1
    offsets, shares = _offsets(groups, y)
    figures, label = np.full((3, n_groups), np.nan), np.full(n_groups, -1)
    for code in range(n_groups):
        mine = codes == code
        n = int(mine.sum())
        if n < LEAST_KNOWN:
            continue
        share, covariance = shares[mine].mean(0), np.cov(offsets[mine].T).reshape(y.shape[1], y.shape[1])
        variance = max(float(np.trace(covariance)), float(share @ scatter))
        square = float((offsets[mine].mean(0) ** 2).sum()) / variance
        by_chance = 1 / n + float((share**2 / groups.counts).sum())
        figures[:, code] = square, by_chance, np.trace(covariance) ** 2 / (covariance**2).sum()
        label[code] = share.argmax()
    return Displaced(figures[0], figures[1], figures[2], label)


def split(points: Floats, codes: NDArray[np.integer], n_parts: NDArray[np.integer]) -> NDArray[np.intp]:
    """Groups of cells (n, k) in parts by k-means, as many as asked for (C,) and cells allow; -1 for cells of none."""
    from sklearn.cluster import KMeans

    parts, n_before = np.full(len(codes), -1, dtype=np.intp), 0
    for code in np.unique(codes[codes >= 0]):
        mine = np.flatnonzero(codes == code)
        wanted = int(np.clip(n_parts[code], 1, max(len(mine) // (2 * LEAST_KNOWN), 1)))
        labels = KMeans(wanted, n_init=1, random_state=0).fit(points[mine]).labels_
        parts[mine] = n_before + labels.astype(np.intp)
        n_before += wanted
    return parts


def _offsets(groups: Groups, y: Floats) -> tuple[Floats, Floats]:
    """Offsets (n, k) of cells from where their probable groups are, whitened, and the probabilities (n, C)."""
    shares = groups.predict(y / groups.scale)[:, groups.columns]
    shares = shares / np.maximum(shares.sum(1, keepdims=True), 1e-12)
    return y.astype(np.float64) @ groups.whiten - shares @ groups.means, shares


def _scatter(groups: Groups, calibration: Floats) -> Floats:
    """Variance (C,) of calibration cells around each known group, those with few of them like all others."""
    offsets, shares = _offsets(groups, calibration)
    squares = (offsets**2).sum(1)
    return np.asarray((shares.T @ squares + COMMON_CELLS * squares.mean()) / (shares.sum(0) + COMMON_CELLS))
