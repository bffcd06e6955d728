"""What a training leaves in the reference."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice._data.store import Prior
from dice._data.value_checks import matrix_statistics
from dice._data.write import Slots, as_plain
from dice._keys import PriorKeys
from dice._model.presets import ROLES
from dice._train.cells import ReferenceCells
from dice._types import Chunk
from dice.options import Mixup, Training


def statistics(sample: Chunk, cells: ReferenceCells) -> dict[str, float]:
    """Figures of the reference's matrix that a query's are checked against."""
    return {name: x for name, x in matrix_statistics(sample, cells.genes).items() if np.isfinite(x)}


def record(training: Training, mixup: Mixup | None, **arguments: Any) -> dict[str, Any]:
    """The arguments of a call, as they are stored in its prior; where the checkpoint was is nobody's business."""
    mixed = {} if mixup is None else {f"mixup_{name}": value for name, value in asdict(mixup).items()}
    settings = asdict(training) | {"checkpoint": None}
    # What would have happened on Ctrl-C says nothing of the prior, and must not change its checksum.
    del settings["keep_interrupted"]
    return as_plain(arguments | mixed | settings)


def prior_slots(
    adata: AnnData, prior: Prior, latents: NDArray[np.float32], cells: ReferenceCells, keys: PriorKeys
) -> Slots:
    """The prior, and what it says of the genes and cells that it was learned from."""
    loadings = np.zeros((adata.n_vars, prior.n_latent), dtype=np.float32)
    loadings[cells.matrix.genes] = prior.projection.loadings
    return Slots(
        obs={keys.split: pd.Categorical.from_codes(cells.roles, ROLES)},
        obsm={keys.projection: latents},
        varm={keys.loadings: loadings},
        uns={keys.uns: prior.to_arrays()},
    )
