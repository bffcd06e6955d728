"""Priors inside AnnData objects and files."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from io import BytesIO
from typing import Any, NamedTuple, Self

import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem

from dice._arguments import new_key
from dice._data.door import LIMIT
from dice._data.files import open_prior
from dice._data.write import holds_prior
from dice._errors import InputError, SlotError
from dice._files import atomic
from dice._keys import PriorKeys
from dice._model import prior as core
from dice._types import Mask


class Prior(core.LearnedPrior):
    """A learned prior: all that a query needs to know of its reference.

    :func:`dice.tl.train_prior` stores one in ``adata.uns["dice"]``; ``save`` and ``load`` keep it in a file of its
    own, without the cells it was learned from.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> prior = dice.Prior.from_anndata(reference)
    >>> prior.save("prior.h5ad")
    >>> dice.Prior.load("prior.h5ad")
    Prior('default', 2000 genes, 15 latents)
    """

    @cached_property
    def sha256(self) -> str:
        """Checksum over all values: the same for equal priors, wherever they are kept."""
        return str(self.to_arrays()["sha256"])

    @classmethod
    def from_arrays(cls, raw: Mapping[str, Any]) -> Self:
        """Check a stored prior against the schema, then build it."""
        prior = super().from_arrays(raw)
        prior._register(raw)
        return prior

    def _register(self, raw: Mapping[str, Any]) -> None:
        """Take over the checksum that was verified, and be found by it."""
        vars(self)["sha256"] = str(raw["sha256"])
        _live[id(self)] = self

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
    def load(cls, path: str | os.PathLike[str], *, key: str = "dice", max_bytes: int = LIMIT) -> Prior:
        """Read a prior from a file that holds one: a saved prior, or a whole .h5ad or .zarr reference.

        A file that claims more than `max_bytes` for its prior is refused before it is read.
        """
        return cls.from_arrays(open_prior(path, key, max_bytes))


class _Verified(NamedTuple):
    """A prior that was verified, for as long as the object that holds it lives."""

    holder: weakref.ref[AnnData]
    stored: Mapping[str, Any]
    prior: Prior


#: By the identity of the object (AnnData has no hash) and the key of the prior in it.
_verified: dict[tuple[int, str], _Verified] = {}
#: Priors in use, so that a query finds the one that made its embedding; several may be equal, and outlive each other.
_live: weakref.WeakValueDictionary[int, Prior] = weakref.WeakValueDictionary()


def find_prior(source: AnnData | Prior | str | os.PathLike[str], *, key: str = "dice") -> Prior:
    """The prior that a user points at: an AnnData object, a prior, a file, or a name on the shelf.

    That of an object is built and verified once, and again if it is replaced or edited.
    """
    key = new_key("prior_key", key, "dice")
    if isinstance(source, Prior):
        return source
    if isinstance(source, str | os.PathLike):
        from dice import priors

        return priors.load(str(source)) if priors.is_name(source) else Prior.load(source, key=key)
    if not isinstance(source, AnnData):
        raise InputError(
            f"`reference` must be an AnnData object, a dice.Prior, a path or a name, got a {type(source).__name__}."
        )
    found, raw = _verified.get((id(source), key)), source.uns.get(key)
    if found is not None and found.holder() is source and _same(raw, found.stored):
        return found.prior
    return remember(source, Prior.from_anndata(source, key=key), key)


def check_order(adata: AnnData, reference: object, key: str = "dice") -> None:
    """Refuse a reference that was passed as the query: whoever has the prior comes second."""
    key = new_key("prior_key", key, "dice")
    if isinstance(reference, AnnData) and reference.uns.get(key) is None and holds_prior(adata, key):
        raise InputError(
            "reference has no prior but adata has one, as if they were swapped: pass the query first and the reference "
            "second."
        )


def remember(adata: AnnData, prior: Prior, key: str = "dice") -> Prior:
    """Keep a prior that is known to be the one in ``adata.uns[key]``, so that it need not be verified again.

    Returned is the copy that is kept: stored arrays can be edited in place, and a prior may share them.
    """
    place, raw = (id(adata), key), adata.uns[key]
    kept = deepcopy(prior)
    kept._register(raw)
    holder = weakref.ref(adata, lambda _: _verified.pop(place, None))
    _verified[place] = _Verified(holder, deepcopy(raw), kept)
    return kept


def known_prior(sha256: str) -> Prior | None:
    """The prior with this checksum, if it is still in use anywhere in this process."""
    return next((prior for prior in list(_live.values()) if prior.sha256 == sha256), None)


def _same(one: Any, other: Any) -> bool:
    """Whether two stored values are equal to the bit: comparing is much faster than verifying."""
    if isinstance(other, Mapping):
        return isinstance(one, Mapping) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in other)
    if type(one) is not type(other):
        return False
    if isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return bool(one == other)


def own_cells(adata: AnnData, prior: Prior) -> Mask | None:
    """Cells (n,) that a prior's loadings were computed from, if `adata` is its reference; None if it is not."""
    for key, raw in adata.uns.items():
        if isinstance(raw, Mapping) and raw.get("sha256") == prior.sha256 and PriorKeys(key).split in adata.obs:
            return adata.obs[PriorKeys(key).split].isin(["train", "validation"]).to_numpy(dtype=bool)
    return None
