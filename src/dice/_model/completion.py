"""Missing genes at the price of all genes: they are filled in by their conditional mean given the observed ones.

Under x = V U + e with the reference's latent variances the conditional mean of the latents given the observed genes o
is w = (V_o'V_o + s^2 / variances)^-1 V_o' x_o, and that of the missing genes V_u w. The projection of the completed
cell is V_o' x_o + (I - V_o'V_o) w: the projection that all genes would give, with a little more noise, which is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dice._model.standardize import Standardized
from dice._types import Floats


@dataclass(frozen=True)
class Completion:
    """How the latents of cells follow from the genes at hand."""

    #: Loadings (d, k) of the observed genes, and their products G = V_o'V_o (k, k).
    loadings: Floats
    gram: Floats
    #: Conditional mean of the latents from V_o' x_o (k, k).
    filter: Floats
    #: Noise variance (k,) that the missing genes add to every latent.
    added: Floats

    @classmethod
    def of(cls, loadings: Floats, variances: Floats, noise: float) -> Completion:
        """From the observed loadings (d, k), the latents' variances (k,) and the noise of the reference."""
        gram = loadings.T.astype(np.float64) @ loadings
        posterior = np.linalg.inv(gram / noise**2 + np.diag(1 / np.maximum(variances, 1e-12)))
        missing = np.eye(len(gram)) - gram
        added = np.maximum(np.diagonal(missing @ posterior @ missing), 0)
        single = (x.astype(np.float32) for x in (gram, posterior / noise**2, added))
        return cls(loadings, *single)

    @property
    def readout(self) -> Floats:
        """What completed latents are made of (d, k): they are the product of the observed genes with it."""
        return self.loadings @ (np.eye(len(self.gram)) + self.filter @ (np.eye(len(self.gram)) - self.gram))

    def read(self, x: Standardized) -> tuple[Floats, Floats]:
        """Completed latents (n, k), and the squared norms (n,) of what they leave of the observed genes."""
        products = x @ self.loadings
        mean = products @ self.filter
        explained = 2 * np.einsum("nk,nk->n", mean, products) - np.einsum("nk,nk->n", mean @ self.gram, mean)
        y = products + mean - mean @ self.gram
        return np.asarray(y, dtype=np.float32), x.squared_norms() - explained
