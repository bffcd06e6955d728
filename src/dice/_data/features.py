"""Numeric features of the cells of a reference, and normalised counts of proteins."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from anndata import AnnData

from dice._arguments import known_key, new_key, said
from dice._data.files import read
from dice._data.read import array, column_names, dense, feature_table, named_table, names, record
from dice._data.write import Slots, is_mudata, result_key
from dice._errors import InputError, SlotError
from dice._keys import FeatureKeys
from dice._types import Codes, Floats, Mask

#: Prefixes of keys that name a layer or a modality.
LAYER_PREFIX, MODALITY = "layer:", "mod:"
#: Fewest cells in which a feature must have been measured.
FEWEST_MEASURED = 20
#: Largest value of a feature. Results are float32 (up to 3e38), and intervals are wider than the values.
LARGEST_FEATURE = 1e30


@dataclass(frozen=True)
class Features:
    """Values (n, F) of features in the cells of a reference (NaN if not measured), and names of the features."""

    values: Floats
    names: list[str]
    #: Name of the results: ``"protein"`` for ``"mod:protein"``.
    title: str

    @property
    def known(self) -> Mask:
        """Mask (n,) of cells with at least one measured feature."""
        return np.asarray(~np.isnan(self.values).all(axis=1))


def with_cells(reference: Any, prior_key: str) -> AnnData:
    """Return the AnnData object with cells and prior: the reference, its file, or a modality of a MuData object."""
    from dice._data.store import Prior  # Imports torch, which plots of features do not need.

    if isinstance(reference, str | os.PathLike):
        reference = read(reference)
    if is_mudata(reference):
        found = [cells for cells in reference.mod.values() if cells.uns.get(prior_key) is not None]
        if len(found) != 1:
            raise InputError(f"Exactly one modality must have a prior, got {len(found)}: train one on gene expression.")
        reference = found[0]
    if isinstance(reference, Prior) or (isinstance(reference, AnnData) and not reference.n_obs):
        raise InputError("Features are learned from cells, but a prior has no cells: pass the reference instead.")
    if not isinstance(reference, AnnData):
        raise InputError(f"`reference` must be an AnnData or MuData object or a path, got {said(reference)}.")
    return reference


def read_features(source: Any, reference: AnnData, key: str | Sequence[str]) -> Features:
    """Return the features under `key`. `source` is the user's argument, and `reference` the AnnData object in it."""
    table = find_table(source, reference, key)
    repeated = table.columns[table.columns.duplicated()].unique()
    if len(repeated):
        raise InputError(f"Features have names that repeat, for example {list(repeated[:5])}: make them unique.")
    values = as_numbers(table, key, "the reference")
    size = np.nanmax(np.abs(values), axis=0, initial=0.0)
    large = list(table.columns[size > LARGEST_FEATURE])
    if large:
        what = "infinite" if np.isinf(size).any() else f"larger than {LARGEST_FEATURE:g}"
        raise InputError(f"The features {large[:5]} are {what} in some cells: set these values to NaN.")
    n_cells = (~np.isnan(values)).sum(0)
    few = table.columns[n_cells < FEWEST_MEASURED]
    if len(few):
        raise InputError(f"Features must be measured in at least {FEWEST_MEASURED} cells: leave out {list(few[:5])}.")
    return Features(values, [str(name) for name in table.columns], title_of(key))


def as_numbers(table: pd.DataFrame, key: Any, whose: str) -> Floats:
    """Return the values (n, F) of a table, NaN if missing. Text, dates and complex numbers are errors."""
    odd = [str(name) for name, kind in table.dtypes.items() if kind.kind not in "biuf"]
    if odd or not table.shape[1]:
        got = f"{odd[:5]}, which are not real numbers: convert them by .astype(float)" if odd else "none: pass another"
        raise InputError(f"{said(key)} must name numeric features of {whose}, got {got}.")
    return table.to_numpy(dtype=np.float64, na_value=np.nan)


def title_of(key: str | Sequence[str]) -> str:
    """Return the name for results: ``"protein"`` for ``"mod:protein"``. Slashes become ``_``, because files need it."""
    if not isinstance(key, str):
        return "features"
    return key.removeprefix(LAYER_PREFIX).removeprefix(MODALITY).replace("/", "_")


def has_features(adata: AnnData, key: Any) -> bool:
    """Return whether an object has features under this key."""
    if not isinstance(key, str):
        return isinstance(key, Iterable) and all(name in adata.obs for name in key)
    if key.startswith(LAYER_PREFIX):
        return key.removeprefix(LAYER_PREFIX) in adata.layers
    return key in adata.obsm or key in adata.obs


def find_table(source: Any, cells: AnnData, key: Any, name: str = "reference") -> pd.DataFrame:
    """Return a table (n, F) of the features under `key`. Errors call the object `name`."""
    if isinstance(key, bytes) or not isinstance(key, Iterable):
        raise InputError(f"`features_key` must be a key of obsm or columns of obs, got {said(key)}.")
    if not isinstance(key, str):
        return cells.obs[[known_key(column, cells.obs, "column", f"{name}.obs") for column in key]]
    if key.startswith(MODALITY):
        return _modality(source, cells, key)
    if key.startswith(LAYER_PREFIX):
        layer = known_key(key.removeprefix(LAYER_PREFIX), names(cells, "layers"), "layer", f"{name}.layers")
        return named_table(dense(cells.layers[layer]), cells, list(cells.var_names))
    if key in cells.obsm:
        return feature_table(cells, key)
    if key in cells.obs:
        return cells.obs[[key]]
    raise SlotError(
        f"{name} has no features {said(key)}: name one of obsm {sorted(cells.obsm)[:20]}, columns of obs, "
        f"a layer as 'layer:NAME' {sorted(names(cells, 'layers'))[:5]} or a modality as 'mod:NAME'."
    )


