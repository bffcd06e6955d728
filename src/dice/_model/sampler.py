"""The posterior of noisy latents without a chain: mean, samples, variance, and the random numbers of cells.

Split Gibbs (:mod:`dice._model.gibbs`) needs a chain only if the noise differs between directions. Otherwise its
stationary distribution is the posterior under Gaussian noise of level s = sqrt(s_x^2 + rho^2). The mean is then one
evaluation of the denoiser, samples are independent runs of the reverse diffusion from y, and the covariance is
s^2 dD/dy (second-order Tweedie formula). With the noise of counts, the depth of a cell replaces s_x, because the
denoiser has learned the noise at that depth. All values are in scaled units.

Random numbers are addressed by (seed, cell name, stream, dimension). The draws of a cell depend on this address only,
not on its chunk, the order of the file or the number of workers. Every 64-bit word is the SplitMix64 finaliser (Steele,
Lea & Flood 2014) of the cell's key and a counter. Any part of the sequence can therefore be computed directly, for all
cells at once, on any device.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from dice._model.networks import Denoiser

#: Largest noise level in scaled units. At this level, latents are almost pure noise, because their variance is about 1.
MAX_NOISE = 10.0
#: Streams of :class:`CellNoise`.
PROBES, SAMPLES, CHAINS = 0, 1, 2
#: Last noise level of the few-step sampler. It is far below the spread of any cell type.
NOISE_FLOOR = 0.02
#: Number of random probes for the trace of the posterior covariance. Each probe takes two evaluations.
N_PROBES = 2
#: Step of the central differences, in units of the noise level.
DIFFERENCE = 0.05


@dataclass(frozen=True)
class Posterior:
    """Posterior of cells: mean (n, k), samples (n, S, k) and variance (n,), averaged over latents.

    The fields are tensors in scaled units during the computation, and arrays in PCA units afterwards.
    """

    mean: Any
    samples: Any = None
    variance: Any = None
    #: Share of accepted Langevin moves; None without such moves.
    acceptance: float | None = None

    def map(self, function: Callable[[Any, int], Any]) -> Self:
        """Apply ``function(part, power)`` to all fields. `power` is 1 for mean and samples, and 2 for the variance."""
        parts = ((self.mean, 1), (self.samples, 1), (self.variance, 2))
        mean, samples, variance = (None if part is None else function(part, power) for part, power in parts)
        return type(self)(mean, samples, variance, self.acceptance)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the arrays of several chunks."""
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, name) for part in parts] for name in ("mean", "samples", "variance"))
        mean, samples, variance = (None if column[0] is None else np.concatenate(column) for column in columns)
        shares = [part.acceptance for part in parts if part.acceptance is not None]
        return cls(mean, samples, variance, sum(shares) / len(shares) if shares else None)


@torch.inference_mode()
def direct(
    denoiser: "Denoiser", y: Tensor, s: Tensor, noise: "CellNoise", log_depth: Tensor | None = None,
    n_samples: int = 0, *, uncertainty: bool = True,
) -> Posterior:  # fmt: skip
    """Compute the posterior of noisy latents y (n, k) at Gaussian noise levels s, () or (n,), without a chain.

    Pass `log_depth` (n,) for cells with the noise of counts. Without it, y has Gaussian noise only, and the variance is
    computed from the samples if there are at least two.
    """
    y, s = within_reach(y, s)
    draws = [denoiser.posterior_sample(y, s, noise.spawn(SAMPLES, draw), log_depth) for draw in range(n_samples)]
    samples, variance = torch.stack(draws, dim=1) if draws else None, None
    if uncertainty and samples is not None and n_samples > 1 and log_depth is None:
        variance = samples.var(1).mean(1) if len(samples) else y.new_empty(0)
    elif uncertainty:
        variance = denoiser.variance(y, s, noise, log_depth)
    return Posterior(denoiser(y, s, log_depth), samples, variance)


