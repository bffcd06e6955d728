"""Read and check columns of labels and batches, masks of genes, and matrices of counts or expression."""

import re
from typing import TypeGuard

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._arguments import known_key, said
from dice._data.matrix import Matrix
from dice._data.read import embedding, is_blank, names
from dice._data.sources import stored_values
from dice._data.value_checks import LARGEST_LOG, is_counts, is_raw, is_scaled, is_unlogged
from dice._errors import InputError, SlotError
from dice._keys import PriorKeys
from dice._model.counts import normalised
from dice._model.training_data import ROLES
from dice._types import Chunk, Codes, Floats, Mask

#: Up to this number of cells, every cell may come from a different batch, for example a donor.
FEW_CELLS = 20
#: Largest difference between the expression and log1p of the counts times their factor; rounding alone causes 1e-5.
COUNTS_TOLERANCE = 0.05


def read_labels(adata: AnnData, labels_key: str, who: str = "adata") -> pd.Categorical:
    """Return the labels of all cells. Missing and blank labels have the code -1. Errors call the object `who`."""
    labels = _without_blanks(_read_names(adata, labels_key, who))
    _question_numbers(labels, f"{who}.obs[{labels_key!r}]")
    if len(labels.categories) < 2:
        raise InputError(f"{who}.obs[{labels_key!r}] must hold at least two labels, got {len(labels.categories)}.")
    return labels


def _question_numbers(labels: pd.Categorical, where: str) -> None:
    """Refuse fractions as labels. Warn about whole numbers, which may be clusters or a wrong column."""
    numbers = labels.categories
    if not pd.api.types.is_numeric_dtype(numbers) or pd.api.types.is_bool_dtype(numbers):
        return
    if not (numbers == np.round(numbers)).all():
        raise InputError(f"{where} must hold names of labels, got numbers such as {numbers[0]:g}.")
    _log.warn(
        f"{where} holds {len(numbers)} different numbers, which are taken as names of labels: pass a column with names "
        f"as labels_key, or set {where} = {where}.astype(str)."
    )


def read_batches(adata: AnnData, batch_key: str, who: str = "adata") -> pd.Categorical:
    """Return the batches of all cells. Every cell must have a batch."""
    batches = _read_names(adata, batch_key, who)
    missing = adata.obs_names[batches.codes < 0].tolist()
    if missing:
        raise InputError(
            f"{len(missing)} cells have no value in {who}.obs[{batch_key!r}], for example {missing[:5]}: fill in "
            f"the column, or remove these cells with {who}[{who}.obs[{batch_key!r}].notna()].copy()."
        )
    n_batches, n_cells = len(batches.categories), len(batches)
    if n_cells > FEW_CELLS and 2 * n_batches > n_cells:
        raise InputError(
            f"{who}.obs[{batch_key!r}] holds {n_batches:,} values for {n_cells:,} cells, like a column of barcodes: "
            "pass the batch_key of a column whose values many cells share, such as a donor or a technology."
        )
    return batches


def several_batches(adata: AnnData, batch_key: str) -> NDArray[np.str_]:
    """Return the batch of every cell. There must be two or more batches."""
    batches = read_batches(adata, batch_key)
    if len(batches.categories) < 2:
        raise InputError(f"adata.obs[{batch_key!r}] must hold two or more batches: pass another batch_key.")
    return np.asarray(batches, dtype=object).astype(str)


def read_groups(adata: AnnData, groupby: str) -> pd.Categorical:
    """Return the groups of the cells, with code -1 for cells without a group."""
    groups = _without_blanks(_read_names(adata, groupby, "adata"))
    if not len(groups.categories):
        raise InputError(f"adata.obs[{groupby!r}] has no groups: pass a column with clusters or labels.")
    return groups


def read_positions(adata: AnnData, spatial_key: str) -> Floats:
    """Return the positions (n, 2 or 3) of the cells in a tissue."""
    known_key(spatial_key, adata.obsm, "array", "adata.obsm")
    return embedding(adata, spatial_key)


def has_cells(reference: object, prior_key: str) -> TypeGuard[AnnData]:
    """Return whether a reference holds the cells of its prior and their roles, not only the prior."""
    return isinstance(reference, AnnData) and reference.n_obs > 0 and PriorKeys(prior_key).split in reference.obs


