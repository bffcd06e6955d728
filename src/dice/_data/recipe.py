"""Preprocess raw counts as in the paper, choose variable genes with scanpy, and find columns of technologies."""

import re
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._data.checks import holds_counts
from dice._data.matrix import Matrix
from dice._errors import InputError
from dice._model.arrays import explained_by_batches
from dice._model.counts import TARGET_SUM
from dice._types import Codes, Mask

MITOCHONDRIAL = ("MT-", "mt-")
#: Minimum number of varying genes in a batch. With fewer than four, the loess fit crashes the interpreter.
MIN_VARYING = 10
#: Share of removed cells above which a warning is shown. Usually fewer cells are damaged.
MANY_LOST = 0.1
#: Words in the names of columns about the measurement of cells. Other columns may hold biology.
BATCH_WORDS = re.compile(
    r"\b(assay|batch|chemistry|dataset|donor|kit|lane|library|method|modality|plate|platform|project|protocol|run|sample"
    r"|site|source|study|suspension|tech|technology)\b"
)
#: Maximum number of batches, and minimum number of cells per batch, to rank variable genes within batches.
MOST_TECHNOLOGIES, FEWEST_IN_BATCH = 20, 50
#: Number of cells from which the explained variance is estimated.
MEASURED_CELLS = 4000
#: Share of the variance from which a column is taken for technologies. Nuclei versus cells, and three chemistries,
#: explain .045 to .174; sites, lanes and donors of one technology at most .037 (four data sets).
TECHNOLOGIES = 0.04


def prepared(
    adata: AnnData, *, layer: str | None, batch_key: str | None, n_top_genes: int, min_genes: int, min_cells: int,
    max_pct_mt: float,
) -> tuple[AnnData, dict[str, Any]]:  # fmt: skip
    """Return the prepared cells as a new object, and the numbers of cells and genes after each step."""
    result = _with_counts(adata, layer)
    sc.pp.filter_cells(result, min_genes=min_genes)
    n_cells = {"input": adata.n_obs, "min_genes": result.n_obs}
    _check_left(result, f"min_genes={min_genes}")
    sc.pp.filter_genes(result, min_cells=min_cells)
    _check_left(result, f"min_cells={min_cells}")
    result = _filter_mitochondrial(result, max_pct_mt)
    _check_left(result, f"max_pct_mt={max_pct_mt}")
    result.layers["counts"] = result.X.copy()
    sc.pp.normalize_total(result, target_sum=TARGET_SUM)
    sc.pp.log1p(result)
    if n_top_genes < result.n_vars:
        mixed = find_technologies(result) if batch_key is None else None
        if mixed is not None:
            _log.warn(
                f"adata.obs[{mixed[0]!r}] explains {mixed[1]:.0%} of the variance, like a technology: variable "
                f"genes may separate its values instead of cell types, so pass batch_key={mixed[0]!r}."
            )
        rank_genes(result, "seurat_v3", batch_key=batch_key, layer="counts", n_top_genes=n_top_genes)
    else:
        _log.info(f"All {result.n_vars} genes are kept as highly variable (n_top_genes={n_top_genes}).")
        result.var["highly_variable"] = True
    n_variable = int(result.var["highly_variable"].sum())
    _log.info(f"prepare kept {result.n_obs} of {adata.n_obs} cells and {result.n_vars} of {adata.n_vars} genes.")
    n_genes = {"input": adata.n_vars, "min_cells": result.n_vars, "highly_variable": n_variable}
    return result, {"n_cells": n_cells | {"max_pct_mt": result.n_obs}, "n_genes": n_genes}


def _with_counts(adata: AnnData, layer: str | None) -> AnnData:
    """Return a copy whose ``X`` holds the counts, in a form that scanpy accepts."""
    result = adata.copy()
    if layer is not None:
        result.X = result.layers[layer].copy()
    if result.X.dtype == bool:  # scanpy divides in place
        result.X = result.X.astype(np.float32)
    result.X = as_matrix(result.X)
    result.uns.pop("log1p", None)  # scanpy's note that the former X was logged
    return result


def _filter_mitochondrial(result: AnnData, max_pct_mt: float) -> AnnData:
    result.var["mt"] = result.var_names.str.startswith(MITOCHONDRIAL)
    if not result.var["mt"].any():
        _log.say("No gene is named MT-* or mt-*, so mitochondrial shares are unknown: put symbols into var_names.")
    sc.pp.calculate_qc_metrics(result, qc_vars=["mt"], percent_top=None, log1p=False, inplace=True)
    kept = ~(result.obs["pct_counts_mt"] > max_pct_mt)
    if 0 < kept.mean() < 1 - MANY_LOST:
        _log.warn(
            f"{(~kept).sum()} of {len(kept)} cells ({(~kept).mean():.0%}) are removed, because more than "
            f"{max_pct_mt:g} % of their counts are mitochondrial: pass a larger max_pct_mt to keep them."
        )
    return result[kept].copy()


