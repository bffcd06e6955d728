"""Groups of known cells that a query's are compared with, and the calibration cells that tell what is usual."""

from __future__ import annotations

import numpy as np
from anndata import AnnData

from dice import _log
from dice._anndata.checks import read_labels, read_roles
from dice._anndata.read import names
from dice._anndata.store import Prior
from dice._core.labels.novelty import Groups, cluster
from dice._core.prior.presets import ROLES
from dice._errors import InputError
from dice._keys import PriorKeys
from dice._query.query import Query
from dice._query.reference import as_query
from dice._types import Codes, Floats

NO_CALIBRATION = (
    "The reference has no calibration cells: call dice.tl.train_prior(reference, "
    "training=dice.Training(calibration_fraction=0.1)) again."
)


def known_groups(source: object, query: Query, labels_key: str | None, prior_key: str) -> tuple[Groups, Floats]:
    """Groups of known cells, and the latents of calibration cells, seen through the query's genes."""
    if isinstance(source, AnnData) and PriorKeys(prior_key).split in names(source, "obs"):
        roles = read_roles(source, prior_key)
        calibration = roles == ROLES.index("calibration")
        if not calibration.any():
            raise InputError(NO_CALIBRATION)
        y = np.asarray(as_query(source, query, roles).latents.y)
        codes = _groups(source, query.prior, labels_key)
        learned = ~calibration if codes is None else ~calibration & (codes >= 0)
        if not learned.any():
            raise InputError(
                "The reference has calibration cells alone, or labels of them alone: pass all of its cells."
            )
        groups = cluster(y[learned]) if codes is None else codes[learned]
        return Groups.of(y[learned], groups), y[calibration]
    labels = query.prior.labels
    if labels_key is not None and labels is not None and labels_key in ("auto", query.prior.params.get("labels_key")):
        _warn_of_missing(query)
        return labels.groups(query.prior.latent_scale), labels.calibration_y
    if labels_key not in (None, "auto"):
        raise InputError("labels_key= needs the reference with its cells: pass the AnnData object that has them.")
    stored = query.prior.calibration
    if stored is None or len(stored["y"]) < 2:
        raise InputError(NO_CALIBRATION)
    _warn_of_missing(query)
    y = np.asarray(stored["y"])
    return Groups.of(y[::2], cluster(y[::2])), y[1::2]


def _warn_of_missing(query: Query) -> None:
    if not query.match.complete:
        _log.warn(
            f"{query.match}, but the prior's calibration cells were measured by all of them, so that p-values are too "
            "small: pass the reference with its cells."
        )


def _groups(reference: AnnData, prior: Prior, labels_key: str | None) -> Codes | None:
    """Labels to group by: those asked for, else those that the prior was trained with, else none."""
    trained = prior.params.get("labels_key")
    if labels_key == "auto" and trained not in names(reference, "obs"):
        return None
    key = trained if labels_key == "auto" else labels_key
    return None if key is None else read_labels(reference, key, "reference").codes.astype(np.intp)
