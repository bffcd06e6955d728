"""Denoising as a task: one half of the counts predicted from the other, and counts in which there is nothing to find.

    python benchmarks/denoising.py [--seeds 1] [--data ...]

Molecular cross-validation: the counts of every cell are split at random into two halves. Every method sees the first
halves of the reference's and of the query's cells, denoises the query (a random fifth), and is judged by the query's
second halves. `mse` is the mean squared error of log-normalised values; `poisson` the Poisson loss of counts per
value, whose expected counts are scaled to the cell's total in the first half. The reference is halved as well: values
of logarithms depend on the depth, and no method shall be charged with another one. DICE and PCA come back to genes
through the loadings of the reference, and no expression is below 0. `alone` is a method that saw the query only.
`tl.denoise` brings all cells to the typical depth of the reference; `DICE, own depth` asks the same estimator for the
depth that the cell has, which is what the second half has too.

Shuffled counts: cells of equal depth, every gene permuted over all of them, so that no two genes belong together.
`correlated` is the share of pairs of the 500 most expressed genes whose correlation over cells is above .1 in absolute
value after denoising. Correlations do not see how little of a gene is left: `created` is the same share by covariances
over standard deviations *before* denoising, and `left` is the standard deviation after over that before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import anndata as ad
import numpy as np
import pandas as pd
import torch
from alra import alra
from clusters import TRAINING, without_structure
from data import FILES, pair
from peers import installed, quietly
from report import repeat, save, summary
from scipy import sparse

import dice
from dice._model.counts import CellCounts, halves, recover
from dice._model.projection import Projection

FIGURES = ["mse", "poisson", "correlated", "created", "left"]
N_GENES, CORRELATED = 500, 0.1
#: Added to expected counts, so that a gene that was expected nowhere costs much, not infinitely much.
LEAST = 1e-6


@dataclass(frozen=True)
class Cells:
    """What every method sees: log-normalised values of the reference and of the query, and the prior's latents."""

    reference: np.ndarray
    query: np.ndarray
    projection: Projection
    projected: np.ndarray
    denoised: np.ndarray
    at_own_depth: np.ndarray
    seed: int

    def back(self, latents: np.ndarray) -> np.ndarray:
        """Expression (n, d) that latents (n, k) stand for, by the loadings."""
        standardised = latents @ self.projection.loadings.T + self.projection.center
        return self.projection.mean + self.projection.scale * standardised


def main() -> None:
    repeat("denoising", FILES, run, show)


def show(rows: pd.DataFrame) -> None:
    tables = {str(name): summary(part, ["method"], FIGURES) for name, part in rows.groupby("data", sort=False)}
    if len(tables) > 1:
        # A mean over fewer sets could not be compared.
        whole = rows[rows.groupby(["method", "seed"])["data"].transform("nunique") == len(tables)]
        means = whole.groupby(["method", "seed"], sort=False)[FIGURES].mean().reset_index()
        tables = {f"Mean over {len(tables)} data sets": summary(means, ["method"], FIGURES)} | tables
    save("denoising", "Denoising", rows, tables, "\n\n".join(__doc__.strip().split("\n\n")[2:]))


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    reference, query = map(by_name, pair(name, seed))
    (seen, _), (first, second) = (in_halves(cells, seed + i) for i, cells in enumerate((reference, query)))
    counted = with_latents(values_of(seen, reference), values_of(first, query), seed)
    shuffled = by_name(without_structure("shuffled", name, seed))
    without = with_latents(shuffled, shuffled, seed)
    genes = np.argsort(-without.query.mean(0), kind="stable")[:N_GENES]
    truth = second.expression.toarray()
    for method in installed(METHODS):
        found = denoised(method, counted)
        row = {"method": method, "mse": float(np.square(found - truth).mean())}
        row["poisson"] = poisson_loss(found, first, second)
        row |= coupling(denoised(method, without)[:, genes], without.query[:, genes])
        print(name, seed, row, flush=True)
        yield row


def by_name(cells: ad.AnnData) -> ad.AnnData:
    """The cells with genes in the order of a prior's."""
    return cells[:, np.sort(cells.var_names)].copy()


def in_halves(cells: ad.AnnData, seed: int) -> tuple[CellCounts, CellCounts]:
    """Two halves of the counts of all cells."""
    seeds = np.random.default_rng([seed, 5]).integers(2**62, size=cells.n_obs)
    return halves(recover(cells.X), seeds, 1)[0]


