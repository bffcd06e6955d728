"""Random numbers that belong to a cell."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from dice._model.sampler import CellNoise, cell_seeds

NAMES = [f"cell_{i}" for i in range(4000)]
KEYS = torch.as_tensor(cell_seeds(NAMES, seed=0))


def test_normals_are_standard_and_independent():
    draws = CellNoise(KEYS, 1, 2).normal(3, 9).double().numpy()
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-3
    correlation = np.corrcoef(draws.T) - np.eye(9)
    assert np.abs(correlation).max() < 5 / np.sqrt(len(draws))


def test_uniforms_and_signs():
    uniform = CellNoise(KEYS).uniform(0, 5).numpy()
    assert uniform.min() > 0
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-3
    signs = CellNoise(KEYS).signs(0, 5)
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) < 4 / np.sqrt(signs.numel())


@pytest.mark.parametrize("other", [CellNoise(KEYS, 1), CellNoise(KEYS, 0, 0), CellNoise(KEYS, 1, 0)])
def test_streams_and_steps_are_independent(other):
    one = CellNoise(KEYS, 0).normal(0, 4).flatten()
    for step in (0, 1):
        correlation = np.corrcoef(one, other.normal(step, 4).flatten())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(len(one))
    assert not torch.equal(one.reshape(-1, 4), CellNoise(KEYS, 0).normal(1, 4))


def test_cells_do_not_depend_on_their_neighbours():
    whole = CellNoise(KEYS, 5).normal(7, 3)
    order = torch.randperm(len(KEYS), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(CellNoise(KEYS[order], 5).normal(7, 3), whole[order], rtol=0, atol=0)
    torch.testing.assert_close(CellNoise(KEYS[10:20], 5).normal(7, 3), whole[10:20], rtol=0, atol=0)
    torch.testing.assert_close(CellNoise(KEYS, 5).normal(7, 2), whole[:, :2], rtol=0, atol=0)


def test_duplicates_are_told_apart_by_their_occurrence():
    keys = cell_seeds(["a", "b", "a", "a"], seed=0)
    assert len(set(keys)) == 4
    np.testing.assert_array_equal(cell_seeds(["b", "a", "a"], seed=0)[1:], keys[[0, 2]])
    assert set(cell_seeds(["a", "b"], seed=1)).isdisjoint(keys)


def test_the_address_of_a_cell_is_its_seed_its_occurrence_and_its_name():
    """Results of earlier releases are only found again if the same cells keep their numbers."""
    import hashlib

    texts = [b"7\x000\x00a", b"7\x000\x00b", b"7\x001\x00a", b"7\x002\x00a"]
    expected = [int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True) for text in texts]
    assert cell_seeds(["a", "b", "a", "a"], 7).tolist() == expected
