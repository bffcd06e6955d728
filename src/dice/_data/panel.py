"""Expression of a panel: few genes, whose totals are not totals of a transcriptome.

A gene's share of 300 genes and its share of 20,000 cannot be compared. Query and reference are therefore divided by
their counts in the genes that both have, times the counts of a median query cell. With ten thousand instead, a single
count would be most of the range of the logarithm.
"""

from __future__ import annotations

import numpy as np
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._data import read
from dice._data.genes import match_genes
from dice._data.matrix import Matrix
from dice._data.value_checks import is_raw, is_scaled, is_unlogged
from dice._data.write import Slots, write
from dice._errors import InputError
from dice._keys import PANEL_LAYER
from dice._model.counts import MOSTLY, TARGET_SUM, recover
from dice._types import Codes, Floats, Mask
from dice.options import Options

#: A query is a panel if it shares at most this many genes with the reference, and less than half of those of either.
PANEL_GENES = 500


def shares_panel(adata: AnnData, reference: AnnData, shared: Mask, options: Options) -> bool:
    """Return whether the genes that both have, a mask (n_vars,) of the reference, should be treated as a panel.

    Values in a layer that the user names, values outside memory and scaled values are used as they are.
    """
    few = shared.sum() <= PANEL_GENES and 2 * shared.sum() < max(adata.n_vars, reference.n_vars)
    if not few or options.layer is not None or not options.check.values:
        return False
    matrices = [Matrix(each) for each in (adata, reference)]
    in_memory = all(isinstance(m.data, np.ndarray) or sparse.issparse(m.data) for m in matrices)
    return in_memory and all(m.n_cells > 0 and m.sample().min() >= 0 for m in matrices)


def normalise_pair(
    adata: AnnData, reference: AnnData, shared: Mask, options: Options, size_key: str | None = None
) -> str:
    """Normalise both on the genes that they share, a mask (n_vars,) of the reference; return the layer they are in."""
    genes = np.flatnonzero(shared)
    match = match_genes(
        adata, reference.var_names.to_numpy(object)[genes], gene_key=options.gene_key, min_overlap=0.0,
        species=options.check.species,
    )  # fmt: skip
    target_sum = _median_counts(adata, options.layer, match.query)
    panel_layer(reference, options.layer, genes[match.prior], target_sum, "reference")
    return panel_layer(adata, options.layer, match.query, target_sum, "adata", size_key)


def _median_counts(adata: AnnData, layer: str | None, genes: Codes) -> float:
    """Return the median counts of a cell in these genes, or the usual ten thousand if values are not counts."""
    sample = Matrix(adata, layer=layer).sample()
    if not is_raw(sample):
        found = recover(sample)
        sample = found.counts if found.whole.mean() >= MOSTLY else sample[:0]
    totals = np.asarray(sample[:, genes].sum(1)).ravel()
    return float(np.median(totals[totals > 0])) if totals.any() else TARGET_SUM


def panel_layer(
    adata: AnnData, layer: str | None, genes: Codes, target_sum: float, who: str, size_key: str | None = None
) -> str:
    """Write the layer in which cells sum to `target_sum` over these genes, and return its key. Other genes are zero.

    With `size_key`, cells are divided by their size instead of their counts, such that the median cell is the same.
    """
    matrix = Matrix(adata, layer=layer, who=who)
    sample = matrix.sample()
    if is_scaled(sample):
        raise InputError(f"{matrix.where} must be counts or log-normalised expression, but its genes are scaled.")
    few = sparse.csr_matrix(matrix.data[:, genes], dtype=np.float32)
    few.data = few.data if is_unlogged(sample) else np.expm1(few.data)
    totals = np.asarray(few.sum(1), dtype=np.float64).ravel()
    sizes = totals if size_key is None else _sizes(adata, size_key, totals)
    factor = np.divide(target_sum, sizes, out=np.zeros_like(totals), where=totals > 0)
    values = np.log1p(few.data * np.repeat(factor, np.diff(few.indptr)).astype(np.float32))
    whole = sparse.csr_matrix((values, np.asarray(genes)[few.indices], few.indptr), shape=(adata.n_obs, adata.n_vars))
    whole.sort_indices()
    by = "their counts in these genes" if size_key is None else f"{who}.obs[{size_key!r}]"
    _log.say(
        f"{matrix.where}: {len(genes):,} genes are divided by {by} and log-normalised to {target_sum:,.5g} counts per "
        f"cell in {who}.layers[{PANEL_LAYER!r}]."
    )
    write(adata, Slots(layers={PANEL_LAYER: whole}), copy=False)
    return PANEL_LAYER


def _sizes(adata: AnnData, size_key: str, totals: Floats) -> Floats:
    """Return the sizes (n,) of the cells in units of counts."""
    sizes = read.column(adata, size_key, argument="size_key").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~(np.isfinite(sizes) & (sizes > 0))
    if wrong.any():
        raise InputError(
            f"adata.obs[{size_key!r}] must hold positive numbers, but {wrong.sum()} cells have none, for example "
            f"{list(adata.obs_names[wrong][:3])}: remove these cells or leave size_key out."
        )
    seen = totals > 0
    return sizes * float(np.median(totals[seen]) / np.median(sizes[seen])) if seen.any() else sizes
