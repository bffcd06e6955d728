"""Choosing rho: the cells to judge by, the criterion, and its curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._anndata.checks import read_labels
from dice._anndata.matrix import Matrix
from dice._anndata.preprocessing import FEWEST_COUNTS, is_counts
from dice._arguments import known_key
from dice._core.labels.classify import Floats
from dice._core.posterior import tuning
from dice._core.prior.presets import ROLES
from dice._core.shift.offsets import NETWORK_CELLS, relative_pull
from dice._core.shift.record import Calibration
from dice._device import resolve_device
from dice._errors import InputError, SlotError
from dice._keys import PriorKeys
from dice._query.cells import Cells
from dice._query.query import Query
from dice._query.reference import read_roles
from dice._query.shift import SHIFTED

CRITERIA = ("genes", "counts", "sure", "labels")
#: Default grid in units of the prior's latent scale, and cells that suffice to tell its values apart.
GRID = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5)
N_CELLS = 1000


@dataclass(frozen=True)
class Curve:
    """Loss of every value of rho in a grid, with its standard error over cells."""

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
        """What ``.uns`` keeps for :func:`dice.pl.rho`."""
        return {
            "rho": self.best, "criterion": self.criterion, "grid": self.grid, "loss": self.loss, "error": self.error,
            "n_cells": self.n_cells,
        }  # fmt: skip


def find_curve(
    query: Query,
    criterion: str,
    *,
    grid: Sequence[float] | None = None,
    counts: Matrix | None = None,
    labelled: tuple[AnnData, str] | None = None,
) -> Curve:
    """The curve of a criterion over at most `N_CELLS` cells, which the seed and the cells' names choose."""
    prior, seed = query.prior, int(query.options.random_state)
    values = np.array(GRID) * prior.latent_scale if grid is None else check_grid(grid)
    rng, keys = np.random.default_rng(seed), query.keys
    rows = np.sort(np.argsort(keys, kind="stable")[:N_CELLS])
    if len(rows) < 2:
        raise InputError(f"rho cannot be tuned on {len(rows)} cells: pass a number for rho.")
    chunk = take(query.matrix, rows)
    projected = query.projector(chunk, slice(0, len(rows)))
    if projected.empty.all():
        raise InputError("rho cannot be tuned on cells that express none of the prior's genes: pass a number for rho.")
    noise = float(np.sqrt(projected.residual[~projected.empty].mean()))
    genes = query.match.prior
    if criterion == "genes":
        losses = tuning.by_genes(prior, chunk, genes, values, noise, rng)
    elif criterion == "counts":
        thick = dense(take(counts, rows)) if counts is not None else np.empty(0)
        losses = tuning.by_counts(prior, thick, log_factors(dense(chunk), thick), genes, values, rng)
    elif criterion == "sure":
        losses = tuning.by_sure(prior, projected.y, values, noise, keys[rows])
    else:
        losses = tuning.by_labels(prior, *held_out(labelled), values, noise, rng)
    curve = Curve.of(criterion, values, losses)
    _log.info(f"rho {curve.best:.3g} (PCA units) has the least loss by {criterion}.")
    return curve


def tuned(query: Query) -> tuple[Query, dict[str, Any]]:
    """A query whose rho is a number, and the curve that it was found by."""
    if not query.options.tunes_rho:
        return query, {}
    curve = find_curve(query, "genes")
    return replace(query, options=replace(query.options, rho=curve.best)), {"tuning": curve.record()}


