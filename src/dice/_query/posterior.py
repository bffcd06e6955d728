"""Running a plan over all cells, and what it leaves in an AnnData object."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dice import _log
from dice._anndata.matrix import Matrix
from dice._anndata.write import Slots
from dice._core.posterior.inference import Inference, Observation, Plan
from dice._core.prior.prior import Prior
from dice._core.shift.offsets import Shift
from dice._core.standardize import Chunk
from dice._device import resolve_device
from dice._errors import InputError
from dice._keys import DenoiseKeys
from dice._query.cells import Cells, Projector

#: Cells that go through the network at once.
NETWORK_CHUNK = 8192


@dataclass(frozen=True)
class Result:
    """Posterior of cells in PCA units; arrays, or lazy ones of a lazy matrix."""

    mean: NDArray[np.float32]
    samples: NDArray[np.float32] | None
    variance: NDArray[np.float32] | None
    #: Share of accepted Langevin moves by chunk, where there were any.
    acceptance: list[float] = field(default_factory=list)

    def pack(self) -> NDArray[np.float32]:
        """All columns side by side, as one block of a lazy array: mean, variance, samples."""
        n = len(self.mean)
        parts = (self.mean, self.variance, self.samples)
        return np.concatenate(
            [part.reshape(n, math.prod(part.shape[1:])) for part in parts if part is not None], axis=1
        )

    @classmethod
    def unpack(cls, packed: Any, n_latent: int, plan: Plan) -> Result:
        """The columns of `pack` for all cells."""
        n, n_samples = len(packed), plan.gibbs.n_samples
        first = n_latent + plan.uncertainty
        return cls(
            packed[:, :n_latent],
            packed[:, first:].reshape(n, n_samples, n_latent) if n_samples else None,
            packed[:, n_latent] if plan.uncertainty else None,
        )


@dataclass(frozen=True)
class Posterior:
    """The posterior of any chunk of cells: all that a worker needs, addressed by the cells' positions."""

    prior: Prior
    projector: Projector
    plan: Plan
    #: Noise (n,), as it is after the shift, and random addresses (n,) of all cells.
    noise: NDArray[np.float32]
    keys: NDArray[np.int64]
    #: Resolved where the work is done: a worker may have a GPU that the caller lacks.
    device: str | torch.device
    #: Where the query stands apart from the reference.
    shift: Shift | None = None

    @property
    def inference(self) -> Inference:
        return Inference(self.prior, self.projector.likelihood, self.plan, resolve_device(self.device))

    def of(self, inference: Inference, cells: Cells, rows: slice, chunk: Chunk | None) -> Result:
        """Posterior of the `cells` at positions `rows`; their expression is needed where single genes matter."""
        x = inference.likelihood.standardizer(chunk).dense() if self.plan.needs_genes else None
        y, residual, noise, keys, empty = cells.y, cells.residual, self.noise[rows], self.keys[rows], cells.empty
        if self.shift is not None:
            # Offsets lie in the span of the loadings; depth stretches what they leave unexplained as well.
            stretch, loadings = self.shift.stretch(rows), inference.likelihood.loadings
            unexplained = None if x is None else (x - y @ loadings.T) * stretch[:, None]
            y, residual = y - self.shift.of(y, rows), residual * np.square(stretch)
            x = None if unexplained is None else y @ loadings.T + unexplained
        before = inference.halving.limit
        result = inference.posterior(Observation(y, noise, residual, x), keys)
        if inference.halving.limit != before:
            _log.warn(f"The memory of the device holds no whole chunk: {inference.halving.limit} cells go at a time.")
        mean = result.mean.cpu().numpy()
        variance = result.variance.cpu().numpy() if self.plan.uncertainty and result.variance is not None else None
        samples = None if result.samples is None else result.samples.cpu().numpy()
        if empty.any():
            # The posterior is the prior, whose mean and variance are known: latents are centred and scaled by its root.
            mean[empty] = 0
            if variance is not None:
                variance[empty] = self.prior.latent_scale**2
            if samples is not None:
                samples[empty] = inference.prior_samples(noise[empty], keys[empty])
        _check_finite(mean, variance, noise, self.plan.rhos)
        return Result(mean, samples, variance)

    def __call__(self, chunk: Chunk, rows: slice) -> NDArray[np.float32]:
        """One block of a lazy array: from expression to packed results."""
        return self.of(self.inference, self.projector(chunk, rows), rows, chunk).pack()


def run_plan(posterior: Posterior, matrix: Matrix, cells: Cells) -> Result:
    """Run the plan over all cells; expression is read again only where single genes matter or all is lazy."""
    plan, (n, k) = posterior.plan, cells.y.shape
    n_samples = plan.gibbs.n_samples
    if matrix.is_lazy:
        packed = matrix.map_rows(posterior, (k + plan.uncertainty + n_samples * k,))
        return Result.unpack(packed, k, plan)
    inference = posterior.inference
    mean = np.empty((n, k), dtype=np.float32)
    samples = np.empty((n, n_samples, k), dtype=np.float32) if n_samples else None
    variance = np.empty(n, dtype=np.float32) if plan.uncertainty else None
    chunks = [slice(start, min(start + NETWORK_CHUNK, n)) for start in range(0, n, NETWORK_CHUNK)]
    with _log.progress(total=n, desc="Denoising", unit="cell") as bar:
        for rows in matrix.slices() if plan.needs_genes else chunks:
            chunk = matrix.read(rows) if plan.needs_genes else None
            part = posterior.of(inference, cells.take(rows), rows, chunk)
            mean[rows] = part.mean
            if samples is not None:
                samples[rows] = part.samples
            if variance is not None:
                variance[rows] = part.variance
            bar.update(rows.stop - rows.start)
    return Result(mean, samples, variance, inference.acceptance)


def denoise_slots(keys: DenoiseKeys, cells: Cells, result: Result, record: dict[str, Any]) -> Slots:
    obsm = {keys.mean: result.mean, keys.projection: cells.y}
    obs = {keys.empty: cells.empty} if cells.empty.any() else {}
    if result.samples is not None:
        obsm[keys.samples] = result.samples
    if result.variance is not None and cells.is_lazy:
        # Columns of a data frame cannot be lazy.
        obsm[keys.uncertainty] = np.sqrt(result.variance)[:, None]
    elif result.variance is not None:
        obs[keys.uncertainty] = np.sqrt(result.variance)
    stale = frozenset({keys.samples, keys.uncertainty, keys.empty})
    return Slots(obsm=obsm, obs=obs, uns={keys.uns: record}, stale=stale)


def _check_finite(
    mean: NDArray[np.float32], variance: NDArray[np.float32] | None, noise: NDArray[np.float32], rhos: NDArray[Any]
) -> None:
    if not np.isfinite(mean).all() or not (variance is None or np.isfinite(variance).all()):
        raise InputError(
            f"The posterior is not finite with noise {noise.max():.3g} and rho {rhos.max():.3g}: pass values of the "
            "latents' own size."
        )
