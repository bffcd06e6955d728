"""The cells that a prior is learned from: their matrix, genes, labels and roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._anndata import read
from dice._anndata.checks import check_n_latent, gene_mask, read_labels
from dice._anndata.counts import CountsLayer
from dice._anndata.genes import check_storable
from dice._anndata.matrix import Matrix
from dice._core.prior.presets import ROLES, assign_roles
from dice._core.prior.schema import is_orthonormal
from dice._errors import InputError
from dice._types import Codes, Floats
from dice.options import Training

#: Latents where the user does not choose (docs/prior.md), as long as half of the genes are left to tell noise by.
AUTO_LATENT = 50
#: Cells of a label that are kept where it has them: rare types are what a large reference is for.
FEWEST = 200


@dataclass(frozen=True)
class Embedding:
    """A PCA that the user has already made: latents (n, k), loadings (d, k), positions (d,) of the genes in use."""

    key: str
    latents: Floats
    loadings: Floats
    genes: Codes

    @classmethod
    def read(cls, adata: AnnData, use_rep: str) -> Self:
        """Find latents and loadings where scanpy puts them, and check that they are a PCA."""
        latents, loadings, key = read.pca(adata, use_rep)
        if latents.ndim != 2 or loadings.shape != (adata.n_vars, latents.shape[1]) or not latents.size:
            raise InputError(
                f"adata.varm[{key!r}] of shape {loadings.shape} are no loadings of adata.obsm[{use_rep!r}] of "
                f"shape {latents.shape}: run sc.pp.pca again, or leave use_rep out."
            )
        if not is_orthonormal(loadings):
            raise InputError(
                f"The loadings in adata.varm[{key!r}] are not orthonormal, as those of PCA are: "
                "run sc.pp.pca again, or leave use_rep out."
            )
        return cls(use_rep, latents, loadings, np.flatnonzero(loadings.any(1)))


@dataclass(frozen=True)
class ReferenceCells:
    """A reference as it was read."""

    matrix: Matrix
    #: Positions (d,) of the genes in use; None for all.
    genes: Codes | None
    #: Label code (n,) of every cell, -1 where it is missing; None without labels.
    labels: Codes | None
    embedding: Embedding | None
    #: Role (n,) of every cell, a code in `ROLES`, or -1 beyond ``max_cells``.
    roles: NDArray[np.int8]
    #: Counts beneath the matrix, where the user names them.
    counts: CountsLayer | None = None

    @classmethod
    def read(
        cls,
        adata: AnnData,
        training: Training,
        seed: int,
        *,
        labels_key: str | None,
        layer: str | None,
        mask_var: str | NDArray[np.bool_] | None,
        use_rep: str | None,
        counts_layer: str | None = None,
    ) -> Self:
        """Open the matrix and decide who is held out; the cells themselves are not read yet."""
        check_storable(adata.var_names, "adata.var_names")
        labels = None if labels_key is None else np.asarray(read_labels(adata, labels_key).codes, dtype=np.intp)
        embedding = None if use_rep is None else Embedding.read(adata, use_rep)
        if isinstance(mask_var, str) and mask_var == "auto":
            mask_var = "highly_variable" if "highly_variable" in adata.var else None
        genes = gene_mask(adata, mask_var) if embedding is None else embedding.genes
        matrix = Matrix(adata, layer=layer, genes=genes)
        roles = assign_roles(matrix.n_cells, training.validation_fraction, training.calibration_fraction, seed)
        roles = limit_roles(roles, labels, training.max_cells, seed)
        counts = None if counts_layer is None else CountsLayer.of(adata, counts_layer, matrix)
        return cls(matrix, genes, labels, embedding, roles, counts)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Cells (n,) that may be learned from in any way."""
        return self.roles < ROLES.index("calibration")

    def n_latent(self, wanted: int | str) -> int | str:
        """The number of latents, or ``"elbow"``."""
        n_cells, n_genes = int(self.seen.sum()), self.matrix.n_genes
        if isinstance(wanted, str) and wanted == "auto":
            wanted = max(min(AUTO_LATENT, n_cells // 2, n_genes // 2), 1)
        check_n_latent(wanted, n_cells, n_genes)
        return wanted


def limit_roles(roles: NDArray[np.int8], labels: Codes | None, max_cells: int, seed: int) -> NDArray[np.int8]:
    """Roles (n,) with -1 for random cells beyond `max_cells`; they serve the PCA, but not the network.

    With label codes (n,), every label keeps the same share of its cells, and at least `FEWEST` of them.
    """
    trained = roles < ROLES.index("calibration")
    share = max_cells / max(trained.sum(), 1)
    if share >= 1:
        return roles
    groups = np.zeros(len(roles), dtype=np.intp) if labels is None else labels
    rng, limited = np.random.default_rng([seed, 1]), roles.copy()
    for role in np.unique(roles[trained]):
        for group in np.unique(groups[roles == role]):
            cells = rng.permutation(np.flatnonzero((roles == role) & (groups == group)))
            kept = round(share * len(cells)) if labels is None else max(round(share * len(cells)), FEWEST)
            limited[cells[kept:]] = -1
    sampling = "uniform" if labels is None else "label-stratified"
    n_kept = int(((limited >= 0) & trained).sum())
    _log.info(f"The network learns from a {sampling} subsample of {n_kept} of {trained.sum()} cells.")
    return limited
