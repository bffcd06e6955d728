"""Calibration of a query under the prior: which offsets, if any, and what they were chosen by."""

from __future__ import annotations

from collections.abc import Mapping
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
from dice._core.prior import Prior
from dice._errors import InputError

STRATEGIES = ("offset", "kinds", "mean")
#: Cells that offsets of kinds are learned from, and those that the network looks at.
MAX_CELLS, NETWORK_CELLS = 4000, 1000
#: A query is shifted as a whole if the prior pulls it so many times harder than cells of the reference ...
SHIFTED = 1.2
#: ... and an offset explains it if it takes away at least this share of what is too much.
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
    """Cells of a query to learn from, in random order: projection (m, k) in PCA units, batches (m,) of so many."""

    prior: Prior
    points: NDArray[np.float32]
    batches: NDArray[np.intp]
    n_batches: int
    device: torch.device

    def fit(self, strategy: str) -> Shift:
        """The shift by one of the strategies; a batch without sampled cells has that of the whole query."""
        prior, batches = self.prior, self.batches
        if strategy == "kinds" and prior.kinds is not None:
            return KindOffsets(
                prior.kinds, fit_kind_offsets(prior.kinds, self.points, batches, self.n_batches), batches
            )
        z = self._seen()
        if strategy == "offset":
            found = fit_offset(prior.denoiser_on(self.device), z, batches[: len(z)], self.n_batches)
        else:  # The mean of the reference is zero.
            found = shrunken_means(z, torch.as_tensor(batches[: len(z)], device=self.device), self.n_batches)
        return Offset((found * prior.latent_scale).cpu().numpy().astype(np.float32), batches)

    def pull(self, shift: Shift | None = None) -> float:
        return pull(self.prior.denoiser_on(self.device), self._seen(shift))

    def variety(self, shift: Shift) -> float:
        return variety(self.prior.denoiser_on(self.device), self._seen(shift))

    def _seen(self, shift: Shift | None = None) -> torch.Tensor:
        """What the network looks at: few cells, in its own units, without their shift."""
        few = self.points[:NETWORK_CELLS]
        few = few if shift is None else few - shift.of(few, slice(len(few)))
        return torch.as_tensor(few / self.prior.latent_scale, dtype=torch.float32, device=self.device)


def sampled_cells(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The cells (n,) to learn from: those with the smallest keys, wherever they are in the file."""
    chosen = np.zeros(len(keys), dtype=bool)
    chosen[np.argsort(keys, kind="stable")[:MAX_CELLS]] = True
    return chosen


def calibrate(
    prior: Prior,
    points: NDArray[np.float32],
    cells: NDArray[np.intp],
    batches: pd.Categorical | None,
    n_cells: int,
    strategy: str | bool | Mapping[str, Any],
    device: torch.device,
) -> Calibration:
    """Find the shift of a query.

    Parameters
    ----------
    prior
        The prior.
    points
        Projection (m, k) of the sampled cells in PCA units, in random order.
    cells
        Which cells (m,) of the query these are.
    batches
        Batches of all cells; None is one.
    n_cells
        Cells of the query.
    strategy
        As in :func:`dice.tl.denoise`.
    device
        Where to compute.
    """
    if strategy is False:
        return Calibration(None, {"strategy": "none"})
    codes = np.zeros(n_cells, dtype=np.intp) if batches is None else np.asarray(batches.codes, dtype=np.intp)
    names = None if batches is None else [str(name) for name in batches.categories]
    if isinstance(strategy, Mapping):
        return recall(prior, strategy, codes, names)
    if strategy == "kinds" and prior.kinds is None:
        raise InputError(
            "The prior knows no kinds of cells, because its reference was too small, so that calibrate='kinds' is "
            "impossible: pass calibrate='offset'."
        )
    if not len(points):
        return Calibration(None, {"strategy": "none"})
    sample = Sample(prior, points, codes[cells], int(codes.max(initial=0)) + 1, device)
    with torch.no_grad():
        chosen, found, record = judge(sample, str(strategy))
    if chosen == "none":
        return Calibration(None, record)
    record["offset"] = found[chosen].offsets
    if names is not None:
        record["batches"] = np.array(names, dtype=str)
    return Calibration(replace(found[chosen], batches=codes), record)


def judge(sample: Sample, strategy: str) -> tuple[str, dict[str, Shift], dict[str, Any]]:
    """The strategy that is asked for or that fits best, all that were tried, and the figures they were judged by."""
    known = ("offset",) if sample.prior.kinds is None else ("offset", "kinds")
    found = {name: sample.fit(name) for name in (known if strategy == "auto" else (strategy,))}
    variances = np.square(sample.prior.projection.singular_values[: sample.prior.n_latent])
    variances = variances / variances.mean()
    pulls = {"none": sample.pull(), "expected": expected_pull(variances)}
    pulls |= {name: sample.pull(shift) for name, shift in found.items()}
    record: dict[str, Any] = {"strategy": strategy, "pull": pulls}
    if strategy == "auto":
        record["variety"] = sample.variety(found["offset"]) / expected_variety(variances)
        record["strategy"] = choose(pulls, record["variety"])
    _log.info(f"Calibration: {record['strategy']}; the prior pulls {_sentence(pulls)}.")
    return record["strategy"], found, record


def choose(pulls: dict[str, float], varied: float) -> str:
    """What to do about a query, by the pull of the prior and the variety of cells that one offset leaves.

    A query that lies outside the reference gets the offset that explains it, and none if nothing does or if all its
    cells are of one kind, which may be new. Any other gets offsets of kinds, if the prior knows kinds.
    """
    expected = pulls["expected"]
    if pulls["none"] <= SHIFTED * expected:
        return "kinds" if "kinds" in pulls else "none"
    explained = pulls["offset"] - expected < EXPLAINED * (pulls["none"] - expected)
    return "offset" if explained and varied > VARIED else "none"


def recall(prior: Prior, record: Mapping[str, Any], codes: NDArray[np.intp], names: list[str] | None) -> Calibration:
    """The shift that an earlier call found, for any cells of the same query."""
    offsets = record.get("offset")
    if offsets is None:
        return Calibration(None, dict(record))
    offsets = np.asarray(offsets, dtype=np.float32)
    stored = None if "batches" not in record else [str(name) for name in record["batches"]]
    unknown = sorted(set(names or ()) - set(stored or ()))
    if (stored is None) != (names is None) or unknown:
        raise InputError(
            f"The stored calibration has the batches {stored}, but the query has {names}: pass the batch_key of the "
            "call that stored it."
        )
    places = (1, *prior.kinds.means.shape) if offsets.ndim == 3 and prior.kinds is not None else (1, prior.n_latent)
    if offsets.shape[1:] != places[1:] or len(offsets) != len(stored or [0]) or not np.isfinite(offsets).all():
        raise InputError(
            f"The stored calibration has offsets of shape {offsets.shape}, which do not fit the prior: call "
            "dice.tl.denoise with calibrate='auto'."
        )
    if stored is not None and names is not None:
        codes = np.array([stored.index(name) for name in names], dtype=np.intp)[codes]
    shift = (
        Offset(offsets, codes) if prior.kinds is None or offsets.ndim == 2 else KindOffsets(prior.kinds, offsets, codes)
    )
    return Calibration(shift, dict(record))


def _sentence(pulls: dict[str, float]) -> str:
    shares = {name: value / pulls["expected"] for name, value in pulls.items() if name != "expected"}
    return ", ".join(f"{share:.1f} times as hard ({name})" for name, share in shares.items()) + " as reference cells"
