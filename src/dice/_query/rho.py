"""Choice of rho by a loss on held-out data.

A criterion gives the loss (n, m) of n cells at the m values of a grid, in PCA units. Cells are denoised like in
:func:`dice.tl.denoise`. With counts, the noise of a cell follows from its depth.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dice import _log
from dice._errors import InputError
from dice._model.counts import CellCounts, judge_counts, recover
from dice._model.likelihood import GaussianLikelihood
from dice._model.prior import LearnedPrior
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats
from dice.options import check_rho

#: Default grid, in units of the prior's latent scale.
GRID = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5)
N_CELLS = 1000


def find_curve(query: Query, criterion: str, grid: Sequence[float] | None = None) -> dict[str, Any]:
    """Return the best rho, and the loss of every rho in a grid with its standard error over cells.

    At most `N_CELLS` cells are scored, chosen by the seed and the names of the cells. :func:`dice.pl.rho` draws the
    result.
    """
    prior = query.prior
    asked = np.array(GRID) * prior.latent_scale if grid is None else grid
    values = np.unique(check_rho(asked, "grid", "a sequence of numbers of at least 0"))
    rng = np.random.default_rng(query.options.random_state)
    rows = np.sort(query.order[:N_CELLS])
    if len(rows) < 2:
        raise InputError(f"rho cannot be tuned on {len(rows)} cells: pass at least 2 cells, or set rho to a number.")
    chunk = query.matrix.take(rows)
    latents = query.likelihood.latents(chunk)
    if latents.empty.all():
        raise InputError("rho cannot be tuned, because no cell expresses a gene of the prior: set rho to a number.")
    noise, genes = float(np.sqrt(latents.residual[~latents.empty].mean())), query.match.prior
    beneath = recover(chunk)
    # Use the noise of counts or Gaussian noise, as in dice.tl.denoise.
    measured = prior.measured and judge_counts(beneath.log_depth, latents.empty)[0]
    if criterion == "auto":
        criterion = "counts" if measured else "genes"
    if criterion == "counts" and not beneath.counts.count_nonzero():
        raise InputError("criterion='counts' needs log-normalised counts: set adata.X to the raw counts.")
    if criterion == "genes":
        losses = by_genes(prior, chunk, genes, values, noise, rng)
    else:
        losses = by_counts(prior, beneath, genes, values, rng, measured=measured)
    n, loss = len(losses), losses.mean(0)
    error = losses.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(len(values))
    best = float(values[np.argmin(loss)])
    _log.info(f"rho {best:.3g} (PCA units) has the smallest loss by {criterion}.")
    return {"rho": best, "criterion": criterion, "grid": values, "loss": loss, "error": error, "n_cells": n}


#: Expected counts are at least this share of the mean of their gene, so that the loss is always finite.
SMALLEST_MEAN = 0.05


def by_genes(
    prior: LearnedPrior, chunk: Chunk, genes: Codes, grid: Floats, noise: float, rng: np.random.Generator
) -> Floats:
    """Return the squared error of standardised genes under Gaussian noise, predicting each half from the other half.

    The noise of half of the genes differs little between directions, so its mean is used for all directions.
    """
    order = rng.permutation(len(genes))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    total = np.zeros((chunk.shape[0], len(grid)))
    for seen, hidden in (halves, halves[::-1]):
        likelihood = GaussianLikelihood(prior.projection, genes[seen])
        y, _ = likelihood.read(chunk[:, seen])
        level = noise * np.sqrt(np.trace(likelihood.covariance) / prior.n_latent)
        loadings = prior.projection.loadings[genes[hidden]]
        truth = prior.projection.standardizer.take(genes[hidden])(chunk[:, hidden]).dense()
        for column, rho in enumerate(grid):
            mean = prior.mean(y, rho=float(np.hypot(level, rho)))
            total[:, column] += np.square(truth - mean @ loadings.T).mean(1) / 2
    return total


def by_counts(
    prior: LearnedPrior, cells: CellCounts, genes: Codes, grid: Floats, rng: np.random.Generator, *, measured: bool
) -> Floats:
    """Return the Poisson loss of one half of the counts, predicted from the other half.

    Binomial thinning splits Poisson counts into two independent halves. With `measured` noise, a half is denoised at
    its own depth. Otherwise its noise follows from the residuals. Cells without counts are left out.
    """
    counts, factors = cells.counts.toarray(), np.nan_to_num(cells.factor)
    full = counts.sum(1) > 0
    counts, factors = counts[full], factors[full]
    half = rng.binomial(counts.astype(np.int64), 0.5)
    other = counts - half
    scale = factors * counts.sum(1) / np.maximum(half.sum(1), 1)
    likelihood = GaussianLikelihood(prior.projection, genes)
    y, residual = likelihood.read(np.log1p(half * scale[:, None]).astype(np.float32))
    level = float(np.sqrt(residual.mean()))
    standardizer, loadings = prior.projection.standardizer.take(genes), prior.projection.loadings[genes]
    least = SMALLEST_MEAN * np.maximum(other.mean(0), 1 / len(other))
    losses = []
    depths = -np.log(np.maximum(scale, 1e-12)) if measured else None
    for rho in grid:
        noise = float(rho) if measured else float(np.hypot(level, rho))
        values = prior.mean(y, depths, noise) @ loadings.T + standardizer.center
        logged = np.clip(values * standardizer.scale + standardizer.mean, 0, 20)
        expected = np.expm1(logged) / scale[:, None]
        # The exponential of a mean logarithm is too small. Scale every gene to its total in the half that was seen.
        expected = np.maximum(expected * (half.sum(0) / np.maximum(expected.sum(0), 1e-12)), least)
        losses.append((expected - other * np.log(expected)).mean(1))
    return np.stack(losses, axis=1)
