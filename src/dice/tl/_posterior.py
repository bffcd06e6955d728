"""Running a plan over all cells, and what it leaves in an AnnData object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice import _log
from dice._anndata.matrix import Matrix
from dice._anndata.write import Slots
from dice._core.inference import Inference, Observation
from dice._errors import InputError
from dice._keys import DenoiseKeys
from dice.tl._cells import Cells

#: Cells that go through the network at once.
NETWORK_CHUNK = 8192


@dataclass(frozen=True)
class Result:
    """Posterior of all cells; PCA units."""

    mean: NDArray[np.float32]
    samples: NDArray[np.float32] | None
    variance: NDArray[np.float32] | None


def run_plan(
    inference: Inference, matrix: Matrix, cells: Cells, noise: NDArray[np.float32], keys: NDArray[np.int64]
) -> Result:
    """Run the plan over all cells; expression is read again only where single genes matter."""
    plan, (n, k) = inference.plan, cells.y.shape
    n_samples = plan.gibbs.n_samples
    mean = np.empty((n, k), dtype=np.float32)
    samples = np.empty((n, n_samples, k), dtype=np.float32) if n_samples else None
    variance = np.empty(n, dtype=np.float32) if plan.uncertainty else None
    chunks = [slice(start, min(start + NETWORK_CHUNK, n)) for start in range(0, n, NETWORK_CHUNK)]
    with _log.progress(total=n, desc="Denoising", unit="cell") as bar:
        for rows in matrix.slices() if plan.needs_genes else chunks:
            x = inference.likelihood.standardizer(matrix.read(rows)).dense() if plan.needs_genes else None
            observed = Observation(cells.y[rows], noise[rows], cells.residual[rows], x)
            result = inference.posterior(observed, keys[rows])
            mean[rows] = result.mean.cpu().numpy()
            if samples is not None and result.samples is not None:
                samples[rows] = result.samples.cpu().numpy()
            if variance is not None and result.variance is not None:
                variance[rows] = result.variance.cpu().numpy()
            bar.update(rows.stop - rows.start)
    if cells.empty.any():
        # Their posterior is the prior, whose mean and variance are known: latents are centred and scaled by its root.
        mean[cells.empty] = 0
        if variance is not None:
            variance[cells.empty] = inference.prior.latent_scale**2
        if samples is not None:
            samples[cells.empty] = inference.prior_samples(noise[cells.empty], keys[cells.empty])
    return Result(mean, samples, variance)


def denoise_slots(keys: DenoiseKeys, cells: Cells, result: Result, record: dict[str, Any]) -> Slots:
    obsm = {keys.mean: result.mean, keys.projection: cells.y}
    if result.samples is not None:
        obsm[keys.samples] = result.samples
    obs = {} if result.variance is None else {keys.uncertainty: np.sqrt(result.variance)}
    if cells.empty.any():
        obs[keys.empty] = cells.empty
    stale = frozenset({keys.samples, keys.uncertainty, keys.empty} - set(obs) - set(obsm))
    return Slots(obsm=obsm, obs=obs, uns={keys.uns: record}, stale=stale)


def check_finite(result: Result, level: float, rho: float | Sequence[float]) -> None:
    finite = np.isfinite(result.mean).all() and (result.variance is None or np.isfinite(result.variance).all())
    if not finite:
        raise InputError(
            f"The posterior is not finite with noise {level:.3g} and rho {rho}: pass values of the latents' own size."
        )
