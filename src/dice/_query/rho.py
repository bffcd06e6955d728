"""The tuning curve of rho."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dice import _log
from dice._arguments import said
from dice._errors import InputError
from dice._model import tuning
from dice._model.counts import judge_counts, recover
from dice._query.query import Query
from dice._types import Floats

#: Default grid in units of the latent scale of the prior, and the maximum number of cells.
GRID = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5)
N_CELLS = 1000


@dataclass(frozen=True)
class Curve:
    """Loss of every rho in a grid, with its standard error over cells."""

    criterion: str
    grid: Floats
    loss: Floats
    error: Floats
    n_cells: int

    @classmethod
    def of(cls, criterion: str, grid: Floats, losses: Floats) -> Curve:
        error = losses.std(0, ddof=1) / np.sqrt(len(losses)) if len(losses) > 1 else np.zeros(len(grid))
        return cls(criterion, grid, losses.mean(0), error, len(losses))

    @property
    def best(self) -> float:
        return float(self.grid[np.argmin(self.loss)])

    def record(self) -> dict[str, Any]:
        """Return the record for ``.uns``, which :func:`dice.pl.rho` draws."""
        return {
            "rho": self.best, "criterion": self.criterion, "grid": self.grid, "loss": self.loss, "error": self.error,
            "n_cells": self.n_cells,
        }  # fmt: skip


def find_curve(query: Query, criterion: str, grid: Sequence[float] | None = None) -> Curve:
    """Compute the curve on at most `N_CELLS` cells, chosen by the seed and the names of the cells."""
    prior = query.prior
    values = np.array(GRID) * prior.latent_scale if grid is None else check_grid(grid)
    rng = np.random.default_rng(query.options.random_state)
    rows = np.sort(np.argsort(query.seeds, kind="stable")[:N_CELLS])
    if len(rows) < 2:
        raise InputError(f"rho cannot be tuned on {len(rows)} cells: pass at least 2 cells, or set rho to a number.")
    chunk = query.matrix.take(rows)
    latents = query.likelihood.latents(chunk)
    if latents.empty.all():
        raise InputError("rho cannot be tuned, because no cell expresses a gene of the prior: set rho to a number.")
    noise, genes = float(np.sqrt(latents.residual[~latents.empty].mean())), query.match.prior
    beneath = recover(chunk) if query.counts is None else query.counts.take(rows)
    # As in dice.tl.denoise: counts, or Gaussian noise.
    measured = prior.measured and judge_counts(beneath.log_depth, latents.empty)[0]
    if criterion == "auto":
        criterion = "counts" if measured else "genes"
    if criterion == "counts" and not beneath.counts.count_nonzero():
        raise InputError("criterion='counts' needs log-normalised counts: set counts_layer to a layer with counts.")
    if criterion == "genes":
        losses = tuning.by_genes(prior, chunk, genes, values, noise, rng)
    else:
        cells, factors = beneath.counts.toarray(), np.nan_to_num(beneath.factor)
        losses = tuning.by_counts(prior, cells, factors, genes, values, rng, measured=measured)
    curve = Curve.of(criterion, values, losses)
    _log.info(f"rho {curve.best:.3g} (PCA units) has the least loss by {curve.criterion}.")
    return curve


def check_grid(grid: Sequence[float]) -> Floats:
    try:
        values = np.unique(np.asarray(grid, dtype=np.float64).ravel())
    except (TypeError, ValueError):
        values = np.empty(0)
    if not len(values) or not np.isfinite(values).all() or (values < 0).any():
        raise InputError(f"`grid` must be a sequence of numbers of at least 0, got {said(grid)}.")
    return values
