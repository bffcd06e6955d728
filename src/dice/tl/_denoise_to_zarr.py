"""Denoising from file to file, for queries that are larger than memory."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._data.files import GO_ON, Draft, check_dask, held, in_chunks, read_lazy
from dice._data.sources import BLOCK_ENTRIES
from dice._data.store import Prior, find_prior, own_cells
from dice._data.write import as_plain, embedding_key
from dice._errors import InputError
from dice._files import NO_ROOM, check_target, followed, refusals
from dice._keys import DenoiseKeys
from dice._query.stream import StreamedQuery
from dice.options import Options


@_log.once_per_object
def denoise_to_zarr(
    source: AnnData | str | os.PathLike[str],
    reference: AnnData | Prior | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    copy_x: bool = True,
    overwrite: bool = False,
    chunk_size: int | None = None,
    key_added: str = "X_dice",
    prior_key: str = "dice",
    **options: Any,
) -> None:
    """Denoise a query chunk by chunk into a zarr store. An interrupted run can be resumed.

    The results are those of :func:`denoise`. Memory is needed for a few chunks and a few numbers per cell. Expression
    is read once, or twice if the likelihood needs single genes. Files and dask arrays are processed by dask's threads,
    or by the workers of a :class:`dask.distributed.Client` that was started before. The workers must share the disk.

    An incomplete store is kept in the folder ``<output>.partial``. A call with the same arguments resumes there and
    does not repeat finished chunks.

    Parameters
    ----------
    source
        The query: path of an .h5ad file or a .zarr store, or an AnnData object of any kind.
    reference
        AnnData object with a prior, a :class:`dice.Prior`, or the path of a file with one.
    output
        Path of the store to write.
    copy_x
        Whether to copy ``X`` and the layers of the query into the store. All other slots are copied, except ``.raw``.
    overwrite
        Whether to replace an existing store. It is replaced when the new one is complete.
    chunk_size
        Number of cells in a chunk, for the computation and for the arrays in the store. None is
        ``dice.settings.chunk_size`` or, if that is None, about 64 MB of dense expression.
    key_added
        Key of the embedding; other slots derive their name from it.
    prior_key
        Key of the prior in the reference.
    **options
        Other arguments of :func:`denoise`: `rho`, `n_samples`, `likelihood`, `method`, `shift`, ...

    Returns
    -------
    None. The store at `output` is the query with the slots that :func:`denoise` sets:

    ``obsm["X_dice"]``, ``obsm["X_dice_pca"]`` (n_obs, k) float32
        Posterior mean of every cell, and its projection on the loadings.
    ``obsm["X_dice_samples"]`` (n_obs, n_samples, k) float32
        Posterior samples, with `n_samples`.
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
    check_dask()
    prior, target = find_prior(reference, key=prior_key), _check_output(output, overwrite, (source, reference))
    asked = _options(options, chunk_size)
    size = asked.chunk_size or max(BLOCK_ENTRIES // len(prior.genes), 256)
    adata = source if isinstance(source, AnnData) else read_lazy(source, chunk_size=size)
    keys, asked = DenoiseKeys(embedding_key(adata, key_added)), replace(asked, chunk_size=size)
    with held(target), _log.recorded() as warned, refusals(target, GO_ON, only=NO_ROOM):
        chunked = in_chunks(adata, size, asked.layer, asked.batch_key)
        draft, own = Draft(target, adata.n_obs, size), own_cells(adata, prior)
        query = StreamedQuery.of(chunked, prior, asked, own=own, draft=draft, keys=keys)
        draft.open(_fingerprint(query), adata)
        draft.complete(adata, query.slots(keys, warned), copy_x=copy_x)


def _options(options: dict[str, Any], chunk_size: int | None) -> Options:
    try:
        return Options(**options if chunk_size is None else options | {"chunk_size": chunk_size})
    except TypeError as error:
        raise InputError(f"denoise_to_zarr does not know this argument: {error}.") from error


def _check_output(output: str | os.PathLike[str], overwrite: bool, inputs: tuple[object, ...]) -> Path:
    path = check_target(output, store=True, inputs=inputs)
    if path.exists() and not overwrite:
        raise InputError(f"{str(output)!r} exists already: name another output, or pass overwrite=True for a store.")
    return followed(path)


def _fingerprint(query: StreamedQuery) -> dict[str, Any]:
    """Return everything that the results depend on. Cells are represented by their names and a sample."""
    digest = hashlib.sha256("\0".join(query.matrix.names.astype(str)).encode())
    sample = query.matrix.sample()
    for part in (sample.data, sample.indices) if sparse.issparse(sample) else (sample,):
        digest.update(np.ascontiguousarray(part).tobytes())
    for part in () if query.batches is None else (query.batches.categories.astype(str), query.batches.codes):
        digest.update(repr(list(part)).encode())
    options = query.options
    return {
        "call": as_plain(options.arguments()),
        "n_samples": options.n_samples,
        "chunk_size": options.chunk_size,
        "key": query.keys.key,
        "prior": query.prior.sha256,
        "cells": digest.hexdigest(),
    }
