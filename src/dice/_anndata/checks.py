"""Checks of what users pass in: one sentence that names the culprit and the fix."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice._arguments import known_key
from dice._core.prior.schema import MAX_LATENT
from dice._core.standardize import Chunk
from dice._errors import InputError, SlotError


def check_expression(chunk: Chunk) -> None:
    """Refuse raw counts where log-normalised expression is expected."""
    values = chunk.data if sparse.issparse(chunk) else chunk.ravel()
    counts = len(values) and values.min() >= 0 and 3 <= values.max() < np.inf and not np.any(values % 1)
    if counts:
        raise InputError(
            "The matrix holds raw counts, but log-normalised expression is expected: call "
            "sc.pp.normalize_total(adata, target_sum=1e4) and sc.pp.log1p(adata) first, "
            "or pass check=False."
        )


def read_labels(adata: AnnData, labels_key: str, who: str = "adata") -> pd.Categorical:
    """Labels of all cells; missing ones stay missing (code -1). `who` is what the user calls the object."""
    known_key(labels_key, adata.obs, "column", f"{who}.obs")
    labels = pd.Categorical(adata.obs[labels_key]).remove_unused_categories()
    if len(labels.categories) < 2:
        raise InputError(
            f"{who}.obs[{labels_key!r}] holds {len(labels.categories)} distinct label(s), but at least two "
            "are needed: pass another labels_key, or None to do without labels."
        )
    _check_told_apart(labels, f"{who}.obs[{labels_key!r}]")
    return labels


def read_batches(adata: AnnData, batch_key: str) -> pd.Categorical:
    """Batches of all cells."""
    known_key(batch_key, adata.obs, "column", "adata.obs")
    batches = pd.Categorical(adata.obs[batch_key]).remove_unused_categories()
    _check_told_apart(batches, f"adata.obs[{batch_key!r}]")
    missing = adata.obs_names[batches.codes < 0]
    if len(missing):
        raise InputError(
            f"{len(missing)} cells have no value in adata.obs[{batch_key!r}], for example {list(missing[:5])}: fill in."
        )
    return batches


def _check_told_apart(names: pd.Categorical, where: str) -> None:
    """Names are kept as text, where 1 and "1" are the same."""
    texts = names.categories.astype(str)
    if texts.has_duplicates:
        same = sorted(set(texts[texts.duplicated()]))[:5]
        raise InputError(f"{where} holds values that differ but read the same, {same}: set it to {where}.astype(str).")


def check_n_latent(n_latent: int | str, n_cells: int, n_genes: int) -> None:
    """The number of latents must leave room in both dimensions of the matrix."""
    most = min(n_cells - 1, n_genes - 1, MAX_LATENT)
    if most < 1:
        raise InputError(
            f"A prior cannot be learned from {n_cells} cells and {n_genes} genes: pass a larger reference."
        )
    if n_latent == "elbow":
        return
    if isinstance(n_latent, bool) or not isinstance(n_latent, int | np.integer):
        raise InputError(f"n_latent is {n_latent!r}: pass a whole number or 'elbow'.")
    if not 1 <= n_latent <= most:
        raise InputError(
            f"n_latent={n_latent} cannot be learned from {n_cells} cells and {n_genes} genes: "
            f"pass a number from 1 to {most}."
        )


def gene_mask(adata: AnnData, mask_var: str | NDArray[np.bool_] | None) -> NDArray[np.intp] | None:
    """Positions of the genes to learn from: a boolean column of ``var``, a mask, or all genes."""
    if mask_var is None:
        return None
    if isinstance(mask_var, str):
        if mask_var not in adata.var:
            raise SlotError(f"There is no column {mask_var!r} in adata.var; available: {list(adata.var.columns)[:20]}.")
        mask_var = adata.var[mask_var].to_numpy()
    mask = np.asarray(mask_var)
    if mask.dtype != bool or mask.shape != (adata.n_vars,) or not mask.any():
        raise InputError(
            f"mask_var must be True for at least one of the {adata.n_vars} genes and boolean throughout: pass such a "
            "column of adata.var or a mask, or None for all genes."
        )
    return np.flatnonzero(mask)
