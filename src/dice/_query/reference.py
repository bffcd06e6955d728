"""The reference's own cells, read as if they were a query."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice._data.matrix import Matrix
from dice._errors import InputError
from dice._model.counts import TARGET_SUM, recover, thinned
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.training_data import ROLES
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask
from dice.options import Gaussian


def as_shallow(
    chunk: Chunk, seeds: NDArray[np.int64], depths: Floats, share: float | None = None, target_sum: float = TARGET_SUM
) -> Chunk:
    """Return the expression of reference cells (n, d), thinned as if they had been measured like the query.

    Every cell gets the log depth of a random cell of the query, from `depths` in ascending order. A cell with a smaller
    depth keeps its counts. An empty array keeps all counts. With a `share`, every cell keeps this share of its counts
    instead. `seeds` (n,) determine the result. The counts of missing genes follow from `target_sum`, the target sum of
    the normalisation.
    """
    if not len(depths) and share is None:
        return chunk
    cells = recover(chunk)
    if share is None:
        ranks = (seeds.astype(np.uint64) % np.uint64(len(depths))).astype(np.intp)
        with np.errstate(invalid="ignore"):
            shares = np.exp(np.minimum(np.nan_to_num(depths[ranks] - cells.log_depth), 0.0))
    else:
        shares = np.full(len(seeds), share)
    return thinned(cells, shares, seeds, target_sum, strays=chunk)


def _shallow_latents(
    likelihood: GaussianLikelihood, thin: Callable[..., Chunk], seeds: NDArray[np.int64], own: Mask, chunk: Chunk,
    rows: slice,
) -> Latents:  # fmt: skip
    """Return the latents of a chunk's cells after thinning. The loadings were computed from the `own` cells (n,)."""
    shallow = thin(chunk, seeds[rows])
    return likelihood.honest_part(likelihood.latents(shallow), shallow, chunk, own[rows])


@dataclass(frozen=True)
class ReferenceQuery(Query):
    """The reference's own cells, with the genes and the depths of the query."""

    #: Log depths and share as in :func:`as_shallow`.
    depths: Floats = field(kw_only=True)
    share: float | None = field(kw_only=True)
    #: Mask (n,) of the cells that the loadings were computed from.
    trained: Mask = field(kw_only=True)

    @property
    def thin(self) -> Callable[..., Chunk]:
        """Function that thins a chunk of cells with these seeds."""
        target_sum = self.prior.statistics.get("sum_log") or TARGET_SUM
        return partial(as_shallow, depths=self.depths, share=self.share, target_sum=target_sum)

    @cached_property
    def latents(self) -> Latents:
        """Latents of all cells after thinning."""
        # Workers get the arrays that they need instead of the whole query.
        return self._projected(partial(_shallow_latents, self.likelihood, self.thin, self.seeds, self.trained))

    def standardized(self, chunk: Chunk, rows: slice | Codes) -> Floats:
        """Return dense expression (n, d) of a chunk after thinning, standardised as in the reference."""
        return super().standardized(self.thin(chunk, self.seeds[rows]), rows)


def own_genes(reference: AnnData, query: Query) -> Codes:
    """Return the positions in the reference of the genes that its prior and the query have."""
    names = query.prior.genes[query.match.prior].astype(str)
    positions = reference.var_names.astype(str).get_indexer(names)
    if (positions < 0).any():
        raise InputError(
            f"The reference has lost {(positions < 0).sum()} genes of its prior, for example "
            f"{names[positions < 0][:3].tolist()}: pass the reference with all genes of the training."
        )
    return np.asarray(positions, dtype=np.intp)


def as_query(
    reference: AnnData, query: Query, roles: Codes, *, depths: NDArray[np.float32] | None = None,
    share: float | None = None,
) -> ReferenceQuery:  # fmt: skip
    """Return the cells of the reference as a query, as if they had been measured like `query`.

    Cells are thinned to the log depths of the query, or to other `depths` in ascending order; an empty array keeps all
    counts. With a `share`, every cell keeps this share of its counts instead. `roles` are the roles of the cells.
    """
    prior, match = query.prior, query.match
    layer, positions = prior.params.get("layer"), own_genes(reference, query)
    # Read the reference with the query's kind of noise, measured or assumed. The two kinds give different latents.
    asked = query.options.likelihood
    assumed = Gaussian() if isinstance(asked, str) and not query.measured else asked
    options = replace(query.options, layer=layer, gene_key=None, check=False, shift=False, likelihood=assumed)
    matrix = Matrix(reference, layer=layer, genes=positions, who="reference")
    known = query.latents.log_depth[~np.isnan(query.latents.log_depth)]
    if depths is None:
        depths = np.sort(known) if query.measured and share is None else np.empty(0, np.float32)
    trained = (roles != ROLES.index("calibration")) & query.measured
    share, own = share if query.measured else None, replace(match, query=positions)
    return ReferenceQuery(prior, options, own, matrix, depths=depths, trained=trained, share=share)
