"""Priors inside AnnData objects and files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem

from dice._anndata.stored import open_prior
from dice._core.prior import prior as core
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
        # Made in memory and written at once: on a full disk HDF5 would fail in many places and print them all.
        stream = BytesIO()
        with h5py.File(stream, "w") as file:
            write_elem(file, "/", adata)
        with atomic(path) as draft:
            draft.write_bytes(stream.getbuffer())

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
    """The raw fields of a stored prior; whatever goes wrong in other packages is one sentence."""
    if not path.is_file() and not path.is_dir():
        raise InputError(f"There is no file {str(path)!r}: pass the path of a saved prior.")
    try:
        return open_prior(path, key)
    except DiceError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise PriorFormatError(f"{str(path)!r} cannot be read as .h5ad or .zarr: {reason}.") from error
