"""Named priors: ready priors, which are downloaded once, and priors that the user has saved.

A prior is one .h5ad file of plain arrays in the cache folder. The file includes a description, and its checksum covers
both. Files of ready priors must have the SHA-256 checksum that this version of dice knows.
"""

import builtins
import hashlib
import os
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeGuard

import pandas as pd
import pooch
from anndata import AnnData

from dice import _log, settings
from dice._arguments import said
from dice._data.store import Prior, find_prior
from dice._errors import DiceError, FileError, InputError, PriorFormatError
from dice.datasets._real import cache_folder

__all__ = ["list", "load", "save"]
#: Fields of a user's description, stored with the name in ``params["shelf"]``, and columns of the table of priors.
DESCRIBED = ("tissue", "species", "technology", "licence", "source")
SHELF_COLUMNS = ("tissue", "species", "technology", "cells", "labels", "accuracy", "licence", "source", "size")
#: Longest text of a description.
LONGEST = 500
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def __dir__() -> builtins.list[str]:
    return __all__


def list() -> pd.DataFrame:  # noqa: A001 - called as dice.priors.list
    """Return a table of all named priors: ready priors, which can be downloaded, and priors that the user has saved.

    Returns
    -------
    A table with one row for each ``name`` and the columns ``tissue``, ``species``, ``technology``, ``cells`` and
    ``labels`` (numbers), ``accuracy`` (on held-out cells of the reference), ``licence`` and ``source`` of the data,
    ``size`` (MB) and ``here`` (whether its file is in the cache folder).

    Examples
    --------
    >>> import dice
    >>> dice.priors.list().loc["pancreas", ["tissue", "species"]].tolist()
    ['pancreas', 'human']
    """
    rows = {name: {column: row[column] for column in SHELF_COLUMNS} for name, row in _ready().items()}
    for path in _own():
        try:
            rows[path.stem] = card(load(path.stem)) | {"size": round(path.stat().st_size / 1e6, 2)}
        except DiceError as error:
            _log.warn(f"A file in the folder of priors was skipped: {error}")
    table = pd.DataFrame.from_dict(rows, orient="index", columns=SHELF_COLUMNS).rename_axis("name").sort_index()
    return table.assign(here=[_path(name).exists() for name in table.index])


def load(name: str) -> Prior:
    """Return the prior with this name. A ready prior is downloaded if it is not yet in the cache folder.

    Parameters
    ----------
    name
        Name in :func:`dice.priors.list`. All tools also accept the name in place of a reference:
        ``dice.tl.annotate(query, "pancreas")``.

    Returns
    -------
    The :class:`dice.Prior`. Its file is verified each time.

    Examples
    --------
    >>> import dice
    >>> dice.priors.load("pancreas")  # doctest: +SKIP
    Prior('default', 3000 genes, 50 latents)
    """
    path, row = _path(name), _ready().get(name)
    if row is None and not path.exists():
        known = sorted([*_ready(), *(found.stem for found in _own())])
        raise InputError(f"There is no file and no prior {name!r}: pass a path or one of {known}.")
    if row is not None and not path.exists():
        _download(path, row["sha256"])
    if row is not None and hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
        raise PriorFormatError(
            f"{str(path)!r} is not the prior {name!r} of this version: delete the file to download it again."
        )
    return _opened(path, name)