def untuned(
    query: Query, cells: Cells, calibration: Calibration, device: str | torch.device
) -> tuple[Query, dict[str, Any]]:
    """A query whose default rho fits how far it stands apart, and how far that is.

    Half of the latent scale sharpens what the reference knows. Of cells that it does not know as well, it makes
    others; they are not denoised beyond the measured noise. What one offset explains is taken out before. Missing
    genes, or weights of genes, make noise of their own, which does not tell; and deconvolution and chains of Gibbs
    need a rho.
    """
    prior, options, usual = query.prior, query.options, query.prior.statistics.get("pull", 0.0)
    direct = options.method != "gibbs" and options.likelihood == "gaussian" and query.likelihood.isotropic
    if options.rho is not None or options.deconvolve or not direct or usual <= 0:
        return query, {}
    order, positions = (x[:NETWORK_CELLS] for x in query.order(cells))
    few, target = cells.sample[order] - calibration.explained(positions), resolve_device(device)
    with torch.inference_mode():
        z = torch.as_tensor(few / prior.latent_scale, dtype=torch.float32, device=target)
        apart = relative_pull(prior.denoiser_on(target), z, usual)
    if apart <= SHIFTED:
        return query, {"apart": apart}
    _log.info(f"The prior pulls the query {apart:.1f} times as hard as cells of the reference: rho is 0.")
    return replace(query, options=replace(options, rho=0.0)), {"apart": apart}


def check_grid(grid: Sequence[float]) -> Floats:
    try:
        values = np.unique(np.asarray(grid, dtype=np.float64).ravel())
    except (TypeError, ValueError):
        values = np.empty(0)
    if not len(values) or not np.isfinite(values).all() or (values < 0).any():
        raise InputError(f"grid={grid!r} is not a sequence of numbers of at least 0.")
    return values


def take(matrix: Matrix, rows: NDArray[np.intp]) -> Any:
    """Some cells of a matrix, as one chunk."""
    wanted = np.zeros(matrix.n_cells, dtype=bool)
    wanted[rows] = True
    parts = matrix.each(lambda chunk, cells: chunk[wanted[cells]])
    return sparse.vstack(parts, format="csr") if parts and sparse.issparse(parts[0]) else np.concatenate(parts)


def dense(chunk: Any) -> Floats:
    return chunk.toarray() if sparse.issparse(chunk) else np.asarray(chunk)


def counts_of(adata: AnnData, layer: str, query: Query) -> Matrix:
    """The counts beneath the expression, of the same genes."""
    if layer not in adata.layers:
        raise SlotError(
            f"criterion='counts' splits counts, but there is no layer {layer!r} (available: {sorted(adata.layers)}): "
            "name one with counts_layer=, or pass criterion='genes'."
        )
    matrix = Matrix(adata, layer=layer, genes=query.match.query)
    if not is_counts(matrix.sample(), least=FEWEST_COUNTS):
        raise InputError(f"Layer {layer!r} does not hold raw counts: name another with counts_layer=.")
    return matrix


def log_factors(expression: Floats, counts: Floats) -> Floats:
    """What counts of each cell were multiplied by before they were logged, from both."""
    factors = np.expm1(expression.astype(np.float64)).sum(1) / np.maximum(counts.sum(1), 1)
    if not np.allclose(np.log1p(counts * factors[:, None]), expression, atol=0.05):
        raise InputError(
            "The expression is not log1p of normalised counts in that layer: name the right one with counts_layer=, or "
            "pass criterion='genes'."
        )
    return factors


def held_out(labelled: tuple[AnnData, str] | None) -> tuple[tuple[Floats, Floats], tuple[NDArray, NDArray]]:
    """Latents and labels of the reference's training cells, and of those that the network was not trained on."""
    if labelled is None:
        raise InputError("criterion='labels' needs labels_key= and the reference with its cells, as an AnnData object.")
    reference, labels_key = labelled
    labels, roles = read_labels(reference, labels_key, "reference"), read_roles(reference)
    projection = known_key(PriorKeys().projection, reference.obsm, "projection", "reference.obsm")
    latents = np.asarray(reference.obsm[projection])
    known = labels.codes >= 0
    train, test = (known & (roles == role) for role in (ROLES.index("train"), ROLES.index("validation")))
    if not train.any() or not test.any():
        raise InputError(
            "criterion='labels' needs cells that stopped the training: pass validation_fraction=0.1 to it."
        )
    codes = labels.codes.astype(np.intp)
    return (latents[train], latents[test]), (codes[train], codes[test])
