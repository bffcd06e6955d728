"""Prediction sets of a query, and whether its reference can calibrate them at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dice import _log
from dice._core.labels.conformal import effective_size, label_p_values, label_scores, too_few
from dice._core.labels.density_ratio import measure_domain_shift
from dice._core.labels.doubt import with_most_likely
from dice._core.labels.likeness import smallest_sets, tempered
from dice._core.labels.model import LabelModel
from dice._core.posterior.noise import CellNoise
from dice._query.classification import Classified
from dice._query.represented import Represented
from dice._types import Floats, Mask
from dice.options import Sets

#: How well query and reference may be told apart (AUC) before the reference's cells as they are cannot calibrate
#: (docs/labels.md).
DOUBTFUL = 0.65
#: Stream of random numbers of the sets.
SETS = 3


@dataclass(frozen=True)
class DomainShift:
    """Density ratios of calibration (m,) and query cells (n,), and how well the two are told apart."""

    calibration: Floats
    query: Floats
    auc: float

    @property
    def effective(self) -> float:
        """Number of calibration cells that count."""
        return effective_size(self.calibration)

    @property
    def doubtful(self) -> bool:
        return self.auc > DOUBTFUL

    @property
    def params(self) -> dict[str, Any]:
        return {"effective_calibration": self.effective, "shift_auc": self.auc}


def find_shift(query: Represented, calibration_y: Floats, seed: int) -> DomainShift:
    """Compare the latents of the query with those of the calibration cells (m, k), in PCA units."""
    scale = query.query.prior.latent_scale
    # In the order of their seeds, which does not depend on where cells are in a file.
    order = np.argsort(query.query.seeds, kind="stable")
    order = order[query.seen[order]]
    found = measure_domain_shift(calibration_y / scale, query.y[order] / scale, seed)
    ratios = np.ones(len(query))
    ratios[order] = found.query
    return DomainShift(found.reference, ratios, found.auc)


@dataclass(frozen=True)
class Predicted:
    """Sets (n, C), and how many should hold the true label: as they are, and as calibration alone would have them."""

    sets: Mask
    expected: float
    calibrated: float

    @property
    def params(self) -> dict[str, Any]:
        return {"expected_coverage": self.expected, "calibrated_coverage": self.calibrated}


def predict_sets(
    settings: Sets, alpha: float, found: Classified, model: LabelModel, shift: DomainShift, query: Represented
) -> Predicted:
    """Sets of all cells; warns where calibration cannot hold, and says what to expect."""
    codes, cells = model.calibration_codes, found.cells(alike=shift.doubtful)[found.n_held_out :]
    uniform: list[Floats | None] = [None, None]
    if settings.randomize and settings.method != "lac":
        uniform = [_uniform(query.query.seeds), _uniform(np.arange(len(codes)))]
    scores, known = (
        label_scores(p, settings.method, u) for p, u in zip((found.probabilities, cells), uniform, strict=True)
    )
    weights = {"weights": shift.calibration, "own_weights": shift.query} if settings.weighted else {}
    p_values = label_p_values(scores, known, codes, per_class=settings.per_class, **weights)
    sets = with_most_likely(p_values > alpha, found.probabilities)
    predicted = _widened(sets, alpha, found, shift, query.seen)
    _warn(settings, alpha, model, shift, predicted)
    return predicted


def _widened(sets: Mask, alpha: float, found: Classified, shift: DomainShift, seen: Mask) -> Predicted:
    """Sets that hold what classifiers disagree about more than they do on held-out cells."""
    if found.error is None or not shift.doubtful:
        return Predicted(sets, 1 - alpha, 1 - alpha)
    doubted, wide = tempered(found.probabilities[seen], found.error), sets.copy()
    wide[seen] |= smallest_sets(doubted, alpha)
    before, after = (float((doubted * held[seen]).sum(1).mean()) for held in (sets, wide))
    return Predicted(wide, max(after, 1 - alpha), before)


def _warn(settings: Sets, alpha: float, model: LabelModel, shift: DomainShift, predicted: Predicted) -> None:
    codes = model.calibration_codes
    rare = too_few(codes, len(model.names), alpha)
    if settings.per_class and rare.any():
        names = [model.names[i] for i in np.flatnonzero(rare)]
        _log.warn(
            f"{len(names)} labels have fewer than {int(np.ceil(1 / alpha)) - 1} calibration cells and are in "
            f"every set, for example {names[:3]}: train the prior with a larger calibration_fraction, or pass "
            "per_class=False."
        )
    elif len(codes) + 1 < 1 / alpha:
        _log.warn(
            f"{len(codes)} calibration cells cannot tell alpha={alpha:g}, so that every set holds every label: pass a "
            f"larger alpha, or train the prior with at least {int(np.ceil(1 / alpha)) - 1} cells for calibration "
            "(dice.Training(calibration_fraction=))."
        )
    if settings.weighted and shift.effective < 3 / alpha:
        _log.warn(
            f"The weights leave {shift.effective:.0f} effective calibration cells of {len(codes)}: sets at "
            f"alpha={alpha:g} are not to be relied on."
        )
    elif not settings.weighted and shift.doubtful:
        size = predicted.sets.sum(1).mean()
        what = (
            f"would hold the true label in about {predicted.calibrated:.0%} of the cells, and were widened to "
            f"{size:.1f} labels a cell to hold it in {1 - alpha:.0%}"
            if predicted.calibrated < 1 - alpha
            else f"may hold the true label less often than {1 - alpha:.0%}"
        )
        _log.warn(
            f"The query differs from its reference (they are told apart with an AUC of {shift.auc:.2f}), so that sets "
            f"{what}: check them on cells whose label you know with dice.tl.evaluate(..., protocol='labels')."
        )


def _uniform(seeds: NDArray[np.int64]) -> Floats:
    """One random number (n,) for every cell, its own."""
    return CellNoise(torch.as_tensor(seeds), SETS).uniform(0, 1)[:, 0].numpy().astype(np.float64)
