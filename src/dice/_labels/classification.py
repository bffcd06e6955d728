"""Label probabilities of a query, averaged over several views.

Each view is a function of cells. Two steps alternate on a sample of the query: estimate the composition, and fit the
views that depend on the composition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dice import _log
from dice._labels.cells import LabelCells
from dice._labels.groups import Votes, fine_groups, vote, votes_help, with_tissue
from dice._labels.model import LabelModel, log_loss
from dice._labels.query_views import LabelView, Views, taught, views_of, with_all_labels
from dice._labels.views import balanced, composition_of, label_ratios, unexplained_share, view_weights, with_ratios
from dice._query.shift import query_order
from dice._types import Codes, Floats
from dice.options import Classifier, Shift

#: Number of rounds that alternate between the composition and the matched views.
ROUNDS = 2
#: Separation (AUC) of query and reference up to which calibration cells apply in full, and from which they do not
#: apply. Sets change gradually between the two.
LIKE, UNLIKE_AUC = 0.6, 0.7
#: Number of standard errors added to the measured AUC.
POSSIBLE = 3.0


@dataclass(frozen=True)
class Classified:
    """Label probabilities (n, C) of a query: averaged over views, and from the view of cells as measured."""

    probabilities: Floats
    measured: Floats
    #: Strength of the shift, from 0 (calibration cells apply) to 1 (they do not).
    strength: float
    #: Share (C,) of every label in the query.
    composition: Floats
    #: Weight of every view, and the share of cells for which it predicts the final label.
    views: dict[str, Any]
    #: Label (n, V) that every view gives to every cell, and its probability (n, V).
    by_view: tuple[Codes, Floats]
    #: Offsets of the view that moves cells, as stored in ``.uns``.
    shift: dict[str, Any]
    #: Classifiers used by the views, with their weights and their scores on calibration cells.
    table: dict[str, Any]
    #: Weight of the neighbours in the tissue; 0 without positions.
    tissue_weight: float = 0.0

    @property
    def record(self) -> dict[str, Any]:
        """The entries for ``.uns``."""
        return {"views": self.views, "composition": self.composition, "candidates": self.table, "shift": self.shift}

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the classifiers."""
        return dict(zip(self.table["candidate"][:-1].tolist(), self.table["weight"][:-1].tolist(), strict=True))


@dataclass(frozen=True)
class _Average:
    """Views fitted on a sample of the query, and the weights that average them."""

    #: The view of cells as measured.
    measured: LabelView
    #: Views to average, and their weights.
    views: Mapping[str, LabelView]
    weights: Mapping[str, float]
    #: Factors (C,) that convert probabilities to the composition of the query.
    ratios: Floats
    #: Share of the shift that the composition does not explain.
    unexplained: float

    def packed(self, x: Floats, rows: Codes) -> Floats:
        """Return the mean, the view as measured, and label and probability of each view as columns (n, 2 C + 2 V)."""
        found = {name: view(x, rows) for name, view in self.views.items()}
        mean = with_ratios(_mean(found, self.weights), self.ratios)
        first = next(iter(self.views))
        measured = found[first] if self.views[first] is self.measured else self.measured(x, rows)
        labels, likely = (np.stack([pick(p, 1) for p in found.values()], 1) for pick in (np.argmax, np.max))
        return np.concatenate([mean, measured, labels, likely], axis=1)


