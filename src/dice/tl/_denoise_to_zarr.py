"""Denoising from file to file, for queries that are larger than memory."""

import os
from typing import Any

from anndata import AnnData

from dice import settings
from dice._data.files import files_of, read_lazy, write_file
from dice._data.store import Reference
from dice._data.write import stand_in
from dice._errors import InputError
from dice._files import check_target
from dice.tl._denoise import denoise


def denoise_to_zarr(
    source: AnnData | str | os.PathLike[str],
    reference: Reference,
    output: str | os.PathLike[str],
    *,
    copy_x: bool = True,
    overwrite: bool = False,
    chunk_size: int | None = None,
    prior_key: str = "dice",
    key_added: str = "X_dice",
    **options: Any,
) -> None:
    """Denoise a query from a file into a zarr store, without reading all of its expression at once.

    The results are the same as those of :func:`denoise`. Memory is needed for a few chunks of expression and for the
    results, which take 400 bytes per cell with 50 latents.

    Parameters
    ----------
    source
        The query: path of an .h5ad file or a .zarr store, or an AnnData object of any kind.
    reference
        AnnData object with a prior, or the path or name of a prior. It can also be a :class:`dice.Prior`.
    output
        Path of the store to write.
    copy_x
        Whether to copy ``X`` and the layers of the query into the store. All other slots are copied, except ``.raw``.
    overwrite
        Whether to replace an existing store. The old store is kept until the new one is complete.
    chunk_size
        Number of cells in a chunk. None is ``dice.settings.chunk_size`` or, if that is None, about 64 MB of dense
        expression.
    prior_key
        Key of the prior in the reference.
    key_added
        Key of the embedding; other slots derive their name from it.
    **options
        Other arguments of :func:`denoise`: `rho`, `n_samples`, `likelihood`, `method`, `shift`, ...

    Returns
    -------
    None. The store at `output` holds the query and the slots that :func:`denoise` sets:

    ``obsm["X_dice"]``, ``obsm["X_dice_pca"]`` (n_obs, k) float32
        Posterior mean of every cell, and its projection on the loadings.
    ``obsm["X_dice_samples"]`` (n_obs, n_samples, k) float32
        Posterior samples, if `n_samples` is not 0.
    ``obs["dice_uncertainty"]`` float32, ``obs["dice_empty"]`` bool
        As by :func:`denoise`.
    ``uns["X_dice"]``
        As by :func:`denoise`.

    Examples
    --------
    >>> import anndata as ad, dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> query.write_h5ad("query.h5ad")
    >>> dice.tl.denoise_to_zarr("query.h5ad", reference, "denoised.zarr", rho=30)
    >>> ad.read_zarr("denoised.zarr").obsm["X_dice"].shape
    (400, 15)
    """
    path = check_target(output, store=True, inputs=files_of(source, reference))
    if path.exists() and not overwrite:
        raise InputError(f"{str(output)!r} exists already: name another output, or pass overwrite=True for a store.")
    adata = source if isinstance(source, AnnData) else read_lazy(source, chunk_size=chunk_size)
    result = stand_in(adata)
    with settings.using(chunk_size=settings.chunk_size if chunk_size is None else chunk_size):
        denoise(result, reference, key_added=key_added, prior_key=prior_key, copy=False, **options)
    write_file(stand_in(result, expression=copy_x), path)
