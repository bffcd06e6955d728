"""Labels of a query by several views of it, averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dice._labels.cells import LabelCells
from dice._labels.classify import log_loss, macro_f1
from dice._labels.doubt import shift_strength
from dice._labels.model import LabelModel
from dice._labels.query_views import LabelViews, views_of
from dice._labels.self_taught import FOLDS, teach, with_all_labels
from dice._labels.views import MATCHED, composition_of, unexplained_share
from dice._types import Codes, Floats
from dice.options import Classifier, Shift

#: Rounds in which the composition of a query and its matched views are found by each other.
ROUNDS = 2


@dataclass(frozen=True)
class Classified:
    """Probabilities (n, C) of a query's labels: averaged over views, and by the view of cells as they were measured."""

    probabilities: Floats
    measured: Floats
    #: How far the query is from one that the reference's cells can calibrate, 0 to 1.
    strength: float
    #: Share (C,) of every label in the query.
    composition: Floats
    #: Weight of every view, and the share of cells to which it gives their final label.
    views: dict[str, Any]
    #: Mean offsets of the views that move cells, as ``.uns`` keeps them.
    shift: dict[str, Any]
    #: Classifiers behind the views, with their weight and their scores on calibration cells.
    table: dict[str, Any]


def classify(cells: LabelCells, model: LabelModel, classifier: Classifier, shift: Any, auc: float) -> Classified:
    """Probabilities of all cells, by all views or by the one that `shift` names.

    Where nothing separates the query from its reference, cells count as they were measured. How much the other views
    and what the query teaches itself count grows with the evidence of a shift.
    """
    strength = shift_strength(auc, int(cells.seen.sum()))
    wanted = shift.strategy if isinstance(shift, Shift) else ""
    views, record = views_of(cells, model, classifier, shift)
    if not len(cells.sampled):
        return _unseen(cells, views, record)
    composition, matched, share = _matched(views, wanted)
    learned = _Learned(views, matched, share, strength if wanted == "auto" else 1.0)
    return learned.classified(composition, record, strength)


def _matched(views: LabelViews, wanted: str) -> tuple[Floats, dict[str, Any], float]:
    """Composition of the query, its matched views at that composition, and their weight."""
    cells, model, rows = views.cells, views.model, views.cells.sampled
    reference = views.moments.composition
    kept = views.keeping(cells.sample, rows)
    current = np.mean(list(kept.values()), axis=0)
    composition = composition_of(current, reference)
    if not views.matched:
        return composition, {}, 0.0
    plain = current.mean(0)
    share = unexplained_share(cells.y[rows].mean(0), model.centres, plain / plain.sum(), reference)
    named = wanted in MATCHED
    matched: dict[str, Any] = {}
    for number in range(ROUNDS):
        matched = views.matching(composition)
        found = {name: view(cells.sample) for name, view in matched.items()}
        current = views.average({} if named else kept, found, share)
        if number + 1 < ROUNDS:
            taught = current if named else teach(current, current, _features(cells, rows), _parts(cells, rows))
            composition = composition_of(taught, reference)
    return composition, matched, share


@dataclass(frozen=True)
class _Learned:
    """Views that have learned all they need from sampled cells, for all cells."""

    views: LabelViews
    matched: dict[str, Any]
    share: float
    #: How much views other than that of cells as they were measured count.
    strength: float

    def classified(self, composition: Floats, record: dict[str, Any], strength: float) -> Classified:
        views, cells = self.views, self.views.cells
        names = self._names
        packed = cells.each(self._packed)
        n_labels = len(views.model.names)
        probabilities, measured = packed[:, :n_labels], packed[:, n_labels : 2 * n_labels]
        labels = packed[:, 2 * n_labels :].astype(np.intp)
        if len(names) > 1 and self.strength > 0:
            rows = np.arange(len(cells))
            among = np.zeros(len(cells), dtype=bool)
            among[cells.sampled] = True
            taught = teach(probabilities, probabilities, _features(cells, rows), _parts(cells, rows), among=among)
            by_views, by_all = ((1 - self.strength) * measured + self.strength * p for p in (probabilities, taught))
            probabilities = with_all_labels(by_all, by_views)
        elif len(names) > 1:
            probabilities = measured
        final = probabilities.argmax(1)[:, None]
        agree = (labels == final)[cells.seen].mean(0)
        weights = self._weights(names)
        table = {"view": np.array(names, dtype=str), "weight": weights, "agreement": agree, "matched_share": self.share}
        scores = _table(views.model, views.representations)
        return Classified(probabilities, measured, strength, composition, table, record, scores)

    @property
    def _names(self) -> list[str]:
        return [*([] if self._named else self.views.kept), *self.matched]

    @property
    def _named(self) -> bool:
        """Whether one matched view alone is asked for."""
        return len(self.views.matched) == 1 and list(self.views.kept) == ["measured"]

    def _packed(self, x: Floats, rows: Codes) -> Floats:
        """Mean probabilities, those of cells as measured, and the label by every view, side by side (n, 2 C + V)."""
        kept = self.views.keeping(x, rows)
        matched = {name: view(x) for name, view in self.matched.items()}
        mean = self.views.average({} if self._named else kept, matched, self.share)
        labels = [({**kept, **matched})[name].argmax(1) for name in self._names]
        first = next(iter(kept.values()))
        return np.concatenate([mean, first, np.stack(labels, axis=1)], axis=1)

    def _weights(self, names: list[str]) -> Floats:
        """Weight of every view in the mean, before the query teaches itself."""
        n_kept = sum(name in self.views.kept for name in names)
        family = [1 / n_kept if name in self.views.kept else self.share / max(len(self.matched), 1) for name in names]
        mean = np.array(family) / max(sum(family), 1e-12)
        as_measured = np.array([name == names[0] for name in names], dtype=float)
        return np.asarray((1 - self.strength) * as_measured + self.strength * mean)


def _unseen(cells: LabelCells, views: LabelViews, record: dict[str, Any]) -> Classified:
    """What is said of queries without expression: the composition of the reference, for every cell."""
    composition = views.moments.composition
    same = np.repeat(composition[None], len(cells), axis=0)
    names = np.array(list(views.kept), dtype=str)
    table = {"view": names, "weight": np.full(len(names), 1 / len(names)), "agreement": np.ones(len(names))}
    return Classified(same, same, 1.0, composition, table, record, _table(views.model, views.representations))


def _features(cells: LabelCells, rows: Codes) -> Floats:
    """Scaled clean and noisy latents (n, 2 k), side by side."""
    return np.concatenate([cells.clean[rows], cells.y[rows]], axis=1, dtype=np.float32) / np.float32(cells.scale)


def _parts(cells: LabelCells, rows: Codes) -> Codes:
    """Part (n,) of every cell, which depends on its name alone."""
    return (cells.query.seeds[rows] % FOLDS).astype(np.intp)


def _table(model: LabelModel, names: tuple[str, ...]) -> dict[str, Any]:
    """How every classifier, and their mean, did on calibration cells."""
    codes = model.calibration_codes
    table = {"candidate": np.array([*names, "blend"]), "weight": np.append(np.full(len(names), 1 / len(names)), 1.0)}
    rows = [*(model.calibration((name,)) for name in names), model.calibration(names)]
    return table | {
        "n_cells": len(codes),
        "log_loss": np.array([log_loss(p, codes) for p in rows]),
        "accuracy": np.array([float((p.argmax(1) == codes).mean()) for p in rows]),
        "macro_f1": np.array([macro_f1(p, codes) for p in rows]),
    }
