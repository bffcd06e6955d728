"""Values as the method expects them: raw counts are log-normalised into a layer, and ``X`` stays as it is."""

from __future__ import annotations

import numpy as np
from anndata import AnnData

from dice import _log
from dice._data.kinds import is_raw, is_unlogged
from dice._data.matrix import Matrix
from dice._data.preprocessing import matrix_statistics
from dice._data.recipe import TARGET_SUM, log_normalised
from dice._data.write import Slots, write
from dice._keys import AnnotateKeys
from dice._model.counts import MOSTLY, recover


def expression_layer(adata: AnnData, layer: str | None, target_sum: float, who: str) -> str | None:
    """The layer with log-normalised values: the one that is named, or a new one where that holds raw counts."""
    matrix = Matrix(adata, layer=layer, who=who)
    sample = matrix.sample()
    if not is_unlogged(sample):
        return layer
    key = AnnotateKeys().layer
    values = log_normalised(adata, layer, target_sum, who)
    _log.say(
        f"{matrix.where} holds {'raw counts' if is_raw(sample) else 'values that are not logged'}: they are "
        f"log-normalised to {target_sum:,.5g} counts per cell in {who}.layers[{key!r}], and stay as they are."
    )
    write(adata, Slots(layers={key: values}), copy=False)
    return key


def target_sum_of(adata: AnnData, layer: str | None, who: str) -> float:
    """What the cells of log-normalised values sum to, where that can be seen; else the usual ten thousand."""
    sample = Matrix(adata, layer=layer, who=who).sample()
    known = 0.0 if is_unlogged(sample) else matrix_statistics(sample).get("sum_log", 0.0)
    return known or TARGET_SUM


def median_depth(adata: AnnData, layer: str | None) -> float | None:
    """Median number of counts of a cell in all genes, by a sample; None where the values are no counts."""
    sample = Matrix(adata, layer=layer).sample()
    if is_raw(sample):
        totals, counted = np.asarray(sample.sum(1)).ravel(), np.ones(sample.shape[0], dtype=bool)
    else:
        found = recover(sample)
        totals, counted = np.asarray(found.counts.sum(1)).ravel(), found.whole
    if not len(totals) or counted.mean() < MOSTLY:
        return None
    return float(np.median(totals[counted]))