def _check_left(result: AnnData, cause: str) -> None:
    if not result.n_obs or not result.n_vars:
        raise InputError(f"{cause} leaves {result.n_obs} cells and {result.n_vars} genes: choose a less strict value.")


def variable_genes(
    adata: AnnData, n_top_genes: int, who: str, *, layer: str | None = None, batches: pd.Categorical | None = None,
    counts: bool = True,
) -> Mask:  # fmt: skip
    """Return a mask of the highly variable genes. Errors call the data set `who`.

    Genes are ranked by counts if ``layers["counts"]``, the `layer` or ``X`` holds counts. Otherwise, or with
    ``counts=False``, genes are ranked by expression. With `batches`, genes are ranked within each batch.
    """
    if n_top_genes >= adata.n_vars:
        return np.ones(adata.n_vars, dtype=bool)
    matrix = Matrix(adata, layer="counts" if counts and "counts" in adata.layers else layer, who=who)
    counts = counts and holds_counts(matrix)
    if not counts and any(chunk.min() < 0 for chunk in matrix):
        raise InputError(f"{who} must hold raw counts or log-normalised values, got negative values: pass it unscaled.")
    # A new object without the user's other slots.
    bare = AnnData(as_matrix(matrix.data), uns={"log1p": adata.uns["log1p"]} if "log1p" in adata.uns else {})
    batch_key = None
    if batches is not None:
        batch_key, bare.obs["batch"] = "batch", batches
    flavor = "seurat_v3" if counts else "seurat"
    _log.info(f"{who}: variable genes by flavor {flavor}.")
    found = rank_genes(bare, flavor, n_top_genes=n_top_genes, batch_key=batch_key, inplace=False)
    return found["highly_variable"].to_numpy(dtype=bool)


def as_matrix(values: Any) -> Any:
    """Return sparse arrays as matrices, because scanpy does not accept sparse arrays."""
    return sparse.csr_matrix(values) if isinstance(values, sparse.sparray) else values


def rank_genes(adata: AnnData, flavor: str, *, batch_key: str | None = None, **options: Any) -> Any:
    """Call ``sc.pp.highly_variable_genes``. The flavor is always given, because presets of scanpy 1.13 change it."""
    advice = "use more cells" if batch_key is None else "merge small batches, or pass batch_key=None"
    if flavor == "seurat_v3":
        counts = adata.X if options.get("layer") is None else adata.layers[options["layer"]]
        batches = {} if batch_key is None else adata.obs.groupby(batch_key, observed=True).indices
        named = {f"batch {name!r}": rows for name, rows in batches.items()} or {"the data set": np.arange(adata.n_obs)}
        for name, rows in named.items():
            varying = counts[rows].max(axis=0) != counts[rows].min(axis=0)
            if varying.sum() < MIN_VARYING:
                raise InputError(f"Hardly any gene varies in the {len(rows)} cells of {name}: {advice}.")
    try:
        return sc.pp.highly_variable_genes(adata, flavor=flavor, batch_key=batch_key, **options)
    except (IndexError, ValueError) as error:  # of the loess fit, or of bins without genes
        raise InputError(f"Highly variable genes cannot be found ({error}): {advice}.") from error


def find_technologies(
    adata: AnnData, *, layer: str | None = None, labels: Codes | None = None, who: str = "adata"
) -> tuple[str, float] | None:
    """Return the batch column that explains the most variance within labels, and its share; None if it is small."""
    columns = batch_columns(adata)
    if not columns:
        return None
    cells = np.arange(adata.n_obs)
    if adata.n_obs > MEASURED_CELLS:
        cells = np.sort(np.random.default_rng(0).choice(adata.n_obs, MEASURED_CELLS, replace=False))
    x = Matrix(adata, layer=layer, who=who).take(cells)
    known = None if labels is None else labels[cells]
    shares = {name: explained_by_batches(x, codes[cells], known) for name, codes in columns.items()}
    best = max(shares, key=lambda name: shares[name])
    return (best, shares[best]) if shares[best] >= TECHNOLOGIES else None


def batch_columns(adata: AnnData) -> dict[str, Codes]:
    """Return the codes of columns with a few batches, by name. Of columns that divide the cells alike, keep one."""
    found: dict[str, Codes] = {}
    for name in adata.obs:
        words, column = re.sub(r"[^a-z]+", " ", str(name).lower()), adata.obs[name]
        if not BATCH_WORDS.search(words) or pd.api.types.is_float_dtype(column) or column.isna().any():
            continue
        codes = pd.factorize(np.asarray(column).astype(str))[0].astype(np.intp)
        sizes = np.bincount(codes)
        usable = 2 <= len(sizes) <= MOST_TECHNOLOGIES and sizes.min() >= FEWEST_IN_BATCH
        if usable and not any(np.array_equal(codes, other) for other in found.values()):
            found[str(name)] = codes
    return found