def _mean(found: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """Return the weighted mean (n, C) of the probabilities of views."""
    total = sum(weights.values())
    return np.asarray(sum(weight / total * found[name] for name, weight in weights.items()))


def classify(
    cells: LabelCells,
    model: LabelModel,
    classifier: Classifier,
    shift: Any,
    auc: float,
    positions: Floats | None = None,
) -> Classified:
    """Return label probabilities of all cells, from all views or from the view that `shift` names.

    With `positions` (n, 2), cells are averaged with their neighbours in the tissue.

    If the query cannot be told from the reference, only the view of cells as measured counts. The weight of the other
    views and of the self-taught regression grows with the strength of the shift.
    """
    views, record = views_of(cells, model, classifier, shift)
    if not len(cells.sampled):
        return _without_expression(views, record)
    averaged = isinstance(shift, Shift) and shift.strategy == "auto"
    average = _fit(views, averaged)
    strength = shift_strength(auc, int(cells.seen.sum()))
    weight = shift_strength(auc) if averaged else 1.0
    packed = cells.each(average.packed)
    n_labels = len(model.names)
    probabilities, measured = packed[:, :n_labels], packed[:, n_labels : 2 * n_labels]
    if averaged and weight > 0:
        among = np.zeros(len(cells), dtype=bool)
        among[cells.sampled] = True
        self_taught = taught(cells, probabilities, np.arange(len(cells)), among=among)
        by_views, by_all = ((1 - weight) * measured + weight * p for p in (probabilities, self_taught))
        probabilities = with_all_labels(by_all, by_views)
    elif averaged:
        probabilities = measured
    tissue_weight = 0.0
    if positions is not None:
        probabilities, tissue_weight = with_tissue(probabilities, positions)
    given, likely = np.split(packed[:, 2 * n_labels :], 2, axis=1)
    by_view = given.astype(np.intp), likely
    agreement = (by_view[0] == probabilities.argmax(1)[:, None])[cells.seen].mean(0)
    table = _view_table(average, agreement, weight)
    composition = composition_of(probabilities[cells.seen], views.moments.composition)
    scores = _scores(model, views.weights)
    return Classified(probabilities, measured, strength, composition, table, by_view, record, scores, tissue_weight)


def shift_strength(auc: float, n_cells: int | None = None) -> float:
    """Return the strength of the shift, from 0 (calibration cells apply) to 1 (they do not).

    Few cells cannot show that they are like the reference. With `n_cells`, the largest AUC that is compatible with the
    measured one is used: the cautious choice, for sets. Without it, the measured AUC is used: the best guess, for
    labels.
    """
    error = 0.0 if n_cells is None else np.sqrt(1 / (12 * max(n_cells, 1)))
    return float(np.clip((auc + POSSIBLE * error - LIKE) / (UNLIKE_AUC - LIKE), 0, 1))


def _fit(views: Views, averaged: bool) -> _Average:
    """Fit the matched views and the composition in turns, on a sample of the query."""
    cells, reference, rows = views.cells, views.moments.composition, views.cells.sampled
    kept = views.keeping()
    measured, ratios = next(iter(kept.values())), np.ones_like(reference)
    if not views.matched:
        return _Average(measured, kept, dict.fromkeys(kept, 1.0), ratios, 0.0)
    found = {name: view(cells.sample, rows) for name, view in kept.items()}
    current = np.mean(list(found.values()), axis=0)
    share = unexplained_share(cells.y[rows].mean(0), views.model.centres, current.mean(0), reference)
    # Labels of few genes are too doubtful to weigh cells by.
    uneven = 0.0 if cells.is_panel else share
    for _ in range(ROUNDS):
        matched = views.matching(*balanced(current, reference, uneven))
        found |= {name: view(cells.sample, rows) for name, view in matched.items()}
        used = {**kept, **matched} if averaged else matched
        weights = view_weights(used, share) if averaged else dict.fromkeys(used, 1.0)
        current = _mean(found, weights)
        if averaged:
            ratios = label_ratios(current, reference, share)
            current = taught(cells, with_ratios(current, ratios), rows)
    return _Average(measured, used, weights, ratios, share)


def _view_table(average: _Average, agreement: Floats, strength: float) -> dict[str, Any]:
    """Return the weight of each view (before self-teaching) and its agreement with the final labels."""
    names, weights = list(average.weights), np.array(list(average.weights.values()))
    as_measured = np.array([name == names[0] for name in names], dtype=float)
    weights = (1 - strength) * as_measured + strength * weights / weights.sum()
    table = {"view": np.array(names, dtype=str), "weight": weights, "agreement": agreement}
    return table | {"unexplained_share": average.unexplained}


def _without_expression(views: Views, record: dict[str, Any]) -> Classified:
    """Return the composition of the reference for every cell of a query in which all cells are empty."""
    composition = views.moments.composition
    same = np.repeat(composition[None], len(views.cells), axis=0)
    names = np.array(list(views.offsets), dtype=str)
    table = {"view": names, "weight": np.full(len(names), 1 / len(names)), "agreement": np.ones(len(names))}
    likely, given = (np.repeat(values[:, None], len(names), 1) for values in (same.max(1), same.argmax(1)))
    scores = _scores(views.model, views.weights)
    return Classified(same, same, 1.0, composition, table, (given, likely), record, scores)


def _scores(model: LabelModel, weights: Mapping[str, float]) -> dict[str, Any]:
    """Return the scores of each classifier, and of their weighted mean, on calibration cells."""
    codes, n_labels = model.calibration_codes, len(model.names)
    found = [*(model.calibration({name: 1.0}) for name in weights), model.calibration(weights)]
    f1 = [model.tree.f1(codes, p.argmax(1))[:n_labels] for p in found]
    return {
        "candidate": np.array([*weights, "blend"]),
        "n_cells": len(codes),
        "weight": np.array([*weights.values(), 1.0]),
        "accuracy": np.array([(p.argmax(1) == codes).mean() for p in found]),
        "log_loss": np.array([log_loss(p, codes) for p in found]),
        "macro_f1": np.array([scores[~np.isnan(scores)].mean() for scores in f1]),
    }


def count_votes(
    cells: LabelCells, probabilities: Floats, groups: pd.Categorical | None, alpha: float
) -> tuple[pd.Categorical, Votes] | None:
    """Return the votes of the given groups or of fine groups; None if fine groups agree no better than chance."""
    if groups is not None:
        voters = np.where(cells.seen, groups.codes, -1)
        return groups, vote(probabilities, voters, len(groups.categories), alpha)
    codes = fine_groups(cells.y, query_order(cells.query))
    n_groups = int(codes.max(initial=-1)) + 1
    votes = vote(probabilities, codes, n_groups, alpha)
    if not n_groups or not votes_help(probabilities, codes, votes.probabilities.argmax(1)):
        _log.info("Votes are left out: fine groups would change more labels than are expected to be wrong.")
        return None
    return pd.Categorical.from_codes(codes, [str(code) for code in range(n_groups)]), votes
