"""Read and write priors in AnnData objects and files."""

import os
import weakref
from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Self, TypeAlias

import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import read_elem, write_elem

from dice._arguments import new_key, said
from dice._data.door import LIMIT, Walk, child, opened
from dice._data.write import holds_prior
from dice._errors import InputError, PriorFormatError, SlotError
from dice._files import atomic
from dice._keys import PriorKeys
from dice._model import prior as core
from dice._model import schema
from dice._types import Mask

#: Encodings of texts, numbers and arrays of them. A prior holds nothing else.
_TEXTS, _NUMBERS = {"string", "string-array"}, {"array", "numeric-scalar"}


class Prior(core.LearnedPrior):
    """A learned prior: everything about a reference that a query needs.

    :func:`dice.tl.train_prior` stores a prior in ``adata.uns["dice"]``. ``save`` and ``load`` keep a prior in its own
    file, without the reference cells.

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
        """Check a stored prior against the schema, then build it. `known_prior` finds the prior while it is in use."""
        prior = super().from_arrays(raw)
        vars(prior)["sha256"] = str(raw["sha256"])
        _in_use.add(prior)
        return prior

    @classmethod
    def from_anndata(cls, adata: AnnData, *, key: str = "dice") -> Self:
        """Return the prior in ``adata.uns[key]`` after checking it."""
        raw = adata.uns.get(key)
        if raw is None:
            raise SlotError(
                f"No prior found in adata.uns[{key!r}]: call dice.tl.train_prior, or pass the reference that holds it "
                "(note that anndata.concat drops .uns)."
            )
        return cls.from_arrays(raw)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the prior to an .h5ad file without cells. An existing file is replaced as a whole."""
        adata = AnnData(
            X=np.zeros((0, len(self.genes)), dtype=np.float32),
            var=pd.DataFrame(index=pd.Index(self.genes.astype(str))),
            uns={PriorKeys().uns: self.to_arrays()},
        )
        # Made in memory and written at once, because HDF5 prints pages of errors on a full disk.
        stream = BytesIO()
        with h5py.File(stream, "w") as file:
            write_elem(file, "/", adata)
        with atomic(path) as draft:
            draft.write_bytes(stream.getbuffer())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, key: str = "dice", max_bytes: int = LIMIT) -> Self:
        """Read a prior from a file that holds one: a saved prior, or a whole .h5ad or .zarr reference.

        A file that claims more than `max_bytes` for its prior is refused before it is read.
        """
        with opened(path, "a saved prior", PriorFormatError) as group:
            for name in ("uns", key):
                if hasattr(group, "shape") or name not in group:
                    raise SlotError(f"{str(path)!r} has no prior in .uns[{key!r}]: call dice.tl.train_prior.")
                group = child(group, name, PriorFormatError)
            Walk(Path(path), max_bytes, PriorFormatError, strict=True).check(group)
            raw = _read_fields(group)
        return cls.from_arrays(raw)


def _read_fields(group: Any) -> dict[str, Any]:
    """Read the fields of a stored prior, unless their names or its format are wrong."""
    if hasattr(group, "shape") or "format" not in group:
        return {}
    version = read_elem(_of_kind(group["format"], "format"))
    schema.check_fields(version, set(group))
    raw: dict[str, Any] = {}
    for name in group:
        if name not in schema.TABLES:
            raw[name] = read_elem(_of_kind(group[name], name))
        elif hasattr(group[name], "shape"):
            raise PriorFormatError(f"The stored prior's {name!r} is not a table of arrays.")
        else:
            raw[name] = {entry: read_elem(_of_kind(group[name][entry], f"{name}/{entry}")) for entry in group[name]}
    return raw


def _of_kind(leaf: Any, name: str) -> Any:
    """Return an entry if it is text or numbers. A prior must not hold the other types that anndata can read."""
    allowed = _TEXTS if name in schema.TEXTS else _NUMBERS
    encoding = None if getattr(leaf, "shape", None) is None else leaf.attrs.get("encoding-type")
    if not isinstance(encoding, str) or encoding not in allowed:
        raise PriorFormatError(f"The stored prior's {name!r} has kind {str(encoding)[:40]!r}, not {sorted(allowed)}.")
    return leaf


#: Verified priors and the values that were verified, by the `id` of the AnnData object and the key of the prior. They
#: are kept as long as the object lives.
_verified: dict[tuple[int, str], tuple[Any, Prior]] = {}
#: Priors in use, so that a query finds the prior that made its embedding.
_in_use: weakref.WeakSet[Prior] = weakref.WeakSet()


#: The ``reference`` of a call: an object with a prior, a prior itself, its path, or the name of a ready prior.
Reference: TypeAlias = AnnData | Prior | str | os.PathLike[str]


def find_prior(source: Reference, *, key: str = "dice", query: AnnData | None = None) -> Prior:
    """Return the prior of a reference: an AnnData object, a prior, a file or a name.

    The prior of an object is verified once, and again if it is replaced or edited. If the `query` has a prior and
    `source` has no prior, the user has swapped the arguments, and an error is raised.
    """
    key = new_key("prior_key", key, "dice")
    if isinstance(source, Prior):
        return source
    if isinstance(source, str | os.PathLike):
        from dice import priors

        return priors.load(source) if priors.is_name(source) else Prior.load(source, key=key)
    if not isinstance(source, AnnData):
        raise InputError(f"`reference` must be an AnnData object, a prior, a path or a name, got {said(source)}.")
    place, raw = (id(source), key), source.uns.get(key)
    if raw is None and query is not None and holds_prior(query, key):
        raise InputError("adata has a prior and reference has none: pass the query first and the reference second.")
    if place in _verified and _same(raw, _verified[place][0]):
        return _verified[place][1]
    return remember(source, Prior.from_anndata(source, key=key), key)


def remember(adata: AnnData, prior: Prior, key: str = "dice") -> Prior:
    """Remember the prior that was read from ``adata.uns[key]``, so that it is verified only once.

    Return the copy that is kept, because stored arrays can be edited in place.
    """
    place, stored, kept = (id(adata), key), deepcopy(adata.uns[key]), deepcopy(prior)
    vars(kept)["sha256"] = str(stored["sha256"])
    if place not in _verified:
        weakref.finalize(adata, _verified.pop, place, None)
    _verified[place] = stored, kept
    _in_use.add(kept)
    return kept


def known_prior(sha256: str) -> Prior | None:
    """Return the prior with this checksum if it is still in use in this process."""
    return next((prior for prior in list(_in_use) if prior.sha256 == sha256), None)


def _same(one: Any, other: Any) -> bool:
    """Return whether two stored values are equal to the bit. This is faster than verifying a prior."""
    if isinstance(other, Mapping):
        return isinstance(one, Mapping) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return type(one) is type(other) and bool(one == other)


def own_cells(adata: AnnData, prior: Prior) -> Mask | None:
    """Return a mask (n,) of the cells that the loadings were computed from if `adata` is the reference, else None."""
    for key, raw in adata.uns.items():
        if isinstance(raw, Mapping) and raw.get("sha256") == prior.sha256 and PriorKeys(key).split in adata.obs:
            return adata.obs[PriorKeys(key).split].isin(["train", "validation"]).to_numpy(dtype=bool)
    return None
