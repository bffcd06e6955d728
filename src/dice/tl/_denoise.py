"""Denoising of a query under a prior."""

from __future__ import annotations

import os

import numpy as np
import torch
from anndata import AnnData

from dice import _log
from dice._anndata.checks import check_expression
from dice._anndata.genes import match_genes
from dice._anndata.matrix import Matrix
from dice._anndata.store import Prior, find_prior
from dice._anndata.write import Slots, plain_params, write
from dice._core.likelihood import GaussianLikelihood
from dice._core.noise import CellNoise, cell_keys
from dice._core.posterior import direct
from dice._device import resolve_device
from dice._errors import InputError
from dice._keys import DenoiseKeys

#: Default rho in units of the prior's latent scale.
DEFAULT_RHO = 0.5
#: Cells that go through the network at once.
NETWORK_CHUNK = 8192


def denoise(
    adata: AnnData,
    reference: AnnData | Prior | str | os.PathLike[str] | None = None,
    *,
    rho: float | None = None,
    noise: str | float = "estimate",
    layer: str | None = None,
    check: bool = True,
    key_added: str = "X_dice",
    chunk_size: int | None = None,
    device: str | torch.device = "auto",
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Denoise a query with the prior of a reference.

    Parameters
    ----------
    adata
        The query: log-normalised expression, as the reference was. Genes are matched by name.
    reference
        AnnData object with a prior, a :class:`dice.Prior`, or the path of a file with one; None takes the
        prior inside `adata` itself.
    rho
        How much the prior may move a cell beyond the measured noise, in PCA units. Larger values pull harder
        towards the reference. None takes half of the prior's latent scale.
    noise
        Standard deviation of the query's noise per scaled gene, or ``"estimate"`` to measure it from what the
        loadings do not explain.
    layer
        Layer to denoise instead of ``adata.X``.
    check
        Refuse raw counts.
    key_added
        Key of the embedding; other slots derive their name from it.
    chunk_size
        Cells that are read at once; None chooses about 64 MB.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or any torch device.
    random_state
        Seed: a cell's result depends on it and on the cell's name, not on its neighbours in the file.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.obsm["X_dice"]`` (n_obs, k) float32
        Posterior mean of every cell.
    ``adata.obsm["X_dice_pca"]`` (n_obs, k) float32
        The projection it started from.
    ``adata.obs["dice_uncertainty"]`` float32
        Posterior standard deviation, root mean square over the latents, in PCA units.
    ``adata.uns["X_dice"]``
        Everything needed to repeat the call.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> dice.tl.denoise(query, reference, rho=30)
    >>> query.obsm["X_dice"].shape
    (400, 15)
    """
    prior = find_prior(adata if reference is None else reference)
    if rho is None:
        rho = DEFAULT_RHO * prior.latent_scale
    elif not np.isfinite(rho) or rho < 0:
        raise InputError(f"rho={rho} is not a number of at least 0.")
    target = resolve_device(device)
    match = match_genes(adata, prior.genes)
    _log.info(f"{match}.")
    matrix = Matrix(adata, layer=layer, genes=match.query, chunk_size=chunk_size)
    if check and matrix.n_cells:
        check_expression(matrix.read(matrix.slices()[0]))
    likelihood = GaussianLikelihood.of(prior.projection, match.prior)

    y, variances = _read(matrix, likelihood)
    s_x = float(np.sqrt(variances.mean())) if noise == "estimate" else float(noise)
    mean, variance = _posterior(prior, y, np.hypot(s_x, rho), adata, random_state, target)

    keys = DenoiseKeys(key_added)
    params = plain_params(rho=float(rho), noise=s_x, layer=layer, random_state=random_state, preset=prior.preset)
    slots = Slots(
        obsm={keys.mean: mean, keys.projection: y},
        obs={keys.uncertainty: np.sqrt(variance)},
        uns={keys.uns: {"params": params, "genes": str(match)}},
    )
    return write(adata, slots, copy=copy)


def _read(matrix: Matrix, likelihood: GaussianLikelihood) -> tuple[np.ndarray, np.ndarray]:
    """Latent points and noise variances of all cells, in one pass over the matrix."""
    y = np.empty((matrix.n_cells, likelihood.n_latent), dtype=np.float32)
    variances = np.empty(matrix.n_cells, dtype=np.float32)
    with _log.progress(total=matrix.n_cells, desc="Projecting", unit="cell") as bar:
        for rows in matrix.slices():
            y[rows], variances[rows] = likelihood.read(matrix.read(rows))
            bar.update(rows.stop - rows.start)
    return y, variances


def _posterior(
    prior: Prior, y: np.ndarray, s: float, adata: AnnData, seed: int, device: torch.device
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and variance of all cells, chunk by chunk through the network."""
    scale = prior.latent_scale
    denoiser = prior.denoiser_on(device)
    keys = torch.as_tensor(cell_keys(adata.obs_names, seed), device=device)
    mean, variance = np.empty_like(y), np.empty(len(y), dtype=np.float32)
    for start in range(0, len(y), NETWORK_CHUNK):
        rows = slice(start, start + NETWORK_CHUNK)
        points = torch.as_tensor(y[rows] / scale, device=device)
        level = torch.as_tensor(s / scale, dtype=torch.float32, device=device)
        result = direct(denoiser, points, level, CellNoise(keys[rows]))
        mean[rows] = (result.mean * scale).cpu().numpy()
        variance[rows] = (result.variance * scale**2).cpu().numpy()
    return mean, variance
