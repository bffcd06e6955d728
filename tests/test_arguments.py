"""Checks of plain arguments: the value in one form, or one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import dice
from dice._arguments import as_embedding, is_number, number, seed, share, short_seed


def test_a_seed_is_a_number_or_one_draw_of_a_generator():
    assert seed(3) == seed(np.int64(3)) == 3
    for make in (np.random.default_rng, np.random.RandomState):
        first, again = make(1), make(1)
        drawn = seed(first)
        assert isinstance(drawn, int)
        assert 0 <= drawn < 2**63
        assert drawn == seed(again) != seed(first)
    assert seed(None) != seed(None)
    assert short_seed(5) == 5
    assert short_seed(2**40 + 5) == 5


@pytest.mark.parametrize("value", [-1, 0.5, True, "x", np.nan, [1]])
def test_other_seeds_are_refused(value):
    with pytest.raises(dice.DiceError, match=r"`random_state` must be a non-negative whole number or a ") as caught:
        seed(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, True, "x", np.nan, None])
def test_what_is_no_share(value):
    with pytest.raises(dice.DiceError, match=r"`alpha` must be a number between 0 and 1, got"):
        share("alpha", value)
    assert share("alpha", 0.3) == 0.3


def test_numbers_of_numpy_are_numbers():
    """Comparing a float32 with the bounds warned of an overflow."""
    for value in (np.float16(0.5), np.float32(0.95), np.float64(2), np.longdouble(1), np.int8(3), 10**200):
        assert is_number(value)
    for value in (np.float32("nan"), np.float32("inf"), np.bool_(True), 10**400, "1", None, np.ones(1), 1j):
        assert not is_number(value)


def test_bounds_of_numbers():
    assert number("x", 0, least=0, most=1) == 0.0
    with pytest.raises(dice.DiceError, match="`x` must be a number from 0 to 1, got 2"):
        number("x", 2, least=0, most=1)
    with pytest.raises(dice.DiceError, match="`x` must be a number from 0 to 1, got -1"):
        number("x", -1, least=0, most=1)


def test_a_sparse_embedding_of_few_values_is_refused():
    """A file of 400 KB asked for 1.5 TB when it was made dense."""
    with pytest.raises(dice.DiceError, match="The embedding must be dense, got 0 values in the shape"):
        as_embedding(sparse.csr_matrix((200, 2 * 10**9), dtype=np.float32))
    assert as_embedding(sparse.csr_matrix((200, 1000), dtype=np.float32)).shape == (200, 1000)
