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
from dice._core.prior.denoiser import Denoiser
from dice._core.prior.prior import Prior
from dice._core.shift import offsets as core
from dice._core.shift.offsets import NETWORK_CELLS, Depth, Shift
from dice._core.shift.record import Calibration, recall
from dice._core.shift.soft_clusters import Kinds
from dice._errors import InputError

#: Cells that offsets of kinds are learned from.
MAX_CELLS = 4000
#: A batch with fewer of those that the network looks at is treated like the whole query.
MIN_BATCH = 50
#: A batch is shifted as a whole if the prior pulls it so many times harder than cells of the reference ...
SHIFTED = 1.2
#: ... and an offset explains it if it takes away at least this share of what is too much.
EXPLAINED = 0.5
#: Cells of one kind could be a new kind as well as a shifted one: with the offset they must be denoised to at least
#: this share of the variety that the reference has.
VARIED = 0.2
#: Cells that have come less than this share of the way from an empty cell are stretched to the depth of the reference.
SHALLOW = 0.9


@dataclass(frozen=True)
class Sample:
    """Cells of a query to learn from, in random order: projection (m, k) in PCA units, batches (m,) of so many."""

    prior: Prior
    points: NDArray[np.float32]
    batches: NDArray[np.intp]
    n_batches: int
    device: torch.device
    #: Place (k,) of a cell without any expression; None where zeros are values like others.
    empty: NDArray[np.float32] | None = None

    def depth(self) -> Depth | None:
        """The depth of every batch; None where all are as deep as the reference, or nothing tells."""
        if self.prior.kinds is None or self.empty is None:
            return None
        parts = [self.points[self.batches == batch] for batch in range(self.n_batches)]
        whole = self._share_of_way(self.points, self.prior.kinds, self.empty)
        own = [
            self._share_of_way(part, self.prior.kinds, self.empty) if len(part) >= MIN_BATCH else whole
            for part in parts
        ]
        shares = np.array(own, dtype=np.float32)
        return Depth(self.empty, shares) if (shares < 1).any() else None

    def _share_of_way(self, points: NDArray[np.float32], kinds: Kinds, empty: NDArray[np.float32]) -> float:
        """Share of the way from an empty cell; 1 where cells are deep enough, or of one kind, which may lie there."""
        found = core.fit_depth(kinds, points, empty)
        if found > SHALLOW:
            return 1.0
        places = core.places(self.denoiser, replace(self, points=core.stretched(points, empty, found)).seen())
        return found if core.variety(places) > VARIED * core.expected_variety(self.variances) else 1.0

    @property
    def variances(self) -> NDArray[np.floating]:
        """Variances (k,) of the reference's latents, in units of their mean."""
        squares = np.square(self.prior.projection.singular_values[: self.prior.n_latent])
        return squares / squares.mean()

    def fit(self, strategy: str) -> Shift:
        """The shift by one of the strategies; a batch without sampled cells has that of the whole query."""
        prior, batches = self.prior, self.batches
        if strategy == "kinds" and prior.kinds is not None:
            offsets = core.fit_kind_offsets(prior.kinds, self.points, batches, self.n_batches)
            return Shift(offsets, batches, prior.kinds)
        z = self.seen()
        if strategy == "offset":
            found = core.fit_offset(self.denoiser, z, batches[: len(z)], self.n_batches)
        else:  # The mean of the reference is zero.
            found = core.shrunken_means(z, torch.as_tensor(batches[: len(z)], device=self.device), self.n_batches)
        return Shift((found * prior.latent_scale).cpu().numpy()[:, None].astype(np.float32), batches)

    def seen(self, shift: Shift | None = None) -> torch.Tensor:
        """What the network looks at: few cells, in its own units, without their shift."""
        few = self.points[:NETWORK_CELLS]
        few = few if shift is None else few - shift.of(few, slice(len(few)))
        return torch.as_tensor(few / self.prior.latent_scale, dtype=torch.float32, device=self.device)

    @property
    def denoiser(self) -> Denoiser:
        return self.prior.denoiser_on(self.device)


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
    empty: NDArray[np.float32] | None = None,
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
    empty
        Place (k,) of a cell without any expression; None where zeros are values like others.
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
    sample = Sample(prior, points, codes[cells], int(codes.max(initial=0)) + 1, device, empty)
    with torch.no_grad():
        shift, record = judge(sample, str(strategy))
    _log.info(f"Calibration: {record['strategy']}; the prior pulls {_sentence(record['pull'])}.")
    if shift is None:
        return Calibration(None, record)
    record["offset"] = shift.offsets
    if shift.depth is not None:
        record |= {"depth": shift.depth.shares, "empty": shift.depth.empty}
        _log.info(f"Depth: {shift.depth.shares.min():.2f} of the way from an empty cell to the reference's depth.")
    if names is not None:
        record["batches"] = np.array(names, dtype=str)
    return Calibration(replace(shift, batches=codes), record)


