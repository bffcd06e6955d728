"""What the classifiers of a reference say of a query, and how they are weighed against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dice._core.blend import blend_labels
from dice._core.labels.classify import log_loss, macro_f1, softmax
from dice._core.labels.likeness import disagreement, expected_error, moves
from dice._core.labels.model import REPRESENTATIONS, LabelModel
from dice._query.represented import Represented
from dice._types import Codes, Floats
from dice.options import Classifier


@dataclass(frozen=True)
class Classified:
    """Probabilities of the query (n, C), and of known cells (v + m, C) as they are and made like the query."""

    probabilities: Floats
    #: Held-out cells come first, then those of the calibration.
    known: Floats
    alike: Floats
    codes: Codes
    n_held_out: int
    #: How far (C, k) every label of the query is from the reference's, in PCA units.
    moved: Floats
    #: Share of wrong labels to expect; None where nothing says that the query is harder than held-out cells.
    error: float | None
    #: Weight of every representation.
    weights: dict[str, float]
    table: dict[str, Any]

    def cells(self, *, alike: bool) -> Floats:
        """Probabilities (v + m, C) of known cells, made like the query or not."""
        return self.alike if alike else self.known

    @property
    def name(self) -> str:
        """The mixture in words."""
        parts = sorted(((weight, name) for name, weight in self.weights.items()), reverse=True)
        return " + ".join(f"{weight:.2f} {name}" for weight, name in parts)


def classify(query: Represented, model: LabelModel, classifier: Classifier) -> Classified:
    """Classify all cells, by classifiers that are weighed on held-out cells made like the query."""
    wanted = REPRESENTATIONS if classifier.representation == "auto" else (classifier.representation,)
    candidates = {name: model.candidates[name] for name in wanted}
    logits = {name: query.logits(name, candidate.classifier) for name, candidate in candidates.items()}
    said, seen = [softmax(found) for found in logits.values()], query.seen
    consensus = np.mean(said, axis=0)[seen]
    shifts = {name: moves(consensus, found[seen], candidates[name].means) for name, found in logits.items()}
    codes = np.concatenate([model.held_out_codes, model.calibration_codes])
    held_out = slice(len(model.held_out_codes))
    plain = [np.concatenate([candidate.held_out, candidate.calibration]) for candidate in candidates.values()]
    alike = [softmax(found + shifts[name][codes]) for name, found in zip(candidates, plain, strict=True)]
    usual, judged = [softmax(found) for found in plain], [p[held_out] for p in alike]
    several = len(candidates) > 1
    weights = blend_labels(judged, codes[held_out]) if several else np.ones(1)
    known = _mixed(weights, usual)
    wrong = known.argmax(1) != codes
    return Classified(
        probabilities=_mixed(weights, said),
        known=known,
        alike=_mixed(weights, alike),
        codes=codes,
        n_held_out=len(model.held_out_codes),
        moved=moves(consensus, query.y[seen].astype(np.float64), model.centres),
        error=expected_error(disagreement(said)[seen], disagreement(usual), wrong) if several else None,
        weights=dict(zip(candidates, map(float, weights), strict=True)),
        table=_table(list(candidates), weights, judged, codes[held_out]),
    )


def _mixed(weights: Floats, probabilities: list[Floats]) -> Floats:
    return np.asarray(np.tensordot(weights, np.stack(probabilities), 1))


def _table(names: list[str], weights: Floats, alike: list[Floats], codes: Any) -> dict[str, Any]:
    """How every candidate, and their mixture, did on held-out cells made like the query."""
    table = {"candidate": np.array([*names, "blend"]), "weight": np.append(weights, 1.0), "n_cells": len(codes)}
    if not len(codes):
        return table
    rows = [*alike, _mixed(weights, alike)]
    return table | {
        "log_loss": np.array([log_loss(p, codes) for p in rows]),
        "accuracy": np.array([float((p.argmax(1) == codes).mean()) for p in rows]),
        "macro_f1": np.array([macro_f1(p, codes) for p in rows]),
    }
