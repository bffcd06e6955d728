"""Which offsets a query gets, if any, and what they were chosen by.

The score norm says how far outside the reference's cloud cells lie: ||D(z; s) - z||^2 / (k s^2), at a noise that is
so coarse that it tells the shift of a query as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._core.prior.denoiser import Denoiser
from dice._core.prior.prior import LearnedPrior
from dice._core.shift.offsets import LEVELS, Offsets, fit_cluster_offsets, fit_offset, shrunken_means
from dice._errors import InputError
from dice._types import Codes, Floats

#: The noise at which a query is judged as a whole: at small noise the score norm ranks candidates by how much they
#: shrink the query, and only at a large one tells pairs that overlap from those that do not (docs/shift.md).
COARSE = 2.0
#: Cells that offsets are learned from, and that the network looks at.
SAMPLED_CELLS, NETWORK_CELLS = 4000, 1000
#: A batch with fewer of the latter is treated like the whole query.
MIN_BATCH = 50
#: A query differs as a whole if its score norm is so many times that of the reference: of 28 pairs only nuclei as a
#: reference of cells are beyond it (1.4 to 4.4), all others are below 1.1.
SHIFTED = 1.2
#: An offset explains it if it takes away at least half of what is too much: more than nothing would.
EXPLAINED = 0.5
#: Cells of one type could be new as well as shifted: without the offset they must vary at least this share as much as
#: the reference's (0.31 to 1.24 for thirds of the types of shifted pairs, 0.06 for one new cluster).
VARIED = 0.2

Strategy = Literal["auto", "offset", "clusters", "mean"]


@dataclass(frozen=True)
class Sample:
    """Cells of a query to learn from, in random order: latents (m, k) in PCA units, batches (m,) of so many."""

    prior: LearnedPrior
    y: NDArray[np.float32]
    batches: Codes
    n_batches: int
    device: torch.device

    @property
    def variances(self) -> Floats:
        """Variances (k,) of the reference's latents, in units of their mean."""
        return self.prior.latent_variances / self.prior.latent_scale**2

    @property
    def denoiser(self) -> Denoiser:
        return self.prior.denoiser_on(self.device)

    def fit(self, strategy: str) -> Offsets:
        """The offsets by one of the strategies; a batch without sampled cells has those of the whole query."""
        clusters, batches = self.prior.soft_clusters, self.batches
        if strategy == "clusters" and clusters is not None:
            return Offsets(fit_cluster_offsets(clusters, self.y, batches, self.n_batches), batches, clusters)
        z = self.scaled()
        if strategy == "offset":
            found = fit_offset(self.denoiser, z, batches[: len(z)], self.n_batches)
        else:  # The mean of the reference is zero.
            found = shrunken_means(z, torch.as_tensor(batches[: len(z)], device=self.device), self.n_batches)
        return Offsets((found * self.prior.latent_scale).cpu().numpy()[:, None].astype(np.float32), batches)

    def scaled(self, offsets: Offsets | None = None) -> Tensor:
        """What the network looks at: few cells, in its own units, without their offsets."""
        few = self.y[:NETWORK_CELLS]
        few = few if offsets is None else few - offsets.of(few, slice(len(few)))
        return torch.as_tensor(few / self.prior.latent_scale, dtype=torch.float32, device=self.device)


def find_offsets(
    prior: LearnedPrior,
    y: NDArray[np.float32],
    batches: Codes,
    strategy: Strategy,
    device: torch.device,
    n_batches: int | None = None,
) -> tuple[Offsets | None, dict[str, Any]]:
    """The offsets of a query, and the figures that they were judged by.

    Parameters
    ----------
    prior
        The prior.
    y
        Latents (m, k) of sampled cells in PCA units, in random order.
    batches
        Their batches (m,).
    strategy
        As in :class:`dice.Shift`.
    device
        Where to compute.
    n_batches
        Batches of the query, those without sampled cells included; None counts those of the sample.
    """
    if strategy == "clusters" and prior.soft_clusters is None:
        raise InputError(
            "The prior has no soft clusters, because its reference was too small, so that shift='clusters' is "
            "impossible: pass shift='offset'."
        )
    if not len(y):
        return None, {"strategy": "none"}
    with torch.no_grad():
        n_batches = int(batches.max(initial=0)) + 1 if n_batches is None else n_batches
        return _judged(Sample(prior, y, batches, n_batches, device), strategy)


