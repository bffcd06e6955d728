"""Offsets of a query by a strategy that is named: one of all cells, of every soft cluster, or the mean."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from dice._errors import InputError
from dice._model.offsets import Offsets, fit_cluster_offsets, fit_offset, shrunken_means
from dice._model.prior import LearnedPrior
from dice._types import Codes

#: Cells that offsets are learned from, and that the network looks at.
SAMPLED_CELLS, NETWORK_CELLS = 4000, 1000

Strategy = Literal["offset", "clusters", "mean"]


@torch.no_grad()
def find_offsets(
    prior: LearnedPrior,
    y: NDArray[np.float32],
    batches: Codes,
    strategy: Strategy,
    device: torch.device,
    n_batches: int | None = None,
) -> Offsets | None:
    """The offsets of a query; None where it has no cells. A batch without sampled cells has those of the whole query.

    Parameters
    ----------
    prior
        The prior.
    y
        Latents (m, k) of sampled cells in PCA units, in random order.
    batches
        Their batches (m,).
    strategy
        As in :class:`dice.Shift`.
    device
        Where to compute.
    n_batches
        Batches of the query, those without sampled cells included; None counts those of the sample.
    """
    clusters = prior.soft_clusters
    if strategy == "clusters" and clusters is None:
        raise InputError(
            "shift='clusters' needs a prior with soft clusters, and this reference was too small for them: pass "
            "shift='offset'."
        )
    if not len(y):
        return None
    n_batches = int(batches.max(initial=0)) + 1 if n_batches is None else n_batches
    if strategy == "clusters" and clusters is not None:
        return Offsets(fit_cluster_offsets(clusters, y, batches, n_batches), batches, clusters)
    z = torch.as_tensor(y[:NETWORK_CELLS] / prior.latent_scale, dtype=torch.float32, device=device)
    if strategy == "offset":
        found = fit_offset(prior.denoiser_on(device), z, batches[: len(z)], n_batches)
    else:  # The mean of the reference is zero.
        found = shrunken_means(z, torch.as_tensor(batches[: len(z)], device=device), n_batches)
    return Offsets((found * prior.latent_scale).cpu().numpy()[:, None].astype(np.float32), batches)
