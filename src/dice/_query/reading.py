"""Share one reading of a query between several calls: genes are matched and cells are projected once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from dice import _log
from dice._data.checks import CountsLayer, read_batches
from dice._data.genes import GeneMatch, match_genes
from dice._data.matrix import Matrix
from dice._data.value_checks import Statistics, check_query
from dice._model.offsets import check_record
from dice._types import Floats
from dice.options import Options

T = TypeVar("T")
#: Results of this context with the warnings that came with them, and objects whose identity is part of a key.
_known: ContextVar[dict[Hashable, tuple[Any, list[str], tuple[object, ...]]] | None] = ContextVar("known", default=None)


@contextmanager
def one_reading() -> Iterator[None]:
    """Within this block, all calls on one query share one reading. Results do not change."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def once(key: Hashable, function: Callable[[], T], *keep: object) -> T:
    """Call a function once within `one_reading`, and repeat its warnings for every caller.

    Outside `one_reading` the function is called each time. Objects whose `id` is part of the key are kept alive, so
    that no other object gets the same `id`.
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
) -> tuple[GeneMatch, Matrix, pd.Categorical | None, CountsLayer | None]:  # fmt: skip
    """Match `genes` of the reference in a query, and open the matrix, the batches and the layer of counts.

    Values are compared with the statistics `known` of the reference, and with its `means` if they are given.
    """
    named = {"gene_key": options.gene_key, "species": options.check.species}
    place, overlap = (id(adata), "\0".join(map(str, genes)), *named.values()), options.check.min_gene_overlap
    match = once(("genes", *place, overlap), partial(match_genes, adata, genes, min_overlap=overlap, **named), adata)
    _log.info(f"{match}.")
    opening = partial(Matrix, adata, layer=options.layer, genes=match.query, chunk_size=options.chunk_size, who=who)
    matrix = once(("matrix", *place, known.get("sum_log"), options.layer, options.chunk_size), opening, adata)
    if options.check.values:  # noqa: PD011 - not pandas
        checking = partial(check_query, matrix, match, known, means)
        matrix.factor = once(("values", id(matrix), tuple(sorted(known.items())), means is None), checking, matrix)
    batches = None if options.batch_key is None else read_batches(adata, options.batch_key, who)
    if isinstance(options.shift, Mapping):
        check_record(options.shift, None if batches is None else [str(name) for name in batches.categories])
    counts = None if options.counts_layer is None else CountsLayer.of(adata, options.counts_layer, matrix)
    return match, matrix, batches, counts
