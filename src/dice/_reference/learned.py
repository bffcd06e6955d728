"""What a training leaves in the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from numpy.typing import NDArray

from dice._anndata.preprocessing import matrix_statistics
from dice._anndata.store import Prior
from dice._anndata.write import Slots
from dice._core.prior import presets
from dice._core.prior.denoiser import Denoiser
from dice._core.shift.offsets import usual_pull
from dice._keys import PriorKeys


def reference_statistics(
    sample: Any, genes: NDArray[np.intp] | None, denoiser: Denoiser, data: presets.Split | None
) -> dict[str, float]:
    """Figures of the reference's matrix, and how hard the prior pulls cells that it was not trained on.

    Not for priors of labels (no `data`): these pull all cells hard, by how many cells of their label there were.
    """
    found = matrix_statistics(sample, genes)
    if data is not None:
        held_out = data.train if data.held_out is None else data.held_out
        with torch.inference_mode():
            found["pull"] = usual_pull(denoiser, held_out.cpu())
    return {name: x for name, x in found.items() if np.isfinite(x)}


def prior_slots(
    adata: AnnData,
    prior: Prior,
    latents: NDArray[np.float32],
    genes: NDArray[np.intp] | None,
    roles: NDArray[np.int8],
    keys: PriorKeys,
) -> Slots:
    """The prior, and what it says of the genes and cells that it was learned from."""
    loadings = np.zeros((adata.n_vars, prior.n_latent), dtype=np.float32)
    loadings[slice(None) if genes is None else genes] = prior.projection.loadings
    return Slots(
        obs={keys.split: pd.Categorical.from_codes(roles, presets.ROLES)},
        obsm={keys.projection: latents.astype(np.float32)},
        varm={keys.loadings: loadings},
        uns={keys.uns: prior.to_arrays()},
    )
