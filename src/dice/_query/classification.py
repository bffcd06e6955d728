"""Choosing classifiers on cells that none of them has seen, and applying what was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice import _log
from dice._core.labels.classify import Floats, blend, log_loss, macro_f1
from dice._query.reference import Labelled
from dice._query.representation import Represented, names_of

#: Fewer held-out cells than this cannot tell classifiers apart: all cells are then held out in turn, in so many folds.
MIN_HELD_OUT, FOLDS = 50, 5
#: Candidates with a smaller weight are left out of the blend.
MIN_WEIGHT = 0.02

Pair = tuple[str, str]


@dataclass(frozen=True)
class Chosen:
    """Candidates with their weights in the blend, and how each did on held-out cells."""

    pairs: list[Pair]
    weights: Floats
    table: dict[str, Any]

    @property
    def name(self) -> str:
        parts = sorted(zip(self.weights, names_of(self.pairs), strict=True), reverse=True)
        return " + ".join(f"{weight:.2f} {name}" for weight, name in parts if weight > 0)


def choose(reference: Represented, labelled: Labelled, pairs: list[Pair], seed: int) -> Chosen:
    """Weigh the candidates by how well their mixture predicts reference cells that the network was not trained on."""
    if len(pairs) == 1:
        return Chosen(pairs, np.ones(1), {"candidate": np.array(names_of(pairs)), "weight": np.ones(1)})
    found: list[list[Floats]] = [[] for _ in pairs]
    truth: list[NDArray[np.intp]] = []
    n_classes = len(labelled.names)
    for fit, test in _folds(labelled, seed):
        truth.append(labelled.codes[test])
        for predictions, pair in zip(found, pairs, strict=True):
            predictor = reference.fit(pair, fit, labelled.codes[fit], n_classes, seed)
            predictions.append(reference.predict(pair[0], predictor, test))
    codes, probabilities = np.concatenate(truth), [np.concatenate(parts) for parts in found]
    weights = blend(probabilities, codes)
    weights = np.where(weights < MIN_WEIGHT, 0, weights)
    weights /= weights.sum()
    mixed = sum(weight * p for weight, p in zip(weights, probabilities, strict=True))
    rows = [*probabilities, np.asarray(mixed)]
    table = {
        "candidate": np.array([*names_of(pairs), "blend"]),
        "weight": np.append(weights, 1.0),
        "log_loss": np.array([log_loss(p, codes) for p in rows]),
        "accuracy": np.array([float((p.argmax(1) == codes).mean()) for p in rows]),
        "macro_f1": np.array([macro_f1(p, codes) for p in rows]),
        "n_cells": len(codes),
    }
    return Chosen(pairs, weights, table)


def classify(
    query: Represented, reference: Represented, labelled: Labelled, chosen: Chosen, seed: int
) -> tuple[Floats, Floats]:
    """Class probabilities of the query (n, C) and of the calibration cells (m, C).

    The classifiers see every labelled cell but those of the calibration.
    """
    fit, calibration = labelled.cells("train", "validation"), labelled.cells("calibration")
    never = [name for code, name in enumerate(labelled.names) if code not in labelled.codes[fit]]
    if never:
        _log.warn(f"All cells of {never[:5]} were kept for calibration, so that these labels are never given.")
    totals = [np.zeros((n, len(labelled.names))) for n in (len(query.mean), len(calibration))]
    for weight, pair in zip(chosen.weights, chosen.pairs, strict=True):
        if weight > 0:
            predictor = reference.fit(pair, fit, labelled.codes[fit], len(labelled.names), seed)
            totals[0] += weight * query.predict(pair[0], predictor)
            totals[1] += weight * reference.predict(pair[0], predictor, calibration)
    return totals[0], totals[1]


def _folds(labelled: Labelled, seed: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Cells to fit and to judge by: those that stopped the training, or all in turn where they are too few."""
    train, validation = labelled.cells("train"), labelled.cells("validation")
    if len(validation) >= MIN_HELD_OUT:
        yield train, validation
        return
    cells = np.random.default_rng(seed).permutation(np.concatenate([train, validation]))
    for fold in range(FOLDS):
        test = np.arange(len(cells)) % FOLDS == fold
        if test.any() and not test.all():
            yield cells[~test], cells[test]
