"""Calibration of a query under the prior: which offsets, if any, and what they were chosen by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dice import _log
from dice._core.calibrate import (
    KindOffsets,
    Offset,
    Shift,
    expected_pull,
    expected_variety,
    fit_kind_offsets,
    fit_offset,
    pull,
    shrunken_means,
    variety,
)
from dice._core.denoiser import Denoiser
from dice._core.prior import Prior
from dice._errors import InputError

STRATEGIES = ("offset", "kinds", "mean")
#: Cells that offsets are learned from.
MAX_CELLS = 4000
#: A query is shifted as a whole if the prior pulls it so many times harder than cells of the reference ...
SHIFTED = 1.2
#: ... and an offset explains it if it takes away at least this share of the pull.
EXPLAINED = 0.5
#: Cells of one kind could be a new kind as well as a shifted one: with the offset they must be denoised to at least
#: this share of the variety that the reference has.
VARIED = 0.2


@dataclass(frozen=True)
class Calibration:
    """The shift of a query, None where it is left alone, and what ``.uns`` keeps of it."""

    shift: Shift | None
    record: dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """Cells that offsets are learned from: projection (m, k) in PCA units and batches (m,), under a prior."""

    prior: Prior
    points: NDArray[np.float32]
    batches: NDArray[np.intp]
    denoiser: Denoiser
    device: torch.device

    def scaled(self, points: NDArray[np.float32]) -> torch.Tensor:
        return torch.as_tensor(points / self.prior.latent_scale, dtype=torch.float32, device=self.device)

    def fit(self, strategy: str, n_batches: int) -> Shift:
        """The shift of every cell by one of the strategies; cells of unknown batches have the mean of the others."""
        if strategy == "kinds" and self.prior.kinds is not None:
            values = fit_kind_offsets(self.prior.kinds, self.points, self.batches)
            return KindOffsets(self.prior.kinds, _for_all(values, n_batches), self.batches)
        z = self.scaled(self.points)
        if strategy == "offset":
            found = fit_offset(self.denoiser, z, self.batches)
        else:  # The mean of the reference is zero.
            batch = torch.as_tensor(self.batches, device=self.device)
            found = shrunken_means(z, batch, int(self.batches.max(initial=0)) + 1)
        values = (found * self.prior.latent_scale).cpu().numpy().astype(np.float32)
        return Offset(_for_all(values, n_batches), self.batches)

    def pull(self, shift: Shift | None = None) -> float:
        return pull(self.denoiser, self.scaled(self._without(shift)))

    def variety(self, shift: Shift) -> float:
        return variety(self.denoiser, self.scaled(self._without(shift)))

    def _without(self, shift: Shift | None) -> NDArray[np.float32]:
        return self.points if shift is None else self.points - shift.of(self.points, slice(None))


def sampled_cells(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The cells (n,) to learn from: those with the smallest keys, wherever they are in the file."""
    chosen = np.zeros(len(keys), dtype=bool)
    chosen[np.argsort(keys, kind="stable")[:MAX_CELLS]] = True
    return chosen


def calibrate(
    prior: Prior,
    points: NDArray[np.float32],
    sampled: NDArray[np.bool_],
    batches: pd.Categorical | None,
    strategy: str | bool,
    device: torch.device,
) -> Calibration:
    """Find the shift of a query.

    Parameters
    ----------
    prior
        The prior.
    points
        Projection (m, k) of the sampled cells, PCA units.
    sampled
        Which cells these are (n,).
    batches
        Batches of all cells; None is one.
    strategy
        As in :func:`dice.tl.denoise`.
    device
        Where to compute.
    """
    if strategy is False or not len(points):
        return Calibration(None, {"strategy": "none"})
    if strategy == "kinds" and prior.kinds is None:
        raise InputError(
            "The prior knows no kinds of cells, so that calibrate='kinds' is impossible: train it again with "
            "dice.tl.train_prior on at least 20 cells, or pass calibrate='offset'."
        )
    codes = np.zeros(len(sampled), dtype=np.intp) if batches is None else np.asarray(batches.codes, dtype=np.intp)
    n_batches = int(codes.max(initial=0)) + 1
    sample = Sample(prior, points, codes[sampled], prior.denoiser_on(device), device)
    names = [name for name in ("offset", "kinds") if name == "offset" or prior.kinds is not None]
    with torch.no_grad():
        found = {name: sample.fit(name, n_batches) for name in (names if strategy == "auto" else [str(strategy)])}
        pulls = {"none": sample.pull()} | {name: sample.pull(shift) for name, shift in found.items()}
        varied = sample.variety(next(iter(found.values())))
    variances = np.square(prior.projection.singular_values[: prior.n_latent])
    variances = variances / variances.mean()
    pulls["expected"] = expected_pull(variances)
    varied /= expected_variety(variances)
    chosen = choose(pulls, varied) if strategy == "auto" else str(strategy)
    record: dict[str, Any] = {"strategy": chosen, "pull": pulls, "variety": varied}
    _log.info(f"Calibration: {chosen}; the prior pulls {_sentence(pulls)}.")
    if chosen == "none":
        return Calibration(None, record)
    shift = replace(found[chosen], batches=codes)
    record["offset"] = shift.offsets
    if batches is not None:
        record["batches"] = np.array([str(name) for name in batches.categories], dtype=str)
    return Calibration(shift, record)


def choose(pulls: dict[str, float], varied: float) -> str:
    """What to do about a query, by the pull of the prior and the variety of cells that one offset leaves.

    A query that lies outside the reference gets the offset that explains it, and none if nothing does or if all its
    cells are of one kind, which may be new. Any other gets offsets of kinds, if the prior knows kinds.
    """
    if pulls["none"] <= SHIFTED * pulls["expected"]:
        return "kinds" if "kinds" in pulls else "none"
    explained = pulls["offset"] < EXPLAINED * pulls["none"]
    return "offset" if explained and varied > VARIED else "none"


def _for_all(values: NDArray[np.float32], n_batches: int) -> NDArray[np.float32]:
    """Batches without a sampled cell get the mean offset."""
    missing = n_batches - len(values)
    return np.concatenate([values, np.repeat(values.mean(0, keepdims=True), missing, axis=0)])


def _sentence(pulls: dict[str, float]) -> str:
    shares = {name: value / pulls["expected"] for name, value in pulls.items() if name != "expected"}
    return ", ".join(f"{share:.1f} times as hard ({name})" for name, share in shares.items()) + " as reference cells"
