"""The labels of a reference: the label model that its prior holds, or one that is learned from its cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.read import names as names_of
from dice._errors import InputError
from dice._keys import PriorKeys
from dice._labels.learn import learn_labels
from dice._labels.model import LabelModel
from dice._query.reference import Labelled, labels_of, read_reference


def read_or_learn(
    reference: object, prior: Any, labels_key: str | None, prior_key: str, seed: int
) -> tuple[LabelModel, list[str] | None]:
    """Return the label model and the colours of labels, from the prior or learned from the reference cells."""
    stored, trained = prior.labels, prior.params.get("labels_key")
    key = trained if labels_key is None else labels_key
    if key is None:
        raise InputError(
            "The prior was trained without labels: pass `labels_key`, the column of labels in reference.obs."
        )
    columns = set(names_of(reference, "obs")) if isinstance(reference, AnnData) and reference.n_obs else set()
    lost = stored is not None and key == trained and key not in columns
    if isinstance(reference, AnnData) and PriorKeys(prior_key).split in columns and not lost:
        labelled = read_reference(reference, key, prior_key)
        if stored is None or key != trained or not _same_labels(stored.card, labelled):
            _log.info(f"Learning the labels in reference.obs[{key!r}].")
            stored = learn_labels(reference, prior, labelled, seed)
        known = None if labelled.colors is None else dict(zip(labelled.names, labelled.colors, strict=True))
        return stored, None if known is None else [known[name] for name in stored.names]
    if stored is None or key != trained:
        raise InputError(
            f"The prior holds {'no labels' if stored is None else f'only the labels {trained!r}'}: pass the reference "
            f"with its cells, or call dice.tl.train_prior(reference, labels_key={key!r}) with a positive "
            "calibration_fraction."
        )
    colors = stored.card.get("colors")
    listed = isinstance(colors, list) and len(colors) == len(stored.names)
    return stored, [str(color) for color in colors] if listed else None


def labels_to_learn(reference: AnnData, roles: NDArray[np.int8], labels_key: str | None) -> Labelled | None:
    """Return the labels to learn. Return None, with a warning, if no training or calibration cell has a label."""
    if labels_key is None:
        return None
    labelled = labels_of(reference, labels_key, roles.astype(np.intp), "adata")
    for role in ("train", "calibration"):
        if not len(labelled.cells(role)):
            _log.warn(
                f"No cell with a label in adata.obs[{labels_key!r}] has the role {role!r}, so the prior will not hold "
                "labels: label more cells, or pass training=dice.Training(calibration_fraction=0.1)."
            )
            return None
    return labelled


def _same_labels(card: Mapping[str, Any], labelled: Labelled) -> bool:
    """Return whether the reference still has the labels of its prior. Their order does not matter."""
    counts = np.bincount(labelled.codes[labelled.codes >= 0], minlength=len(labelled.names))
    learned = card.get("label_cells")
    if not isinstance(learned, list) or len(learned) != len(card["labels"]):
        return False
    return dict(zip(card["labels"], learned, strict=True)) == dict(zip(labelled.names, counts.tolist(), strict=True))


def warn_of_unlearned(model: LabelModel) -> None:
    """Warn about labels that are never predicted because all of their cells are calibration cells."""
    never = [name for name, n in zip(model.names, model.counts, strict=True) if not n]
    if never:
        _log.warn(f"All cells of the labels {never[:5]} are calibration cells, so these labels are never predicted.")
