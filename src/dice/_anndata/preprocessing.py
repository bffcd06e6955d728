"""Whether a query was preprocessed as its reference was: each difference is one sentence with the call that mends it.

The bounds were set on pairs of real data sets, of single cell types also: see tests/anndata/test_preprocessing.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dice import _log
from dice._anndata.checks import check_expression
from dice._anndata.genes import GeneMatch
from dice._anndata.statistics import INVERSES, matrix_statistics
from dice._core.prior.prior import Prior
from dice._core.standardize import Chunk, Floats
from dice._errors import InputError

#: More than any logarithm: that of a million to base 2 is 20. The largest value without logarithm was at least 300.
LOGGED = 25.0
#: Logging once more makes a maximum x about log1p(x), 2.3 at most; without, it was at least 5.8. Between lies this
#: factor times log1p(x).
ROOM = 1.3
#: Fewest values other than zero that the largest of them is looked at.
FEWEST_VALUES = 200
#: Factor between target sums that are known for certain: from here on a warning, and an error.
SUM_WARNING, SUM_ERROR = 1.2, 10.0
#: Factor between the totals of the prior's genes, where target sums are not known. Cell types and technologies
#: alone made up to 4.8, and counts per million in place of ten thousand at least 20.
TOTAL_WARNING = 10.0
#: Fewest cells to compare totals of, and smallest share of the total that the shared genes should have.
TOTAL_CELLS, TOTAL_SHARE = 20, 0.5
#: What is found after each transformation of `INVERSES`.
KINDS = {
    "log": "natural logarithms",
    "none": "normalised values without logarithm",
    "twice": "logarithms of logarithms",
    "log2": "logarithms to base 2",
}

Statistics = Mapping[str, float]


def check_query(sample: Chunk, match: GeneMatch, prior: Prior, *, layer: str | None = None) -> None:
    """Compare a query with the statistics of the prior's reference.

    Raw counts, scaled, unlogged or twice logged values are errors; a different target sum is a warning, or an error
    where it is certain and large. Values that are not finite are left to the pass that names their cells.

    Parameters
    ----------
    sample
        Cells of the query with all genes, as from :meth:`Matrix.sample`.
    match
        Where the prior's genes are.
    prior
        The prior; one without statistics is only protected from raw counts.
    layer
        Layer that the sample was taken from, to be named in the call that mends it.
    """
    theirs, ours = prior.statistics, matrix_statistics(sample, match.query)
    if not ours:
        return
    if not ours.keys() <= theirs.keys():
        check_expression(sample[:, match.query])
        return
    problem = (
        _counts(ours, theirs, layer)
        or _centred(ours, theirs)
        or _transformed(ours, theirs, layer)
        or _other_sum(ours, theirs, layer)
    )
    if problem:
        raise InputError(f"{problem}, or pass check=False.")
    if sample.shape[0] >= TOTAL_CELLS:
        _compare_totals(ours, theirs, match, prior.projection.mean, layer)


def _counts(ours: Statistics, theirs: Statistics, layer: str | None) -> str:
    if not ours["counts"] or theirs["counts"]:
        return ""
    return (
        "The query holds raw counts, but the reference log-normalised expression: call "
        f"{_normalise(theirs, layer)} and {_log1p(layer)} first"
    )


def _centred(ours: Statistics, theirs: Statistics) -> str:
    if ours["centred"] and theirs["minimum"] >= 0:
        return (
            f"The query was scaled or centred (its values begin at {ours['minimum']:.3g}), but the reference was not: "
            "use the expression from before sc.pp.scale, for example adata = adata.raw.to_adata() if it was kept there"
        )
    if theirs["centred"] and ours["minimum"] >= 0:
        return (
            "The reference was scaled or centred before its prior was trained, but the query was not: train again "
            "on log-normalised expression with dice.tl.train_prior(reference), which scales genes by itself"
        )
    return ""


def _transformed(ours: Statistics, theirs: Statistics, layer: str | None) -> str:
    """Logarithms too few, too many, or to another base: where cell totals tell, else by the largest values."""
    if min(ours["minimum"], theirs["minimum"]) < 0 or ours["nonzero"] < FEWEST_VALUES:
        return ""
    mine, other = _transformation(ours), _transformation(theirs)
    if mine and other:
        return _other_kind(mine, other, layer)
    reach = f"(its values reach {ours['maximum']:.3g}, the reference's {theirs['maximum']:.3g})"
    if ours["maximum"] > LOGGED >= theirs["maximum"]:
        return (
            f"The query does not hold logarithms {reach}: call {_normalise(theirs, layer)} and {_log1p(layer)} on its "
            "raw counts first, or only the latter if it is normalised and not scaled"
        )
    room = ROOM * np.log1p(theirs["maximum"])
    if mine != "log" and ours["maximum"] < room < theirs["maximum"]:
        return f"The query is logged once more than the reference {reach}: call {_to_log('twice', layer)} first"
    return ""


def _other_kind(mine: str, other: str, layer: str | None) -> str:
    if mine == other:
        return ""
    difference = f"The query holds {KINDS[mine]}, but the reference {KINDS[other]}"
    if other != "log":
        return f"{difference}: train again after sc.pp.log1p(reference), called once on normalised counts"
    return f"{difference}: call {_to_log(mine, layer)} first"


def _transformation(statistics: Statistics) -> str:
    """Name of the transformation that equal cell totals give away, or nothing."""
    return next((name for name in INVERSES if statistics[f"sum_{name}"]), "")


def _other_sum(ours: Statistics, theirs: Statistics, layer: str | None) -> str:
    """Target sums that are known on both sides: warn of a difference, and return a large one as a problem."""
    if not (ours["sum_log"] and theirs["sum_log"]):
        return ""
    factor = theirs["sum_log"] / ours["sum_log"]
    size = max(factor, 1 / factor)
    if size < SUM_WARNING:
        return ""
    x = _matrix(layer)
    message = (
        f"Cells of the query sum to {ours['sum_log']:.5g}, but those of the reference to {theirs['sum_log']:.5g}: call "
        f"{x} = np.log1p(np.expm1({x}) * {factor:.4g}) first"
    )
    if size >= SUM_ERROR:
        return message
    _log.warn(f"{message}.")
    return ""


def _compare_totals(ours: Statistics, theirs: Statistics, match: GeneMatch, means: Floats, layer: str | None) -> None:
    """Warn where the prior's genes sum up to far more or less than in the reference, and nothing explains it."""
    known = ours["sum_log"] and theirs["sum_log"]
    if known or not (ours["cell_total"] > 0 and theirs["cell_total"] > 0):
        return
    weights = np.expm1(np.maximum(means, 0))
    share = weights[match.prior].sum() / max(weights.sum(), 1e-12)
    factor = ours["cell_total"] / (theirs["cell_total"] * max(share, TOTAL_SHARE))
    if share >= TOTAL_SHARE and not 1 / TOTAL_WARNING < factor < TOTAL_WARNING:
        _log.warn(
            f"The prior's genes sum up to {factor:.2g} times what they do in the reference: was the query normalised "
            f"to the same target sum, on all its genes, by {_normalise(theirs, layer)} and {_log1p(layer)}?"
        )


def _matrix(layer: str | None) -> str:
    return "adata.X" if layer is None else f"adata.layers[{layer!r}]"


def _normalise(theirs: Statistics, layer: str | None) -> str:
    """The call that normalises a query to the reference's target sum, or to the usual one."""
    where = "" if layer is None else f", layer={layer!r}"
    return f"sc.pp.normalize_total(adata, target_sum={theirs['sum_log'] or 1e4:.5g}{where})"


def _log1p(layer: str | None) -> str:
    return "sc.pp.log1p(adata)" if layer is None else f"sc.pp.log1p(adata, layer={layer!r})"


def _to_log(kind: str, layer: str | None) -> str:
    """The call that turns what was transformed otherwise into natural logarithms."""
    x = _matrix(layer)
    return {"none": _log1p(layer), "twice": f"{x} = np.expm1({x})", "log2": f"{x} = {x} * np.log(2)"}[kind]
