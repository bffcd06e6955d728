"""How a matrix was preprocessed, and whether a query was preprocessed as its reference was.

A difference is reported in one sentence with its fix. The bounds were set on pairs of real data sets, single cell
types included: see tests/data/test_value_checks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dice import _log
from dice._data.genes import GeneMatch
from dice._data.matrix import Matrix
from dice._data.sources import FEWEST_COUNTS, LARGEST_LOG, LOGGED, is_counts, stored_values, without_wild
from dice._errors import InputError
from dice._types import Chunk, Floats

#: Cells that suffice to see whether all of them have the same total, and the fewest that show it.
SUM_CELLS, FEWEST_TOTALS = 64, 10
#: Totals of normalised cells agree up to the rounding of the file and a few genes that were filtered later.
SUM_SPREAD = 0.02
#: Logging once more makes a maximum x about log1p(x), 2.3 at most; without, it was at least 5.8. Between lies this
#: factor times log1p(x).
ROOM = 1.3
#: Fewest values other than zero that the largest of them is looked at.
FEWEST_VALUES = 200
#: Factor between the totals of the prior's genes, where target sums are not known. Cell types and technologies
#: alone made up to 4.8, and counts per million in place of ten thousand at least 20.
TOTAL_WARNING = 10.0
#: Fewest cells to compare totals of, and smallest share of the total that the shared genes should have.
TOTAL_CELLS, TOTAL_SHARE = 20, 0.5
#: What normalised expression may be, and what undoes it; all keep zeros.
TRANSFORMED: dict[str, tuple[str, Callable[[Floats], Floats]]] = {
    "log": ("natural logarithms", np.expm1),
    "none": ("normalised values without logarithm", np.asarray),
    "twice": ("logarithms of logarithms", lambda x: np.expm1(np.expm1(x))),
    "log2": ("logarithms to base 2", lambda x: np.exp2(x) - 1),
}

Statistics = Mapping[str, float]


def matrix_statistics(sample: Chunk, genes: NDArray[np.intp] | None = None) -> dict[str, float]:
    """Figures of a sample of cells with all genes, to be compared later; none where values are not finite.

    Of the `genes` in use (None: all): ``minimum`` and ``maximum``; ``nonzero``, the number of such values; ``counts``,
    1 for whole numbers only; ``centred``, 1 for scaled or centred genes; ``cell_total``, the median over cells of the
    sum of expm1, or 0 where that makes no sense. Of *all* genes, for each entry of `TRANSFORMED`: ``sum_<name>``, the
    total that every cell has once it is undone, or 0 where the cells do not agree on one.
    """
    sample = without_wild(sample)
    used = sample if genes is None else sample[:, genes]
    values = stored_values(used)
    if not used.shape[0] or not np.isfinite(np.sum(values, dtype=np.float64)):
        return {}
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    if sparse.issparse(used) and used.nnz < np.prod(used.shape):
        low, high = min(low, 0.0), max(high, 0.0)
    cells = np.linspace(0, sample.shape[0] - 1, min(SUM_CELLS, sample.shape[0])).astype(np.intp)
    return {
        "minimum": low,
        "maximum": high,
        "nonzero": float(np.count_nonzero(values)),
        "counts": float(is_counts(used, least=FEWEST_COUNTS)),
        "centred": float(low < 0 and _is_centred(used)),
        "cell_total": 0.0 if low < 0 or high > LARGEST_LOG else float(np.median(_row_sums(used[cells], np.expm1))),
        **{f"sum_{name}": _common_total(sample[cells], undo) for name, (_, undo) in TRANSFORMED.items()},
    }


def _row_sums(chunk: Chunk, function: Callable[[Floats], Floats]) -> Floats:
    """Sum of ``function(x)`` over the genes of every cell, for functions that keep zero; infinite if it overflows."""
    values = (chunk.toarray() if sparse.issparse(chunk) else chunk).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        # In the order of size, so that the order of the genes does not change the rounding.
        return np.sort(function(values), axis=1).sum(1)


def _is_centred(chunk: Chunk) -> bool:
    """Whether genes were centred: the zeros of each are one repeated negative value, or all values average out.

    Batch correction also makes values negative, but without ties, and it keeps the mean.
    """
    values = chunk.toarray() if sparse.issparse(chunk) else chunk
    tied = (values == values.min(0)).mean() > 0.25
    return bool(tied or abs(values.mean(dtype=np.float64)) < 0.1 * values.std(dtype=np.float64))


def _common_total(cells: Chunk, undo: Callable[[Floats], Floats]) -> float:
    """The total that all cells share once a transformation is undone, or 0."""
    totals = _row_sums(cells, undo)
    totals = totals[totals != 0]  # Empty cells have no total.
    if len(totals) < FEWEST_TOTALS or not np.isfinite(totals).all():
        return 0.0
    low, middle, high = np.quantile(totals, [0.05, 0.5, 0.95])
    return float(middle) if middle > 0 and high - low < SUM_SPREAD * middle else 0.0


def refuse_wild(matrix: Matrix, sample: Chunk) -> None:
    """Have a matrix refuse values beyond logarithms where a `sample` of it, or of its reference, holds logarithms."""
    values = stored_values(without_wild(sample))
    if values.min(initial=0) >= 0 and values.max(initial=0) <= LOGGED and not is_counts(sample, least=FEWEST_COUNTS):
        matrix.largest = LOGGED


def check_query(
    sample: Chunk, match: GeneMatch, known: Statistics, means: Floats | None = None, *, layer: str | None = None
) -> float:
    """Compare a sample of a query's cells, with all genes, with the statistics of its reference, and with its means.

    Returned is the factor that brings the query's cells to the reference's target sum. Raw counts, scaled, unlogged or
    twice logged values are errors. Values that are not finite are left to the pass that names their cells. A prior
    without statistics is only protected from raw counts. Sentences name the `layer` that the sample was taken from.
    """
    ours = matrix_statistics(sample, match.query)
    if not ours:
        return 1.0
    whole = ours.keys() <= known.keys()
    pair = _Pair(ours, known if whole else {"counts": 0.0, "sum_log": 0.0}, layer)
    problem = pair.counts() or (whole and (pair.centred() or pair.transformed()))
    if problem:
        raise InputError(f"{problem}, or pass check=False.")
    if whole and means is not None and sample.shape[0] >= TOTAL_CELLS:
        pair.compare_totals(match, means)
    return pair.factor()


def check_matrix(matrix: Matrix, match: GeneMatch, known: Statistics, means: Floats | None, layer: str | None) -> float:
    """Compare a sample of a query's matrix with its reference; the factor is that of :func:`check_query`."""
    sample = matrix.sample()
    if known.get("maximum", np.inf) <= LOGGED:
        refuse_wild(matrix, sample)
    return check_query(sample, match, known, means, layer=layer)


