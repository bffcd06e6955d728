"""Find out what a matrix holds (raw counts, logarithms or scaled genes), and whether a query fits its reference.

A sample of cells decides. Values of another kind in only a few cells are mistakes: reading the matrix raises an error
that names these cells and genes. Bounds were set on real pairs of data (tests/data/test_value_checks.py).
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy import sparse

from dice import _log
from dice._data.genes import GeneMatch
from dice._data.matrix import Matrix
from dice._data.sources import cells_with, not_whole, stored_values
from dice._errors import InputError
from dice._types import Chunk, Codes, Floats, Mask

#: Larger values cannot be logarithms: their exponentials overflow.
LARGEST_LOG = 100.0
#: Minimum number of non-zero values to tell counts from expression that happens to be whole.
FEWEST_COUNTS = 20
#: Largest plausible logarithm: log2 of a million is 20. Matrices without logarithms had maxima of at least 300.
LOGGED = 25.0
#: Largest share of mistaken cells: one of the 8 places of a sample. Among logarithms, mistakes are counts, values above
#: `LOGGED` that are `WILD_GAP` times those of other cells, and values below `NEGATIVE` if no other cell is negative.
FEW_WILD, WILD_GAP, NEGATIVE = 0.13, 2.0, -1.0
#: A scaled gene has mean 0 and standard deviation 1, up to `CENTRED`. A share above `MOST` of the genes must be scaled.
#: Mean 0 is found in .99 of scaled genes of pbmc68k and a pancreas atlas, in .22 of unscaled genes, and in up to .59
#: after Harmony or ComBat.
CENTRED, MOST = 0.2, 0.8
#: Share of cells with the smallest value of their gene, above which genes were centred: these values were zeros. It is
#: .11 or more in pbmc68k. After covariates are regressed out, genes have no common smallest value.
TIED = 0.05
#: Number of cells whose totals are compared, and minimum numbers of non-empty cells and of non-zero values.
SUM_CELLS, FEWEST_TOTALS, FEWEST_VALUES = 64, 10, 200
#: Totals of normalised cells agree up to the rounding of the file and a few genes that were filtered later.
SUM_SPREAD = 0.02
#: A second logarithm turns a maximum x into about log1p(x), at most 2.3; other maxima were at least 5.8. A maximum
#: below this factor times log1p(x) shows a second logarithm.
ROOM = 1.3
#: Warn if totals of query and reference over the prior's genes differ by this factor and target sums are unknown. Cell
#: types and technologies caused factors up to 4.8, counts per million instead of ten thousand at least 20.
TOTAL_WARNING = 10.0
#: Minimum number of cells to compare totals, and minimum share of the shared genes in the total.
TOTAL_CELLS, TOTAL_SHARE = 20, 0.5
#: Kinds of normalised expression: name, inverse (which keeps zeros), and the call that makes natural logarithms of it.
TRANSFORMED: dict[str, tuple[str, Callable[[Floats], Floats], str]] = {
    "log": ("natural logarithms", np.expm1, ""),
    "none": ("normalised values without logarithm", np.asarray, "{log1p}"),
    "twice": ("logarithms of logarithms", lambda x: np.expm1(np.expm1(x)), "{x} = np.expm1({x})"),
    "log2": ("logarithms to base 2", lambda x: np.exp2(x) - 1, "{x} = {x} * np.log(2)"),
}

Statistics = Mapping[str, float]


def is_counts(sample: Chunk, *, least: int = 0) -> bool:
    """Return whether most cells hold only whole numbers from 0, and the sample has at least `least` non-zero values."""
    values = stored_values(sample)
    filled, odd = (cells_with(sample, mask).sum() for mask in (values != 0, not_whole(values)))
    return bool(np.count_nonzero(values) >= least and odd <= FEW_WILD * filled)


def is_raw(sample: Chunk) -> bool:
    """Return whether a sample holds raw counts. Zeros, ones and twos alone are no proof, as they may be expression."""
    values = stored_values(sample)
    return bool(values[~not_whole(values)].max(initial=0) >= 3) and is_counts(sample)


def is_unlogged(sample: Chunk) -> bool:
    """Return whether a sample holds raw counts, or fractions of counts that are too large for logarithms."""
    values = stored_values(_without_wild(sample))
    return is_raw(sample) or bool(values.min(initial=0) >= 0 and LOGGED < values.max(initial=0) < np.inf)


def is_scaled(sample: Chunk) -> bool:
    """Return whether most genes are centred, and have unit variance or many equal values (zeros before centring)."""
    sample = _without_wild(sample)
    if stored_values(sample).min(initial=0) >= 0 or not np.isfinite(stored_values(sample)).all():
        return False
    values = np.asarray(sample.toarray() if sparse.issparse(sample) else sample, dtype=np.float64)
    values = values[:, values.std(0) > 0]
    if not values.size:
        return False
    spread = values.std(0)
    centred = np.abs(values.mean(0)) <= CENTRED * spread
    tied = (values == values.min(0)).mean() > TIED + 1 / len(values)
    return bool(centred.mean() > MOST and (tied or (np.abs(spread - 1) <= CENTRED).mean() > MOST))


def refuse_wild(matrix: Matrix, sample: Chunk) -> None:
    """Make a matrix refuse outliers if a `sample` of the matrix, or of its reference, is log-normalised."""
    values = stored_values(_without_wild(sample))
    if values.min(initial=0) >= 0 and values.max(initial=0) <= LOGGED and not is_counts(sample, least=FEWEST_COUNTS):
        matrix.rules.smallest, matrix.rules.largest = NEGATIVE, LOGGED


def matrix_statistics(sample: Chunk, genes: Codes | None = None) -> dict[str, float]:
    """Return statistics of a sample of cells with all genes, for later comparisons; empty if a value is not finite.

    Of the `genes` in use (None: all): ``minimum``, ``maximum``; ``nonzero``, the number of non-zero values; ``counts``,
    1 for whole numbers; ``centred``, 1 for scaled or centred genes; ``cell_total``, the median over cells of the sum of
    expm1, or 0 if it overflows. Of *all* genes, for each entry of `TRANSFORMED`: ``sum_<name>``, the common total of
    all cells after the transformation is undone, or 0 if totals differ.
    """
    sample = _without_wild(sample)
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
        "centred": float(low < 0 and is_scaled(used)),
        "cell_total": 0.0 if low < 0 or high > LARGEST_LOG else float(np.median(_totals(used[cells], np.expm1))),
        **{f"sum_{name}": _common_total(sample[cells], undo) for name, (_, undo, _) in TRANSFORMED.items()},
    }


def check_query(matrix: Matrix, match: GeneMatch, known: Statistics, means: Floats | None = None) -> float:
    """Compare a sample of a query's cells with the statistics and the means of its reference.

    Return the factor from the query's target sum to the reference's. Raw counts, scaled, unlogged or twice logged
    values are errors. A prior without statistics only refuses raw counts.
    """
    sample = matrix.sample()
    if known.get("maximum", np.inf) <= LOGGED:
        refuse_wild(matrix, sample)
    ours = matrix_statistics(sample, match.query)
    if not ours:
        return 1.0
    matrix.rules.whole = bool(ours["counts"])
    theirs = dict.fromkeys(ours, 0.0) | dict(known)
    x, at = matrix.where, "" if matrix.layer is None else f", layer={matrix.layer!r}"
    log1p, total = f"sc.pp.log1p({matrix.who}{at})", theirs["sum_log"] or 1e4
    both = f"sc.pp.normalize_total({matrix.who}, target_sum={total:.5g}{at}) and {log1p}"
    problem = _problem(ours, theirs)
    if problem:
        raise InputError(f"{problem.format(x=x, log1p=log1p, both=both)}, or pass check=False.")
    if means is not None and sample.shape[0] >= TOTAL_CELLS:
        factor = _excess(ours, theirs, match, means)
        if not 1 / TOTAL_WARNING < factor < TOTAL_WARNING:
            _log.warn(
                f"The prior's genes sum to {factor:.2g} times as much in the query as in the reference: call {both}."
            )
    one, other = ours["sum_log"], theirs["sum_log"]
    if not (one and other) or abs(other / one - 1) < SUM_SPREAD:
        return 1.0
    _log.say(
        f"Cells of {x} sum to {one:.5g}, but cells of the reference to {other:.5g}: {x} is rescaled when it is read."
    )
    return other / one


def _problem(ours: Statistics, theirs: Statistics) -> str:
    """Return an error text: how the query differs from the reference, and the fix. Empty if both agree."""
    if ours["counts"] and not theirs["counts"]:
        return "The query holds raw counts, but the reference holds log-normalised expression: call {both} first"
    if ours["centred"] and theirs["minimum"] >= 0:
        return (
            f"The query was scaled or centred (its minimum is {ours['minimum']:.3g}), but the reference was not: "
            "use the expression from before sc.pp.scale, for example adata = adata.raw.to_adata() if it was kept there"
        )
    if theirs["centred"] and ours["minimum"] >= 0:
        return "The reference was scaled, but the query was not: call dice.tl.train_prior(reference) on unscaled values"
    if min(ours["minimum"], theirs["minimum"]) < 0 or ours["nonzero"] < FEWEST_VALUES:
        return ""
    # A missing, second or different logarithm shows in the totals of cells or, without common totals, in the maxima.
    mine, other = (next((n for n in TRANSFORMED if x[f"sum_{n}"]), "") for x in (ours, theirs))
    if mine and other:
        difference = f"The query holds {TRANSFORMED[mine][0]}, but the reference holds {TRANSFORMED[other][0]}"
        if other not in ("log", mine):
            return f"{difference}: call sc.pp.log1p(reference) once on normalised counts, then train again"
        return "" if mine == other else f"{difference}: call {TRANSFORMED[mine][2]} first"
    high, expected = ours["maximum"], theirs["maximum"]
    reach = f"(its maximum is {high:.3g}, the reference's is {expected:.3g})"
    if high > LOGGED >= expected:
        return f"The query does not hold logarithms {reach}: call {{both}} on raw counts, or only the latter"
    if mine != "log" and high < ROOM * np.log1p(expected) < expected:
        return f"The query was logged once more than the reference {reach}: call {TRANSFORMED['twice'][2]} first"
    return ""


def _excess(ours: Statistics, theirs: Statistics, match: GeneMatch, means: Floats) -> float:
    """Return the ratio of cell totals over the prior's genes, query to reference; 1 if it is unknown or not needed."""
    one, other = ours["cell_total"], theirs["cell_total"]
    weights = np.expm1(np.maximum(means, 0))
    share = weights[match.prior].sum() / max(weights.sum(), 1e-12)
    known = (ours["sum_log"] and theirs["sum_log"]) or share < TOTAL_SHARE or not (one > 0 and other > 0)
    return 1.0 if known else float(one / (other * share))


