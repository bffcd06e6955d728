"""Pairs of reference and query that tests of the tools share, each trained once."""

from __future__ import annotations

import pytest

import dice


@pytest.fixture(scope="session")
def _pair():
    reference, query = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent="elbow", scale=False)
    return reference, query


@pytest.fixture(scope="session")
def clustered(counted_pair):
    """Counts of ten types: a reference, and a query that is denoised and clustered."""
    reference, query = (cells.copy() for cells in counted_pair)
    dice.tl.denoise(query, reference)
    dice.tl.cluster(query)
    return reference, query


@pytest.fixture
def reference(_pair):
    """Reference of Setup 1, or of the module's own pair, with its trained prior, a fresh copy."""
    return _pair[0].copy()


@pytest.fixture
def query(_pair):
    """Query of Setup 1, or of the module's own pair, a fresh copy."""
    return _pair[1].copy()
