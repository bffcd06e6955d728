"""Make layers of log-normalised expression from raw counts, so that query and reference can be compared.

The total of a cell over a panel of few genes is not the total over all genes: the share of a gene among 300 genes
cannot be compared with its share among 20,000. Cells of query and reference are therefore divided by their counts in
the shared genes, and multiplied by the counts of a median query cell. With a factor of ten thousand instead, the first
count would take up most of the range of the logarithm.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._data.checks import check_expression, factors_of, holds_counts
from dice._data.genes import match_genes
from dice._data.matrix import Matrix
from dice._data.read import column, names
from dice._data.store import find_prior
from dice._data.value_checks import is_raw, is_scaled, is_unlogged, matrix_statistics
from dice._data.write import Slots, all_or_nothing, check_writable, write
from dice._errors import DiceError, InputError
from dice._keys import PANEL_LAYER, AnnotateKeys
from dice._model.counts import MOSTLY, TARGET_SUM, recover
from dice._model.prior import LearnedPrior
from dice._types import Codes, Floats, Mask
from dice.options import Options

P = ParamSpec("P")
R = TypeVar("R")

#: A query is a panel if it shares at most this many genes with the reference, and less than half of the larger number.
PANEL_GENES = 500


def expression_layer(adata: AnnData, layer: str | None, target_sum: float, who: str) -> str | None:
    """Return a layer with log-normalised values: `layer` itself, or a new layer if `layer` holds raw counts."""
    matrix = Matrix(adata, layer=layer, who=who)
    if not is_unlogged(matrix.sample()):
        return layer
    if not matrix.in_memory:
        raise InputError(f"{matrix.where} holds raw counts that are not in memory: call {who}.to_memory() first.")
    key, whole = own_layer(adata, matrix), holds_counts(matrix)
    _log.say(
        f"{matrix.where} holds {'raw counts' if whole else 'values that are not logged'}: a copy that is "
        f"log-normalised to {target_sum:,.5g} counts per cell is written to {who}.layers[{key!r}]."
    )
    import scanpy as sc

    counts = sparse.csr_matrix(matrix.data) if sparse.issparse(matrix.data) else matrix.data
    bare = AnnData(counts.astype(np.float32))
    sc.pp.normalize_total(bare, target_sum=target_sum)
    sc.pp.log1p(bare)
    write(adata, Slots(layers={key: bare.X}), copy=False)
    return key


def own_layer(adata: AnnData, counts: Matrix) -> str:
    """Return the name of the layer for log-normalised counts. Other data under this name are an error."""
    key = AnnotateKeys().layer
    if key in names(adata, "layers"):
        layer = Matrix(adata, layer=key, who=counts.who)
        if factors_of(*(sparse.csr_array(x.sample()).astype(np.float64) for x in (layer, counts))) is None:
            raise InputError(f"{layer.where} does not hold log-normalised counts and would be lost: rename the layer.")
    return key


def takes_counts(verb: Callable[P, R]) -> Callable[P, R]:
    """Decorate a verb so that it accepts raw counts: they are log-normalised into a layer first.

    A layer of an earlier call is used again. With a `layer`, or without checks, values are used as they are.
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
        target = adata.copy() if copy else adata
        arguments |= {next(iter(arguments)): target, "copy": False}
        with all_or_nothing(target):
            layer_like(target, None, prior, arguments.get("gene_key"))
            found = verb(*given.args, **given.kwargs)
        return cast("R", target) if copy else found

    return call


def _like_prior(adata: Any, arguments: Mapping[str, Any], *, learns: bool) -> tuple[str | None, LearnedPrior | None]:
    """Return the layer for normalised values (None to use the values unchanged), and the prior to match.

    `learns` is True for verbs that take no reference.
    """
    check = arguments.get("check", True)
    as_they_are = arguments.get("layer") is not None or getattr(check, "values", check) is not True
    usable = isinstance(adata, AnnData) and adata.n_obs and not adata.isbacked and adata.X is not None
    if as_they_are or not usable or not (matrix := Matrix(adata)).in_memory:
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
    """Return the layer of a query with values like the prior's. It is a new layer if values must be normalised."""
    target_sum = (None if prior is None else prior.statistics.get("sum_log")) or TARGET_SUM
    if prior is None or prior.params.get("layer") != PANEL_LAYER:
        return expression_layer(adata, layer, target_sum, "adata")
    if layer is not None:
        return layer
    genes = match_genes(adata, prior.genes, gene_key=gene_key, min_overlap=0.0).query
    return panel_layer(adata, layer, genes, target_sum, "adata")