def _modality(source: Any, cells: AnnData, key: str) -> pd.DataFrame:
    """Return all features of a modality for the cells with expression; NaN for cells that the modality lacks."""
    name = key.removeprefix(MODALITY)
    if not is_mudata(source):
        raise InputError(f"`features_key` {said(key)} names a modality: pass a MuData object as the reference.")
    found = source.mod[known_key(name, source.mod, "modality", "reference.mod")]
    if not found.obs_names.is_unique:
        raise InputError(f"Cells of the modality {name!r} have names that repeat: call obs_names_make_unique on it.")
    if found.X is None:
        raise InputError(f"The modality {name!r} has no .X: put the features into it.")
    rows = found.obs_names.get_indexer(cells.obs_names)
    if (rows < 0).all():
        raise InputError(f"The modality {name!r} and the reference share no cells: give both the same obs_names.")
    values = dense(found.X)[rows]
    if values.dtype.kind in "biuf":  # other values are refused later, by their name
        values = np.where(rows[:, None] < 0, np.nan, values)
    return named_table(values, cells, list(found.var_names))


def feature_key(adata: AnnData, key_added: Any, title: str) -> str:
    """Return a key for predicted features. It must be free or hold earlier predictions."""
    key = new_key("key_added", f"{title}_dice" if key_added is None else key_added, "protein_dice")
    entry = adata.uns.get(key)
    ours = isinstance(entry, Mapping) and "features" in entry
    taken = [name for name in (key, f"{key}_low", f"{key}_high") if name in adata.obsm or name in adata.uns]
    if not ours and taken:
        raise InputError(f"{taken[0]!r} in adata was not written by dice: pass another key_added.")
    return key


def normalised_proteins(adata: AnnData, key: str, across: str, key_added: str | None) -> Slots:
    """Return centred log-ratios of ``obsm[key]`` and the record of the call."""
    known_key(key, adata.obsm, "array", "adata.obsm")
    added = f"{key}_clr" if key_added is None else key_added
    table, added = feature_table(adata, key), result_key(adata, added, "protein_clr", besides=key)
    counts = as_numbers(table, key, "adata")
    wrong = np.flatnonzero((counts < 0).any(1) | np.isinf(counts).any(1))
    if len(wrong):
        raise InputError(
            f"adata.obsm[{key!r}] must hold counts, got negative or infinite values in {len(wrong)} cells, for example "
            f"{list(adata.obs_names[wrong[:3]])}: pass the key of the counts."
        )
    values = centred_log_ratios(counts, axis=1 if across == "features" else 0).astype(np.float32)
    params = {"params": {"key": key, "normalisation": "clr", "across": across}}
    return Slots(obsm={added: pd.DataFrame(values, index=adata.obs_names, columns=table.columns)}, uns={added: params})


def centred_log_ratios(counts: Floats, *, axis: int) -> Floats:
    """Return log1p(count / m), where log m is the mean of log1p(count) along an axis. NaN are ignored and kept."""
    mean = pd.DataFrame(np.log1p(counts)).mean(axis=axis).to_numpy()
    return np.log1p(counts / np.exp(np.expand_dims(mean, axis)))


@dataclass(frozen=True)
class PredictedTable:
    """Features that :func:`dice.tl.transfer_features` predicted, and their measured values if known."""

    names: list[str]
    mean: Floats
    low: Floats
    high: Floats
    #: Correlation (F,) in held-out cells of the reference, and mask (F,) of features that cannot be predicted.
    correlation: Floats
    useless: Mask
    alpha: float
    #: Measured values (n, F), NaN if missing.
    truth: Floats | None

    @classmethod
    def of(cls, adata: AnnData, key: str, truth_key: str | Sequence[str] | None) -> Self:
        """Read the slots that begin with `key`, and measured values if there is a `truth_key`."""
        keys, step = FeatureKeys(key), f"dice.tl.transfer_features(adata, reference, {key.removesuffix('_dice')!r})"
        made = record(adata, keys.uns, what="record of predicted features", step=step)
        table = made["features"]
        names = [str(name) for name in table["name"]]
        mean, low, high = (
            array(adata, name, step=step).astype(np.float64) for name in (keys.mean, keys.low, keys.high)
        )
        truth = None if truth_key is None else _measured(adata, truth_key, names)
        correlation, useless = np.asarray(table["correlation"], dtype=float), np.asarray(table["useless"], dtype=bool)
        return cls(names, mean, low, high, correlation, useless, float(made["call"]["alpha"]), truth)

    @property
    def ranked(self) -> Codes:
        """Features by correlation, the best first; features without a correlation last."""
        return np.argsort(-np.nan_to_num(self.correlation, nan=-2.0), kind="stable")

    def chosen(self, features: Sequence[str] | None, n: int) -> list[int]:
        """Return the positions of the named features, or of the best `n`."""
        if features is None:
            return [int(i) for i in self.ranked[:n]]
        wanted = [features] if isinstance(features, str) else list(features)
        return [self.names.index(known_key(name, self.names, "feature", "the predicted ones")) for name in wanted]


def _measured(adata: AnnData, truth_key: str | Sequence[str], names: list[str]) -> Floats:
    """Return the measured values (n, F) of the predicted features, by name."""
    table = find_table(adata, adata, truth_key, "adata")
    table = table.set_axis(column_names([str(name) for name in table.columns]), axis=1)
    found = [name for name in names if name in table.columns]
    if not found:
        raise InputError(f"truth_key={said(truth_key)} has none of the predicted features {names[:3]}: pass another.")
    return pd.DataFrame(as_numbers(table[found], truth_key, "adata"), columns=found).reindex(columns=names).to_numpy()
