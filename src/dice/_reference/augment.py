"""Augmentation of the training cells: what the user asked for, and who is mixed with whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice._arguments import choice, number, whole_number
from dice._core.prior.mixup import Mixup
from dice._errors import InputError
from dice._threads import openmp_threads_kept

STRATEGIES = ("labels", "clusters", "neighbors")
#: Leiden resolution that over-clusters, so that a group rarely spans two cell types.
RESOLUTION = 2.0
N_NEIGHBORS = 15
#: Cells in a mixture: the paper's, and what separates labels best in docs/prior.md.
PAPER_POINTS, LABEL_POINTS = 5, 20
#: Cells to cluster; further ones join the group of their nearest clustered cell.
MAX_CLUSTERED = 20_000


@dataclass(frozen=True)
class Augmentation:
    """A strategy (None: cells as they are) and the settings of its mixtures."""

    strategy: str | None
    n_points: int
    probability: float
    concentration: float

    def mixup(self, latents: NDArray[np.floating], labels: NDArray[np.integer] | None, seed: int) -> Mixup | None:
        """The augmentation for training cells with these latents (n, k) and label codes (n,)."""
        mates = labels if self.strategy == "labels" else None
        if self.strategy == "clusters":
            mates = _clusters(latents, seed)
        elif self.strategy == "neighbors":
            mates = _neighbors(latents, latents, min(N_NEIGHBORS + 1, len(latents)))
        return None if mates is None else Mixup(mates, self.n_points, self.probability, self.concentration)

    @property
    def params(self) -> dict[str, Any]:
        """What is recorded in the prior."""
        if self.strategy is None:
            return {"augment": None}
        return {
            "augment": self.strategy,
            "mixup_points": self.n_points,
            "mixup_probability": self.probability,
            "mixup_concentration": self.concentration,
        }


def check_augmentation(
    augment: str | None, labels_key: str | None, preset: str, *, points: Any, probability: Any, concentration: Any
) -> Augmentation:
    """Resolve ``"auto"`` and refuse what cannot be done."""
    if augment is not None:
        choice("augment", augment, ("auto", *STRATEGIES))
    if augment == "labels" and labels_key is None:
        raise InputError("augment='labels' needs labels: name their column of adata.obs with labels_key=.")
    if preset == "gmm" and (augment in STRATEGIES or (augment == "auto" and labels_key is not None)):
        raise InputError("preset='gmm' is fitted to the cells as they are: pass augment=None.")
    if augment == "auto":
        augment = None if labels_key is None else "labels"
    if points is None:
        points = LABEL_POINTS if augment == "labels" and not preset.startswith("paper") else PAPER_POINTS
    points = whole_number("mixup_points", points, least=2)
    if points > 100:
        raise InputError(f"mixup_points={points} is not a whole number from 2 to 100.")
    probability = number("mixup_probability", probability, least=0, most=1)
    concentration = number("mixup_concentration", concentration, least=0.01, most=1_000_000)
    return Augmentation(augment, points, probability, concentration)


def _clusters(latents: NDArray[np.floating], seed: int) -> NDArray[np.intp]:
    """Leiden groups of the training cells, finer than cell types."""
    from dice._scanpy.graph import leiden

    chosen = np.sort(np.random.default_rng(seed).permutation(len(latents))[:MAX_CLUSTERED])
    groups = leiden(latents[chosen], resolution=RESOLUTION, n_neighbors=N_NEIGHBORS, random_state=seed)
    if len(chosen) == len(latents):
        return groups
    return groups[_neighbors(latents[chosen], latents, 1)[:, 0]]


def _neighbors(points: NDArray[np.floating], queries: NDArray[np.floating], n_neighbors: int) -> NDArray[np.intp]:
    """Positions (n, m) of the nearest `points` of every query, itself included where it is one of them."""
    from sklearn.neighbors import NearestNeighbors

    with openmp_threads_kept():
        search = NearestNeighbors(n_neighbors=n_neighbors).fit(points)
        return np.asarray(search.kneighbors(queries, return_distance=False), dtype=np.intp)
