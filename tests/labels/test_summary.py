"""What the summary says of small queries and weak results."""

from __future__ import annotations

import re

import pytest

from dice._labels.summary import _next_step


@pytest.mark.parametrize(
    ("n_genes", "n_vars", "confident", "said"),
    [
        (3000, 20_000, 0.9, None),
        # A panel has few genes, but most of them are used.
        (150, 200, 0.9, None),
        (150, 20_000, 0.9, "check that both name genes alike .* 150 of the query's 20,000"),
        (3000, 20_000, 0.3, "coarser labels .*dice.tl.safe_labels"),
    ],
)
def test_what_to_try_next(n_genes, n_vars, confident, said):
    found = _next_step(n_genes, n_vars, confident)
    assert found is None if said is None else re.match(said, found)
