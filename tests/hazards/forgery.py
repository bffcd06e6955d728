"""Stored priors with one thing changed at random."""

from __future__ import annotations

import contextlib
import copy
import json
from functools import cache
from typing import Any

import anndata as ad
import h5py
import numpy as np
import stored_priors

import dice
from dice._model.schema import checksum

KINDS = stored_priors.KINDS
#: Values that may stand anywhere in the text of a table.
ODD_JSON: list[Any] = [None, True, "", "x", "a/b", "\ud800", "a\0b", "x" * 2000]
ODD_JSON += [-1, 0, 1, 7, 10**9, 10**30, 1.5, 1e308, [], {}, [[[]]] * 3]
ODD: list[Any] = [
    None,
    True,
    "",
    "x" * 2000,
    "\ud800",
    "a\0b",
    -1,
    2**70,
    2.5,
    np.nan,
    1e300,
    [],
    [[1], [1, 2]],
    {},
    (),
]
ODD += [
    {"a": {}},
    b"bytes",
    np.zeros(0, np.float32),
    np.zeros((2, 2, 2)),
    np.array([None]),
    np.datetime64("now"),
    h5py.Empty("f4"),
    object(),
]
NUMBERS = [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-45, 1e-30, 1e30, 3e38, -1e38]


fixture = stored_priors.path


@cache
def stored(kind: str) -> dict[str, Any]:
    """The raw fields of a fixture."""
    return ad.read_h5ad(fixture(kind)).uns["dice"]


@cache
def content(kind: str) -> bytes:
    """The file of a fixture."""
    return fixture(kind).read_bytes()


def warm_up() -> None:
    """Make and read all fixtures, so that no input is blamed for it."""
    for kind in KINDS:
        content(kind)
        stored(kind)


def forge(rng: np.random.Generator) -> dict[str, Any]:
    """A stored prior with one change; the checksum is left as it was, or made to fit."""
    raw = copy.deepcopy(stored(KINDS[rng.integers(len(KINDS))]))
    mutate(raw, rng)
    if rng.random() < 0.5 and isinstance(raw.get("sha256"), str) and not is_endless(raw):
        with contextlib.suppress(Exception):  # What cannot be read has no checksum either.
            raw["sha256"] = checksum(raw)
    return raw


def is_endless(raw: dict[str, Any]) -> bool:
    """Whether an array claims more than anybody could sum up."""
    tables = [raw, *(value for value in raw.values() if isinstance(value, dict))]
    return any(np.size(value) > 10**8 for table in tables for value in table.values() if isinstance(value, np.ndarray))


def mutate(raw: dict[str, Any], rng: np.random.Generator) -> None:
    """Remove, retype, rename, resize or change one field at any depth."""
    holder, name = raw, _pick(raw, rng)
    while isinstance(holder[name], dict) and holder[name] and rng.random() < 0.9:
        holder, name = holder[name], _pick(holder[name], rng)
    value = holder[name]
    match rng.integers(6):
        case 0:
            del holder[name]
        case 1:
            holder[name] = ODD[rng.integers(len(ODD))]
        case 2:
            holder[f"{name}_" if rng.random() < 0.5 else "\ud800"] = holder.pop(name)
        case 3 if isinstance(value, np.ndarray):
            holder[name] = _reshaped(value, rng)
        case _:
            holder[name] = _changed(value, rng)


def _pick(table: dict[str, Any], rng: np.random.Generator) -> str:
    return sorted(table)[rng.integers(len(table))]


def _reshaped(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    changes = [
        lambda: array[:-1],
        lambda: array[None],
        lambda: np.concatenate([array, array]),
        lambda: array.T,
        lambda: np.lib.stride_tricks.as_strided(array, (10**9, *array.shape), (0, *array.strides)),
        lambda: array.astype(object),
        lambda: array.astype(str),
    ]
    return changes[rng.integers(len(changes))]()


def _changed(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
        changed = value.copy()
        if rng.random() < 0.5:
            changed.reshape(-1)[rng.integers(value.size)] = NUMBERS[rng.integers(len(NUMBERS))]
        else:
            changed.reshape(-1).view(np.uint8)[rng.integers(value.nbytes)] ^= np.uint8(1 << rng.integers(8))
        return changed
    if isinstance(value, np.ndarray):
        return value[::-1].copy()
    if isinstance(value, str) and value.startswith("{"):
        return _changed_json(value, rng)
    if isinstance(value, str) and value:
        at = rng.integers(len(value))
        return value[:at] + chr(rng.integers(1, 0x110000)) + value[at + 1 :]
    return NUMBERS[rng.integers(len(NUMBERS))]


def _changed_json(text: str, rng: np.random.Generator) -> str:
    """One entry of a table or of a list in it changed, added or removed, at any depth."""
    table = json.loads(text)
    inner: Any = table
    while deeper := [value for value in _values(inner) if isinstance(value, dict | list) and value]:
        if rng.random() < 0.3:
            break
        inner = deeper[rng.integers(len(deeper))]
    places = [*inner, "new"] if isinstance(inner, dict) else list(range(len(inner)))
    place = places[rng.integers(len(places))]
    if rng.random() < 0.2 and place != "new":
        del inner[place]
    else:
        inner[place] = ODD_JSON[rng.integers(len(ODD_JSON))]
    return json.dumps(table, sort_keys=True)


def _values(table: dict[str, Any] | list[Any]) -> list[Any]:
    return list(table.values()) if isinstance(table, dict) else table


def verdict(raw: dict[str, Any]) -> str:
    """``"refused"`` with one sentence, or ``"accepted"`` as exactly what it says; everything else is an error."""
    try:
        prior = dice.Prior.from_arrays(raw)
    except dice.DiceError as error:
        assert_sentence(error)
        return "refused"
    assert prior.to_arrays()["sha256"] == raw["sha256"] == checksum(raw)
    if raw["sha256"] in {stored(kind)["sha256"] for kind in KINDS}:
        return "accepted"
    cells = ad.AnnData(np.log1p(np.arange(5 * len(prior.genes), dtype=np.float32).reshape(5, -1) % 7))
    cells.var_names = prior.genes
    assert str(prior)
    try:
        dice.tl.denoise(cells, prior, n_samples=2)
        if prior.labels is not None:
            dice.tl.transfer_labels(cells, prior)
    except dice.DiceError as error:
        assert_sentence(error)
        return "refused"
    assert np.isfinite(cells.obsm["X_dice"]).all()
    assert np.isfinite(cells.obs["dice_uncertainty"]).all()
    if prior.labels is not None:
        _assert_labelled(cells, prior)
    return "accepted"


def _assert_labelled(cells: ad.AnnData, prior: dice.Prior) -> None:
    """Probabilities, the likeliest label in its set, nothing of the file but its text, and all of it can be saved."""
    key = f"{prior.params['labels_key']}_dice"
    probabilities, sets = cells.obsm[f"{key}_prob"].to_numpy(), cells.obsm[f"{key}_set"].to_numpy()
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-4)
    assert sets[np.arange(len(sets)), probabilities.argmax(1)].all()
    assert set(cells.obs[key]) <= set(prior.labels.names)
    with h5py.File("labelled.h5ad", "w", driver="core", backing_store=False) as file:
        ad.io.write_elem(file, "cells", cells)


def assert_sentence(error: BaseException) -> None:
    """One line that ends as a sentence does."""
    text = str(error)
    assert text, repr(error)
    assert "\n" not in text, text
    assert text.endswith((".", "?")), text
    assert len(text) < 1500, text
