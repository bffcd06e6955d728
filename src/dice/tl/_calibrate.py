"""Calibration of a query under the prior: which offset, if any, and what it was chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice import _log
from dice._core.calibrate import Offset, expected_pull, expected_variety, fit_offset, pull, shrunken_means, variety
from dice._core.prior import Prior

STRATEGIES = ("offset", "mean")
#: Cells that the offset is learned from.
MAX_CELLS = 4000
#: A query is shifted if the prior pulls it so many times harder than cells of the reference ...
SHIFTED = 1.2
#: ... and an offset explains it if it takes away at least this share of the pull.
EXPLAINED = 0.5
#: Cells of one kind could be a new kind as well as a shifted one: an offset needs at least this share of the variety
#: that the reference has.
VARIED = 0.2


@dataclass(frozen=True)
class Calibration:
    """The offset of a query, None where it is left alone, and what ``.uns`` keeps of it."""

    offset: Offset | None
    record: dict[str, Any]


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
    """Find the offset of a query.

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
    codes = np.zeros(len(sampled), dtype=np.intp) if batches is None else np.asarray(batches.codes, dtype=np.intp)
    denoiser = prior.denoiser_on(device)
    z = torch.as_tensor(points / prior.latent_scale, dtype=torch.float32, device=device)
    with torch.no_grad():
        found = {"offset": fit_offset(denoiser, z, codes[sampled])}
        if strategy == "mean":
            found["mean"] = _mean_offset(z, codes[sampled], len(found["offset"]))
        batch = torch.as_tensor(codes[sampled], device=device)
        pulls = {"none": pull(denoiser, z)} | {name: pull(denoiser, z - x[batch]) for name, x in found.items()}
        varied = variety(denoiser, z - found["offset"][batch])
    variances = np.square(prior.projection.singular_values[: prior.n_latent])
    variances = variances / variances.mean()
    pulls["expected"] = expected_pull(variances)
    varied /= expected_variety(variances)
    chosen = choose(pulls, varied) if strategy == "auto" else str(strategy)
    record: dict[str, Any] = {"strategy": chosen, "pull": pulls, "variety": varied}
    _log.info(f"Calibration: {chosen}; the prior pulls {_sentence(pulls)}.")
    if chosen == "none":
        return Calibration(None, record)
    values = (found[chosen] * prior.latent_scale).cpu().numpy().astype(np.float32)
    values = _for_all(values, codes)
    record["offset"] = values
    if batches is not None:
        record["batches"] = np.array([str(name) for name in batches.categories], dtype=str)
    return Calibration(Offset(values, codes), record)


def choose(pulls: dict[str, float], varied: float) -> str:
    """``"offset"`` where the query lies outside the reference and an offset explains that, else ``"none"``."""
    shifted = pulls["none"] > SHIFTED * pulls["expected"]
    explained = pulls["offset"] < EXPLAINED * pulls["none"]
    return "offset" if shifted and explained and varied > VARIED else "none"


def _mean_offset(z: Tensor, codes: NDArray[np.intp], n_batches: int) -> Tensor:
    """The offset that brings the mean of every batch to that of the reference, which is zero."""
    return shrunken_means(z, torch.as_tensor(codes, device=z.device), n_batches)


def _for_all(values: NDArray[np.float32], codes: NDArray[np.intp]) -> NDArray[np.float32]:
    """Batches without a sampled cell get the mean offset."""
    missing = int(codes.max(initial=0)) + 1 - len(values)
    return np.concatenate([values, np.repeat(values.mean(0, keepdims=True), missing, axis=0)])


def _sentence(pulls: dict[str, float]) -> str:
    shares = {name: value / pulls["expected"] for name, value in pulls.items() if name != "expected"}
    return ", ".join(f"{share:.1f} times as hard ({name})" for name, share in shares.items()) + " as reference cells"
