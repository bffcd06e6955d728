"""The grid of noise levels and single steps of the reverse diffusion, by hand."""

from __future__ import annotations

import pytest
import torch

from dice._model.sampler import NOISE_FLOOR, CellNoise, cell_seeds, noise_grid, sample_sde


@pytest.mark.parametrize(("start", "end"), [(8.0, 0.02), (0.1, 0.02), (0.05, 0.01)])
def test_levels_fall_evenly_in_their_cube_root(start, end):
    """Down to 0.02, or to a fifth of a start that is small itself."""
    levels = noise_grid(torch.tensor([[start]]).double(), 10)
    assert levels.shape == (10, 1, 1)
    roots = levels.ravel().pow(1 / 3)
    torch.testing.assert_close(roots, torch.linspace(start ** (1 / 3), end ** (1 / 3), 10).double(), rtol=1e-6, atol=0)
    assert NOISE_FLOOR == 0.02


def test_every_level_is_evaluated_once():
    """Ten levels are ten evaluations, the last of which is the draw."""
    asked = []

    def denoiser(z, s):
        asked.append(float(s))
        return torch.full_like(z, 7.0)

    noise = CellNoise(torch.as_tensor(cell_seeds(["a", "b"], 0)))
    drawn = sample_sde(denoiser, torch.zeros(2, 3), torch.tensor(1.0), noise)
    assert asked == pytest.approx(noise_grid(torch.tensor([[1.0]]), 10).ravel().tolist())
    torch.testing.assert_close(drawn, torch.full((2, 3), 7.0))


def test_a_constant_denoiser_leaves_noise_of_the_last_level():
    """Between the levels a cell is the clean value plus noise of that level, whatever the number of steps."""
    seen = []

    def denoiser(z, s):
        seen.append((float(s), z))
        return torch.zeros_like(z)

    n = 20_000
    noise = CellNoise(torch.as_tensor(cell_seeds(map(str, range(n)), 0)))
    sample_sde(denoiser, torch.randn(n, 2, generator=torch.Generator().manual_seed(0)), torch.tensor(1.0), noise)
    for level, z in seen:
        assert float(z.std()) == pytest.approx(level, rel=0.03)
