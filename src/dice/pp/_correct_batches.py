"""Correct expression with Harmony."""

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice._arguments import as_plain, new_key, seed, whole_number
from dice._data.checks import check_expression, gene_mask, several_batches
from dice._data.matrix import Matrix
from dice._data.values import takes_counts
from dice._data.write import Slots, check_free, check_writable, write
from dice._errors import InputError
from dice._model.arrays import harmony
from dice._model.pca import fit_projection
from dice._types import Floats, Seed


@takes_counts
def correct_batches(
    adata: AnnData,
    batch_key: str,
    *,
    n_comps: int = 50,
    mask_var: str | NDArray[np.bool_] | None = "auto",
    layer: str | None = None,
    layer_added: str = "harmony",
    check: bool = True,
    random_state: Seed = 0,
    copy: bool = False,
) -> AnnData | None:
    """Remove batch effects with Harmony, and carry the correction back to expression.

    Genes are scaled to unit variance and capped at 10, as in the paper. Harmony moves a cell in the space of the first
    principal components from z to z*. Its expression x becomes x + ((z* - z) V') s, with the loadings V and the
    standard deviations s of the genes. Variation outside of these components does not change.

    Parameters
    ----------
    adata
        Log-normalised expression, or raw counts, of cells x genes.
    batch_key
        Column of ``adata.obs`` with two or more batches.
    n_comps
        Number of principal components, smaller than the numbers of cells and genes.
    mask_var
        Boolean column of ``adata.var`` or mask of the genes to correct. None corrects all genes. ``"auto"`` uses
        ``"highly_variable"`` if present. Other genes do not change.
    layer
        Layer to correct instead of ``adata.X``.
    layer_added
        Layer to write the result to.
    check
        Whether to refuse raw counts and scaled genes.
    random_state
        Seed. The same seed and input give the same result. Global random state is untouched.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    None, or the copy. Sets:

    ``adata.layers["harmony"]`` (n_obs, n_vars) float32, dense
        Corrected expression on the scale of the input. Use it for embeddings, not for tests of single genes. Values may
        be negative.
    ``adata.uns["dice_harmony"]``
        ``params`` of the call.

    Both names derive from `layer_added`.

    Examples
    --------
    >>> import dice
    >>> cells = dice.datasets.pbmc68k()
    >>> cells.obs["batch"] = ["a", "b"] * 350
    >>> dice.pp.correct_batches(cells, "batch", n_comps=10)
    >>> cells.layers["harmony"].shape
    (700, 765)
    """
    check_writable(adata, copy=copy)
    batches, layer_added = several_batches(adata, batch_key), new_key("layer_added", layer_added, "harmony")
    check_free(adata, layer_added, ("layers",), argument="layer_added")
    random_state, (genes, column) = seed(random_state), gene_mask(adata, mask_var)
    matrix = Matrix(adata, layer=layer, genes=genes)
    n_comps = min(whole_number("n_comps", n_comps), matrix.n_cells - 1, matrix.n_genes - 1)
    if n_comps < 1:
        raise InputError(f"Harmony needs two cells and two genes, got {matrix.n_cells} and {matrix.n_genes}.")
    if check:
        check_expression(next(iter(matrix)))

    projection = fit_projection(matrix.total, n_latent=n_comps)
    before = matrix.apply(projection.project)
    shift = harmony(before, batches, random_state) - before
    back = projection.loadings.T * projection.scale
    corrected = _shifted(Matrix(adata, layer=layer), shift.astype(np.float32), back, genes)
    params = {"batch_key": batch_key, "n_comps": n_comps, "layer": layer, "random_state": random_state}
    params |= {"mask_var": column}
    slots = Slots(layers={layer_added: corrected}, uns={f"dice_{layer_added}": {"params": as_plain(params)}})
    return write(adata, slots, copy=copy)


def _shifted(matrix: Matrix, shift: Floats, back: Floats, genes: NDArray[np.intp] | None) -> NDArray[np.float32]:
    """Return the dense expression of all genes, with ``shift @ back`` added to the genes that were used."""
    expression = np.empty((matrix.n_cells, matrix.n_genes), dtype=np.float32)
    columns = slice(None) if genes is None else genes
    for chunk, rows in matrix.chunks():
        expression[rows] = chunk.toarray() if sparse.issparse(chunk) else chunk
        expression[rows, columns] += shift[rows] @ back
    return expression