@dataclass(frozen=True)
class _Pair:
    """Statistics of query and reference; each method says what is wrong and how to mend it, or nothing."""

    ours: Statistics
    theirs: Statistics
    layer: str | None

    @property
    def x(self) -> str:
        return "adata.X" if self.layer is None else f"adata.layers[{self.layer!r}]"

    @property
    def log1p(self) -> str:
        return "sc.pp.log1p(adata)" if self.layer is None else f"sc.pp.log1p(adata, layer={self.layer!r})"

    @property
    def normalise(self) -> str:
        """The call that normalises a query to the reference's target sum, or to the usual one."""
        where = "" if self.layer is None else f", layer={self.layer!r}"
        return f"sc.pp.normalize_total(adata, target_sum={self.theirs['sum_log'] or 1e4:.5g}{where})"

    def counts(self) -> str:
        if not self.ours["counts"] or self.theirs["counts"]:
            return ""
        return (
            "The query holds raw counts, but the reference log-normalised expression: call "
            f"{self.normalise} and {self.log1p} first"
        )

    def centred(self) -> str:
        if self.ours["centred"] and self.theirs["minimum"] >= 0:
            return (
                f"The query was scaled or centred (its values begin at {self.ours['minimum']:.3g}), but the reference "
                "was not: use the expression from before sc.pp.scale, for example adata = adata.raw.to_adata() if it "
                "was kept there"
            )
        if self.theirs["centred"] and self.ours["minimum"] >= 0:
            return (
                "The reference was scaled or centred before its prior was trained, but the query was not: train again "
                "on log-normalised expression with dice.tl.train_prior(reference), which scales genes by itself"
            )
        return ""

    def transformed(self) -> str:
        """Logarithms too few, too many, or to another base: where cell totals tell, else by the largest values."""
        if min(self.ours["minimum"], self.theirs["minimum"]) < 0 or self.ours["nonzero"] < FEWEST_VALUES:
            return ""
        mine, other = (next((n for n in TRANSFORMED if x[f"sum_{n}"]), "") for x in (self.ours, self.theirs))
        to_log = {
            "none": self.log1p, "twice": f"{self.x} = np.expm1({self.x})", "log2": f"{self.x} = {self.x} * np.log(2)"
        }  # fmt: skip
        if mine and other:
            difference = f"The query holds {TRANSFORMED[mine][0]}, but the reference {TRANSFORMED[other][0]}"
            if other not in ("log", mine):
                return f"{difference}: train again after sc.pp.log1p(reference), called once on normalised counts"
            return "" if mine == other else f"{difference}: call {to_log[mine]} first"
        ours, theirs = self.ours["maximum"], self.theirs["maximum"]
        reach = f"(its values reach {ours:.3g}, the reference's {theirs:.3g})"
        if ours > LOGGED >= theirs:
            return (
                f"The query does not hold logarithms {reach}: call {self.normalise} and {self.log1p} on its raw counts "
                "first, or only the latter if it is normalised and not scaled"
            )
        if mine != "log" and ours < ROOM * np.log1p(theirs) < theirs:
            return f"The query is logged once more than the reference {reach}: call {to_log['twice']} first"
        return ""

    def factor(self) -> float:
        """What the query's values without logarithm are multiplied by, where target sums are known on both sides."""
        ours, theirs = (_usual(sums["sum_log"]) for sums in (self.ours, self.theirs))
        if not (ours and theirs) or abs(theirs / ours - 1) < SUM_SPREAD:
            return 1.0
        _log.say(
            f"Cells of {self.x} sum to {ours:.5g}, those of the reference to {theirs:.5g}: they are rescaled by "
            f"{theirs / ours:.4g} as they are read, and {self.x} stays as it is."
        )
        return theirs / ours

    def compare_totals(self, match: GeneMatch, means: Floats) -> None:
        """Warn where the prior's genes sum up to far more or less than in the reference, and nothing explains it."""
        ours, theirs = self.ours["cell_total"], self.theirs["cell_total"]
        if (self.ours["sum_log"] and self.theirs["sum_log"]) or not (ours > 0 and theirs > 0):
            return
        weights = np.expm1(np.maximum(means, 0))
        share = weights[match.prior].sum() / max(weights.sum(), 1e-12)
        factor = ours / (theirs * max(share, TOTAL_SHARE))
        if share >= TOTAL_SHARE and not 1 / TOTAL_WARNING < factor < TOTAL_WARNING:
            _log.warn(
                f"The prior's genes sum up to {factor:.2g} times what they do in the reference: was the query "
                f"normalised to the same target sum, on all its genes, by {self.normalise} and {self.log1p}?"
            )


def _usual(total: float) -> float:
    """A power of ten that a total differs from by no more than rounding and filters do, or the total itself."""
    power = 10.0 ** round(np.log10(total)) if total else 0.0
    return power if abs(total - power) < SUM_SPREAD * power else total