def _without_wild(sample: Chunk) -> Chunk:
    """Return a sample without a few outlier cells. A few values that are too large for logarithms become 0."""
    if is_counts(sample) or not sample.shape[0]:
        return sample
    bounds = (sample.min(1), sample.max(1))
    smallest, largest = (np.ravel(x.toarray() if sparse.issparse(x) else x) for x in bounds)
    counted = (largest >= 3) & ~cells_with(sample, not_whole(stored_values(sample)))
    wild = _is_wild(largest, len(largest)) | (counted & (counted.mean() <= FEW_WILD))
    if wild.any():
        sample, smallest = sample[~wild], smallest[~wild]
    n_values = int(np.count_nonzero(stored_values(sample)))
    if n_values >= FEWEST_VALUES and (wild := _is_wild(stored_values(sample), n_values)).any():
        sample = sample.copy()
        stored_values(sample)[wild] = 0
    low = (smallest < NEGATIVE) & (smallest > -np.inf)
    return sample[~low] if 0 < low.mean() <= FEW_WILD and smallest[~low].min() >= 0 else sample


def _is_wild(values: Floats, n: int) -> Mask:
    """Return a mask of values too large for logarithms, if only a few of n values are, and far above all others."""
    high = (values > LOGGED) & (values < np.inf)
    return high & (0 < high.sum() <= FEW_WILD * n and values[high].min() > WILD_GAP * values[~high].max())


def _totals(chunk: Chunk, function: Callable[[Floats], Floats]) -> Floats:
    """Return the sum of ``function(x)`` over the genes of every cell; infinite if it overflows."""
    values = (chunk.toarray() if sparse.issparse(chunk) else chunk).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        # Add values in the order of their size, so that the order of the genes does not change the rounding.
        return np.sort(function(values), axis=1).sum(1)


def _common_total(cells: Chunk, undo: Callable[[Floats], Floats]) -> float:
    """Return the common total of all cells after `undo`, rounded to a near power of ten; 0 if totals differ."""
    totals = _totals(cells, undo)
    totals = totals[totals != 0]  # Empty cells have no total.
    if len(totals) < FEWEST_TOTALS or not np.isfinite(totals).all():
        return 0.0
    low, middle, high = np.quantile(totals, [0.05, 0.5, 0.95])
    if middle <= 0 or high - low >= SUM_SPREAD * middle:
        return 0.0
    power = 10.0 ** round(np.log10(middle))
    return power if abs(middle - power) < SUM_SPREAD * power else float(middle)