def save(prior: Prior | AnnData | str | os.PathLike[str], name: str, **described: str) -> Path:
    """Store a prior under a name, which tools accept as a reference. The file is in the cache folder.

    Parameters
    ----------
    prior
        A prior, a reference with a prior in ``.uns["dice"]``, or the path of either.
    name
        Lower-case letters, digits, ``_`` and ``-``. A prior of the same name is replaced.
    **described
        Description for other users: ``tissue``, ``species``, ``technology``, ``licence`` and ``source``, each a text.
        Fields that are not given keep their earlier description, if there is one.

    Returns
    -------
    The path of the file. To share the prior, give this file to others. They copy it to their own cache folder
    (``~/.cache/scdice/priors`` on Linux, or ``$DICE_CACHE/priors``).

    Examples
    --------
    >>> import dice
    >>> reference, _ = dice.datasets.synthetic(1)
    >>> dice.tl.train_prior(reference, n_latent=15, scale=False, training=dice.Training(max_steps=20))
    >>> path = dice.priors.save(reference, "my_lab_lung", tissue="lung")  # doctest: +SKIP
    >>> dice.priors.load("my_lab_lung")  # doctest: +SKIP
    Prior('default', 2000 genes, 15 latents)
    """
    path = _path(name)
    if name in _ready():
        raise InputError(f"`name` must not be the name of a ready prior, got {name!r}: pass another name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    described_prior(prior, name, described).save(path)
    return path


def described_prior(prior: Prior | AnnData | str | os.PathLike[str], name: str, described: dict[str, Any]) -> Prior:
    """Return a prior with a name and a description in it."""
    for key, text in described.items():
        if key not in DESCRIBED or not _is_line(text):
            raise InputError(f"The description must hold one-line texts for {DESCRIBED}, got {key}={said(text)}.")
    found = find_prior(prior)
    kept = {key: text for key, text in card(found).items() if key in DESCRIBED and text}
    return replace(found, params={**found.params, "shelf": {"name": name} | kept | described})


def card(prior: Prior) -> dict[str, Any]:
    """Return the row of a prior in the table, without the size of its file."""
    described, labels = description_of(prior), {} if prior.labels is None else prior.labels.card
    figures = {"labels": len(labels.get("labels", ()))} | {name: labels.get(name) for name in ("cells", "accuracy")}
    # Files may come from anybody. Text with control characters and text that fills the screen are not shown.
    return {name: text if _is_line(text := described.get(name)) else "" for name in DESCRIBED} | figures


def _is_line(text: Any) -> bool:
    return isinstance(text, str) and text.isprintable() and len(text) <= LONGEST


def description_of(prior: Prior) -> dict[str, Any]:
    """Return the name and description of a prior as they are in its file."""
    shelf = prior.params.get("shelf")
    return shelf if isinstance(shelf, dict) else {}


def is_name(source: str | os.PathLike[str]) -> TypeGuard[str]:
    """Return whether this text is the name of a prior. A file of the same name needs a path: ``./pancreas``."""
    if not isinstance(source, str) or NAME.fullmatch(source) is None:
        return False
    # Path.exists would raise an error in a folder that may not be entered.
    return source in _ready() or os.access(_path(source), os.F_OK) or not os.access(source, os.F_OK)


def file_of(source: str | os.PathLike[str]) -> Path:
    """Return the file of a prior, given its name or path."""
    return _path(source) if is_name(source) else Path(source)


@cache
def _ready() -> dict[str, dict[str, Any]]:
    """Return the priors that can be downloaded, by name."""
    with files("dice").joinpath("priors.csv").open("rb") as file:
        return pd.read_csv(file, index_col="name", keep_default_na=False).to_dict("index")


def _path(name: Any) -> Path:
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise InputError(
            f"`name` must be 1 to 64 lower-case letters, digits, _ or -, for example 'my_lab_lung', got {name!r}."
        )
    return cache_folder() / "priors" / f"{name}.h5ad"


def _own() -> builtins.list[Path]:
    """Return the files of priors that the user has saved."""
    return sorted(path for path in (cache_folder() / "priors").glob("*.h5ad") if path.stem not in _ready())


def _opened(path: Path, name: str) -> Prior:
    """Read a prior from a file, and check that the prior has this name."""
    prior = Prior.load(path)
    saved_as = description_of(prior).get("name")
    if saved_as != name:
        found = "no named prior" if saved_as is None else f"the prior {str(saved_as)[:64]!r}"
        raise PriorFormatError(f"{str(path)!r} holds {found}: rename the file, or use dice.priors.save.")
    return prior


def _download(path: Path, sha256: str) -> None:
    """Download the file of a ready prior. The file gets its name when it is complete."""
    url = f"{settings.priors_url.rstrip('/')}/{path.name}"
    try:
        pooch.retrieve(url, f"sha256:{sha256}", fname=path.name, path=path.parent)
    except Exception as error:
        reason = shorten(str(error), 200, placeholder=" ...")
        raise FileError(
            f"The prior {path.stem!r} cannot be downloaded from {url} ({reason}): put its file at {str(path)!r} "
            "by hand, or set dice.settings.priors_url (or DICE_PRIORS_URL) to an address that has the file."
        ) from error
