"""The cells of a reference: their matrix, genes, labels and roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data import read
from dice._data.checks import CountsLayer, check_expression, check_n_latent, read_labels
from dice._data.genes import by_name, check_storable
from dice._data.matrix import Matrix
from dice._data.store import Prior
from dice._data.value_checks import matrix_statistics, refuse_wild
from dice._data.write import Slots
from dice._errors import InputError
from dice._keys import PriorKeys
from dice._model.projection import is_orthonormal
from dice._model.training_data import ROLES, assign_roles
from dice._train.genes import learned_genes
from dice._types import Codes, Floats
from dice.options import Training

#: Default number of latents (docs/prior.md); at most half of the genes, so that the noise can be measured.
AUTO_LATENT = 50
#: Smallest number of cells of a label that a subsample keeps, so that rare types stay.
FEWEST = 200
#: Labels with fewer cells are reported as rare, because fewer than two of their cells are calibration cells.
RARE = 20


@dataclass(frozen=True)
class Embedding:
    """A PCA of the user: latents (n, k), loadings (d, k) and positions (d,) of its genes."""

    key: str
    latents: Floats
    loadings: Floats
    genes: Codes

    @classmethod
    def read(cls, adata: AnnData, use_rep: str) -> Self:
        """Read latents and loadings from scanpy's slots, and check that they are a PCA."""
        latents, loadings, key = read.pca(adata, use_rep)
        if latents.ndim != 2 or loadings.shape != (adata.n_vars, latents.shape[1]) or not latents.size:
            raise InputError(
                f"adata.varm[{key!r}] of shape {loadings.shape} does not fit adata.obsm[{use_rep!r}] of "
                f"shape {latents.shape}: run sc.pp.pca again, or leave use_rep out."
            )
        if not is_orthonormal(loadings):
            raise InputError(
                f"The loadings in adata.varm[{key!r}] are not orthonormal, as those of PCA are: "
                "run sc.pp.pca again, or leave use_rep out."
            )
        return cls(use_rep, latents, loadings, by_name(adata, np.flatnonzero(loadings.any(1))))


@dataclass(frozen=True)
class ReferenceCells:
    """The cells of a reference before they are projected."""

    matrix: Matrix
    #: Positions (d,) of the genes in use, in the order of their names.
    genes: Codes
    #: Label code (n,) of every cell, -1 where it is missing; None without labels.
    labels: Codes | None
    embedding: Embedding | None
    #: Role (n,) of every cell, a code in `ROLES`, or -1 for cells beyond ``max_cells``.
    roles: NDArray[np.int8]
    #: Figures of the matrix, which those of a query are compared with.
    statistics: dict[str, float]
    #: Layer of counts, if the user names one.
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
        counts_layer: str | None,
        check: bool,
    ) -> Self:
        """Open the matrix, check a sample of it and assign roles; the cells are not read yet."""
        check_storable(adata.var_names, "adata.var_names")
        named = None if labels_key is None else read_labels(adata, labels_key)
        labels = None if named is None else np.asarray(named.codes, dtype=np.intp)
        embedding = None if use_rep is None else Embedding.read(adata, use_rep)
        genes, which = (
            learned_genes(adata, mask_var, layer=layer)
            if embedding is None
            else (embedding.genes, f"of adata.obsm[{use_rep!r}]")
        )
        matrix = Matrix(adata, layer=layer, genes=genes)
        sample = matrix.sample()
        if check:
            # A PCA that is there may be one of scaled genes, and needs the matrix that it was made of.
            check_expression(sample[:, matrix.genes], scaled=use_rep is not None)
            refuse_wild(matrix, sample)
        statistics = {name: x for name, x in matrix_statistics(sample, genes).items() if np.isfinite(x)}
        roles = assign_roles(matrix.n_cells, training.validation_fraction, training.calibration_fraction, seed)
        roles = limit_roles(roles, labels, training.max_cells, seed)
        counts = None if counts_layer is None else CountsLayer.of(adata, counts_layer, matrix)
        _log.say(_introduction(matrix, adata.n_vars, which, roles, named))
        return cls(matrix, genes, labels, embedding, roles, statistics, counts)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Mask (n,) of all cells but those kept for calibration."""
        return self.roles < ROLES.index("calibration")

    def n_latent(self, wanted: int | str) -> int | str:
        """The number of latents, or ``"elbow"``."""
        n_cells, n_genes = int(self.seen.sum()), self.matrix.n_genes
        if isinstance(wanted, str) and wanted == "auto":
            wanted = max(min(AUTO_LATENT, n_cells // 2, n_genes // 2), 1)
        check_n_latent(wanted, n_cells, n_genes)
        return wanted

    def slots(self, prior: Prior, latents: NDArray[np.float32], keys: PriorKeys) -> Slots:
        """The prior, its loadings, and the projection and roles of the cells."""
        loadings = np.zeros((len(self.matrix.gene_names), prior.n_latent), dtype=np.float32)
        loadings[self.matrix.genes] = prior.projection.loadings
        return Slots(
            obs={keys.split: pd.Categorical.from_codes(self.roles, ROLES)},
            obsm={keys.projection: latents},
            varm={keys.loadings: loadings},
            uns={keys.uns: prior.to_arrays()},
        )


def _introduction(
    matrix: Matrix, n_vars: int, which: str, roles: NDArray[np.int8], labels: pd.Categorical | None
) -> str:
    """One sentence about cells, genes, roles and labels."""
    train, stop, calibrate = ((roles == code).sum() for code in range(len(ROLES)))
    shares = f"{train:,} to train, {stop:,} to stop and {calibrate:,} to calibrate on"
    text = f"Prior of {matrix.n_genes:,} of {n_vars:,} genes ({which}) and {matrix.n_cells:,} cells ({shares})"
    if labels is None:
        return f"{text}, without labels."
    counts = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.categories))
    rare = [f"{labels.categories[code]} ({counts[code]})" for code in np.argsort(counts) if 0 < counts[code] < RARE]
    listed = f", rare are {', '.join(rare[:5])}{' and others' if len(rare) > 5 else ''}" if rare else ""
    unlabelled = f"; {(labels.codes < 0).sum():,} cells have none" if (labels.codes < 0).any() else ""
    return f"{text} with {(counts > 0).sum()} labels{listed}{unlabelled}."


def limit_roles(roles: NDArray[np.int8], labels: Codes | None, max_cells: int, seed: int) -> NDArray[np.int8]:
    """Roles (n,) with -1 for random cells beyond `max_cells`, which the PCA uses and the network does not.

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
