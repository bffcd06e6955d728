"""Labels of a query by several views of it, averaged; see :mod:`dice._core.labels.views`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dice import _log
from dice._core.labels.classify import Logistic, log_loss, macro_f1, softmax
from dice._core.labels.doubt import shift_strength
from dice._core.labels.model import REPRESENTATIONS, LabelModel
from dice._core.labels.self_taught import FOLDS, teach
from dice._core.labels.views import (
    FEWEST_CELLS,
    KEPT,
    MATCHED,
    Anchors,
    Correlated,
    Moments,
    OwnScale,
    composition_of,
    label_weights,
    standardized_classifier,
    unexplained_share,
)
from dice._core.shift.offsets import Offsets
from dice._query.label_cells import LabelCells
from dice._query.shift import find_shift
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


@dataclass(frozen=True)
class LabelViews:
    """The views of a query's cells under a label model."""

    cells: LabelCells
    model: LabelModel
    #: Representations whose classifiers are averaged.
    representations: tuple[str, ...]
    #: Offsets of the views that keep the reference as it is; None where cells stay as they were measured.
    kept: Mapping[str, Offsets | None]
    #: Views that match the two.
    matched: tuple[str, ...] = MATCHED
    #: Classifiers of the genes at hand.
    gene_classifier: Logistic = field(init=False)

    def __post_init__(self) -> None:
        observed = self.cells.observed(self.model.candidates["genes"].classifier)
        object.__setattr__(self, "gene_classifier", observed)

    @cached_property
    def moments(self) -> Moments:
        """Moments of the genes at hand."""
        genes, known = self.cells.query.match.prior, self.model.moments
        return Moments(
            known.mean[:, genes].astype(np.float64), known.variance[:, genes].astype(np.float64), known.counts
        )

    @cached_property
    def anchors(self) -> Anchors:
        genes, known = self.cells.query.match.prior, self.model.anchors
        return Anchors(known.codes, known.scores, known.basis[genes], known.centre[genes])

    @cached_property
    def _latent_logits(self) -> dict[str, tuple[Floats, Floats]]:
        """Of views that keep the reference, sums of probabilities by latents, and what to add to logits by genes."""
        found: dict[str, tuple[Floats, Floats]] = {}
        scale = self.cells.scale
        loadings = self.cells.query.likelihood.loadings
        for name, offsets in self.kept.items():
            y, clean, away = self.cells.without(offsets)
            of_latents = {"projection": y, "denoised": clean}
            logits = [
                softmax(self.model.candidates[kind].classifier.logits(of_latents[kind] / scale))
                for kind in self.representations
                if kind != "genes"
            ]
            total = np.sum(logits, axis=0) if logits else np.zeros((len(y), len(self.model.names)))
            # A shift lies in the span of the loadings; what these leave unexplained stays as it is.
            moved = np.zeros((1, 1)) if away is None else -away @ (loadings.T @ self.gene_classifier.slopes)
            found[name] = total, np.broadcast_to(moved, total.shape)
        return found

    def keeping(self, x: Floats, rows: Codes) -> dict[str, Floats]:
        """Probabilities (n, C) of cells with genes x (n, d), at positions `rows`, by views that keep the reference."""
        found: dict[str, Floats] = {}
        genes = self.gene_classifier.logits(x) if "genes" in self.representations else None
        for name, (total, moved) in self._latent_logits.items():
            known = total[rows] if genes is None else total[rows] + softmax(genes + moved[rows])
            found[name] = known / len(self.representations)
        return found

    def matching(self, composition: Floats) -> dict[str, Any]:
        """Functions from genes to probabilities, by views that match query and reference at this composition (C,)."""
        x = self.cells.sample
        found: dict[str, Any] = {}
        own = OwnScale.of(x, self.moments, composition)
        if "standardized" in self.matched:
            found["standardized"] = standardized_classifier(self.gene_classifier, own)
        if "correlated" in self.matched:
            weights = label_weights(composition, self.moments.composition, self.anchors.codes)
            found["correlated"] = Correlated.of(x, own, self.anchors, weights, len(self.model.names))
        return found

    def average(self, kept: Mapping[str, Floats], matched: Mapping[str, Floats], share: float) -> Floats:
        """The mean of either family, the second with a weight of `share`; equal weights within a family."""
        means = [np.mean(list(family.values()), axis=0) for family in (kept, matched) if family]
        if len(means) == 1:
            return np.asarray(means[0])
        return np.asarray((means[0] + share * means[1]) / (1 + share))


