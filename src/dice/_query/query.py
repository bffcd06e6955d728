"""A query and its posterior under a prior: read the cells once, find shift and noise, then denoise."""

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._arguments import as_plain, settle
from dice._data.checks import read_batches
from dice._data.genes import GeneMatch, match_genes
from dice._data.matrix import Matrix
from dice._data.store import Prior, own_cells
from dice._data.value_checks import Statistics, check_query
from dice._data.write import Slots
from dice._errors import InputError
from dice._keys import DenoiseKeys
from dice._model.counts import judge_counts
from dice._model.gibbs import MAX_ITERATIONS
from dice._model.inference import Inference, Plan
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.offsets import SAMPLED_CELLS, Offsets, find_offsets, recall
from dice._model.sampler import Posterior, cell_seeds
from dice._types import Chunk, Codes, Floats, Mask
from dice.options import FOR_LABELS, Gaussian, Gibbs, Options, Shift

T = TypeVar("T")
#: Stored results by key. Each result has its warnings, and the objects whose identity is part of the key.
_known: ContextVar[dict[Hashable, tuple[Any, list[str], tuple[object, ...]]] | None] = ContextVar("known", default=None)


def one_reading() -> AbstractContextManager[object]:
    """Return a context in which all calls on a query share one reading of the cells. Results do not change."""
    return _log.within(_known, {})


def once(key: Hashable, function: Callable[[], T], *keep: object) -> T:
    """Return the result of a function. Within `one_reading`, the function is called only once per key.

    Later callers get the stored result and the same warnings. Outside `one_reading`, the function is called each time.
    The `id` of each object in `keep` is part of the key. These objects stay alive, so that no other gets the same `id`.
    """
    known = _known.get()
    if known is None:
        return function()
    if key in known:
        for message in known[key][1]:
            _log.warn(message)
    else:
        with _log.recorded() as warned:
            known[key] = function(), warned, keep
    return known[key][0]


def opened(
    adata: AnnData, options: Options, genes: NDArray[np.object_], known: Statistics, means: Floats | None = None, *,
    who: str = "adata",
) -> tuple[GeneMatch, Matrix, pd.Categorical | None]:  # fmt: skip
    """Find the `genes` of the reference in a query, and open its matrix and its batches.

    The values are compared with the statistics `known` of the reference and, if given, with the `means` of its genes.
    """
    named = {"gene_key": options.gene_key, "species": options.check.species}
    place, overlap = (id(adata), "\0".join(map(str, genes)), *named.values()), options.check.min_gene_overlap
    match = once(("genes", *place, overlap), partial(match_genes, adata, genes, min_overlap=overlap, **named), adata)
    _log.info(f"{match}.")
    opening = partial(Matrix, adata, layer=options.layer, genes=match.query, chunk_size=options.chunk_size, who=who)
    matrix = once(("matrix", *place, known.get("sum_log"), options.layer, options.chunk_size), opening, adata)
    if options.check.values:  # noqa: PD011 - not pandas
        checking = partial(check_query, matrix, match, known, means)
        key = ("values", id(matrix), tuple(sorted(known.items())), means is None)
        matrix.rules.factor = once(key, checking, matrix)
    batches = None if options.batch_key is None else read_batches(adata, options.batch_key, who)
    return match, matrix, batches


