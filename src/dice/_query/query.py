"""A query under a prior: read the cells once, decide shift and noise, then compute the posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.genes import GeneMatch
from dice._data.matrix import Matrix
from dice._data.store import Prior, own_cells
from dice._data.values import CountsLayer
from dice._data.write import Slots, as_plain
from dice._keys import DenoiseKeys
from dice._model.counts import judge_counts
from dice._model.inference import Inference, Plan
from dice._model.likelihood import EMPTY_NOISE, GaussianLikelihood, Latents
from dice._model.offsets import SAMPLED_CELLS
from dice._model.posterior import MAX_ITERATIONS, Posterior
from dice._model.random_numbers import cell_seeds
from dice._query.reading import once, opened
from dice._query.shift import find_shift
from dice._types import Chunk, Codes, Floats, Mask
from dice.options import Gaussian, Gibbs, Options, Shift, StudentT


def _gene_sums(chunk: Chunk) -> tuple[Floats]:
    with np.errstate(over="ignore"):  # Values that are not logarithms may be large, and have no meaningful sums.
        return (np.asarray(np.expm1(chunk).sum(0)).ravel().astype(np.float64),)


def _latents_and_sums(likelihood: GaussianLikelihood, chunk: Chunk, rows: slice) -> tuple[Latents, Floats]:
    return likelihood.latents(chunk, rows), _gene_sums(chunk)[0]


#: Default rho in latent scales: with the noise of counts, and with assumed noise (docs/rho.md).
COUNTED_RHO, ASSUMED_RHO = 0.0, 0.5


@dataclass(frozen=True)
class Query:
    """The inputs of a call on a query. Everything else is computed from them."""

    prior: Prior
    options: Options
    match: GeneMatch
    matrix: Matrix
    likelihood: GaussianLikelihood
    #: Cell seeds (n,), which determine the random numbers of each cell.
    seeds: NDArray[np.int64]
    #: Batches of the cells. Each has its own shift.
    batches: pd.Categorical | None = None
    #: Cells (n,) that the loadings were computed from, if the query is the reference itself.
    own: Mask | None = None
    #: Counts of the matrix, if the user names a layer with them.
    counts: CountsLayer | None = None

    @classmethod
    def of(cls, adata: AnnData, prior: Prior, options: Options, *, who: str = "adata") -> Query:
        """Match the genes and compare the values with the reference's. `who` names the object in errors."""
        found = opened(adata, options, prior.genes, prior.statistics, prior.projection.mean, who=who)
        return cls.matched(prior, options, *found, own_cells(adata, prior))

    @classmethod
    def matched(
        cls, prior: Prior, options: Options, match: GeneMatch, matrix: Matrix, batches: pd.Categorical | None = None,
        counts: CountsLayer | None = None, own: Mask | None = None,
    ) -> Query:  # fmt: skip
        """Return a query with matched genes and checked values."""
        chained = isinstance(options.method, Gibbs) or not isinstance(options.likelihood, str | Gaussian)
        per_gene = options.noise == "per_gene"
        of_genes = partial(
            GaussianLikelihood.of,
            prior.projection,
            match.prior,
            per_gene=per_gene,
            zero_is_empty=prior.statistics.get("minimum", 0.0) >= 0,
            fill_in=None if chained or not len(match.missing) else prior.latent_variances,
        )
        likelihood = once(("likelihood", prior.sha256, match.prior.tobytes(), per_gene, chained), of_genes)
        seeds = cell_seeds(matrix.names.astype(str), options.random_state)
        return cls(prior, options, match, matrix, likelihood, seeds, batches, own, counts)

    @cached_property
    def sampled(self) -> Codes:
        """Cells to estimate the shift from: those with the smallest seeds, in that order, for any order in the file."""
        return np.argsort(self.seeds, kind="stable")[:SAMPLED_CELLS]

    @cached_property
    def latents(self) -> Latents:
        """Noisy latents of all cells, from one pass that also finds the noise. Latents of a lazy matrix stay lazy."""
        if self.matrix.is_lazy:
            kept = np.zeros(self.matrix.n_cells, dtype=bool)
            kept[self.sampled] = True
            parts = self.matrix.each(partial(self.likelihood.latents, kept=kept), desc="Projecting")
            latents = Latents.joined(parts, self.likelihood.n_latent)
            sample = latents.y[np.flatnonzero(kept).searchsorted(self.sampled)]
            y = self.matrix.map_rows(self.likelihood.only_y, (self.likelihood.n_latent,))
            latents = replace(latents, y=y, sample=sample)
        else:
            latents = replace(self._read[0], sample=self._read[0].y[self.sampled])
        if self.counts is not None:
            latents = replace(latents, log_depth=self.counts.log_depth())
        if latents.empty.any():
            self.warn_of_empty(latents)
        return latents

    @cached_property
    def _read(self) -> tuple[Latents, Floats]:
        """Latents of all cells in memory, and the sums of genes, from one pass."""

        def read() -> tuple[Latents, Floats]:
            parts = self.matrix.each(partial(_latents_and_sums, self.likelihood), desc="Projecting")
            latents = Latents.joined([latents for latents, _ in parts], self.likelihood.n_latent)
            return latents, np.sum([sums for _, sums in parts], axis=0)

        return once(("latents", id(self.matrix), id(self.likelihood)), read, self.matrix, self.likelihood)

    @cached_property
    def gene_sums(self) -> Floats:
        """Sum (d,) of the expression of every gene over the cells, without logarithm."""
        return self.matrix.total(_gene_sums)[0] if self.matrix.is_lazy else self._read[1]

    @cached_property
    def measured(self) -> bool:
        """Whether the noise is that of counts: the prior has learned it, and the depths of the query are known."""
        latents = self.latents
        if not self.prior.measured or not self.options.measurable:
            return False
        counted, doubt = judge_counts(latents.log_depth, latents.empty, self.matrix.who)
        if doubt:
            _log.warn(doubt)
        return counted

    def expression(self, chunk: Chunk, rows: slice | Codes) -> Chunk:
        """Return the expression of a chunk as it was measured. Subclasses may thin it."""
        return chunk

    def warn_of_empty(self, latents: Latents) -> None:
        n, names = latents.empty.sum(), list(self.matrix.names[latents.empty][:5])
        _log.warn(f"{n} cells express none of the prior's genes and get its mean, for example {names}.")

    @property
    def device(self) -> str:
        """Device of this process. A lazy matrix is computed by workers."""
        return "cpu" if self.matrix.is_lazy else self.options.device

    @cached_property
    def plan(self) -> Plan:
        """The decisions of the call: shift, noise, rho and method."""
        prior, options, likelihood, latents = self.prior, self.options, self.likelihood, self.latents
        measured = self.measured
        # Only labels show which shift to remove, so an embedding is moved only on request (docs/shift.md).
        left = options.shift is False or (isinstance(options.shift, Shift) and options.shift.strategy == "auto")
        offsets, shift = (None, {"strategy": "none"}) if left else find_shift(self, options.shift)
        df = options.likelihood.df if isinstance(options.likelihood, StudentT) else None
        empty_noise = EMPTY_NOISE * prior.latent_scale
        noise, cell_noise = likelihood.noise(
            latents, options.noise, df=df, reference_noise=prior.projection.noise, empty_noise=empty_noise
        )
        default = (COUNTED_RHO if measured else ASSUMED_RHO) * prior.latent_scale
        rho = default if isinstance(options.rho, str) else options.rho
        plan = Plan.of(
            options,
            rho,
            isotropic=likelihood.isotropic,
            noise_range=likelihood.noise_range(cell_noise[~latents.empty].max(initial=noise)),
            largest=prior.denoiser.largest_noise * prior.latent_scale,
            measured=measured,
            noise=noise,
            cell_noise=cell_noise,
            offsets=offsets,
            shift=shift,
        )
        _log.info(f"Method: {plan.method}; noise {noise:.3g}, rho {plan.rho:.3g} (PCA units).")
        if np.max(rho) > plan.rhos.max() * (1 + 1e-9):
            _log.warn(
                f"`rho` is larger than the noise that the network was trained on, so {plan.rhos.max():.4g} was used."
            )
        if plan.method == "split" and options.method == "auto" and len(plan.rhos) == MAX_ITERATIONS:
            _log.warn(
                f"{self.match}. With so few genes, {MAX_ITERATIONS} iterations may not converge: compare with "
                "method=dice.Gibbs(fast=True, n_iterations=300)."
            )
        return plan

    @cached_property
    def inference(self) -> Inference:
        """The posterior of a chunk of cells, as a function."""
        depths = None if self.counts is None else self.latents.log_depth
        return Inference(self.prior, self.likelihood, self.plan, self.seeds, self.options.device, self.own, depths)

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior of all cells. Expression is read again only if the plan needs genes or the matrix is lazy."""
        inference, plan, k, n = self.inference, self.plan, self.likelihood.n_latent, len(self.latents)
        if not isinstance(self.latents.y, np.ndarray):
            # Columns of obs cannot be lazy, so the uncertainty needs its own pass.
            variance = self.matrix.each(inference.variance, desc="Uncertainty") if plan.uncertainty else None
            rest = replace(inference, plan=replace(plan, uncertainty=False))
            packed = self.matrix.map_rows(rest.packed, (k + plan.n_samples * k,))
            samples = packed[:, k:].reshape(n, plan.n_samples, k) if plan.n_samples else None
            return Posterior(packed[:, :k], samples, None if variance is None else np.concatenate(variance))
        parts = []
        with _log.progress(total=n * plan.n_steps, desc="Denoising", unit="step") as bar:
            inference = replace(inference, tell=bar.update)
            for rows in (self.matrix.slices() if plan.needs_genes else []) or [slice(0, n)]:
                chunk = self.matrix.read(rows) if plan.needs_genes else None
                parts.append(inference(self.latents[rows], rows, chunk))
        if inference.halved:
            n_cells = min(inference.halved)
            _log.warn(f"The device has too little memory for a chunk: {n_cells} cells were computed at a time.")
        return Posterior.joined(parts)

    def slots(self, keys: DenoiseKeys, warned: list[str]) -> Slots:
        """Return the slots that denoising writes: the posterior and the record."""
        latents, posterior = self.latents, self.posterior
        obsm = {keys.mean: posterior.mean, keys.projection: latents.y}
        obs = {keys.empty: latents.empty} if latents.empty.any() else {}
        if posterior.samples is not None:
            obsm[keys.samples] = posterior.samples
        if posterior.variance is not None:
            obs[keys.uncertainty] = np.sqrt(posterior.variance)
        uns = {keys.uns: self.record() | {"warnings": np.array(warned, dtype=str)}}
        stale = frozenset({keys.samples, keys.uncertainty, keys.empty})
        return Slots(obsm=obsm, obs=obs, uns=uns, stale=stale)

    def record(self) -> dict[str, Any]:
        """Return the record for ``.uns``: the call, the decisions and the genes."""
        plan, chain = self.plan, self.plan.method != "direct"
        rho = plan.rho if np.ndim(self.options.rho) == 0 else self.options.rho
        params = {
            "rho": rho, "method": plan.method, "measured": plan.measured, "noise": plan.noise,
            "n_iterations": len(plan.rhos) if chain else None, "n_chains": plan.gibbs.n_chains if chain else None,
            "acceptance": self.posterior.acceptance, "preset": self.prior.preset, "prior": self.prior.sha256,
        }  # fmt: skip
        call, genes = as_plain(self.options.arguments(rho=rho)), self.match.report()
        return {"call": call, "params": as_plain(params), "shift": plan.shift, "genes": genes}
