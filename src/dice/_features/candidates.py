"""Methods that predict features: ridge and neighbours, on the projection and on posterior samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dice._features.regress import Neighbors, Ridge
from dice._types import Codes, Floats

CANDIDATES = ("ridge on projection", "ridge on denoised", "neighbours on projection", "neighbours on denoised")


@dataclass(frozen=True)
class View:
    """Inputs of the candidates: scaled projection (n, k), posterior mean (n, k) and samples (n, S, k)."""

    y: Floats
    mean: Floats
    samples: Floats

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, cells: Codes | slice) -> View:
        return View(self.y[cells], self.mean[cells], self.samples[cells])


@dataclass(frozen=True)
class Predictions:
    """Predictions of all candidates (J, n, F), and measures of their uncertainty (B, n, F)."""

    values: Floats
    doubts: Floats

    @classmethod
    def joined(cls, parts: list[Predictions]) -> Predictions:
        """Concatenate several groups of cells."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("values", "doubts")))

    def mixed(self, weights: Floats) -> Floats:
        """Return the weighted mean (n, F) with weights (F, J)."""
        return np.einsum("fj,jnf->nf", weights, self.values)


@dataclass(frozen=True)
class Candidates:
    """All candidates, fitted to the same cells."""

    ridges: tuple[Ridge, Ridge]
    neighbors: tuple[Neighbors, Neighbors]

    @classmethod
    def fit(cls, cells: View, values: Floats) -> Candidates:
        """Fit all candidates to features (n, F) of cells."""
        ridges = Ridge.fit(cells.y, values), Ridge.fit(cells.mean, values)
        return cls(ridges, (Neighbors(cells.y, values), Neighbors(cells.mean, values)))

    def __call__(self, cells: View) -> Predictions:
        """Predict other cells. Predictions from clean latents are averaged over posterior samples."""
        denoised = np.mean([self.ridges[1](cells.samples[:, i]) for i in range(cells.samples.shape[1])], axis=0)
        near, spread = self.neighbors[0](cells.y[:, None])
        clean, clean_spread = self.neighbors[1](cells.samples)
        values = np.stack([self.ridges[0](cells.y), denoised, near, clean])
        # The spread among neighbours, and the spread among candidates.
        doubts = np.stack([np.sqrt((spread**2 + clean_spread**2) / 2), values.std(0)])
        return Predictions(values, doubts)