def values_of(half: CellCounts, cells: ad.AnnData) -> ad.AnnData:
    """A half of the counts, log-normalised by its own total."""
    x = sparse.csr_matrix(half.expression)
    return ad.AnnData(x, obs=cells.obs[[]], var=cells.var[[]])


def with_latents(reference: ad.AnnData, query: ad.AnnData, seed: int) -> Cells:
    """Cells with the latents of a prior that has seen the reference alone."""
    dice.tl.train_prior(reference, training=TRAINING, random_state=seed)
    dice.tl.denoise(query, reference, random_state=seed)
    prior, values = dice.Prior.from_anndata(reference), (reference.X.toarray(), query.X.toarray())
    projected, latents = query.obsm["X_dice_pca"], query.obsm["X_dice"]
    return Cells(*values, prior.projection, projected, latents, at_own_depth(prior, query), seed)


def at_own_depth(prior: dice.Prior, query: ad.AnnData) -> np.ndarray:
    """Denoised latents (n, k) as the cells would read at the depth that they have."""
    depth = prior.known_depth(recover(query.X).log_depth)
    own = replace(prior, denoiser=copy.deepcopy(prior.denoiser))
    own.denoiser.filter.typical = torch.as_tensor(depth)
    with torch.inference_mode():
        return own.denoise(torch.as_tensor(query.obsm["X_dice_pca"]), 0.0, torch.as_tensor(depth)).numpy()


def denoised(method: str, cells: Cells) -> np.ndarray:
    """Log-normalised expression (n, d) of the query by a method."""
    return np.maximum(quietly(METHODS[method], cells), 0.0)


def poisson_loss(expected: np.ndarray, first: CellCounts, second: CellCounts) -> float:
    """Mean Poisson loss of the second half, without what depends on its counts alone."""
    rates, totals = np.expm1(expected), np.asarray(first.counts.sum(1)).reshape(-1, 1)
    rates *= totals / np.maximum(rates.sum(1, keepdims=True), LEAST)
    return float((rates - second.counts.toarray() * np.log(rates + LEAST)).mean())


def coupling(after: np.ndarray, before: np.ndarray) -> dict[str, float]:
    """Share of pairs of genes (columns) that go together after denoising."""
    covariance, deviation = np.cov(after.T), before.std(0, ddof=1)
    pairs, own = np.triu_indices(len(deviation), 1), np.sqrt(np.diag(covariance))

    def above(unit: np.ndarray) -> float:
        # What does not vary is correlated with nothing.
        usable = np.where(unit > LEAST, unit, np.inf)
        return float((np.abs(covariance / np.outer(usable, usable))[pairs] > CORRELATED).mean())

    return {"correlated": above(own), "created": above(deviation), "left": float(np.median(own / deviation))}


def by_magic(values: np.ndarray, seed: int) -> np.ndarray:
    """MAGIC with its defaults, on expression."""
    from magic import MAGIC

    return np.asarray(MAGIC(n_jobs=1, random_state=seed, verbose=0).fit_transform(values.astype(np.float64)))


def by_alra(values: np.ndarray, seed: int) -> np.ndarray:
    return alra(values, random_state=seed)


def together(method: Callable[[np.ndarray, int], np.ndarray]) -> Callable[[Cells], np.ndarray]:
    """A method on the cells of reference and query; cells that are both are given once."""

    def denoise(cells: Cells) -> np.ndarray:
        if np.array_equal(cells.reference, cells.query):
            return method(cells.query, cells.seed)
        return method(np.concatenate([cells.reference, cells.query]), cells.seed)[len(cells.reference) :]

    return denoise


def alone(method: Callable[[np.ndarray, int], np.ndarray]) -> Callable[[Cells], np.ndarray]:
    return lambda cells: method(cells.query, cells.seed)


METHODS: dict[str, Callable[[Cells], np.ndarray]] = {
    "no denoising": lambda cells: cells.query,
    "mean of the reference": lambda cells: np.broadcast_to(cells.reference.mean(0), cells.query.shape),
    "PCA": lambda cells: cells.back(cells.projected),
    "MAGIC": together(by_magic),
    "MAGIC alone": alone(by_magic),
    "ALRA": together(by_alra),
    "ALRA alone": alone(by_alra),
    "DICE": lambda cells: cells.back(cells.denoised),
    "DICE, own depth": lambda cells: cells.back(cells.at_own_depth),
}

if __name__ == "__main__":
    main()
