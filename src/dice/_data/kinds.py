"""What kind of values a matrix holds: raw counts, logarithms, or genes that were scaled."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dice._data.preprocessing import LOGGED, is_counts, stored_values
from dice._errors import InputError
from dice._types import Chunk

#: A scaled gene averages out and has a standard deviation of one, each within this bound (of the latter). Of the genes
#: of pbmc68k and of a pancreas atlas sorted by donor, .99 and more average out once scaled; .22 as they are, up to .59
#: corrected by Harmony or ComBat, and .12 of simulated ones with negative values.
CENTRED, MOST = 0.2, 0.8
#: Share of the cells that have a gene's smallest value, once its zeros: .67 in pbmc68k, .11 in those of its genes that
#: more than four of five cells express. Values without zeros, as of regressed genes, have it once.
TIED = 0.05


def is_raw(chunk: Chunk) -> bool:
    """Whether a sample of cells holds raw counts; zeros, ones and twos alone may be either."""
    return bool(stored_values(chunk).max(initial=0) >= 3) and is_counts(chunk)


def is_unlogged(chunk: Chunk) -> bool:
    """Whether a sample of cells holds raw counts, or fractions of them that are too large for logarithms."""
    values = stored_values(chunk)
    return is_raw(chunk) or bool(values.min(initial=0) >= 0 and LOGGED < values.max(initial=0) < np.inf)


def is_scaled(chunk: Chunk) -> bool:
    """Whether most genes of a sample of cells were centred, by their zeros, which are a negative value, or scaled."""
    if stored_values(chunk).min(initial=0) >= 0 or not np.isfinite(stored_values(chunk)).all():
        return False
    values = np.asarray(chunk.toarray() if sparse.issparse(chunk) else chunk, dtype=np.float64)
    values = values[:, values.std(0) > 0]
    if not values.size:
        return False
    spread = values.std(0)
    centred = np.abs(values.mean(0)) <= CENTRED * spread
    tied = (values == values.min(0)).mean() > TIED + 1 / len(values)
    return bool(centred.mean() > MOST and (tied or (np.abs(spread - 1) <= CENTRED).mean() > MOST))


def check_expression(chunk: Chunk, *, who: str = "adata", scaled: bool = False) -> None:
    """Refuse raw counts, estimates of them, and scaled genes, where log-normalised expression is expected.

    `who` is what the user calls the object. Genes that are `scaled` may be asked for.
    """
    if is_unlogged(chunk):
        holds = (
            "raw counts" if is_raw(chunk) else f"values up to {stored_values(chunk).max():.4g}, which are no logarithms"
        )
        raise InputError(
            f"The matrix holds {holds}, but log-normalised expression is expected: call sc.pp.normalize_total({who}, "
            f"target_sum=1e4) and sc.pp.log1p({who}) first, or pass check=False."
        )
    if not scaled and is_scaled(chunk):
        raise InputError(
            f"The genes of {who} were scaled or centred (values begin at {stored_values(chunk).min():.3g}), but "
            "log-normalised expression is expected, which dice scales by itself: use the expression from before "
            f"sc.pp.scale, for example {who} = {who}.raw.to_adata() if it was kept there, or pass check=False."
        )
