"""The views of a query's cells: which there are, and what each says; see :mod:`dice._labels.views`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dice import _log
from dice._errors import InputError
from dice._labels.cells import LabelCells
from dice._labels.classify import Logistic
from dice._labels.model import REPRESENTATIONS, LabelModel
from dice._labels.views import (
    FEWEST_CELLS,
    KEPT,
    MATCHED,
    Anchors,
    Correlated,
    LabelMoments,
    OwnScale,
    label_weights,
    standardized_classifier,
)
from dice._model.arrays import softmax
from dice._model.offsets import Offsets
from dice._query.shift import find_shift
from dice._types import Codes, Floats
from dice.options import Classifier, Shift


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
    def moments(self) -> LabelMoments:
        """LabelMoments of the genes at hand."""
        genes, known = self.cells.query.match.prior, self.model.moments
        return LabelMoments(
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


def views_of(
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
        if classifier.representation not in ("auto", "genes"):
            raise InputError(f"shift={shift.strategy!r} compares genes: pass classifier='auto' or 'genes'.")
        if shift.strategy == "correlated" and 0 < len(cells.sampled) < FEWEST_CELLS:
            _log.warn(
                f"View 'correlated' needs {FEWEST_CELLS} cells, and the query has {len(cells.sampled)}: add cells."
            )
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
