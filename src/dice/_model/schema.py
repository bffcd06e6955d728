"""The schema of a stored prior. It lists all fields that a prior may have; other fields are refused.

A prior may come from any file. Names, types, shapes, bounds, finiteness and the checksum are verified on the raw values
before anything is built from them. Nothing is executed or unpickled.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from dice._arguments import is_text
from dice._errors import PriorFormatError
from dice._model.projection import is_orthonormal

#: Number of the only format that is written and read.
FORMAT = 5
MAX_GENES = 200_000
MAX_LATENT = 1_000
#: Maximum number of bytes and of arrays of a stored prior, checked before anything is read.
MAX_BYTES, MAX_ARRAYS = 2 * 2**30, 10_000
#: Maximum length of the name of a gene, and of other text.
MAX_NAME, MAX_TEXT = 1_000, 1_000_000
#: Largest and smallest accepted magnitude of expression and of values computed from it. Larger values would overflow.
LARGEST, SMALLEST = 1e12, 1e-12

#: Fields that are tables of arrays, and fields that are text.
TABLES = ("weights", "history", "statistics", "calibration", "soft_clusters", "labels")
TEXTS = ("config", "params", "sha256", "genes", "card")
#: Fields that are numbers, and fields that are vectors with an entry for every gene.
_SCALARS, _PER_GENE = ("noise", "bulk", "latent_scale"), ("mean", "scale", "center", "gene_noise")
FIELDS = {"format", "loadings", "singular_values", *TABLES, *TEXTS, *_SCALARS, *_PER_GENE}
#: Optional tables, with their columns (True: k numbers per row, False: one number) and maximum number of rows.
PARTS: dict[str, tuple[dict[str, bool], int]] = {
    "calibration": ({"y": True, "residual": False}, 100_000),
    "soft_clusters": ({"directions": True, "means": True, "variances": True}, 1_000),
}
#: Optional fields. A prior has both ``labels`` and ``card``, or neither.
OPTIONAL = {*PARTS, "labels", "card"}
#: Smallest accepted values of some fields (-`LARGEST` for all others). The largest accepted value is always `LARGEST`.
_LEAST = {"latent_scale": SMALLEST, "scale": SMALLEST}
_LEAST |= dict.fromkeys(("noise", "bulk", "gene_noise", "singular_values"), 0.0)
_LEAST |= dict.fromkeys(("calibration/residual", "soft_clusters/variances"), 0.0)
_LEAST |= dict.fromkeys(("labels/counts", "labels/gene_variances", "labels/batch_evidence"), 0.0)


def check_fields(version: Any, names: set[str]) -> None:
    """Raise an error if a stored prior has another format, or if fields are missing or unknown."""
    _require(isinstance(version, int | np.integer) and version is not True, "format", "is not a whole number")
    if version != FORMAT:
        newer = "install a newer one with 'pip install -U scdice'"
        advice = newer if version > FORMAT else "train it again with dice.tl.train_prior"
        raise PriorFormatError(f"The prior has format {version}, but this version of dice reads {FORMAT}: {advice}.")
    _same_names(names | OPTIONAL, FIELDS, "fields")
    _require(("labels" in names) == ("card" in names), "labels", "must be stored together with their 'card'")


def validate(raw: Any) -> dict[str, Any]:
    """Return the fields of a stored prior as plain Python and numpy values. Raise an error if one is not valid."""
    if not isinstance(raw, Mapping) or "format" not in raw:
        raise PriorFormatError("This is not a stored prior: it has no 'format' number.")
    check_fields(raw["format"], set(raw))
    _require(is_text(raw["sha256"], MAX_TEXT), "sha256", "is not a short text")
    config, genes = _config(raw["config"]), _names(raw["genes"])
    n_genes, n_latent = len(genes), config["denoiser"]["n_latent"]
    fields: dict[str, Any] = {name: _number(raw[name], name) for name in _SCALARS}
    fields |= {name: _array(raw[name], name, (n_genes,)) for name in _PER_GENE}
    fields["singular_values"] = _spectrum(raw["singular_values"], n_latent)
    fields["loadings"] = _array(raw["loadings"], "loadings", (n_genes, n_latent))
    fields |= {name: _table(raw[name], name) for name in ("weights", "history", "statistics")}
    fields |= {name: _part(raw[name], name, n_latent) if name in raw else None for name in PARTS}
    fields["labels"] = _table(raw["labels"], "labels") if "labels" in raw else None
    fields["card"] = _json(raw["card"], "card") if "card" in raw else None
    fields["params"] = _json(raw["params"], "params")
    if checksum(raw) != raw["sha256"]:
        raise PriorFormatError(
            "The stored prior does not match its checksum, because it was damaged or edited: train it again or take it "
            "from its source."
        )
    _require(is_orthonormal(fields["loadings"]), "loadings", "are not orthonormal")
    return fields | {"format": int(raw["format"]), "sha256": raw["sha256"], "genes": genes, "config": config}


def check_arrays(arrays: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], table: str) -> None:
    """Raise an error if a table of arrays has other names or shapes than `shapes`."""
    _same_names(set(arrays), set(shapes), f"entries of {table!r}")
    for name, shape in shapes.items():
        _array(arrays[name], f"{table}/{name}", shape)


def _require(sound: Any, name: str, otherwise: str) -> None:
    if not sound:
        raise PriorFormatError(f"The stored prior's {name!r} {otherwise}.")


def _same_names(found: set[Any], expected: set[str], what: str) -> None:
    if found != expected:
        odd = sorted(ascii(name)[:50] for name in found ^ expected)
        raise PriorFormatError(f"The stored prior has missing or unknown {what}: {odd[:5]}.")


def _json(text: Any, name: str) -> dict[str, Any]:
    _require(is_text(text, MAX_TEXT), name, "is not a short text")
    try:
        table = json.loads(text)
        plain = has_plain_text(table, MAX_TEXT)
    except (ValueError, RecursionError) as error:
        raise PriorFormatError(f"The stored prior's {name!r} is not readable.") from error
    _require(isinstance(table, dict) and plain, name, "is not a table of text that files can hold")
    return dict(table)


def _config(text: Any) -> dict[str, Any]:
    config = _json(text, "config")
    _require(set(config) == {"preset", "kind", "cap", "denoiser"}, "config", "is not readable")
    cap, size = config["cap"], config["denoiser"]
    sound = isinstance(config["preset"], str) and isinstance(config["kind"], str)
    sound &= cap is None or (isinstance(cap, float) and SMALLEST <= cap <= LARGEST)
    # `size` holds the constructor arguments of the network.
    sound &= isinstance(size, dict) and all(type(value) is int for value in size.values())
    _require(sound and 0 < size.get("n_latent", 0) <= MAX_LATENT, "config", "has values that are out of bounds")
    return config


def _names(value: Any) -> np.ndarray:
    listed = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "OUT"
    _require(listed and 0 < len(value) <= MAX_GENES, "genes", "are not a list of names")
    unique = all(is_text(name, MAX_NAME) for name in value) and len(set(value)) == len(value)
    _require(unique, "genes", "are not unique names")
    return value.astype(object)


def _spectrum(value: Any, n_latent: int) -> np.ndarray:
    _array(value, "singular_values", (getattr(value, "size", 0),))
    sound = n_latent <= len(value) <= MAX_GENES and value[:n_latent].any()
    _require(sound, "singular_values", "are all zero, or fewer than its latents")
    return value


def _array(value: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    fits = isinstance(value, np.ndarray) and value.dtype == np.float32 and value.shape == shape
    _require(fits, name, f"is not float32 of shape {shape}")
    _bounded(value, name)
    return value


def _number(value: Any, name: str) -> float:
    _require(isinstance(value, float | np.floating), name, "is not a number")
    _bounded(value, name)
    return float(value)


def _bounded(value: Any, name: str) -> None:
    """Raise an error if values are not finite, too small or too large."""
    least = _LEAST.get(name, -LARGEST)
    _require(np.all((value >= least) & (value <= LARGEST)), name, f"is not between {least:g} and {LARGEST:g}")


def _table(value: Any, name: str) -> dict[str, Any]:
    """Return a table of numbers (``statistics``) or of float arrays, if it is valid.

    ``history`` may contain NaN, for steps without a measurement.
    """
    named = isinstance(value, Mapping) and len(value) <= MAX_ARRAYS and all(is_text(key, MAX_NAME) for key in value)
    _require(named, name, "is not a table of arrays")
    if name == "statistics":
        return {key: _number(entry, name) for key, entry in value.items()}
    for entry in value.values():
        _require(
            isinstance(entry, np.ndarray) and entry.dtype.kind == "f", name, "has values that are not arrays of numbers"
        )
        vector = name != "history" or (entry.ndim == 1 and entry.dtype == np.float32)
        _require(vector, name, "does not consist of float32 vectors")
    _require(sum(entry.nbytes for entry in value.values()) <= MAX_BYTES, name, f"is larger than {MAX_BYTES} bytes")
    return dict(value)


def _part(value: Any, name: str, n_latent: int) -> dict[str, np.ndarray]:
    """Return a table of `PARTS`, if it is valid: latents or a number for every cell or soft cluster."""
    columns, most = PARTS[name]
    whole = isinstance(value, Mapping) and set(value) == set(columns)
    (n, *_) = (*(getattr(value[next(iter(columns))], "shape", None) or ()), 0) if whole else (0,)
    _require(0 < n <= most, name, f"is not a table of {' and '.join(columns)}")
    shapes = {column: (n, n_latent) if wide else (n,) for column, wide in columns.items()}
    return {column: _array(value[column], f"{name}/{column}", shape) for column, shape in shapes.items()}


def checksum(raw: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all fields except the checksum itself.

    The checksum is computed from the values in a fixed order, not from the bytes of a file. It is therefore the same in
    every file format.
    """
    digest = hashlib.sha256()
    for name, value in _flatten(raw):
        if name != "sha256":
            digest.update(f"{name}\0".encode())
            digest.update(_canonical(value))
    return digest.hexdigest()


def _flatten(raw: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for name, value in sorted(raw.items()):
        items += _flatten(value, f"{prefix}{name}/") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return items


def _canonical(value: Any) -> bytes:
    """Return bytes for a value that are the same for every file format."""
    if isinstance(value, str):
        return b"text" + value.encode()
    array = np.asarray(value)
    if array.dtype.kind in "OUT":
        return b"names" + "\0".join(map(str, array)).encode()
    if array.dtype.kind in "iu":
        return b"int" + np.ascontiguousarray(array, dtype="<i8").tobytes()
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return f"{little.dtype.str}{array.shape}".encode() + little.tobytes()


def has_plain_text(value: Any, longest: int) -> bool:
    """Return whether files can store all text of a JSON value. Files cannot store Unicode surrogates."""
    if isinstance(value, dict):
        return all(has_plain_text(part, longest) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return all(has_plain_text(part, longest) for part in value)
    return not isinstance(value, str) or is_text(value, longest)
