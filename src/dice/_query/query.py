"""A query under a prior: from matched genes to the posterior of its cells and the record of what was decided.

One object for every verb that looks at a query. Its parts are found when they are first asked for, in this order:
latents, shift, rho, plan, posterior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._anndata.checks import read_batches
from dice._anndata.genes import GeneMatch, match_genes
from dice._anndata.matrix import Matrix
from dice._anndata.preprocessing import check_query
from dice._anndata.store import Prior
from dice._anndata.write import Slots, as_plain
from dice._core.posterior.direct import Posterior
from dice._core.posterior.gibbs import MAX_ITERATIONS
from dice._core.posterior.inference import Inference, Plan
from dice._core.posterior.likelihood import EMPTY_NOISE, GaussianLikelihood, Latents
from dice._core.posterior.noise import cell_seeds
from dice._core.shift.choice import SAMPLED_CELLS, SHIFTED, find_offsets, mismatch
from dice._core.shift.offsets import Offsets
from dice._core.shift.record import recall
from dice._keys import DenoiseKeys
from dice._types import Chunk, Codes
from dice.options import Gaussian, Gibbs, Options, Shift, StudentT, check_rho, torch_device

#: Cells that go through the network at once.
NETWORK_CHUNK = 8192
#: Default rho in units of the prior's latent scale (docs/rho.md).
DEFAULT_RHO = 0.5


@dataclass(frozen=True)
class Query:
    """What a call knows of its query; everything else is found from it."""

    prior: Prior
    options: Options
    match: GeneMatch
    matrix: Matrix
    #: Batches of the cells, to be shifted each on its own.
    batches: pd.Categorical | None = None

    @classmethod
    def of(cls, adata: AnnData, prior: Prior, options: Options) -> Query:
        """Match the genes and compare the values with the reference's."""
        match = match_genes(adata, prior.genes, gene_key=options.gene_key, min_overlap=options.check.min_gene_overlap)
        _log.info(f"{match}.")
        matrix = Matrix(adata, layer=options.layer, genes=match.query, chunk_size=options.chunk_size)
        if options.check.values:  # noqa: PD011 - not pandas
            check_query(matrix.sample(), match, prior, layer=options.layer)
        batches = None if options.batch_key is None else read_batches(adata, options.batch_key)
        return cls(prior, options, match, matrix, batches)

    @cached_property
    def likelihood(self) -> GaussianLikelihood:
        prior = self.prior
        return GaussianLikelihood.of(
            prior.projection,
            self.match.prior,
            per_gene=self.options.noise == "per_gene",
            zero_is_empty=prior.statistics.get("minimum", 0.0) >= 0,
        )

    @cached_property
    def seeds(self) -> NDArray[np.int64]:
        """Cell seeds (n,): the addresses of the cells' random numbers."""
        return cell_seeds(self.matrix.names.astype(str), self.options.random_state)

    @cached_property
    def sampled(self) -> Codes:
        """Cells to find the shift by: those with the smallest seeds, wherever they are in the file, in that order."""
        return np.argsort(self.seeds, kind="stable")[:SAMPLED_CELLS]

    @cached_property
    def latents(self) -> Latents:
        """The noisy latents of all cells, read in one pass.

        Those of a lazy matrix stay lazy. The pass is made all the same: it tells the noise, and that all is well.
        """
        if not self.matrix.is_lazy:
            return self.read
        return replace(self.read, y=self.matrix.map_rows(partial(_latents, self.likelihood), (self.prior.n_latent,)))

    @cached_property
    def read(self) -> Latents:
        """What the one pass brings; of a lazy matrix, the latents of the sampled cells only."""
        kept = np.full(self.matrix.n_cells, not self.matrix.is_lazy)
        kept[self.sampled] = True
        read = partial(_read, self.likelihood, kept)
        latents = Latents.joined(self.matrix.each(read, desc="Projecting"), self.prior.n_latent)
        self.warn_of_empty(latents)
        return latents

    def warn_of_empty(self, latents: Latents) -> None:
        if latents.empty.any():
            names = list(self.matrix.names[latents.empty][:5])
            _log.warn(
                f"{latents.empty.sum()} cells express none of the prior's genes and get the prior, for example {names}."
            )

    @cached_property
    def sample(self) -> tuple[Codes, NDArray[np.float32]]:
        """Sampled cells that express anything, in the order of their seeds, and their latents (m, k)."""
        cells = self.sampled[~self.read.empty[self.sampled]]
        rows = cells if len(self.read.y) == self.matrix.n_cells else np.searchsorted(np.sort(self.sampled), cells)
        return cells, self.read.y[rows]

    @cached_property
    def shift(self) -> tuple[Offsets | None, dict[str, Any]]:
        """What separates the query from the reference, and what ``.uns`` keeps of it."""
        wanted, batches = self.options.shift, self.batches
        if wanted is False:
            return None, {"strategy": "none"}
        codes = np.zeros(self.matrix.n_cells, np.intp) if batches is None else np.asarray(batches.codes, np.intp)
        names = None if batches is None else [str(name) for name in batches.categories]
        if not isinstance(wanted, Shift):
            return recall(self.prior, wanted, codes, names), dict(wanted)
        cells, y = self.sample
        offsets, record = find_offsets(
            self.prior, y, codes[cells], wanted.strategy, torch_device(self.device), self.likelihood.empty_cell
        )
        _log.info(f"Shift: {record['strategy']}.")
        if names is not None:
            record |= {"batches": np.array(names, dtype=str), "batch_key": wanted.batch_key}
        return None if offsets is None else replace(offsets, batches=codes), record

    @property
    def device(self) -> str:
        """Where the caller computes: what is lazy is computed by others."""
        return "cpu" if self.matrix.is_lazy else self.options.device

    @cached_property
    def rho(self) -> float | list[float]:
        """rho as a number or a list of them; "auto" is half a latent scale, or 0 where the prior knows the cells less.

        Half of the latent scale sharpens what the reference knows. Of cells that it does not know as well, it makes
        others; they are not denoised beyond the measured noise.
        """
        if not isinstance(self.options.rho, str):
            return check_rho(self.options.rho)
        return 0.0 if (self.mismatch or 0.0) > SHIFTED else DEFAULT_RHO * self.prior.latent_scale

    @cached_property
    def mismatch(self) -> float | None:
        """How many times the score norm of the reference's own cells the query has; None where nothing asks for it.

        What one offset explains is taken out before. Missing genes, or weights of genes, make noise of their own, which
        does not tell; and deconvolution and chains of Gibbs need a rho.
        """
        options, offsets = self.options, self.shift[0]
        plain = not isinstance(options.method, Gibbs) and not options.direct.deconvolve
        direct = plain and isinstance(options.likelihood, Gaussian) and self.likelihood.isotropic
        if not isinstance(options.rho, str) or not direct or self.prior.statistics.get("pull", 0.0) <= 0:
            return None
        cells, y = self.sample
        away = 0.0 if offsets is None else offsets.explained(cells)
        return mismatch(self.prior, y - away, torch_device(self.device))

    @cached_property
    def noise(self) -> tuple[float, NDArray[np.float32]]:
        """Noise of the data set, and of every cell (n,) after its shift."""
        options, prior = self.options, self.prior
        df = options.likelihood.df if isinstance(options.likelihood, StudentT) else None
        whole, cells = self.likelihood.noise(
            self.latents,
            options.noise,
            df=df,
            reference_noise=prior.noise,
            empty_noise=EMPTY_NOISE * prior.latent_scale,
        )
        offsets = self.shift[0]
        return whole, cells if offsets is None else cells * offsets.stretch()

    @cached_property
    def plan(self) -> Plan:
        """What the call decided before it looks at single cells."""
        whole, cells = self.noise
        most = cells[~self.latents.empty].max(initial=whole)
        noise_range = self.likelihood.noise_range(most)
        plan = Plan.of(self.options, self.rho, isotropic=self.likelihood.isotropic, noise_range=noise_range)
        plan.check_noise(float(np.hypot(whole, plan.rho)), self.prior.noise)
        plan = _within_schedule(self.prior, plan)
        _log.info(f"Method: {plan.method}; noise {whole:.3g}, rho {plan.rho:.3g} (PCA units).")
        if plan.method == "split" and self.options.method == "auto" and len(plan.rhos) == MAX_ITERATIONS:
            _log.warn(
                f"{self.match}, so few that {MAX_ITERATIONS} iterations may be too short: compare with "
                "method=dice.Gibbs(fast=True, n_iterations=300)."
            )
        return plan

    @cached_property
    def inference(self) -> Inference:
        """The posterior of any chunk of cells."""
        noise, offsets = self.noise[1], self.shift[0]
        device = self.options.device
        return Inference(self.prior, self.likelihood, self.plan, noise, self.seeds, device, offsets)

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior of all cells; expression is read again only where single genes matter or all is lazy."""
        plan, k, n = self.plan, self.prior.n_latent, len(self.latents)
        if self.matrix.is_lazy:
            # Columns of obs cannot be lazy, so that the uncertainty takes a pass of its own.
            variance = self.matrix.each(self.inference.variance, desc="Uncertainty") if plan.uncertainty else None
            rest = replace(self.inference, plan=replace(plan, uncertainty=False))
            packed = self.matrix.map_rows(rest.packed, (k + plan.n_samples * k,))
            samples = packed[:, k:].reshape(n, plan.n_samples, k) if plan.n_samples else None
            return Posterior(packed[:, :k], samples, None if variance is None else np.concatenate(variance))
        whole = Posterior(
            np.empty((n, k), np.float32),
            np.empty((n, plan.n_samples, k), np.float32) if plan.n_samples else None,
            np.empty(n, np.float32) if plan.uncertainty else None,
        )
        chunks = [slice(start, min(start + NETWORK_CHUNK, n)) for start in range(0, n, NETWORK_CHUNK)]
        accepted = []
        with _log.progress(total=n, desc="Denoising", unit="cell") as bar:
            for rows in self.matrix.slices() if plan.needs_genes else chunks:
                chunk = self.matrix.read(rows) if plan.needs_genes else None
                part = self.inference(self.latents[rows], rows, chunk)
                for name in ("mean", "samples", "variance"):
                    if getattr(whole, name) is not None:
                        getattr(whole, name)[rows] = getattr(part, name)
                accepted += [part.acceptance] if part.acceptance is not None else []
                bar.update(rows.stop - rows.start)
        if self.inference.limit:
            _log.warn(f"The device holds no whole chunk: {self.inference.limit} cells went at a time.")
        return replace(whole, acceptance=float(np.mean(accepted)) if accepted else None)

    def slots(self, keys: DenoiseKeys, warned: list[str]) -> Slots:
        """What denoising leaves in an AnnData object: the posterior, and the record of what was decided."""
        latents, posterior = self.latents, self.posterior
        obsm = {keys.mean: posterior.mean, keys.projection: latents.y}
        obs = {keys.empty: latents.empty} if latents.empty.any() else {}
        if posterior.samples is not None:
            obsm[keys.samples] = posterior.samples
        if posterior.variance is not None:
            obs[keys.uncertainty] = np.sqrt(posterior.variance)
        record = self.record(acceptance=posterior.acceptance) | {"warnings": np.array(warned, dtype=str)}
        stale = frozenset({keys.samples, keys.uncertainty, keys.empty})
        return Slots(obsm=obsm, obs=obs, uns={keys.uns: record}, stale=stale)

    def record(self, **more: Any) -> dict[str, Any]:
        """What ``.uns`` keeps: the call, what was decided, and the genes."""
        plan, chain = self.plan, self.plan.method != "direct"
        params = {
            "rho": self.rho,
            "method": plan.method,
            "noise": self.noise[0],
            "n_iterations": len(plan.rhos) if chain else None,
            "n_chains": plan.gibbs.n_chains if chain else None,
            "preset": self.prior.preset,
            "prior": self.prior.sha256,
        }
        record = {
            "call": as_plain(self.options.arguments(rho=self.rho)),
            "params": as_plain(params | more),
            "shift": self.shift[1],
        }
        mismatch = {} if self.mismatch is None else {"mismatch": self.mismatch}
        return record | mismatch | {"genes": self.match.report()}


def _read(likelihood: GaussianLikelihood, kept: NDArray[np.bool_], chunk: Chunk, rows: slice) -> Latents:
    """What a chunk says, with the latents of the `kept` cells (n,) only."""
    latents = likelihood.latents(chunk)
    return replace(latents, y=latents.y[kept[rows]])


def _latents(likelihood: GaussianLikelihood, chunk: Chunk, rows: slice) -> NDArray[np.float32]:
    return likelihood.latents(chunk).y


def _within_schedule(prior: Prior, plan: Plan) -> Plan:
    """rho within what the network's noise schedule can start from."""
    largest = prior.denoiser.largest_noise
    if largest is None or plan.rhos.max() <= largest * prior.latent_scale:
        return plan
    rhos = np.minimum(plan.rhos, largest * prior.latent_scale)
    _log.warn(
        f"rho={plan.rhos.max():.4g} is beyond the paper's noise schedule; the largest it has was used, "
        f"{rhos.max():.4g} in PCA units."
    )
    return replace(plan, rhos=rhos)
