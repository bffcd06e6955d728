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
from dice._core.posterior.noise import CellNoise
from dice._query.classification import Represented
from dice._query.reference import Labelled
from dice._types import Floats
from dice.options import Sets

#: How well query and reference may be told apart (AUC) before coverage is doubtful, and hopeless (docs/labels.md).
DOUBTFUL, SEVERE = 0.65, 0.85
#: Stream of random numbers of the sets.
SETS = 3


@dataclass(frozen=True)
class DomainShift:
    """Density ratios of calibration (m,) and query cells (n,), and how much calibration they leave."""

    calibration: Floats
    query: Floats
    auc: float

    @property
    def effective(self) -> float:
        """Number of calibration cells that count."""
        return effective_size(self.calibration)

    @property
    def severe(self) -> bool:
        return self.auc > SEVERE

    @property
    def params(self) -> dict[str, Any]:
        return {"effective_calibration": self.effective, "shift_auc": self.auc}


def find_shift(query: Represented, reference: Represented, labelled: Labelled, seed: int) -> DomainShift:
    """Compare the latents of the query with those of all reference cells."""
    scale = query.query.prior.latent_scale
    # In the order of their seeds, which does not depend on where cells are in a file.
    known, new = (np.argsort(cells.query.seeds, kind="stable") for cells in (reference, query))
    found = measure_domain_shift(reference.y[known] / scale, query.y[new] / scale, seed)
    ratios = np.empty(len(known)), np.empty(len(new))
    ratios[0][known], ratios[1][new] = found.reference, found.query
    return DomainShift(ratios[0][labelled.cells("calibration")], ratios[1], found.auc)


def predict_sets(
    settings: Sets,
    alpha: float,
    probabilities: Floats,
    calibration: Floats,
    labelled: Labelled,
    shift: DomainShift,
    query: Represented,
    reference: Represented,
) -> Floats:
    """P-value (n, C) of every label for every cell; warns where calibration cannot hold."""
    cells = labelled.cells("calibration")
    codes = labelled.codes[cells]
    uniform: list[Floats | None] = [None, None]
    if settings.randomize and settings.method != "lac":
        uniform = [_uniform(query.query.seeds), _uniform(reference.query.seeds[cells])]
    scores, known = (
        label_scores(p, settings.method, u) for p, u in zip((probabilities, calibration), uniform, strict=True)
    )
    _warn(settings, alpha, labelled, codes, shift)
    weights = {"weights": shift.calibration, "own_weights": shift.query} if settings.weighted else {}
    return label_p_values(scores, known, codes, per_class=settings.per_class, **weights)


def _warn(settings: Sets, alpha: float, labelled: Labelled, codes: NDArray[np.intp], shift: DomainShift) -> None:
    rare = too_few(codes, len(labelled.names), alpha)
    if settings.per_class and rare.any():
        names = [labelled.names[i] for i in np.flatnonzero(rare)]
        _log.warn(
            f"{len(names)} labels have fewer than {int(np.ceil(1 / alpha)) - 1} calibration cells and are in "
            f"every set, for example {names[:3]}: train the prior with a larger calibration_fraction, or pass "
            "per_class=False."
        )
    if settings.weighted and shift.effective < 3 / alpha:
        _log.warn(
            f"The weights leave {shift.effective:.0f} effective calibration cells of {len(codes)}: sets at "
            f"alpha={alpha:g} are not to be relied on."
        )
    elif not settings.weighted and shift.auc > DOUBTFUL:
        advice = (
            "calibration cannot hold"
            if shift.severe
            else "pass sets=dice.Sets(weighted=True), or dice.Sets(per_class=True)"
        )
        _log.warn(
            f"The query differs from its reference (they are told apart with an AUC of {shift.auc:.2f}), so that sets "
            f"may hold the true label less often than {1 - alpha:.0%}: {advice}."
        )


def _uniform(seeds: NDArray[np.int64]) -> Floats:
    """One random number (n,) for every cell, its own."""
    return CellNoise(torch.as_tensor(seeds), SETS).uniform(0, 1)[:, 0].numpy().astype(np.float64)
