"""The default network: its size, its preconditioning, and the noise that it is trained with."""

from __future__ import annotations

import math

import pytest
import torch

from dice._core.prior.networks.edm import EDMDenoiser


@pytest.mark.parametrize(("k", "width"), [(1, 128), (51, 128), (52, 192), (76, 192), (77, 256), (500, 256)])
def test_the_width_follows_the_latents(k, width):
    """About two and a half of them, in steps of 64 from 128 to 256."""
    assert EDMDenoiser(k).width == width
    assert EDMDenoiser(k, width=32).width == 32


def test_preconditioning_is_that_of_the_variances():
    """At the start the learned part is zero: the Wiener filter is left."""
    network = EDMDenoiser.empty({"n_latent": 2, "width": 8, "depth": 1})
    network.initialize(torch.Generator().manual_seed(0))
    network.variances.copy_(torch.tensor([4.0, 1.0]))
    z, s = torch.tensor([[2.0, 2.0]]), torch.tensor(2.0)
    torch.testing.assert_close(network(z, s), z * torch.tensor([[0.5, 0.2]]))
    skip, out, into = network.coefficients(torch.tensor([[2.0]]))
    torch.testing.assert_close(skip, torch.tensor([[0.5, 0.2]]))
    torch.testing.assert_close(out, torch.tensor([[2.0, 0.8]]).sqrt())
    torch.testing.assert_close(into, torch.tensor([[8.0, 5.0]]).rsqrt())


def test_noise_levels_are_log_normal():
    """Mean -0.8 and deviation 1.4, evenly spread over a batch; cells share them by eights."""
    network = EDMDenoiser.empty({"n_latent": 3, "width": 8, "depth": 1})
    network.initialize(torch.Generator().manual_seed(0))
    seen = []
    network.network = lambda z, s: seen.append(s) or torch.zeros_like(z)
    loss = network.loss(torch.randn(8000, 3, generator=torch.Generator().manual_seed(1)), torch.Generator())
    logs = seen[0].log().ravel()
    assert len(logs) == 1000
    assert float(logs.mean()) == pytest.approx(-0.8, abs=0.01)
    assert float(logs.std()) == pytest.approx(1.4, abs=0.02)
    # The Wiener filter, which is left, is wrong by the mean of c_out^2 at every level.
    assert float(loss) == pytest.approx(1.0, abs=0.05)
    network.loss(torch.zeros(9, 3), torch.Generator())
    assert len(seen[1]) == 9


def test_blocks_scale_and_shift():
    block = EDMDenoiser(3, width=8, depth=1).blocks[0]
    assert block.film.weight.shape == (16, 8)
    with torch.no_grad():
        hidden, embedding = torch.randn(5, 8), torch.randn(5, 8)
        scale, shift = block.film(embedding)[:, :8], block.film(embedding)[:, 8:]
        normal = (hidden - hidden.mean(1, keepdim=True)) / (hidden.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        expected = hidden + block.contract(torch.nn.functional.silu(block.expand(normal * (1 + scale) + shift)))
        torch.testing.assert_close(block(hidden, embedding), expected, atol=1e-5, rtol=1e-4)
    assert math.isfinite(float(block.film.bias.sum().detach()))
