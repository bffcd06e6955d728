"""Numeric features of a reference's cells, wherever it keeps them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from anndata import AnnData

from dice._anndata.read import dense, feature_table, named_table
from dice._anndata.store import Prior
from dice._arguments import known_key, new_key, said
from dice._errors import InputError, SlotError
from dice._types import Floats, Mask

#: What stands before the name of a layer, and of a modality.
LAYER, MODALITY = "layer:", "mod:"
#: Cells in which a feature must have been measured to be learned at all.
FEWEST_CELLS = 20


@dataclass(frozen=True)
class Features:
    """Values (n, F) of a reference's cells, NaN where not measured, and the features' names."""

    values: Floats
    names: list[str]
    #: How results are called: ``"protein"`` of ``"mod:protein"``.
    title: str

    @property
    def known(self) -> Mask:
        """Cells (n,) in which any was measured."""
        return np.asarray(~np.isnan(self.values).all(axis=1))


def with_cells(reference: Any, prior_key: str) -> AnnData:
    """The object with the reference's cells and prior: itself, one in a file, or a modality of a MuData object."""
    if isinstance(reference, str | os.PathLike):
        path = Path(reference)
        if not path.exists():
            raise InputError(f"There is no file {said(str(path))}: pass the path of an .h5ad file or a .zarr store.")
        reference = ad.read_zarr(path) if path.is_dir() else ad.read_h5ad(path)
    if is_mudata(reference):
        found = [cells for cells in reference.mod.values() if cells.uns.get(prior_key) is not None]
        if len(found) != 1:
            raise InputError(
                f"{len(found)} modalities of the reference have a prior, but one is needed: call "
                f"dice.tl.train_prior(reference.mod[...]) on that with the expression of genes."
            )
        reference = found[0]
    if isinstance(reference, Prior) or (isinstance(reference, AnnData) and not reference.n_obs):
        raise InputError("Features are learned from the reference's cells, which a prior alone has not: pass these.")
    if not isinstance(reference, AnnData):
        raise InputError(f"reference is a {type(reference).__name__}: pass an AnnData or MuData object, or a path.")
    return reference


def is_mudata(reference: object) -> bool:
    """Whether there are modalities; mudata itself need not be installed for that."""
    return not isinstance(reference, AnnData) and isinstance(getattr(reference, "mod", None), Mapping)


def read_features(source: Any, reference: AnnData, key: str | Sequence[str]) -> Features:
    """Features that a user names; `source` is what was passed, and `reference` the cells in it."""
    table, title = _find(source, reference, key)
    repeated = table.columns[table.columns.duplicated()].unique()
    if len(repeated):
        raise InputError(f"Features have names that repeat, for example {list(repeated[:5])}: make them unique.")
    odd = [name for name, kind in table.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    if odd or not table.shape[1]:
        what = f"{odd[:5]} are no numbers" if odd else "there are none"
        raise InputError(f"key={said(key)} names no numeric features of the reference, {what}: pass others.")
    values = table.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.isinf(values).any(0)
    if infinite.any():
        raise InputError(
            f"The features {list(table.columns[infinite][:5])} are infinite in some cells: set these values to NaN, "
            "which is 'not measured'."
        )
    n_cells = (~np.isnan(values)).sum(0)
    few = table.columns[n_cells < FEWEST_CELLS]
    if len(few):
        raise InputError(
            f"{len(few)} features are known in fewer than {FEWEST_CELLS} cells of the reference, for example "
            f"{list(few[:5])}: leave them out."
        )
    return Features(values, [str(name) for name in table.columns], title)


def _find(source: Any, reference: AnnData, key: str | Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Table (n, F) of the features, and what results are called."""
    if not isinstance(key, str):
        columns = [known_key(name, reference.obs, "column", "reference.obs") for name in key]
        return reference.obs[columns], "features"
    if key.startswith(MODALITY):
        name = key.removeprefix(MODALITY)
        if not is_mudata(source):
            raise InputError(f"key={said(key)} names a modality, but the reference has none: pass a MuData object.")
        cells = source.mod[known_key(name, source.mod, "modality", "reference.mod")]
        rows = cells.obs_names.get_indexer(reference.obs_names)
        if (rows < 0).all():
            raise InputError(f"No cell of the reference is in its modality {name!r}: give both the same obs_names.")
        values = np.asarray(dense(cells.X), dtype=np.float64)[rows]
        values[rows < 0] = np.nan
        return named_table(values, reference, list(cells.var_names)), name
    if key.startswith(LAYER):
        name = known_key(key.removeprefix(LAYER), reference.layers, "layer", "reference.layers")
        return named_table(dense(reference.layers[name]), reference, list(reference.var_names)), name
    if key in reference.obsm:
        return feature_table(reference, key), key
    if key in reference.obs:
        return reference.obs[[key]], key
    raise SlotError(
        f"The reference has no features {said(key)}: name one of obsm {sorted(reference.obsm)[:20]}, columns of obs, "
        f"a layer as 'layer:NAME' {sorted(map(str, reference.layers))[:5]} or a modality as 'mod:NAME'."
    )


def feature_key(adata: AnnData, key_added: Any, title: str) -> str:
    """A key for predicted features, which must not be that of anything but earlier predictions."""
    key = new_key("key_added", f"{title}_dice".replace("/", "_") if key_added is None else key_added, "protein_dice")
    entry = adata.uns.get(key)
    ours = isinstance(entry, Mapping) and "features" in entry
    taken = [name for name in (key, f"{key}_low", f"{key}_high") if name in adata.obsm or name in adata.uns]
    if not ours and taken:
        raise InputError(
            f"adata has a {taken[0]!r} that is no prediction of dice: pass another key_added, or remove it first."
        )
    return key