def comparable_layers(
    adata: AnnData, reference: AnnData, shared: Mask, options: Options
) -> tuple[str | None, str | None]:
    """Return comparable layers of a query and a reference. They are new layers if values must be normalised."""
    layer = options.layer
    if shares_panel(adata, reference, shared, options):
        key = normalise_pair(adata, reference, shared, options)
        return key, key
    known = expression_layer(reference, layer, target_sum_of(adata, layer, "adata"), "reference")
    check_expression(Matrix(reference, layer=known, who="reference").sample()[:, shared], who="reference")
    return expression_layer(adata, layer, target_sum_of(reference, known, "reference"), "adata"), known


def target_sum_of(adata: AnnData, layer: str | None, who: str) -> float:
    """Return the target sum of log-normalised values if all cells have the same target sum, else ten thousand."""
    return matrix_statistics(Matrix(adata, layer=layer, who=who).sample()).get("sum_log") or TARGET_SUM


def shares_panel(adata: AnnData, reference: AnnData, shared: Mask, options: Options) -> bool:
    """Return whether the `shared` genes, a mask (n_vars,) of the reference, are so few that they form a panel.

    Values in a layer that the user gives, values outside memory and scaled values are used as they are.
    """
    few = shared.sum() <= PANEL_GENES and 2 * shared.sum() < max(adata.n_vars, reference.n_vars)
    if not few or options.layer is not None or not options.check.values:
        return False
    matrices = [Matrix(each) for each in (adata, reference)]
    return all(m.in_memory and m.n_cells > 0 and m.sample().min() >= 0 for m in matrices)


def normalise_pair(
    adata: AnnData, reference: AnnData, shared: Mask, options: Options, size_key: str | None = None
) -> str:
    """Normalise query and reference on the `shared` genes, a mask (n_vars,) of the reference. Return the new layer."""
    genes = np.flatnonzero(shared)
    match = match_genes(
        adata, reference.var_names.to_numpy(object)[genes], gene_key=options.gene_key, min_overlap=0.0,
        species=options.check.species,
    )  # fmt: skip
    target_sum = _median_counts(adata, options.layer, match.query)
    panel_layer(reference, options.layer, genes[match.prior], target_sum, "reference")
    return panel_layer(adata, options.layer, match.query, target_sum, "adata", size_key)


def _median_counts(adata: AnnData, layer: str | None, genes: Codes) -> float:
    """Return the median counts of a cell in these genes, or the usual ten thousand if values are not counts."""
    sample = Matrix(adata, layer=layer).sample()
    if not is_raw(sample):
        found = recover(sample)
        sample = found.counts if found.whole.mean() >= MOSTLY else sample[:0]
    totals = np.asarray(sample[:, genes].sum(1)).ravel()
    return float(np.median(totals[totals > 0])) if totals.any() else TARGET_SUM


def panel_layer(
    adata: AnnData, layer: str | None, genes: Codes, target_sum: float, who: str, size_key: str | None = None
) -> str:
    """Write a layer that is log-normalised to `target_sum` over these genes, and return its key. Other genes are zero.

    With `size_key`, cells are divided by their size instead of their counts. Sizes are scaled to the median counts.
    """
    matrix = Matrix(adata, layer=layer, who=who)
    sample = matrix.sample()
    if is_scaled(sample):
        raise InputError(f"{matrix.where} must be counts or log-normalised expression, got scaled genes.")
    few = sparse.csr_matrix(matrix.data[:, genes], dtype=np.float32)
    few.data = few.data if is_unlogged(sample) else np.expm1(few.data)
    totals = np.asarray(few.sum(1), dtype=np.float64).ravel()
    sizes = totals if size_key is None else _sizes(adata, size_key, totals)
    factor = np.divide(target_sum, sizes, out=np.zeros_like(totals), where=totals > 0)
    values = np.log1p(few.data * np.repeat(factor, np.diff(few.indptr)).astype(np.float32))
    whole = sparse.csr_matrix((values, np.asarray(genes)[few.indices], few.indptr), shape=(adata.n_obs, adata.n_vars))
    whole.sort_indices()
    by = "their counts in these genes" if size_key is None else f"{who}.obs[{size_key!r}]"
    _log.say(
        f"{len(genes):,} genes of {matrix.where} are divided by {by}, log-normalised to {target_sum:,.5g} counts per "
        f"cell, and written to {who}.layers[{PANEL_LAYER!r}]."
    )
    write(adata, Slots(layers={PANEL_LAYER: whole}), copy=False)
    return PANEL_LAYER


def _sizes(adata: AnnData, size_key: str, totals: Floats) -> Floats:
    """Return the sizes (n,) of the cells, scaled to have the median of the counts."""
    sizes = column(adata, size_key, argument="size_key").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~(np.isfinite(sizes) & (sizes > 0))
    if wrong.any():
        raise InputError(
            f"adata.obs[{size_key!r}] must hold positive numbers, got others for {list(adata.obs_names[wrong][:3])}."
        )
    seen = totals > 0
    return sizes * float(np.median(totals[seen]) / np.median(sizes[seen])) if seen.any() else sizes
