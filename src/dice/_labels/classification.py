"""Label probabilities of a query, averaged over several views.

Each view is a function of cells. Two steps alternate on a sample of the query: estimate the composition, and fit the
views that depend on the composition.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dice._labels.cells import LabelCells
from dice._labels.model import LabelModel
from dice._labels.query_views import LabelView, Views, taught, views_of, with_all_labels, with_tissue
from dice._labels.views import balanced, composition_of, label_ratios, unexplained_share, with_ratios
from dice._types import Codes, Floats
from dice.options import Classifier, Shift

#: Number of rounds that alternate between the composition and the matched views.
ROUNDS = 2
#: Up to the first separation (AUC) of query and reference, calibration cells apply in full. From the second on, they do
#: not apply. Sets change gradually between the two.
LIKE, UNLIKE_AUC = 0.6, 0.7
#: Number of standard errors added to the measured AUC.
POSSIBLE = 3.0


@dataclass(frozen=True)
class Classified:
    """Label probabilities (n, C) of a query: averaged over views, and from the view of cells as measured."""

    probabilities: Floats
    measured: Floats
    #: Label (n, V) that every view gives to every cell, and its probability (n, V).
    by_view: tuple[Codes, Floats]
    #: Weights of the classifiers, by representation.
    weights: Mapping[str, float]
    #: Strength of the shift, from 0 (calibration cells apply) to 1 (they do not).
    strength: float
    #: Weight of the neighbours in the tissue; 0 without positions.
    tissue_weight: float
    #: Entries for ``.uns``: views, composition, scores of the classifiers, and offsets of the view that moves cells.
    record: dict[str, Any]


@dataclass(frozen=True)
class _Fitted:
    """Views fitted on a sample of the query. The view of cells as measured comes first."""

    views: Mapping[str, LabelView]
    #: Weights of the views that are averaged.
    weights: Mapping[str, float]
    #: Factors (C,) that convert probabilities to the composition of the query.
    ratios: Floats
    #: Share of the shift that the composition does not explain.
    unexplained: float = 0.0

    def __call__(self, x: Floats, rows: Codes) -> tuple[Floats, Floats, Codes, Floats]:
        """Return probabilities (n, C) by all views and as measured, and label and probability (n, V) by each view."""
        found = {name: view(x, rows) for name, view in self.views.items()}
        mean, measured = with_ratios(_mean(found, self.weights), self.ratios), next(iter(found.values()))
        labels, likely = (np.stack([pick(found[name], 1) for name in self.weights], 1) for pick in (np.argmax, np.max))
        return mean, measured.astype(np.float64), labels, likely


def _mean(found: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """Return the weighted mean (n, C) of the probabilities of views."""
    total = sum(weights.values())
    return np.asarray(sum(weight / total * found[name] for name, weight in weights.items()))


def classify(
    cells: LabelCells, model: LabelModel, classifier: Classifier, shift: Any, auc: float,
    positions: Floats | None = None,
) -> Classified:  # fmt: skip
    """Return label probabilities of all cells, from all views or from the view that `shift` names.

    With `positions` (n, 2), cells are averaged with their neighbours in the tissue.

    If the query looks like the reference, only the view of cells as measured is used. The weight of the other
    views and of the self-taught regression grows with the strength of the shift.
    """
    averaged = isinstance(shift, Shift) and shift.strategy == "auto"
    views, offsets = views_of(cells, model, classifier, shift)
    fitted = _fit(views, averaged)
    probabilities, measured, given, likely = cells.each(fitted)
    weight = shift_strength(auc) if averaged else 1.0
    if averaged and weight > 0:
        self_taught = taught(cells, probabilities, np.arange(len(cells)))
        by_views, by_all = ((1 - weight) * measured + weight * p for p in (probabilities, self_taught))
        probabilities = with_all_labels(by_all, by_views)
    elif averaged:
        probabilities = measured
    probabilities, tissue_weight = (probabilities, 0.0) if positions is None else with_tissue(probabilities, positions)
    agreed = (given == probabilities.argmax(1)[:, None])[cells.seen]
    record = {
        "views": _view_table(fitted, agreed.sum(0) / max(len(agreed), 1), weight),
        "composition": composition_of(probabilities[cells.seen], views.moments.composition),
        "candidates": model.scores(views.weights),
        "shift": offsets,
    }
    strength = shift_strength(auc, int(cells.seen.sum()))
    return Classified(probabilities, measured, (given, likely), views.weights, strength, tissue_weight, record)


def shift_strength(auc: float, n_cells: int | None = None) -> float:
    """Return the strength of the shift, from 0 (calibration cells apply) to 1 (they do not).

    The AUC of few cells is uncertain. With `n_cells`, the largest AUC that is compatible with the measured one is used,
    which is the cautious choice for sets. Without it, the measured AUC is used, which is the best guess for labels.
    """
    error = 0.0 if n_cells is None else np.sqrt(1 / (12 * max(n_cells, 1)))
    return float(np.clip((auc + POSSIBLE * error - LIKE) / (UNLIKE_AUC - LIKE), 0, 1))


def _fit(views: Views, averaged: bool) -> _Fitted:
    """Fit the matched views and the composition in turns, on a sample of the query."""
    cells, reference, rows = views.cells, views.moments.composition, views.cells.sampled
    kept, ratios = views.keeping(), np.ones_like(views.moments.composition)
    if not len(rows):
        # All cells are empty: they have the composition of the reference.
        kept = dict.fromkeys(kept, lambda _, rows: np.repeat(reference[None], len(rows), axis=0))
    if not views.matched or not len(rows):
        return _Fitted(kept, dict.fromkeys(kept, 1.0), ratios)
    found = {name: view(cells.sample, rows) for name, view in kept.items()}
    current = np.mean(list(found.values()), axis=0)
    share = unexplained_share(cells.y[rows].mean(0), views.model.centres, current.mean(0), reference)
    # Labels from few genes are too uncertain to weight cells by them.
    uneven = 0.0 if cells.prior.is_panel else share
    for _ in range(ROUNDS):
        matched = views.matching(*balanced(current, reference, uneven))
        found |= {name: view(cells.sample, rows) for name, view in matched.items()}
        # The composition explains a part of the shift, and cells as measured count by this part.
        weights = dict.fromkeys(found, 1.0) | {"measured": 1 - share} if averaged else dict.fromkeys(matched, 1.0)
        current = _mean(found, weights)
        if averaged:
            ratios = label_ratios(current, reference, share)
            current = taught(cells, with_ratios(current, ratios), rows)
    return _Fitted(kept | matched, weights, ratios, share)


def _view_table(fitted: _Fitted, agreement: Floats, strength: float) -> dict[str, Any]:
    """Return a table of views: the weight before self-teaching, and the agreement with the final labels."""
    names, weights = list(fitted.weights), np.array(list(fitted.weights.values()))
    weights = strength * weights / weights.sum()
    weights[0] += 1 - strength
    table = {"view": np.array(names, dtype=str), "weight": weights, "agreement": agreement}
    return table | {"unexplained_share": fitted.unexplained}
