"""Batches: technologies that a data set mixes, and their correction by Harmony."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch
from anndata import AnnData

from dice._arguments import short_seed
from dice._data.matrix import Matrix
from dice._errors import InputError
from dice._model.arrays import explained_by_batches
from dice._types import Codes, Floats

#: Words in the name of a column that may tell how cells were measured. Columns of other names may hold biology.
BATCH_WORDS = re.compile(
    r"\b(assay|batch|chemistry|dataset|donor|kit|lane|library|method|modality|plate|platform|project|protocol|run|sample"
    r"|site|source|study|suspension|tech|technology)\b"
)
#: Most batches, and fewest cells of one, within which variable genes are worth ranking.
MOST_TECHNOLOGIES, FEWEST_IN_BATCH = 20, 50
#: Cells to measure on.
MEASURED_CELLS = 4000
#: Share of the variance from which on batches are said to be technologies. Nuclei and cells, and three chemistries,
#: explain .083 to .174 of it within labels and .045 to .162 without; sites, lanes and donors of one technology at most
#: .037 (four data sets).
TECHNOLOGIES = 0.04


def find_technologies(
    adata: AnnData, *, layer: str | None = None, labels: Codes | None = None, who: str = "adata"
) -> tuple[str, float] | None:
    """The column of ``obs`` that explains most of the expression within labels, and how much; None if little."""
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
    """Columns of a few batches by their names, as codes; columns that divide the cells alike are one."""
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


def harmony(latents: Floats, batches: pd.Categorical, random_state: int) -> Floats:
    """Latents (n, k) after Harmony, whatever way around this version of harmonypy returns them."""
    from harmonypy import run_harmony

    n_cells, n_comps = latents.shape
    # harmonypy's own default, which rounds to none for fewer than 15 cells.
    n_clusters = max(1, min(round(n_cells / 30), 100))
    sigma = np.full(n_clusters, 0.1)  # the default; old versions need one for each cluster
    labels = pd.DataFrame({"batch": np.asarray(batches, dtype=object).astype(str)})
    with _global_random_state_kept():
        result = run_harmony(
            latents.astype(np.float64), labels, "batch",
            nclust=n_clusters, sigma=sigma, random_state=short_seed(random_state, 31), verbose=False,
        )  # fmt: skip
    corrected = np.asarray(result.Z_corr)
    # There are fewer components than cells, so that the two cannot be taken for each other.
    if corrected.shape == (n_comps, n_cells):
        corrected = corrected.T
    if corrected.shape != (n_cells, n_comps) or not np.isfinite(corrected).all():
        raise InputError(
            f"harmonypy failed: it returned shape {corrected.shape} for {n_cells} cells and {n_comps} components, or "
            "values that are not finite; try a smaller n_comps."
        )
    return corrected


@contextmanager
def _global_random_state_kept() -> Iterator[None]:
    """Undo what harmonypy does to global random states: old versions seed numpy's, some torch's."""
    state = np.random.get_state()  # noqa: NPY002 (the legacy state is what is being protected)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
