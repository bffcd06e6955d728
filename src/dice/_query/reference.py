"""The reference's own cells, read as if they were a query."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from dice._data.matrix import Matrix
from dice._errors import InputError
from dice._model.counts import TARGET_SUM, CellCounts, recover, thinned
from dice._model.likelihood import GaussianLikelihood, Latents
from dice._model.training_data import ROLES
from dice._query.query import Query
from dice._types import Chunk, Codes, Floats, Mask
from dice.options import Gaussian


def cells_of(roles: Codes, known: Mask, *wanted: str) -> Codes:
    """Return the positions of the cells in the mask `known` (n,) that have one of the `wanted` roles."""
    return np.flatnonzero(np.isin(roles, [ROLES.index(role) for role in wanted]) & known)


@dataclass(frozen=True)
class LikeQuery:
    """Reader of reference cells as if they had been measured like the query. A cell's seed determines its result."""

    likelihood: GaussianLikelihood
    #: Log depths of the query's cells, in ascending order. An empty array keeps all counts.
    depths: Floats
    #: Seeds (n,) of the reference's cells, and a mask (n,) of those that the loadings were computed from.
    seeds: NDArray[np.int64]
    trained: Mask
    #: Share of its counts that every cell keeps; if given, `depths` have no effect.
    share: float | None = None
    #: Target sum of the normalisation, which tells the number of counts in missing genes.
    target_sum: float = TARGET_SUM

    def expression(self, chunk: Chunk, rows: slice | Codes) -> Chunk:
        """Return the log-normalised expression of a chunk, thinned to the depth of the query."""
        if not len(self.depths) and self.share is None:
            return chunk
        cells = recover(chunk)
        return thinned(cells, self._shares(cells, self.seeds[rows]), self.seeds[rows], self.target_sum, strays=chunk)

    def latents(self, chunk: Chunk, rows: slice) -> Latents:
        """Return the latents of a chunk's cells after thinning."""
        shallow = self.expression(chunk, rows)
        latents = self.likelihood.latents(shallow)
        return self.likelihood.honest_part(latents, shallow, chunk, self.trained[rows])

    def _shares(self, cells: CellCounts, seeds: NDArray[np.int64]) -> Floats:
        """Return the share (n,) of counts to keep, so that every cell is as deep as a random cell of the query."""
        if self.share is not None:
            return np.full(len(seeds), self.share)
        ranks = (seeds.astype(np.uint64) % np.uint64(len(self.depths))).astype(np.intp)
        with np.errstate(invalid="ignore"):
            return np.exp(np.minimum(np.nan_to_num(self.depths[ranks] - cells.log_depth), 0.0))


@dataclass(frozen=True)
class ReferenceQuery(Query):
    """The reference's own cells, seen through the query's genes and at its depth."""

    #: Log depths and share as in `LikeQuery`.
    depths: Floats = field(kw_only=True)
    trained: Mask = field(kw_only=True)
    share: float | None = field(kw_only=True)

    @cached_property
    def reader(self) -> LikeQuery:
        """Reader of chunks of the reference. It is sent to workers instead of the whole query."""
        target_sum = self.prior.statistics.get("sum_log") or TARGET_SUM
        return LikeQuery(self.likelihood, self.depths, self.seeds, self.trained, self.share, target_sum)

    @cached_property
    def latents(self) -> Latents:
        """Latents of all cells after thinning."""
        return self._projected(self.reader)

    def expression(self, chunk: Chunk, rows: slice | Codes) -> Chunk:
        return self.reader.expression(chunk, rows)


def own_genes(reference: AnnData, query: Query) -> Codes:
    """Return the positions in a reference of those genes of its prior that the query has."""
    names = query.prior.genes[query.match.prior].astype(str)
    positions = reference.var_names.astype(str).get_indexer(names)
    if (positions < 0).any():
        raise InputError(
            f"The reference has lost {(positions < 0).sum()} genes of its prior, for example "
            f"{names[positions < 0][:3].tolist()}: pass it with all genes that it had in dice.tl.train_prior."
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
