"""Matrices by their values: log-normalised layers of raw counts, and raw counts beneath log-normalised layers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._arguments import known_key
from dice._data.genes import match_genes
from dice._data.matrix import Matrix
from dice._data.panel import normalise_pair, panel_layer, shares_panel
from dice._data.read import names
from dice._data.sources import stored_values
from dice._data.store import find_prior
from dice._data.value_checks import (
    FEWEST_COUNTS,
    LARGEST_LOG,
    is_counts,
    is_raw,
    is_scaled,
    is_unlogged,
    matrix_statistics,
)
from dice._data.write import Slots, check_writable, transaction, write
from dice._errors import DiceError, InputError
from dice._keys import PANEL_LAYER, AnnotateKeys
from dice._model.counts import TARGET_SUM, Recovered, normalised
from dice._model.prior import LearnedPrior
from dice._types import Chunk, Codes, Mask
from dice.options import Options

P = ParamSpec("P")
R = TypeVar("R")

#: Cells whose counts are compared with their expression before anything else.
COMPARED_CELLS = 100
#: Largest difference between the expression and log1p of the counts times their factor; rounding makes 1e-5.
COUNTS_TOLERANCE = 0.05


def holds_counts(matrix: Matrix, least: int = 0) -> bool:
    """Return whether a matrix holds raw counts. All of it is read, and a few other values are an error."""
    if not is_counts(matrix.sample(), least=least):
        return False
    matrix.whole = True
    matrix.check_values()
    return True


def check_expression(sample: Chunk, *, who: str = "adata", scaled: bool = False) -> None:
    """Refuse raw counts, estimates of counts and, unless allowed as `scaled`, scaled genes."""
    if is_unlogged(sample):
        high = stored_values(sample).max()
        holds = "raw counts" if is_raw(sample) else f"values up to {high:.4g}, too large for logarithms"
        raise InputError(
            f"The matrix holds {holds}, but log-normalised expression is expected: call sc.pp.normalize_total({who}, "
            f"target_sum=1e4) and sc.pp.log1p({who}) first, or pass check=False."
        )
    if not scaled and is_scaled(sample):
        raise InputError(
            f"The genes of {who} were scaled or centred (values begin at {stored_values(sample).min():.3g}): use the "
            f"expression from before sc.pp.scale, for example {who} = {who}.raw.to_adata(), or pass check=False."
        )


def expression_layer(adata: AnnData, layer: str | None, target_sum: float, who: str) -> str | None:
    """Return the layer with log-normalised values: the one that is named, or a new one if that holds raw counts."""
    matrix = Matrix(adata, layer=layer, who=who)
    if not is_unlogged(matrix.sample()):
        return layer
    if not in_memory(matrix):
        raise InputError(f"{matrix.where} holds raw counts that are not in memory: call {who}.to_memory() first.")
    key, whole = own_layer(adata, matrix), holds_counts(matrix)
    _log.say(
        f"{matrix.where} holds {'raw counts' if whole else 'values that are not logged'}: they are log-normalised to "
        f"{target_sum:,.5g} counts per cell in {who}.layers[{key!r}], and stay as they are."
    )
    write(adata, Slots(layers={key: _log_normalised(matrix.data, target_sum)}), copy=False)
    return key


def in_memory(matrix: Matrix) -> bool:
    """Return whether a matrix is an array or a sparse matrix in memory."""
    return isinstance(matrix.data, np.ndarray) or sparse.issparse(matrix.data)


def _log_normalised(counts: Any, target_sum: float) -> Any:
    """Return log(1 + counts per `target_sum`) as a new matrix."""
    import scanpy as sc

    bare = AnnData((sparse.csr_matrix(counts) if sparse.issparse(counts) else counts).astype(np.float32))
    sc.pp.normalize_total(bare, target_sum=target_sum)
    sc.pp.log1p(bare)
    return bare.X


def own_layer(adata: AnnData, counts: Matrix) -> str:
    """Return the name of the layer for log-normalised counts. Other data under this name are an error."""
    key = AnnotateKeys().layer
    if key in names(adata, "layers"):
        layer = Matrix(adata, layer=key, who=counts.who)
        if _factors(*(sparse.csr_array(x.sample()).astype(np.float64) for x in (layer, counts))) is None:
            raise InputError(f"{layer.where} does not hold log-normalised counts and would be lost: rename this layer.")
    return key


def _factors(expression: sparse.csr_array, counts: sparse.csr_array) -> NDArray[np.float64] | None:
    """Return the factor (n,) from counts to expression, NaN without counts; None if the two do not fit."""
    if not expression.data.max(initial=0) <= LARGEST_LOG:
        return None
    sums, totals = (np.asarray(x.sum(1)).ravel() for x in (np.expm1(expression), counts))
    factor = np.where(totals > 0, sums / np.maximum(totals, 1), np.nan)
    apart = abs(normalised(counts, np.nan_to_num(factor)) - expression)
    return None if apart.nnz and not apart.max() <= COUNTS_TOLERANCE else factor


def takes_counts(verb: Callable[P, R]) -> Callable[P, R]:
    """Decorate a verb so that it accepts raw counts: they are log-normalised into a layer first.

    A layer that an earlier call has made is used again. With a `layer`, or without checks, values are used as they are.
    """
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:  # The verb raises it again, with its own name.
            return verb(*args, **kwargs)
        arguments, adata = given.arguments, next(iter(given.arguments.values()))
        key, prior = _like_prior(adata, arguments, learns="reference" not in signature.parameters)
        if key is None:
            return verb(*args, **kwargs)
        arguments["layer"] = key
        if key in adata.layers and key != PANEL_LAYER:
            return verb(*given.args, **given.kwargs)
        copy = bool(arguments.get("copy", False))
        check_writable(adata, copy=copy)
        with transaction(adata) as (begun,):
            layer_like(begun.stage, None, prior, arguments.get("gene_key"))
            arguments[next(iter(arguments))], arguments["copy"] = begun.stage, False
            verb(*given.args, **given.kwargs)
        return cast("R", begun.perform(copy=copy))

    return call


def _like_prior(adata: Any, arguments: Mapping[str, Any], *, learns: bool) -> tuple[str | None, LearnedPrior | None]:
    """Return the layer for values in memory that must be normalised first, or None, and the prior to be like."""
    check = arguments.get("check", True)
    as_they_are = arguments.get("layer") is not None or getattr(check, "values", check) is not True
    if as_they_are or not isinstance(adata, AnnData) or not adata.n_obs or adata.isbacked:
        return None, None
    if adata.X is None or not in_memory(matrix := Matrix(adata)):
        return None, None
    prior, raw = None, is_raw(matrix.sample())
    if not learns:
        try:
            source = arguments.get("reference")
            prior = find_prior(adata if source is None else source, key=arguments.get("prior_key", "dice"))
        except DiceError:  # The verb raises it again.
            return None, None
        if prior.params.get("layer") == PANEL_LAYER:
            return PANEL_LAYER, prior
        raw = raw and not prior.statistics.get("counts")
    return own_layer(adata, matrix) if raw else None, prior


def layer_like(adata: AnnData, layer: str | None, prior: LearnedPrior | None, gene_key: str | None) -> str | None:
    """Return the layer of a query with values like those of a prior; it is new if they must be normalised first."""
    if prior is None or prior.params.get("layer") != PANEL_LAYER:
        target_sum = TARGET_SUM if prior is None else prior.statistics.get("sum_log") or TARGET_SUM
        return expression_layer(adata, layer, target_sum, "adata")
    if layer is not None:
        return layer
    genes = match_genes(adata, prior.genes, gene_key=gene_key, min_overlap=0.0).query
    return panel_layer(adata, layer, genes, prior.statistics.get("sum_log") or TARGET_SUM, "adata")


def comparable_layers(
    adata: AnnData, reference: AnnData, shared: Mask, options: Options
) -> tuple[str | None, str | None]:
    """Return the layers of a query and a reference whose values can be compared; new if they must be normalised."""
    layer = options.layer
    if shares_panel(adata, reference, shared, options):
        key = normalise_pair(adata, reference, shared, options)
        return key, key
    known = expression_layer(reference, layer, target_sum_of(adata, layer, "adata"), "reference")
    check_expression(Matrix(reference, layer=known, who="reference").sample()[:, shared], who="reference")
    return expression_layer(adata, layer, target_sum_of(reference, known, "reference"), "adata"), known


def target_sum_of(adata: AnnData, layer: str | None, who: str) -> float:
    """Return the target sum of log-normalised values if it is visible, else ten thousand."""
    sample = Matrix(adata, layer=layer, who=who).sample()
    known = 0.0 if is_unlogged(sample) else matrix_statistics(sample).get("sum_log", 0.0)
    return known or TARGET_SUM


@dataclass(frozen=True)
class CountsLayer:
    """The counts (n, d) of the same cells and genes as a matrix of log-normalised expression."""

    counts: Matrix
    expression: Matrix

    @classmethod
    def of(cls, adata: AnnData, layer: str, expression: Matrix) -> CountsLayer:
        """Open the layer and check that it holds counts."""
        known_key(layer, names(adata, "layers"), "layer", f"{expression.who}.layers")
        counts = Matrix(
            adata, layer=layer, genes=expression.genes, chunk_size=expression.chunk_size, who=expression.who
        )
        if not holds_counts(counts, FEWEST_COUNTS):
            raise InputError(f"{counts.where} does not hold raw counts: name another layer with counts_layer=.")
        found = cls(counts, expression)
        found.take(np.arange(min(counts.n_cells, COMPARED_CELLS)))
        return found

    def log_depth(self) -> NDArray[np.float32]:
        """Return the log depth (n,) of all cells: minus the log of their factor, NaN for cells without counts."""
        totals = np.concatenate(self.counts.each(lambda chunk, rows: np.asarray(chunk.sum(1)).ravel()))
        sums = np.concatenate(self.expression.each(lambda chunk, rows: np.asarray(np.expm1(chunk).sum(1)).ravel()))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(totals > 0, np.log(totals) - np.log(sums), np.nan).astype(np.float32)

    def take(self, cells: Codes) -> Recovered:
        """Return the counts of some cells, in ascending order, as :func:`dice._model.counts.recover` does."""
        return self._recovered(self.expression.take(cells), self.counts.take(cells))

    def beneath(self, chunk: Chunk, rows: slice) -> Recovered:
        """Return the counts of the cells at `rows`, whose expression is `chunk`."""
        return self._recovered(chunk, self.counts.read(rows))

    def _recovered(self, chunk: Chunk, beneath: Chunk) -> Recovered:
        expression, counts = (sparse.csr_array(x).astype(np.float64) for x in (chunk, beneath))
        factor = _factors(expression, counts)
        if factor is None:
            x = self.expression.where
            raise InputError(f"{x} is not log1p of normalised counts in {self.counts.where}: name another layer.")
        return Recovered(counts, factor, np.ones(len(factor), dtype=bool))
