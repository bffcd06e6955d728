"""The closed schema of a stored prior: what may be in it is listed here, all else is refused.

A prior may come from anybody's file. Names, types, shapes, bounds, finiteness and the checksum are verified
on the raw values before anything is built from them; nothing is ever executed or unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dice._core.prior.checksum import checksum
from dice._errors import PriorFormatError

FORMAT = 2
MAX_GENES = 200_000
MAX_LATENT = 1_000
#: A stored prior may hold so many bytes in so many arrays; files are asked for both before they are read.
MAX_BYTES, MAX_ARRAYS = 2 * 2**30, 10_000
#: Longest name of a gene, and of all genes together; longest other text.
MAX_NAME, MAX_NAMES, MAX_TEXT = 1_000, 20_000_000, 1_000_000
#: Magnitudes that expression and what is computed from it can have, with much room: what is beyond overflows.
LARGEST, SMALLEST = 1e12, 1e-12

#: Fields that are tables of arrays, and those that are text.
TABLES = ("weights", "measurement", "history", "statistics", "calibration", "kinds")
TEXTS = ("config", "params", "sha256", "genes")
#: Smallest value of each number and vector; none is larger than `LARGEST`.
_LEAST = {
    "noise": 0.0,
    "latent_scale": SMALLEST,
    "mean": -LARGEST,
    "center": -LARGEST,
    "scale": SMALLEST,
    "gene_noise": 0.0,
    "singular_values": 0.0,
}
_SCALARS, _PER_GENE = ("noise", "latent_scale"), ("mean", "scale", "center", "gene_noise")
FIELDS = {"format", "loadings", *TABLES, *TEXTS, *_LEAST}


class Table(NamedTuple):
    """Columns of a table, which are as wide as the latents or single numbers; one is never negative; most rows."""

    columns: dict[str, bool]
    positive: str
    most: int


#: Tables that a prior may lack.
PARTS = {
    "calibration": Table({"y": True, "residual": False}, "residual", 100_000),
    "kinds": Table({"directions": True, "means": True, "variances": True}, "variances", 1_000),
}


#: Fields that a prior may lack; the measurement came with format 2.
OPTIONAL = {*PARTS, "measurement"}


def fits(version: int, names: set[str]) -> bool:
    """Whether these are the fields of a prior of that format."""
    return names | OPTIONAL == FIELDS and (version > 1 or "measurement" not in names)


def validate(raw: Any) -> dict[str, Any]:
    """The fields of a stored prior as plain Python and numpy values, or one sentence why not."""
    if not isinstance(raw, Mapping) or "format" not in raw:
        raise PriorFormatError("This is not a stored prior: it has no 'format' number.")
    version = _integer(raw["format"], "format")
    if version < 1:
        raise PriorFormatError(f"The prior has format {version}, which never existed.")
    if version > FORMAT:
        raise PriorFormatError(
            f"The prior has format {version}, but this version of dice reads up to {FORMAT}: "
            "install a newer one with 'pip install -U scdice'."
        )
    if not fits(version, set(raw)):
        odd = sorted(ascii(name)[:50] for name in (set(raw) | OPTIONAL) ^ FIELDS)
        raise PriorFormatError(f"The stored prior has missing or unknown fields: {odd[:5]}.")
    fields: dict[str, Any] = {name: _text(raw[name], name) for name in ("config", "params", "sha256")}
    fields |= {name: _finite_float(raw[name], name) for name in _SCALARS}
    genes = _names(raw["genes"])
    fields |= {name: _array(raw[name], name, (len(genes),)) for name in _PER_GENE}
    config = _config(fields["config"])
    fields["singular_values"] = _spectrum(raw["singular_values"], config["denoiser"]["n_latent"])
    shape = (len(genes), config["denoiser"]["n_latent"])
    fields["loadings"] = _array(raw["loadings"], "loadings", shape)
    for name in ("weights", "history", "statistics"):
        fields[name] = _table(raw[name], name)
    fields["measurement"] = _table(raw["measurement"], "measurement") if "measurement" in raw else None
    if (config.get("measurement") is None) != (fields["measurement"] is None):
        raise PriorFormatError("The stored prior's measurement and its 'config' do not agree.")
    fields |= {name: _part(raw[name], name, shape[1]) if name in raw else None for name in PARTS}
    if checksum(raw) != fields["sha256"]:
        raise PriorFormatError(
            "The stored prior does not match its checksum: it was damaged or edited; "
            "train it again or take it from its source."
        )
    for name, least in _LEAST.items():
        if not (np.all(fields[name] >= least) and np.all(fields[name] <= LARGEST)):
            raise PriorFormatError(f"The stored prior's {name!r} is not between {least:g} and {LARGEST:g}.")
    if not is_orthonormal(fields["loadings"]):
        raise PriorFormatError("The stored prior's loadings are not orthonormal.")
    return fields | {"format": version, "genes": genes, "config": config}


def is_orthonormal(columns: np.ndarray) -> bool:
    """Whether the columns of a matrix, or of each of a stack of them, are unit vectors at right angles."""
    if np.abs(columns).max(initial=0) > 1.01:
        return False
    gram = columns.swapaxes(-1, -2) @ columns
    return bool(np.allclose(gram, np.eye(gram.shape[-1]), atol=1e-3))


def check_weights(weights: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse weights that are not exactly those that the configured denoiser has."""
    if set(weights) != set(shapes):
        odd = sorted(ascii(name)[:50] for name in set(weights) ^ set(shapes))
        raise PriorFormatError(f"The stored prior has missing or unknown weights: {odd[:5]}.")
    for name, shape in shapes.items():
        _array(weights[name], f"weights/{name}", shape)


