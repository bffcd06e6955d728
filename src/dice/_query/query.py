"""A query under a prior: its genes matched, its values checked, and the plan of its posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._anndata.checks import read_batches
from dice._anndata.genes import GeneMatch, match_genes
from dice._anndata.matrix import Matrix
from dice._anndata.preprocessing import check_query
from dice._anndata.store import Prior
from dice._anndata.write import plain_params
from dice._core.posterior.gibbs import MAX_ITERATIONS
from dice._core.posterior.inference import Plan, clip_rho, make_plan
from dice._core.posterior.likelihood import GaussianLikelihood
from dice._core.posterior.noise import cell_keys
from dice._core.shift.offsets import Shift
from dice._core.shift.record import Calibration
from dice._device import resolve_device
from dice._query.arguments import check_deconvolve, resolve_rho
from dice._query.cells import Cells, Projector, cell_noise, read_cells
from dice._query.options import Options
from dice._query.shift import calibrate, sampled_cells


@dataclass(frozen=True)
class Query:
    """What a call knows of its query before it looks at single cells."""

    prior: Prior
    options: Options
    match: GeneMatch
    matrix: Matrix
    likelihood: GaussianLikelihood
    #: Batches of the cells, to be calibrated each on its own.
    batches: pd.Categorical | None = None

    @classmethod
    def of(cls, adata: AnnData, prior: Prior, options: Options) -> Query:
        """Match the genes and compare the values with the reference's."""
        match = match_genes(adata, prior.genes, gene_key=options.gene_key, min_overlap=options.min_gene_overlap)
        _log.info(f"{match}.")
        size = None if options.chunk_size is None else int(options.chunk_size)
        matrix = Matrix(adata, layer=options.layer, genes=match.query, chunk_size=size)
        if options.check:
            check_query(matrix.sample(), match, prior, layer=options.layer)
        likelihood = GaussianLikelihood.of(prior.projection, match.prior, per_gene=options.noise == "per_gene")
        batches = None if options.batch_key is None else read_batches(adata, options.batch_key)
        return cls(prior, options, match, matrix, likelihood, batches)

    @property
    def rho(self) -> float | list[float]:
        return resolve_rho(self.options.rho, self.prior.latent_scale)

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """Addresses of the cells' random numbers."""
        return cell_keys(self.matrix.names.astype(str), int(self.options.random_state))

    @property
    def projector(self) -> Projector:
        return Projector(self.likelihood, zero_is_empty=self.prior.statistics.get("minimum", 0.0) >= 0)

    def read(self) -> Cells:
        """Project all cells."""
        return read_cells(self.matrix, self.projector, self.sampled)

    @cached_property
    def sampled(self) -> NDArray[np.bool_]:
        """Cells (n,) to calibrate by."""
        return sampled_cells(self.keys)

    def calibrate(self, cells: Cells, device: str | torch.device) -> Calibration:
        """What separates the query from the reference; cells without expression cannot tell."""
        order, positions = self.order(cells)
        return calibrate(
            self.prior, cells.sample[order], positions, self.batches, self.matrix.n_cells,
            self.options.calibrate, resolve_device(device), self.projector.empty_cell,
        )  # fmt: skip

    def order(self, cells: Cells) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The sampled cells that express anything, as positions in the sample and among all cells.

        In the order of their keys, which is random and the same wherever cells are in the file.
        """
        positions = np.flatnonzero(self.sampled)
        order = np.argsort(self.keys[positions], kind="stable")
        order = order[~cells.empty[positions[order]]]
        return order, positions[order]

    def settle(self, cells: Cells, shift: Shift | None) -> tuple[Plan, float, NDArray[np.float32]]:
        """The plan, the noise level of the data set, and that of every cell after its shift."""
        prior, options = self.prior, self.options
        level, each = cell_noise(
            cells,
            options.noise,
            n_genes=len(self.match.prior),
            df=options.tail_df,
            scale=prior.latent_scale,
            reference_noise=prior.noise,
        )
        if shift is not None:
            each = each * shift.stretch()
        if options.deconvolve:
            check_deconvolve(float(np.hypot(level, np.min(self.rho))), prior.noise)
        plan = make_plan(
            options.method,
            options.likelihood,
            self.rho,
            options.gibbs,
            isotropic=self.likelihood.isotropic,
            noise_range=self.likelihood.noise_range(each[~cells.empty].max(initial=level)),
            n_iterations=None if options.n_iterations is None else int(options.n_iterations),
            geometric=options.schedule == "geometric",
            df=float(options.df),
            deconvolve=options.deconvolve,
            uncertainty=options.uncertainty,
        )
        plan = _within_schedule(prior, plan)
        _log.info(f"Method: {plan.method}; noise {level:.3g}, rho {plan.rho:.3g} (PCA units).")
        if plan.method == "split" and options.n_iterations is None and len(plan.rhos) == MAX_ITERATIONS:
            _log.warn(
                f"{self.match}, so few that {MAX_ITERATIONS} iterations may be too short: "
                "compare with n_iterations=300."
            )
        return plan, level, each

    def record(self, plan: Plan, level: float, calibration: Calibration, acceptance: list[float]) -> dict[str, Any]:
        """What ``.uns`` keeps: the call, what was decided, and the genes."""
        chain = plan.method != "direct"
        params = plain_params(
            rho=self.rho,
            method=plan.method,
            likelihood=self.options.likelihood,
            noise=level,
            n_iterations=len(plan.rhos) if chain else None,
            n_chains=self.options.n_chains if chain else None,
            acceptance=float(np.mean(acceptance)) if acceptance else None,
            preset=self.prior.preset,
        )
        return {
            "call": self.options.call(self.rho),
            "params": params,
            "calibration": calibration.record,
            "genes": self.match.report(),
        }


def _within_schedule(prior: Prior, plan: Plan) -> Plan:
    rhos = clip_rho(prior, plan.rhos)
    if (rhos < plan.rhos).any():
        _log.warn(
            f"rho={plan.rhos.max():.4g} is beyond the paper's noise schedule; the largest it has was used, "
            f"{rhos.max():.4g} in PCA units."
        )
    return replace(plan, rhos=rhos)