def within_reach(y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Limit noise levels s to `MAX_NOISE`, and scale y so that the posterior hardly changes.

    At larger levels the posterior is almost the prior. It depends on y only through y / s^2, which does not change.
    """
    share = (MAX_NOISE / as_column(s, y).clamp_min(1e-12)).clamp_max(1)
    return y * share.square(), torch.as_tensor(s, dtype=y.dtype, device=y.device).clamp_max(MAX_NOISE)


def as_column(s: Tensor, like: Tensor) -> Tensor:
    """Return noise levels as a (1, 1) or (n, 1) column, in the precision and on the device of `like`."""
    return torch.as_tensor(s, dtype=like.dtype, device=like.device).reshape(-1, 1)


def noise_grid(start: Tensor, n_steps: int) -> Tensor:
    """Return noise levels (n_steps, n or 1, 1) that fall from `start` (n or 1, 1) in even steps of their cube root."""
    end = torch.minimum(torch.full_like(start, NOISE_FLOOR), 0.2 * start)
    share = torch.linspace(0, 1, n_steps, dtype=start.dtype, device=start.device)[:, None, None]
    return (start.pow(1 / 3) + share * (end.pow(1 / 3) - start.pow(1 / 3))).pow(3)


def sample_sde(denoiser: "Denoiser", z: Tensor, s: Tensor, noise: "CellNoise", *, n_steps: int = 10) -> Tensor:
    """Draw once from the posterior of each cell (n, k), by DPM-Solver++(2M) for the reverse SDE (Lu et al. 2022).

    The diffusion starts at z, which is the clean latent plus noise of level s. The probability-flow ODE would give the
    same value in every draw.
    """
    levels = noise_grid(as_column(s, z), n_steps)
    x = z
    previous: tuple[Tensor, Tensor] | None = None
    for step in range(n_steps - 1):
        a, b = levels[step], levels[step + 1]
        mean = denoiser(x, a[:, 0])
        h, e2 = torch.log(a / b), (b / a).square()
        x = e2 * x + (1 - e2) * mean
        if previous is not None:
            # Second order: extrapolate the denoised value linearly in the log noise level.
            last_mean, last_h = previous
            x = x + (1 - e2) / 2 * (h / last_h) * (mean - last_mean)
        x = x + b * (1 - e2).sqrt() * noise.normal(step, z.shape[1])
        previous = (mean, h)
    return denoiser(x, levels[-1][:, 0])


def probe_variance(denoiser: "Denoiser", y: Tensor, s: Tensor, noise: "CellNoise") -> Tensor:
    """Estimate the posterior variance (n,), averaged over latents: s^2 tr(dD/dy) / k by Hutchinson probes.

    Products with dD/dy are central differences. Torch's forward-mode differentiation would cost the same, but threads
    cannot share its global state.
    """
    level = as_column(s, y)
    step = DIFFERENCE * level
    probes = noise.spawn(PROBES)
    trace = torch.zeros(len(y), dtype=y.dtype, device=y.device)
    for probe in range(N_PROBES):
        v = probes.signs(probe, y.shape[1]).to(y.dtype)
        product = (denoiser(y + step * v, s) - denoiser(y - step * v, s)) / (2 * step)
        trace = trace + (v * product).sum(1)
    return (level[:, 0].square() * trace / (N_PROBES * y.shape[1])).clamp_min(0)


# 0xBF58476D1CE4E5B9 and 0x94D049BB133111EB as signed numbers. Torch has no unsigned arithmetic, but multiplication
# modulo 2^64 is the same for both.
_MIX_1, _MIX_2 = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
_MASK_32 = 0xFFFFFFFF


def cell_seeds(names: Iterable[str], seed: int) -> NDArray[np.int64]:
    """Return a 64-bit seed for every cell name. Cells with the same name get different seeds."""
    seen: dict[str, int] = {}
    keys = []
    for name in names:
        occurrence = seen[name] = seen.get(name, -1) + 1
        text = f"{seed}\0{occurrence}\0{name}".encode(errors="surrogatepass")
        keys.append(hashlib.blake2b(text, digest_size=8).digest())
    return np.frombuffer(bytearray(b"".join(keys)), dtype="<i8")


class CellNoise:
    """Random numbers of a set of cells: normal variables, uniform variables and signs.

    Parameters
    ----------
    keys
        Keys (n,) of the cells from :func:`cell_seeds`.
    stream
        Numbers that name the purpose of the draws, such as a sample or a chain. Different streams are independent.
    """

    def __init__(self, keys: Tensor, *stream: int) -> None:
        self.keys = keys
        self.stream = stream

    def spawn(self, *stream: int) -> Self:
        """Return the random numbers of the same cells in a substream."""
        return type(self)(self.keys, *self.stream, *stream)

    def normal(self, step: int, size: int) -> Tensor:
        """Draw standard normal variables (n, size), float32, by the Box-Muller transform."""
        words = self._words(step, (size + 1) // 2)
        radius = torch.sqrt(-2 * torch.log(_unit(words >> 32)))
        angle = 2 * torch.pi * _unit(words)
        pairs = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=2)
        return pairs.flatten(1)[:, :size]

    def uniform(self, step: int, size: int) -> Tensor:
        """Draw uniform variables (n, size) in (0, 1], float32."""
        return _unit(self._words(step, size))

    def signs(self, step: int, size: int) -> Tensor:
        """Draw independent signs -1 and 1 (n, size), float32."""
        return (self._words(step, size) & 1).float() * 2 - 1

    def _words(self, step: int, size: int) -> Tensor:
        counters = torch.arange(size, dtype=torch.int64, device=self.keys.device)
        for part in (step, *reversed(self.stream)):
            counters = _mix(counters ^ _mix(torch.full_like(counters, part + 1)))
        return _mix(self.keys[:, None] ^ counters)


def _mix(x: Tensor) -> Tensor:
    """Apply the SplitMix64 finaliser, a bijection of 64-bit words whose output bits look independent."""
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift bits to the right and fill with zeros. Torch's own shift copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _unit(words: Tensor) -> Tensor:
    """Return the low 32 bits as a number in (0, 1]."""
    return ((words & _MASK_32).double() + 0.5).mul_(2.0**-32).float()