def classify(cells: LabelCells, model: LabelModel, classifier: Classifier, shift: Any, auc: float) -> Classified:
    """Probabilities of all cells, by all views or by the one that `shift` names.

    Where nothing separates the query from its reference, cells count as they were measured. How much the other views
    and what the query teaches itself count grows with the evidence of a shift.
    """
    strength = shift_strength(auc, int(cells.seen.sum()))
    wanted = shift.strategy if isinstance(shift, Shift) else ""
    views, record = _views_of(cells, model, classifier, shift)
    if not len(cells.sampled):
        return _unseen(cells, views, record)
    composition, matched, share = _matched(views, wanted)
    learned = _Learned(views, matched, share, strength if wanted == "auto" else 1.0)
    return learned.classified(composition, record, strength)


def _views_of(
    cells: LabelCells, model: LabelModel, classifier: Classifier, shift: Any
) -> tuple[LabelViews, dict[str, Any]]:
    """The views that are wanted and can be computed, and the offsets that they have on the mean."""
    kinds = REPRESENTATIONS if classifier.representation == "auto" else (classifier.representation,)
    if shift is False:
        return LabelViews(cells, model, kinds, {"measured": None}, ()), {"strategy": "none"}
    if not isinstance(shift, Shift):
        offsets, record = find_shift(cells.query, shift)
        return LabelViews(cells, model, kinds, {"stored": offsets}, ()), record
    if shift.strategy in MATCHED:
        return LabelViews(cells, model, kinds, {"measured": None}, (shift.strategy,)), {"strategy": "none"}
    if shift.strategy != "auto":
        offsets, record = find_shift(cells.query, shift)
        return LabelViews(cells, model, kinds, {shift.strategy: offsets}, ()), record
    kept: dict[str, Offsets | None] = {"measured": None}
    records = []
    for name in KEPT[1:]:
        if name == "clusters" and cells.query.prior.soft_clusters is None:
            _log.info("View 'clusters' is left out: the reference has too few cells for soft clusters.")
            continue
        kept[name], record = find_shift(cells.query, Shift(name, shift.batch_key))  # type: ignore[arg-type]
        records.append(record)
    return LabelViews(cells, model, kinds, kept, _possible(cells, classifier)), _mean_record(records, len(kept))


def _possible(cells: LabelCells, classifier: Classifier) -> tuple[str, ...]:
    """Matched views that can be computed."""
    if classifier.representation != "auto":
        return ()
    if len(cells.sampled) >= FEWEST_CELLS:
        return MATCHED
    _log.info(f"View 'correlated' is left out: it takes {FEWEST_CELLS} cells, and the query has {len(cells.sampled)}.")
    return MATCHED[:1]


def _mean_record(records: list[dict[str, Any]], n_views: int) -> dict[str, Any]:
    """Mean offsets of all views as one record; cells as they were measured have none."""
    offsets = [record["offset"] for record in records if "offset" in record]
    if not offsets:
        return {"strategy": "none"}
    widest = max(offset.shape[1] for offset in offsets)
    shape = (len(offsets[0]), widest, offsets[0].shape[2])
    mean = np.sum([np.broadcast_to(offset, shape) for offset in offsets], axis=0) / n_views
    return {**records[0], "strategy": "views", "offset": mean.astype(np.float32)}


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
            probabilities = (1 - self.strength) * measured + self.strength * taught
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
