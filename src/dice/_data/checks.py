"""What users name, read and checked: columns of labels and batches, masks of genes, matrices of counts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._arguments import known_key, said
from dice._data.matrix import Matrix
from dice._data.read import is_blank, names
from dice._data.sources import is_counts
from dice._errors import InputError, SlotError
from dice._keys import PriorKeys
from dice._model.schema import MAX_LATENT
from dice._model.training_data import ROLES
from dice._types import Codes

#: More different values than this are names of cells rather than labels.
MOST_DISTINCT = 200
#: So many cells may well come from a donor each; among more, values that hardly any two cells share are their names.
FEW_CELLS = 20


def read_labels(adata: AnnData, labels_key: str, who: str = "adata") -> pd.Categorical:
    """Labels of all cells; missing ones, as ``""``, have the code -1. `who` is what the user calls the object."""
    labels = _without_blanks(_read_names(adata, labels_key, who))
    _question_numbers(labels, f"{who}.obs[{labels_key!r}]", adata)
    if len(labels.categories) < 2:
        raise InputError(
            f"{who}.obs[{labels_key!r}] holds {len(labels.categories)} distinct label(s), but at least two "
            "are needed: pass another labels_key, or None to do without labels."
        )
    return labels


def _question_numbers(labels: pd.Categorical, where: str, adata: AnnData) -> None:
    """Refuse fractions as labels. Warn of whole numbers: they may be clusters, or a column named by mistake."""
    numbers = labels.categories
    if not pd.api.types.is_numeric_dtype(numbers) or pd.api.types.is_bool_dtype(numbers):
        return
    if not (numbers == np.round(numbers)).all():
        raise InputError(
            f"{where} holds numbers that are not whole, for example {numbers[0]:g}, which cannot be labels: pass the "
            "labels_key of a column with names."
        )
    _log.warn(
        f"{where} holds {len(numbers)} different numbers, which are taken as names of labels: set it to "
        f"{where}.astype(str) if they are, or pass the labels_key of a column with names.",
        about=adata,
    )


def label_columns(adata: AnnData) -> list[str]:
    """Up to three columns that may hold labels, those with a telling name first."""
    columns = [name for name in adata.obs if not pd.api.types.is_numeric_dtype(adata.obs[name])]
    columns = [str(name) for name in columns if 2 <= adata.obs[name].nunique() <= MOST_DISTINCT]
    return sorted(columns, key=lambda name: not re.search("type|label|annot", name.lower()))[:3]


def read_batches(adata: AnnData, batch_key: str, who: str = "adata") -> pd.Categorical:
    """Batches of all cells. No cell may lack one."""
    batches = _read_names(adata, batch_key, who)
    missing = adata.obs_names[batches.codes < 0]
    if len(missing):
        raise InputError(
            f"{len(missing)} cells have no value in {who}.obs[{batch_key!r}], for example {list(missing[:5])}: fill it "
            f"in, or remove them with {who}[{who}.obs[{batch_key!r}].notna()].copy()."
        )
    n_batches, n_cells = len(batches.categories), len(batches)
    if n_cells > FEW_CELLS and 2 * n_batches > n_cells:
        each = "for every cell" if n_batches == n_cells else f"for {n_cells:,} cells, {n_batches:,} in all"
        raise InputError(
            f"{who}.obs[{batch_key!r}] holds another value {each}, like a column of barcodes: pass "
            "the batch_key of a column whose values many cells share, such as a donor or a technology."
        )
    return batches


def read_groups(adata: AnnData, groupby: str) -> pd.Categorical:
    """Groups of the cells, of which there is at least one; cells without a group, as ``""``, have the code -1."""
    known_key(groupby, adata.obs, "column", "adata.obs")
    groups = _without_blanks(pd.Categorical(adata.obs[groupby]).remove_unused_categories())
    if not len(groups.categories):
        raise InputError(f"adata.obs[{groupby!r}] holds no group: pass a column with clusters or labels.")
    return groups


def read_colors(adata: AnnData, labels_key: str) -> dict[Any, str] | None:
    """Colour of every label, where scanpy has given them some."""
    colors, labels = adata.uns.get(f"{labels_key}_colors"), pd.Categorical(adata.obs[labels_key]).categories
    if colors is None or len(colors) != len(labels):
        return None
    return {label: str(color) for label, color in zip(labels, colors, strict=True)}


def read_roles(reference: AnnData, prior_key: str) -> Codes:
    """Code in `ROLES` of every cell of a reference; -1 where it has none."""
    key = PriorKeys(prior_key).split
    if key not in reference.obs:
        raise SlotError(
            f"The reference has no obs[{key!r}], which tells the cells that the prior has not seen: call "
            "dice.tl.train_prior(reference) again."
        )
    roles = reference.obs[key].astype(object)
    codes = pd.Categorical(roles, categories=ROLES).codes.astype(np.intp)
    # Cells beyond max_cells have no role.
    if ((codes < 0) & roles.notna().to_numpy()).any():
        raise InputError(
            f"obs[{key!r}] of the reference holds other values than {list(ROLES)}: call dice.tl.train_prior again."
        )
    return codes


def _read_names(adata: AnnData, key: str, who: str) -> pd.Categorical:
    """A column whose values differ as text too: they are kept as text, where 1 and "1" are the same."""
    where = f"{who}.obs[{known_key(key, adata.obs, 'column', f'{who}.obs')!r}]"
    found = pd.Categorical(adata.obs[key]).remove_unused_categories()
    texts = found.categories.astype(str)
    odd = [text for text in texts if re.search("[\0\ud800-\udfff]", text)]
    if odd:
        raise InputError(
            f"{where} holds {len(odd)} names that no file can hold, for example {said(odd[0])}: rename them."
        )
    if texts.has_duplicates:
        same = sorted(set(texts[texts.duplicated()]))[:5]
        raise InputError(f"{where} holds values that differ but read the same, {same}: set it to {where}.astype(str).")
    return found


def _without_blanks(found: pd.Categorical) -> pd.Categorical:
    blank = [is_blank(name) for name in found.categories]
    # In their order, which pandas' own removal changes; and as they are, where there is nothing to remove.
    return found.set_categories(found.categories[~np.array(blank)]) if any(blank) else found


def check_counts(adata: AnnData, layer: str | None) -> None:
    """Refuse a matrix that holds anything but counts, all of them in memory."""
    matrix = Matrix(adata, layer=layer)
    if not isinstance(matrix.data, np.ndarray) and not sparse.issparse(matrix.data):
        raise InputError("The counts are not in memory: call adata = adata.to_memory() first.")
    if not all(is_counts(chunk) for chunk in matrix):
        where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
        others = [name for name in names(adata, "layers") if name != layer]
        raise InputError(
            f"{where} does not hold raw counts (whole numbers from 0 on), but they are needed: name the layer that "
            f"holds them with layer= (available: {others}), or start from the unnormalised matrix."
        )


def check_n_latent(n_latent: int | str, n_cells: int, n_genes: int) -> None:
    """The number of latents must leave room in both dimensions of the matrix."""
    most = min(n_cells - 1, n_genes - 1, MAX_LATENT)
    if most < 1:
        raise InputError(f"No prior can be learned from {n_cells} cells and {n_genes} genes: pass a larger reference.")
    whole = isinstance(n_latent, int | np.integer) and not isinstance(n_latent, bool) and 1 <= n_latent <= most
    if n_latent != "elbow" and not whole:
        raise InputError(
            f"n_latent={said(n_latent)} cannot be learned from {n_cells} cells and {n_genes} genes: pass a number from "
            f"1 to {most}, or 'elbow'."
        )


def named_mask(adata: AnnData, mask_var: str | NDArray[np.bool_] | None) -> str | NDArray[np.bool_] | None:
    """A mask of genes as it was passed, but ``"auto"`` is scanpy's column where there is one, and None elsewhere."""
    if isinstance(mask_var, str) and mask_var == "auto":
        return "highly_variable" if "highly_variable" in adata.var else None
    return mask_var


def gene_mask(adata: AnnData, mask_var: str | NDArray[np.bool_] | None) -> NDArray[np.intp] | None:
    """Positions of the genes to learn from: a boolean column of ``var``, a mask, ``"auto"``, or None for all genes."""
    mask_var = named_mask(adata, mask_var)
    if mask_var is None:
        return None
    if isinstance(mask_var, str):
        mask_var = adata.var[known_key(mask_var, adata.var, "column", "adata.var")].to_numpy()
    mask = np.asarray(mask_var)
    if mask.dtype != bool or mask.shape != (adata.n_vars,) or not mask.any():
        raise InputError(
            f"mask_var must be True for at least one of the {adata.n_vars} genes and boolean throughout: pass such a "
            "column of adata.var or a mask, or None for all genes."
        )
    return np.flatnonzero(mask)
