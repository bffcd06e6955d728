"""A prior trained once on the first synthetic setup, shared by all tests of the tools."""

from __future__ import annotations

import pytest

import dice


@pytest.fixture(scope="session")
def _pair():
    reference, query = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent="elbow", scale=False)
    return reference, query


@pytest.fixture
def reference(_pair):
    """Reference of Setup 1 with its trained prior, a fresh copy."""
    return _pair[0].copy()


@pytest.fixture
def query(_pair):
    """Query of Setup 1, a fresh copy."""
    return _pair[1].copy()
