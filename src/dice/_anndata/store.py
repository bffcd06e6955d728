"""Priors inside AnnData objects and files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import read_elem

from dice._core import prior as core
from dice._core import schema
from dice._errors import DiceError, InputError, PriorFormatError, SlotError
from dice._files import atomic
from dice._keys import PriorKeys


class Prior(core.Prior):
    """A learned prior: all that a query needs to know of its reference.

    :func:`dice.tl.train_prior` stores one in ``adata.uns["dice"]``; ``save`` and ``load`` keep it in a file of its
    own, without the cells it was learned from.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, max_steps=20)
    >>> prior = dice.Prior.from_anndata(reference)
    >>> prior.save("prior.h5ad")
    >>> dice.Prior.load("prior.h5ad")
    Prior('default', 2000 genes, 15 latents)
    """

    @classmethod
    def from_anndata(cls, adata: AnnData, *, key: str = "dice") -> Prior:
        """The prior stored in ``adata.uns[key]``, checked before it is used."""
        raw = adata.uns.get(key)
        if raw is None:
            raise SlotError(
                f"No prior found in adata.uns[{key!r}]: train one with dice.tl.train_prior(adata), or pass "
                "the reference that holds it (note that anndata.concat drops .uns)."
            )
        return cls.from_arrays(raw)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the prior to one .h5ad file without cells; an existing file is replaced at once."""
        adata = AnnData(
            X=np.zeros((0, len(self.genes)), dtype=np.float32),
            var=pd.DataFrame(index=pd.Index(self.genes.astype(str))),
            uns={PriorKeys().uns: self.to_arrays()},
        )
        with atomic(path) as draft:
            adata.write_h5ad(draft)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, key: str = "dice") -> Prior:
        """Read a prior from a file that holds one: a saved prior, or a whole .h5ad or .zarr reference."""
        return cls.from_arrays(_read_stored(Path(path), key))


def find_prior(source: AnnData | core.Prior | str | os.PathLike[str], *, key: str = "dice") -> Prior:
    """The prior that a user points at: an AnnData object, a prior, or a file."""
    if isinstance(source, Prior):
        return source
    if isinstance(source, AnnData):
        return Prior.from_anndata(source, key=key)
    if isinstance(source, str | os.PathLike):
        return Prior.load(source, key=key)
    raise InputError(f"reference is a {type(source).__name__}: pass an AnnData object, a dice.Prior or a path.")


def _read_stored(path: Path, key: str) -> Mapping[str, Any]:
    """Read ``uns[key]`` alone: the cells of a large reference stay on disk."""
    if not path.exists():
        raise InputError(f"There is no file {str(path)!r}: pass the path of a saved prior.")
    try:
        if path.is_dir():
            import zarr

            return _element(zarr.open_group(path, mode="r"), path, key)
        with h5py.File(path, "r") as file:
            return _element(file, path, key)
    except DiceError:
        raise
    except Exception as error:
        raise PriorFormatError(f"{str(path)!r} cannot be read as .h5ad or .zarr: {error}.") from error


def _element(group: Any, path: Path, key: str) -> Mapping[str, Any]:
    if f"uns/{key}" not in group:
        raise SlotError(
            f"{str(path)!r} holds no prior in .uns[{key!r}]: train one with dice.tl.train_prior and save it."
        )
    _check_sizes(group[f"uns/{key}"], path)
    return read_elem(group[f"uns/{key}"])


def _check_sizes(element: Any, path: Path) -> None:
    """Refuse more than a prior can hold before any of it is read: a small file can unpack to anything."""
    arrays = list(_arrays(element))
    # A whole chunk is unpacked for any part of it, and may be larger than the array.
    sizes = [max(math.prod(a.shape), math.prod(a.chunks or ())) * a.dtype.itemsize for a in arrays]
    if len(arrays) > schema.MAX_ARRAYS or sum(sizes) > schema.MAX_BYTES:
        raise PriorFormatError(
            f"{str(path)!r} claims to hold {sum(sizes) / 2**30:.1f} GB in {len(arrays)} arrays, "
            "more than any prior does."
        )


def _arrays(element: Any) -> Iterator[Any]:
    """All arrays of an HDF5 or zarr group, at any depth."""
    if hasattr(element, "shape"):
        yield element
        return
    for name in element:
        yield from _arrays(element[name])