@dataclass(frozen=True)
class Query:
    """The inputs of a call on a query, and the results that are computed from them."""

    prior: Prior
    options: Options
    match: GeneMatch
    matrix: Matrix
    #: Batches of the cells. Each batch has a shift of its own.
    batches: pd.Categorical | None = None
    #: Mask (n,) of the cells that the loadings were computed from, if the query is the reference itself.
    own: Mask | None = None
    #: The likelihood of the observed genes. Missing genes are filled in by the direct method and left out by a chain.
    likelihood: GaussianLikelihood = field(init=False)
    #: Seeds (n,), which determine the random numbers of each cell.
    seeds: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        prior, options, genes = self.prior, self.options, self.match.prior
        chained = isinstance(options.method, Gibbs) or not isinstance(options.likelihood, str | Gaussian)
        per_gene, zero_is_empty = options.noise == "per_gene", prior.statistics.get("minimum", 0.0) >= 0
        fill_in = None if chained or not len(self.match.missing) else prior.latent_variances
        making = partial(GaussianLikelihood, prior.projection, genes, per_gene, zero_is_empty, fill_in)
        likelihood = once(("likelihood", prior.sha256, genes.tobytes(), per_gene, chained), making)
        settle(self, likelihood=likelihood, seeds=cell_seeds(self.matrix.names.astype(str), options.random_state))

    @classmethod
    def of(cls, adata: AnnData, prior: Prior, options: Options, *, who: str = "adata") -> Self:
        """Make the query: match its genes, and compare its values with the reference. `who` is its name in errors."""
        found = opened(adata, options, prior.genes, prior.statistics, prior.projection.mean, who=who)
        return cls(prior, options, *found, own_cells(adata, prior))

    @cached_property
    def order(self) -> Codes:
        """All cells, ordered by their seeds. The first n cells are a random sample, whatever the order of the file."""
        return np.argsort(self.seeds, kind="stable")

    @property
    def expressing(self) -> Codes:
        """Positions of the cells with expression, in the order of their seeds."""
        return self.order[~self.latents.empty[self.order]]

    @cached_property
    def latents(self) -> Latents:
        """Noisy latents of all cells and their residuals, from one reading. The residuals measure the noise."""
        key = ("latents", id(self.matrix), id(self.likelihood))
        latents = once(key, partial(self._projected, self.likelihood.latents), self.matrix, self.likelihood)
        n, names = latents.empty.sum(), list(self.matrix.names[latents.empty][:5])
        if n:
            _log.warn(f"{n} cells express no gene of the prior and get its mean as embedding, for example {names}.")
        return latents

    def _projected(self, read: Callable[[Chunk, slice], Latents]) -> Latents:
        """Return the latents of all cells, by a function that reads a chunk."""
        return Latents.joined(self.matrix.each(read, desc="Projecting"), self.prior.n_latent)

    @cached_property
    def measured(self) -> bool:
        """Whether to use the noise of counts: the prior has learned it, and the depths of the query are known."""
        latents = self.latents
        if not self.prior.measured or not self.options.measurable:
            return False
        counted, doubt = judge_counts(latents.log_depth, latents.empty, self.matrix.who)
        if doubt:
            _log.warn(doubt)
        return counted

    def standardized(self, chunk: Chunk, rows: slice | Codes) -> Floats:
        """Return dense expression (n, d) of a chunk, standardised as in the reference. Subclasses may thin it first."""
        return np.asarray(self.likelihood.standardizer(chunk).dense(), dtype=np.float32)

    def find_shift(self, wanted: Shift | Mapping[str, Any]) -> tuple[Offsets | None, dict[str, Any]]:
        """Return the offsets of all cells and their record for ``.uns``.

        `wanted` is a strategy, or the record of an earlier call, whose offsets are used again.
        """
        batches, latents = self.batches, self.latents
        codes = np.zeros(self.matrix.n_cells, np.intp) if batches is None else np.asarray(batches.codes, np.intp)
        names = None if batches is None else [str(name) for name in batches.categories]
        if not isinstance(wanted, Shift):
            return recall(self.prior, wanted, codes, names), dict(wanted)
        if wanted.strategy in FOR_LABELS:
            raise InputError(
                f"shift={wanted.strategy!r} is for labels only and does not move an embedding: pass it to "
                "dice.tl.transfer_labels, or pass 'offset', 'clusters', 'mean' or False."
            )
        cells = self.order[:SAMPLED_CELLS]
        cells = cells[~latents.empty[cells]]
        if not len(cells):
            return None, {"strategy": "none"}
        y = self.prior.mean(latents.y[cells], latents.log_depth[cells]) if self.measured else latents.y[cells]
        offsets = find_offsets(self.prior, y, codes[cells], wanted.strategy, 1 if names is None else len(names))
        _log.info(f"Shift: {wanted.strategy}.")
        record: dict[str, Any] = {"strategy": wanted.strategy, "offset": offsets.offsets}
        if names is not None:
            record |= {"batches": np.array(names, dtype=str), "batch_key": wanted.batch_key}
        return replace(offsets, batches=codes), record

    @cached_property
    def plan(self) -> Plan:
        """Decisions of the call about shift, noise, rho and method."""
        options, given = self.options, (self.prior, self.likelihood, self.latents)
        # Without labels, the right shift is unknown, so embeddings are moved only on request (docs/shift.md).
        left = options.shift is False or (isinstance(options.shift, Shift) and options.shift.strategy == "auto")
        offsets, shift = (None, {"strategy": "none"}) if left else self.find_shift(options.shift)
        plan = Plan.of(options, *given, measured=self.measured, offsets=offsets, shift=shift)
        _log.info(f"Method: {plan.method}; noise {plan.noise:.3g}, rho {plan.rho:.3g} (PCA units).")
        if not isinstance(options.rho, str) and np.max(options.rho) > plan.rhos.max() * (1 + 1e-9):
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
        """The function that computes the posterior of a chunk of cells."""
        return Inference(self.prior, self.likelihood, self.plan, self.seeds, self.options.device, self.own)

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior of all cells. Expression is read a second time only if the plan needs genes."""
        inference, plan, n = self.inference, self.plan, len(self.latents)
        parts = []
        with _log.progress(total=n * plan.n_steps, desc="Denoising", unit="step") as bar:
            inference = replace(inference, tell=bar.update)
            for chunk, rows in self.matrix.chunks() if plan.needs_genes else [(None, slice(0, n))]:
                parts.append(inference(self.latents[rows], rows, chunk))
        return Posterior.joined(parts)

    def slots(self, keys: DenoiseKeys, warned: list[str]) -> Slots:
        """Return the slots that denoising writes: the posterior, and a record of arguments, decisions and genes."""
        latents, posterior = self.latents, self.posterior
        obsm = {keys.mean: posterior.mean, keys.projection: latents.y}
        obs = {keys.empty: latents.empty} if latents.empty.any() else {}
        if posterior.samples is not None:
            obsm[keys.samples] = posterior.samples
        if posterior.variance is not None:
            obs[keys.uncertainty] = np.sqrt(posterior.variance)
        plan, chain = self.plan, self.plan.method != "direct"
        rho = plan.rho if np.ndim(self.options.rho) == 0 else self.options.rho
        params = {
            "rho": rho, "method": plan.method, "measured": plan.measured, "noise": plan.noise,
            "n_iterations": len(plan.rhos) if chain else None, "n_chains": plan.gibbs.n_chains if chain else None,
            "acceptance": posterior.acceptance, "preset": self.prior.preset, "prior": self.prior.sha256,
        }  # fmt: skip
        call, genes = as_plain(self.options.arguments(rho=rho)), self.match.report()
        record = {"call": call, "params": as_plain(params), "shift": plan.shift, "genes": genes}
        uns = {keys.uns: record | {"warnings": np.array(warned, dtype=str)}}
        stale = frozenset({keys.samples, keys.uncertainty, keys.empty})
        return Slots(obsm=obsm, obs=obs, uns=uns, stale=stale)