def judge(sample: Sample, strategy: str) -> tuple[Shift | None, dict[str, Any]]:
    """The shift that is asked for, or that fits each batch best, and the figures that it was judged by."""
    depth = sample.depth() if strategy == "auto" else None
    if depth is not None:
        sample = replace(sample, points=depth.stretched(sample.points, sample.batches))
    known = ("offset",) if sample.prior.kinds is None else ("offset", "kinds")
    found = {name: sample.fit(name) for name in (known if strategy == "auto" else (strategy,))}
    pulls = {"none": core.pull(sample.denoiser, sample.seen())}
    pulls |= {name: core.pull(sample.denoiser, sample.seen(shift)) for name, shift in found.items()}
    variances = sample.variances
    expected = {"expected": core.expected_pull(variances)}
    record: dict[str, Any] = {"strategy": strategy}
    record["pull"] = {name: float(each.mean()) for name, each in pulls.items()} | expected
    if strategy != "auto":
        return found[strategy], record

    places = core.places(sample.denoiser, sample.seen(found["offset"]))
    record["variety"] = core.variety(places) / core.expected_variety(variances)
    record["strategy"] = choose(record["pull"], record["variety"])
    chosen, batches = [], sample.batches[: len(places)]
    for batch in range(sample.n_batches):
        own = batches == batch
        if own.sum() < MIN_BATCH:
            chosen.append(record["strategy"])
            continue
        varied = core.variety(places[own]) / core.expected_variety(variances)
        chosen.append(choose({name: float(each[own].mean()) for name, each in pulls.items()} | expected, varied))
    record["strategy"] = chosen[0] if len(set(chosen)) == 1 else "mixed"
    if sample.n_batches > 1:
        record["strategies"] = np.array(chosen, dtype=str)
    return _combine(found, chosen, depth), record


def _combine(found: dict[str, Shift], chosen: list[str], depth: Depth | None) -> Shift | None:
    """Every batch with the offsets of its own strategy; None where no batch is moved."""
    if set(chosen) == {"none"} and depth is None:
        return None
    like = found["kinds" if "kinds" in chosen else "offset"]
    offsets = np.zeros_like(like.offsets)
    for batch, name in enumerate(chosen):
        if name != "none":
            # One offset for all cells is the same offset for every kind.
            offsets[batch] = found[name].offsets[batch]
    return replace(like, offsets=offsets, depth=depth)


def choose(pulls: dict[str, float], varied: float) -> str:
    """What to do about a batch, by the pull of the prior and the variety of cells that one offset leaves.

    One that lies outside the reference gets the offset that explains it, and none if nothing does or if all its
    cells are of one kind, which may be new. Any other gets offsets of kinds, if the prior knows kinds.
    """
    expected = pulls["expected"]
    if pulls["none"] <= SHIFTED * expected:
        return "kinds" if "kinds" in pulls else "none"
    explained = pulls["offset"] - expected < EXPLAINED * (pulls["none"] - expected)
    return "offset" if explained and varied > VARIED else "none"


def _sentence(pulls: dict[str, float]) -> str:
    shares = {name: value / pulls["expected"] for name, value in pulls.items() if name != "expected"}
    return ", ".join(f"{share:.1f} times as hard ({name})" for name, share in shares.items()) + " as reference cells"
