"""The cells and genes of a reference, the data that a denoiser learns from, and the choice of genes and prior."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._arguments import said
from dice._data.checks import check_expression, gene_mask, has_cells, read_batches, read_labels
from dice._data.genes import FEW, by_name, check_storable, share_of_genes
from dice._data.matrix import Matrix
from dice._data.read import names
from dice._data.recipe import find_technologies, variable_genes
from dice._data.store import Prior, Reference, find_prior
from dice._data.value_checks import matrix_statistics, refuse_wild
from dice._data.write import Slots
from dice._errors import InputError
from dice._keys import PriorKeys
from dice._model import networks
from dice._model.arrays import subsample
from dice._model.counts import TARGET_SUM, judge_counts, recover
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.pca import fit_projection
from dice._model.projection import Projection
from dice._model.schema import MAX_LATENT
from dice._model.training_data import ROLES, TrainingData, make_rows, plain_data, thinned_data
from dice._query.query import opened
from dice._types import Codes, Mask
from dice.options import Options

#: Default number of latents (docs/prior.md). It is at most half of the genes, so that the noise can be measured.
AUTO_LATENT = 50
#: Labels with fewer cells than this are reported as rare: fewer than two of their cells are calibration cells.
RARE = 20
#: Maximum number of calibration cells that are stored in the prior.
CALIBRATION_CELLS = 2000
#: Smallest number of cells to learn the noise of counts from (with fewer cells, Gaussian noise is assumed), and maximum
#: number of cells that are copied.
MIN_CELLS, MAX_MEASURED = 100, 16_000


@dataclass(frozen=True)
class ReferenceCells:
    """The cells of a reference before projection."""

    matrix: Matrix
    #: Label code (n,) of every cell, -1 where it is missing; None without labels.
    labels: Codes | None
    #: Role (n,) of every cell, a code in `ROLES`.
    roles: NDArray[np.int8]
    #: Statistics of the matrix, to compare a query with.
    statistics: dict[str, float]

    @classmethod
    def read(
        cls, adata: AnnData, roles: NDArray[np.int8], *, labels_key: str | None, layer: str | None,
        mask_var: str | NDArray[np.bool_] | None, check: bool,
    ) -> Self:  # fmt: skip
        """Open the matrix and check a sample of it. The full matrix is not read yet."""
        check_storable(adata.var_names, "adata.var_names")
        named = None if labels_key is None else read_labels(adata, labels_key)
        labels = None if named is None else np.asarray(named.codes, dtype=np.intp)
        marked, column = gene_mask(adata, mask_var)
        genes = by_name(adata, marked)
        matrix = Matrix(adata, layer=layer, genes=genes)
        sample = matrix.sample()
        if check:
            check_expression(sample[:, matrix.genes])
            refuse_wild(matrix, sample)
        found = matrix_statistics(sample, genes)
        statistics = {name: float(value) for name, value in found.items() if np.isfinite(value)}
        which = "of the mask that was passed" if column is None else f"marked in adata.var[{column!r}]"
        _log.say(_introduction(matrix, "all" if marked is None else which, roles, named))
        return cls(matrix, labels, roles, statistics)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Mask (n,) of all cells except the calibration cells."""
        return self.roles < ROLES.index("calibration")

    def n_latent(self, wanted: int | str) -> int | str:
        """Return the number of latents, or ``"elbow"``."""
        n_cells, n_genes = int(self.seen.sum()), self.matrix.n_genes
        if isinstance(wanted, str) and wanted == "auto":
            wanted = max(min(AUTO_LATENT, n_cells // 2, n_genes // 2), 1)
        check_n_latent(wanted, n_cells, n_genes)
        return wanted

    def slots(self, prior: dict[str, Any], latents: NDArray[np.float32], keys: PriorKeys) -> Slots:
        """Return the slots that training writes: the prior, its loadings, and the projection and roles of the cells."""
        loadings = np.zeros((len(self.matrix.gene_names), latents.shape[1]), dtype=np.float32)
        loadings[self.matrix.genes] = prior["loadings"]
        obs, obsm = {keys.split: pd.Categorical.from_codes(self.roles, ROLES)}, {keys.projection: latents}
        return Slots(obs=obs, obsm=obsm, varm={keys.loadings: loadings}, uns={keys.uns: prior})


def check_n_latent(n_latent: int | str, n_cells: int, n_genes: int) -> None:
    """Check that the number of latents is smaller than the numbers of cells and genes."""
    most = min(n_cells - 1, n_genes - 1, MAX_LATENT)
    if most < 1:
        raise InputError(f"No prior can be learned from {n_cells} cells and {n_genes} genes: pass a larger reference.")
    whole = isinstance(n_latent, int | np.integer) and not isinstance(n_latent, bool) and 1 <= n_latent <= most
    if n_latent != "elbow" and not whole:
        raise InputError(f"`n_latent` must be a number from 1 to {most} or 'elbow', got {said(n_latent)}.")


def _introduction(matrix: Matrix, which: str, roles: NDArray[np.int8], labels: pd.Categorical | None) -> str:
    """Return a sentence about cells, genes, roles and labels."""
    train, stop, calibrate = ((roles == code).sum() for code in range(len(ROLES)))
    text = (
        f"Prior of {matrix.n_genes:,} of {len(matrix.gene_names):,} genes ({which}) and {matrix.n_cells:,} cells "
        f"({train:,} for training, {stop:,} for stopping, {calibrate:,} for calibration)"
    )
    if labels is None:
        return f"{text}, without labels."
    counts = labels.value_counts()
    rare = [f"{name} ({n})" for name, n in counts[(counts > 0) & (counts < RARE)].sort_values().items()]
    return f"{text} with {(counts > 0).sum()} labels{', with few cells of ' if rare else ''}{', '.join(rare[:5])}."


def reduce(
    cells: ReferenceCells, *, n_latent: int | str, scale: bool
) -> tuple[GaussianLikelihood, Latents, dict[str, NDArray[np.float32]] | None]:
    """Compute the loadings from all cells except the calibration cells, and project all cells.

    Return the likelihood with the loadings, the latents of all cells, and the latents and residuals of calibration
    cells for the novelty test (None without calibration cells).
    """
    matrix, seen = cells.matrix, cells.seen
    projection = fit_projection(partial(matrix.total, cells=seen), n_latent=n_latent, scale=scale)
    likelihood = GaussianLikelihood(projection, np.arange(matrix.n_genes))
    latents = Latents.joined(matrix.each(likelihood.latents, desc="Projecting"), projection.n_latent)
    if not latents.y[seen].any():
        raise InputError("No gene varies among the cells, so there is nothing to learn: check the matrix and mask_var.")
    few = subsample(np.flatnonzero(~seen), CALIBRATION_CELLS)
    calibration = {"y": latents.y[few], "residual": latents.residual[few]} if len(few) else None
    return likelihood, latents, calibration


def training_data(
    cells: ReferenceCells, projection: Projection, latents: Latents, preset: str, seed: int, device: torch.device
) -> TrainingData:
    """Return thinned copies if the preset learns from counts and the reference has counts, otherwise latents."""
    usable = cells.seen & ~np.isnan(latents.log_depth)
    counted = judge_counts(latents.log_depth, latents.empty)[0] and usable.sum() >= MIN_CELLS
    if not networks.by_preset()[preset][1].counts or not counted:
        reason = "the preset assumes it" if counted else "the values are not log-normalised counts, or cells are few"
        _log.info(f"Noise: assumed Gaussian; {reason}.")
        return plain_data(latents.y, cells.roles, device)
    _log.info(f"Noise: learned by splitting the counts of {usable.sum()} cells.")
    chosen = np.flatnonzero(usable)
    if len(chosen) > MAX_MEASURED:
        chosen = np.sort(np.random.default_rng([seed, 2]).choice(chosen, MAX_MEASURED, replace=False))
    counts, target_sum = recover(cells.matrix.take(chosen)), cells.statistics.get("sum_log", 0.0) or TARGET_SUM
    rows = make_rows(projection, counts, np.random.default_rng([seed, 3]), target_sum=target_sum)
    typical = float(np.median(latents.log_depth[usable]))
    return thinned_data(rows.to(device), chosen, cells.roles[chosen], projection.n_latent, typical)


def choose_genes(
    reference: AnnData, shared: NDArray[np.bool_], *, n_top_genes: int, batch_key: str | None, layer: str | None,
    labels: Codes | None,
) -> tuple[Mask, str]:  # fmt: skip
    """Return a mask (n_vars,) of the most variable of the `shared` genes, and a text about the chosen genes.

    Genes are ranked by log-normalised values (scanpy's flavor "seurat"), within batches if the reference has several.
    Over atlas -> Baron, cells -> nuclei and bmmc sites (one seed), accuracy / macro-F1 of labels were .819 / .774 with
    ranks over all cells and .831 / .785 with ranks within technologies or sites. With ranks by counts ("seurat_v3")
    they were .806 / .753 and .836 / .792. Ranks within batches were worse for the first pair only: .947 / .900 instead
    of .958 / .931.
    """
    n_shared = int(shared.sum())
    if n_top_genes >= n_shared:
        return shared, f"{n_shared:,} of the {n_shared:,} shared genes"
    if batch_key == "auto":
        mixed = find_technologies(reference, layer=layer, labels=labels, who="reference")
        batch_key = None if mixed is None else mixed[0]
        if mixed is not None:
            _log.say(
                f"reference.obs[{mixed[0]!r}] explains {mixed[1]:.0%} of the variance, like a technology: variable "
                "genes are ranked within its values (reference_batch_key=None ranks them over all cells)."
            )
    batches = None if batch_key is None else read_batches(reference, batch_key, "reference")
    genes = by_name(reference, shared)
    cells = reference[:, genes]
    chosen = genes[variable_genes(cells, n_top_genes, "reference", layer=layer, batches=batches, counts=False)]
    ranked = "" if batch_key is None else f", ranked within reference.obs[{batch_key!r}]"
    return np.isin(np.arange(reference.n_vars), chosen), f"{len(chosen):,} of the {n_shared:,} shared genes{ranked}"


def fitting_prior(adata: AnnData, reference: Reference, prior_key: str, options: Options) -> Prior | None:
    """Return the stored prior of a reference if the query has its genes, or None if a new prior must be trained.

    If the reference is a prior without cells, or a file with such a prior, this prior is always used.
    """
    trained = has_cells(reference, prior_key)
    if isinstance(reference, AnnData):
        untrained = reference.n_obs > 0 and not trained
        if untrained or prior_key not in names(reference, "uns"):
            return None
    prior = find_prior(reference, key=prior_key)
    if not trained:
        return prior
    share = share_of_genes(adata, prior.genes, options)
    found = f"reference.uns[{prior_key!r}] holds a prior of {len(prior.genes):,} genes, and the query has {share:.0%}"
    if share < FEW:
        _log.say(f"{found} of them: a new prior is trained instead.")
        return None
    _log.say(f"{found} of them: this prior is used (prior_key='new' trains another prior).")
    return prior


def look_ahead(adata: AnnData, reference: AnnData, genes: Mask, options: Options, layer: str | None) -> None:
    """Check query and reference before a prior is trained on the `genes` (n_vars,) of the reference.

    Without this check, the same errors would occur minutes later. `layer` is the layer of the reference.
    """
    known = Matrix(reference, layer=layer, genes=by_name(reference, genes), who="reference")
    if options.check.values:  # noqa: PD011 - not pandas
        refuse_wild(known, known.sample())
    known.check_values()
    learned = reference.var_names.to_numpy(dtype=object)[known.genes]
    _, matrix, _ = opened(adata, options, learned, matrix_statistics(known.sample(), known.genes))
    matrix.check_values()
