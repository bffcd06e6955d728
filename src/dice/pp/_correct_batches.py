"""Harmony, carried back to expression."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from dice import _log
from dice._anndata.checks import check_expression, gene_mask
from dice._anndata.counts import read_batches
from dice._anndata.matrix import Matrix
from dice._anndata.write import plain_params
from dice._arguments import new_key, whole_number
from dice._core.projection import fit_projection
from dice._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anndata import AnnData
    from numpy.typing import NDArray

    from dice._core.standardize import Floats


def correct_batches(
    adata: AnnData,
    batch_key: str,
    *,
    n_comps: int = 50,
    mask_var: str | NDArray[np.bool_] | None = "auto",
    layer: str | None = None,
    layer_added: str = "harmony",
    check: bool = True,
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Remove batch effects with Harmony, and carry the correction back to expression.

    Genes are scaled to unit variance and capped at 10, as in the paper. Harmony moves a cell in the
    space of the leading principal components from z to z*, and its expression moves along, to
    x + ((z* - z) V') s with the loadings V and the standard deviations s of the genes. What the
    components do not span stays as it was measured.

    Parameters
    ----------
    adata
        Log-normalised expression of cells x genes.
    batch_key
        Column of ``adata.obs`` with two or more batches.
    n_comps
        Number of principal components, at most one less than there are cells or genes.
    mask_var
        Boolean column of ``adata.var`` or mask of the genes to correct; None for all. ``"auto"``
        takes ``"highly_variable"`` where present. Other genes are passed on as they are.
    layer
        Layer to correct instead of ``adata.X``.
    layer_added
        Layer that takes the result.
    check
        Refuse raw counts.
    random_state
        Seed: the same seed and input give the same result. Global random state is untouched.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.layers["harmony"]`` (n_obs, n_vars) float32, dense
        Corrected expression on the scale of the input. It is for embeddings, not for tests of
        single genes; values may be negative.
    ``adata.uns["dice_harmony"]``
        ``params`` of the call.

    Both names follow `layer_added`.

    Examples
    --------
    >>> import dice
    >>> cells = dice.datasets.pbmc68k()
    >>> cells.obs["batch"] = ["a", "b"] * 350
    >>> dice.pp.correct_batches(cells, "batch", n_comps=10)
    >>> cells.layers["harmony"].shape
    (700, 765)
    """
    batches, layer_added = read_batches(adata, batch_key), new_key("layer_added", layer_added, "harmony")
    random_state = whole_number("random_state", random_state, least=0)
    if isinstance(mask_var, str) and mask_var == "auto":
        mask_var = "highly_variable" if "highly_variable" in adata.var else None
    genes = gene_mask(adata, mask_var)
    matrix = Matrix(adata, layer=layer, genes=genes)
    n_comps = _check(matrix, batches, whole_number("n_comps", n_comps), check=check)

    projection = fit_projection(matrix, n_latent=n_comps)
    before = matrix.apply(projection.project)
    shift = _harmony(before, batches, random_state) - before
    back = projection.loadings.T * projection.scale
    corrected = _shifted(Matrix(adata, layer=layer), shift.astype(np.float32), back, genes)

    target = adata.copy() if copy else adata
    target.layers[layer_added] = corrected
    target.uns[f"dice_{layer_added}"] = {
        "params": plain_params(
            batch_key=batch_key,
            n_comps=n_comps,
            mask_var=mask_var if isinstance(mask_var, str) else None,
            layer=layer,
            random_state=random_state,
        )
    }
    return target if copy else None


def _check(matrix: Matrix, batches: pd.Series, n_comps: int, *, check: bool) -> int:
    """Refuse what cannot be corrected; the number of components that there are."""
    if batches.nunique() < 2:
        raise InputError(
            f"adata.obs[{batches.name!r}] holds {batches.nunique()} batch(es), but two are needed: "
            "there is nothing to correct, or batch_key= should name another column."
        )
    most = min(matrix.n_cells, matrix.n_genes) - 1
    if most < 1:
        raise InputError(
            f"n_comps={n_comps} cannot be had from {matrix.n_cells} cells and {matrix.n_genes} "
            "genes: use 1 or more, and at least two cells and two genes."
        )
    if n_comps > most:
        _log.info(f"n_comps={n_comps} is lowered to {most}, all that there are.")
    if check:
        check_expression(matrix.read(matrix.slices()[0]))
    return min(n_comps, most)


def _harmony(latents: Floats, batches: pd.Series, random_state: int) -> Floats:
    """Latents (n, k) after Harmony, whatever way around this version of harmonypy returns them."""
    from harmonypy import run_harmony

    n_cells, n_comps = latents.shape
    # harmonypy's own default, which rounds to none for fewer than 15 cells.
    n_clusters = max(1, min(round(n_cells / 30), 100))
    labels = pd.DataFrame({"batch": batches.astype(str).to_numpy()})
    with _global_random_state_kept():
        result = run_harmony(
            latents.astype(np.float64),
            labels,
            "batch",
            nclust=n_clusters,
            sigma=np.full(n_clusters, 0.1),  # its default; old versions need one for each cluster
            random_state=random_state,
            verbose=False,
        )
    corrected = np.asarray(result.Z_corr)
    # There are fewer components than cells, so that the two cannot be taken for each other.
    if corrected.shape == (n_comps, n_cells):
        corrected = corrected.T
    if corrected.shape != (n_cells, n_comps) or not np.isfinite(corrected).all():
        raise InputError(
            f"harmonypy failed: it returned shape {corrected.shape} for {n_cells} cells and "
            f"{n_comps} components, or values that are not finite; try a smaller n_comps."
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


def _shifted(matrix: Matrix, shift: Floats, back: Floats, genes: NDArray[np.intp] | None) -> NDArray[np.float32]:
    """Expression of all genes, dense, with ``shift @ back`` added to the genes that were used."""
    expression = np.empty((matrix.n_cells, matrix.n_genes), dtype=np.float32)
    columns = slice(None) if genes is None else genes
    for rows in matrix.slices():
        chunk = matrix.read(rows)
        expression[rows] = chunk.toarray() if sparse.issparse(chunk) else chunk
        expression[rows, columns] += shift[rows] @ back
    return expression