def read_roles(reference: AnnData, prior_key: str) -> Codes:
    """Return the code in `ROLES` of every cell of a reference; -1 for cells without a role."""
    key = PriorKeys(prior_key).split
    if key not in reference.obs:
        raise SlotError(f"The reference has no obs[{key!r}]: call dice.tl.train_prior(reference) again.")
    roles = reference.obs[key].astype(object)
    codes = pd.Categorical(roles, categories=ROLES).codes.astype(np.intp)
    # Cells that were added later have no role.
    if ((codes < 0) & roles.notna().to_numpy()).any():
        raise InputError(f"reference.obs[{key!r}] must hold {list(ROLES)}: call dice.tl.train_prior again.")
    return codes


def _read_names(adata: AnnData, key: str, who: str) -> pd.Categorical:
    """Return a column as categories. Files must be able to store its values as different texts."""
    where = f"{who}.obs[{known_key(key, adata.obs, 'column', f'{who}.obs')!r}]"
    found = pd.Categorical(adata.obs[key]).remove_unused_categories()
    texts = found.categories.astype(str)
    odd = [text for text in texts if re.search("[\0\ud800-\udfff]", text)]
    if odd:
        raise InputError(f"{where} holds names that files cannot store, for example {said(odd[0])}: rename them.")
    if texts.has_duplicates:
        same = sorted(set(texts[texts.duplicated()]))[:5]
        raise InputError(f"{where} holds different values with the same text, {same}: set it to {where}.astype(str).")
    return found


def _without_blanks(found: pd.Categorical) -> pd.Categorical:
    blank = [is_blank(name) for name in found.categories]
    # Unlike remove_categories, this keeps the order.
    return found.set_categories(found.categories[~np.array(blank)]) if any(blank) else found


def gene_mask(adata: AnnData, mask_var: str | Mask | None) -> tuple[Codes | None, str | None]:
    """Return the positions of the genes in a mask (None: all genes), and the column of ``var`` with the mask.

    ``"auto"`` uses scanpy's column if it exists, otherwise all genes.
    """
    if isinstance(mask_var, str) and mask_var == "auto":
        mask_var = "highly_variable" if "highly_variable" in adata.var else None
    if mask_var is None:
        return None, None
    column = known_key(mask_var, adata.var, "column", "adata.var") if isinstance(mask_var, str) else None
    mask = np.asarray(mask_var if column is None else adata.var[column])
    if mask.dtype != bool or mask.shape != (adata.n_vars,) or not mask.any():
        raise InputError("`mask_var` must be a boolean mask or column of adata.var that is True for at least one gene.")
    return np.flatnonzero(mask), column


def holds_counts(matrix: Matrix) -> bool:
    """Return whether all values of a matrix are raw counts. If only a few values are not counts, raise an error."""
    if not is_counts(matrix.sample()):
        return False
    matrix.rules.whole = True
    matrix.check_values()
    return True


def check_counts(adata: AnnData, layer: str | None) -> None:
    """Check that a matrix is in memory and holds counts."""
    matrix = Matrix(adata, layer=layer)
    if not matrix.in_memory:
        raise InputError("The counts are not in memory: call adata = adata.to_memory() first.")
    if not holds_counts(matrix):
        others = [name for name in names(adata, "layers") if name != layer]
        raise InputError(f"{matrix.where} does not hold raw counts: pass a `layer` that holds them, one of {others}.")


def check_expression(sample: Chunk, *, who: str = "adata") -> None:
    """Refuse raw counts, estimates of counts and scaled genes."""
    if is_unlogged(sample):
        high = stored_values(sample).max()
        holds = "raw counts" if is_raw(sample) else f"values up to {high:.4g}, too large for logarithms"
        raise InputError(
            f"The matrix holds {holds}, but log-normalised expression is expected: call sc.pp.normalize_total({who}, "
            f"target_sum=1e4) and sc.pp.log1p({who}) first, or pass check=False."
        )
    if is_scaled(sample):
        raise InputError(
            f"The genes of {who} were scaled or centred (the smallest value is {stored_values(sample).min():.3g}): use "
            f"the expression from before sc.pp.scale, for example {who} = {who}.raw.to_adata(), or pass check=False."
        )


def factors_of(expression: sparse.csr_array, counts: sparse.csr_array) -> Floats | None:
    """Return the factors (n,) from counts to expm1 of expression, NaN for empty cells. None if the two do not match."""
    if not expression.data.max(initial=0) <= LARGEST_LOG:
        return None
    sums, totals = (np.asarray(x.sum(1)).ravel() for x in (np.expm1(expression), counts))
    factor = np.where(totals > 0, sums / np.maximum(totals, 1), np.nan)
    apart = abs(normalised(counts, np.nan_to_num(factor)) - expression)
    return None if apart.nnz and not apart.max() <= COUNTS_TOLERANCE else factor