def _config(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
        preset, kind, cap, denoiser = (config[x] for x in ("preset", "kind", "cap", "denoiser"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PriorFormatError("The stored prior's 'config' is not readable.") from error
    measurement = config.get("measurement")
    numbers = _is_size(denoiser) and (measurement is None or _is_size(measurement))
    known = set(config) <= {"preset", "kind", "cap", "denoiser", "measurement"}
    sound = isinstance(preset, str) and isinstance(kind, str) and known and _is_cap(cap)
    if not (sound and numbers and (measurement or denoiser)["n_latent"] == denoiser["n_latent"]):
        raise PriorFormatError("The stored prior's 'config' has values that are out of bounds.")
    return config


def _is_size(config: object) -> bool:
    """Whether these could be the constructor arguments of a network."""
    whole = isinstance(config, dict) and all(type(value) is int for value in config.values())
    return whole and 0 < config.get("n_latent", 0) <= MAX_LATENT  # type: ignore[attr-defined]


def _is_cap(cap: object) -> bool:
    return cap is None or (isinstance(cap, float) and SMALLEST <= cap <= LARGEST)


def _integer(value: Any, name: str) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise PriorFormatError(f"The stored prior's {name!r} is not a whole number.")
    return int(value)


def _finite_float(value: Any, name: str) -> float:
    if not isinstance(value, (float, np.floating)) or not np.isfinite(value):
        raise PriorFormatError(f"The stored prior's {name!r} is not a finite number.")
    return float(value)


def _text(value: Any, name: str) -> str:
    if not is_text(value, MAX_TEXT):
        raise PriorFormatError(f"The stored prior's {name!r} is not a short text.")
    return str(value)


def is_text(value: Any, longest: int) -> bool:
    """Whether this is text that files can hold: no half characters, which have no bytes, and no end marks."""
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _names(value: Any) -> np.ndarray:
    try:
        names = np.asarray(value)
    except ValueError:  # Lists of different lengths.
        names = np.empty(0)
    if names.ndim != 1 or not 0 < len(names) <= MAX_GENES or names.dtype.kind not in "OUT":
        raise PriorFormatError("The stored prior's 'genes' are not a list of names.")
    if not all(is_text(name, MAX_NAME) for name in names) or len(set(names)) != len(names):
        raise PriorFormatError("The stored prior's 'genes' are not unique names.")
    return names.astype(object)


def _spectrum(value: Any, n_latent: int) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.ndim != 1 or len(value) > MAX_GENES:
        raise PriorFormatError("The stored prior's 'singular_values' are not one short vector.")
    values = _array(value, "singular_values", value.shape)
    if len(values) < n_latent or not values[:n_latent].any():
        raise PriorFormatError("The stored prior's 'singular_values' are fewer than its latents, or all zero.")
    return values


def _array(value: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.shape != shape:
        raise PriorFormatError(f"The stored prior's {name!r} is not float32 of shape {shape}.")
    if not np.isfinite(value).all():
        raise PriorFormatError(f"The stored prior's {name!r} holds values that are not finite.")
    return value


def _table(value: Any, name: str) -> dict[str, Any]:
    """Named float arrays; only a course of training (``history``) may hold NaN, where nothing was measured."""
    if not isinstance(value, Mapping) or len(value) > MAX_ARRAYS:
        raise PriorFormatError(f"The stored prior's {name!r} is not a table of arrays.")
    kinds = (float, np.floating) if name == "statistics" else (np.ndarray,)
    for key, entry in value.items():
        if not is_text(key, MAX_NAME) or not isinstance(entry, kinds) or np.asarray(entry).dtype.kind != "f":
            raise PriorFormatError(f"The stored prior's {name!r} holds something not numeric.")
        if name == "history" and (np.ndim(entry) != 1 or np.asarray(entry).dtype != np.float32):
            raise PriorFormatError("The stored prior's 'history' is not made of float32 vectors.")
        if name == "statistics" and not np.isfinite(entry):
            raise PriorFormatError("The stored prior's 'statistics' are not finite.")
    if sum(np.asarray(entry).nbytes for entry in value.values()) > MAX_BYTES:
        raise PriorFormatError(f"The stored prior's {name!r} are larger than those of any prior.")
    return dict(value)


def _part(value: Any, name: str, n_latent: int) -> dict[str, np.ndarray]:
    """One of the tables of `PARTS`: a row of latents, or a number, for every cell or kind of cells."""
    part = PARTS[name]
    whole = isinstance(value, Mapping) and set(value) == set(part.columns)
    size = getattr(value[part.positive], "shape", ()) if whole else ()
    if not size or not 0 < size[0] <= part.most:
        raise PriorFormatError(f"The stored prior's {name!r} is not a table of {' and '.join(part.columns)}.")
    shapes = {column: (size[0], n_latent) if wide else (size[0],) for column, wide in part.columns.items()}
    arrays = {column: _array(value[column], f"{name}/{column}", shape) for column, shape in shapes.items()}
    if max(np.abs(array).max() for array in arrays.values()) > LARGEST or (arrays[part.positive] < 0).any():
        raise PriorFormatError(f"The stored prior's {name!r} holds values that are out of bounds.")
    return arrays