def _judged(sample: Sample, strategy: Strategy) -> tuple[Offsets | None, dict[str, Any]]:
    """The offsets that are asked for, or those that fit each batch best."""
    known = ("offset",) if sample.prior.soft_clusters is None else ("offset", "clusters")
    found = {name: sample.fit(name) for name in (known if strategy == "auto" else (strategy,))}
    norms = {"none": score_norm(sample.denoiser, sample.scaled(), COARSE)}
    norms |= {name: score_norm(sample.denoiser, sample.scaled(own), COARSE) for name, own in found.items()}
    expected = {"expected": expected_score_norm(sample.variances)}
    record: dict[str, Any] = {"strategy": strategy}
    record["score_norm"] = {name: float(cells.mean()) for name, cells in norms.items()} | expected
    if strategy != "auto":
        return found[strategy], record | {"offset": found[strategy].offsets}

    means, usual = coarse_means(sample.denoiser, sample.scaled(found["offset"])), expected_variety(sample.variances)
    record["variety"] = variety(means) / usual
    whole = choose(record["score_norm"], record["variety"])
    chosen, batches = [], sample.batches[: len(means)]
    for own in (batches == batch for batch in range(sample.n_batches)):
        figures = {name: float(cells[own].mean()) for name, cells in norms.items()} if own.any() else {}
        enough = own.sum() >= MIN_BATCH
        chosen.append(choose(figures | expected, variety(means[own]) / usual) if enough else whole)
    record["strategy"] = chosen[0] if len(set(chosen)) == 1 else "mixed"
    if sample.n_batches > 1:
        record["strategies"] = np.array(chosen, dtype=str)
    offsets = _combined(found, chosen)
    return offsets, record if offsets is None else record | {"offset": offsets.offsets}


def choose(norms: Mapping[str, float], varied: float) -> str:
    """What to do about a batch, by its score norms and the variety of cells that one offset leaves.

    One that lies outside the reference gets the offset that explains it, and none if nothing does or if all its
    cells are of one type, which may be new. Any other gets offsets of soft clusters, if the prior has them.
    """
    expected = norms["expected"]
    if norms["none"] <= SHIFTED * expected:
        return "clusters" if "clusters" in norms else "none"
    explained = norms["offset"] - expected < EXPLAINED * (norms["none"] - expected)
    return "offset" if explained and varied > VARIED else "none"


def _combined(found: dict[str, Offsets], chosen: list[str]) -> Offsets | None:
    """Every batch with the offsets of its own strategy; None where no batch is moved."""
    if set(chosen) == {"none"}:
        return None
    like = found["clusters" if "clusters" in chosen else "offset"]
    offsets = np.zeros_like(like.offsets)
    for batch, name in enumerate(chosen):
        if name != "none":
            # One offset for all cells is the same offset for every cluster.
            offsets[batch] = found[name].offsets[batch]
    return replace(like, offsets=offsets)


def score_norm(denoiser: Denoiser, z: Tensor, s: float) -> NDArray[np.float32]:
    """How far outside the reference's cloud each cell lies (n,), ||D(z; s) - z||^2 / (k s^2)."""
    moved = denoiser(z, torch.tensor(s, dtype=z.dtype, device=z.device)) - z
    return (moved.square().mean(1) / s**2).cpu().numpy()


def expected_score_norm(variances: Floats, s: float = COARSE) -> float:
    """The mean score norm of the reference's cells, were they Gaussian with the latents' `variances` (k,)."""
    v = np.asarray(variances, dtype=np.float64)
    return float(np.mean(v * s**2 / (v + s**2) ** 2))


def coarse_means(denoiser: Denoiser, z: Tensor) -> NDArray[np.float32]:
    """What cells (n, k) are denoised to at the last noise of the alternation, where every type has its own latents."""
    return denoiser(z, torch.tensor(LEVELS[-1], dtype=z.dtype, device=z.device)).cpu().numpy()


def variety(latents: Floats) -> float:
    """Variance of latents (n, k), mean over k: hardly any if all cells are of one type."""
    return float(latents.var(0).mean())


def expected_variety(variances: Floats) -> float:
    """The variety of cells of the reference, were they Gaussian with the latents' `variances` (k,)."""
    v = np.asarray(variances, dtype=np.float64)
    return float(np.mean(v**3 / (v + LEVELS[-1] ** 2) ** 2))
