"""Counts, logarithms and scaled genes told apart, at the bounds themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import dice
from dice._data.value_checks import LOGGED
from dice._data.values import check_expression, is_raw, is_scaled, is_unlogged

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(2, size=(40, 20)).astype(np.float32)
LOGGED_CELLS = np.log1p(COUNTS)
KINDS = [np.asarray, sparse.csr_array]


@pytest.mark.parametrize("kind", KINDS)
def test_raw_counts_reach_three(kind):
    assert is_raw(kind(COUNTS))
    assert is_raw(kind(np.minimum(COUNTS, 3)))
    assert not is_raw(kind(np.minimum(COUNTS, 2)))
    assert not is_raw(kind(COUNTS + 0.5))
    assert not is_raw(kind(LOGGED_CELLS))


@pytest.mark.parametrize("kind", KINDS)
def test_values_beyond_any_logarithm(kind):
    fractions = COUNTS * np.float32(LOGGED / COUNTS.max())
    fractions[fractions == fractions.max()] = LOGGED
    assert not is_unlogged(kind(fractions))
    assert is_unlogged(kind(fractions * 1.01))
    assert not is_unlogged(kind(fractions * 1.01 - 1))
    assert is_unlogged(kind(COUNTS))
    endless = fractions.copy()
    endless[0, 0] = np.inf
    assert not is_unlogged(kind(endless))


def centred(values):
    return values - values.mean(0)


@pytest.mark.parametrize("kind", KINDS)
def test_scaled_genes(kind):
    assert not is_scaled(kind(LOGGED_CELLS))
    assert is_scaled(kind(centred(LOGGED_CELLS)))
    assert not is_scaled(kind(centred(LOGGED_CELLS) * np.nan))
    assert not is_scaled(kind(np.full((5, 3), -1.0)))
    without_ties = centred(RNG.normal(size=(400, 20)))
    unit = without_ties / without_ties.std(0)
    for spread, scaled in ((1.0, True), (1.19, True), (1.21, False), (0.81, True), (0.79, False)):
        assert is_scaled(kind(unit * spread)) == scaled, spread
    for moved, scaled in ((0.19, True), (0.21, False)):
        assert is_scaled(kind(unit + moved)) == scaled, moved


@pytest.mark.parametrize(("n", "scaled"), [(16, False), (17, True)])
def test_most_genes_have_to_be_centred(n, scaled):
    """More than four of five: 16 of 20 are not."""
    values = centred(RNG.normal(size=(400, 20)))
    values /= values.std(0)
    values[:, n:] += 5
    assert is_scaled(values) == scaled


def test_what_was_asked_for_is_not_refused():
    check_expression(centred(LOGGED_CELLS), scaled=True)
    with pytest.raises(dice.DiceError, match=r"^The genes of query were scaled or centred \(values begin at -1"):
        check_expression(centred(LOGGED_CELLS), who="query")
    with pytest.raises(dice.DiceError, match=r"^The matrix holds raw counts, .*normalize_total\(query, target_sum=1e4"):
        check_expression(COUNTS, who="query", scaled=True)
    with pytest.raises(dice.DiceError, match=r"^The matrix holds values up to 200\.5, too large for logarithms"):
        check_expression(np.array([[0.0, 200.5]]))
