"""The paper's network and noise schedule (appendix C of the paper), as a `Denoiser`.

The network predicts the noise eps of x_t = sqrt(abar_t) u + sqrt(1 - abar_t) eps. A latent with noise of standard
deviation s, divided by sqrt(1 + s^2), is such an x_t at the step t with abar_t = 1 / (1 + s^2).
"""

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dice._model.networks import Denoiser, Preset, TrainingConfig
from dice._model.sampler import CellNoise, as_column

N_STEPS = 512
BETA_START, BETA_END = 1e-4, 2e-2
TIME_FEATURES = 16
#: The linear schedule of beta and alpha_bar over the steps t = 1..512, with alpha_bar = 1 at t = 0. The noise level s
#: of a step is 0 at t = 0 and about 13.3 at t = 512.
BETA = np.concatenate([[0.0], np.linspace(BETA_START, BETA_END, N_STEPS)])
ALPHA_BAR = np.cumprod(1 - BETA)
NOISE_LEVELS = np.sqrt(1 / ALPHA_BAR - 1)
LOG_NOISE = torch.as_tensor(np.log(NOISE_LEVELS[1:]), dtype=torch.float32)


def first_step(rho: float) -> int:
    """Return t0(rho): the step, at least 1, with alpha_bar nearest to 1 / (1 + rho^2)."""
    return max(int(np.abs(ALPHA_BAR - 1 / (1 + rho**2)).argmin()), 1)


#: Appendix C: AdamW at 1e-4 with cosine decay, batches of 4048 cells, no weight averaging, no early stopping.
PAPER_TRAINING = TrainingConfig(
    batch_size=4048, learning_rate=1e-4, beta2=0.999, warmup=1, clip_norm=math.inf, ema_decay=0.0,
    evaluate_every=100, patience=0,
)  # fmt: skip


class PaperDenoiser(Denoiser):
    """The paper's TabularDiffusionMLP, which predicts noise by residual blocks with batch normalisation.

    Parameters
    ----------
    n_latent
        Dimension k of the latent space.
    width
        Hidden dimension D: 512 for cells, 64 for the synthetic experiments.
    depth
        Number M of residual blocks: 8 for cells, 2 for the synthetic experiments.
    """

    kind = "paper"
    bounds: ClassVar = {"width": 4096, "depth": 64}
    presets: ClassVar = {
        "paper": Preset(PAPER_TRAINING, {"width": 512, "depth": 8}, epochs=10_000, mixup=True),
        "paper-small": Preset(PAPER_TRAINING, {"width": 64, "depth": 2}, epochs=2_000, mixup=True),
    }
    least_batch = 2
    largest_noise = float(NOISE_LEVELS[-1])

    def __init__(self, n_latent: int, width: int = 512, depth: int = 8) -> None:
        super().__init__()
        self.n_latent, self.width, self.depth = n_latent, width, depth
        self.inlet = nn.Linear(n_latent, width)
        self.time = nn.Sequential(nn.Linear(TIME_FEATURES, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.blocks = nn.ModuleList(_block(width) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, n_latent))

    def predict_noise(self, x: Tensor, t: Tensor) -> Tensor:
        """Predict the noise eps of x_t (n, k) at steps t (n or 1,), which may be fractions."""
        features = self.time(_sinusoidal(t / N_STEPS)).expand(len(x), -1)
        hidden = torch.cat([self.inlet(x), features], dim=1)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.head(hidden)

    def loss(self, clean: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mean squared error of the predicted noise at uniformly drawn steps."""
        t = torch.randint(1, N_STEPS + 1, (len(clean),), generator=generator, device=clean.device)
        s = LOG_NOISE.to(clean)[t - 1].exp()[:, None]
        noise = torch.randn(clean.shape, generator=generator, device=clean.device)
        noisy = (clean + s * noise) / (1 + s**2).sqrt()
        return (self.predict_noise(noisy, t) - noise).square().mean()

    def forward(self, z: Tensor, s: Tensor, log_depth: Tensor | None = None) -> Tensor:
        if self.training:
            raise RuntimeError("Denoising needs inference mode: batch statistics would mix the cells of a chunk.")
        s = as_column(s, z)
        noise = self.predict_noise(z * (1 + s**2).rsqrt(), self.steps(s))
        return z - s * noise

    def draw(self, z: Tensor, s: Tensor, noise: CellNoise) -> Tensor:
        """Take the paper's prior step: draw x_{t-1} from x_t by Eq. 6, for t = t0, ..., 1 of the 512 steps.

        The start is x_t0 = sqrt(abar_t0) Z (the printed paper has U in place of Z).
        """
        start = first_step(float(as_column(s, z).max()))
        x = z * float(ALPHA_BAR[start]) ** 0.5
        for t in range(start, 0, -1):
            beta, alpha_bar = float(BETA[t]), float(ALPHA_BAR[t])
            predicted = self.predict_noise(x, torch.tensor([t], device=z.device))
            x = (x - beta / (1 - alpha_bar) ** 0.5 * predicted) / (1 - beta) ** 0.5
            x = x + beta**0.5 * noise.normal(t, z.shape[1])
        return x

    def steps(self, s: Tensor) -> Tensor:
        """Return the fractional step t of noise levels s, linear in ln s between the steps of the schedule."""
        table = LOG_NOISE.to(s)
        log_s = s.reshape(-1).log().clamp(table[0], table[-1])
        upper = torch.searchsorted(table, log_s).clamp(1, N_STEPS - 1)
        low, high = table[upper - 1], table[upper]
        return upper + (log_s - low) / (high - low)


def _block(width: int) -> nn.Module:
    expand, contract = nn.Linear(2 * width, 4 * width), nn.Linear(4 * width, 2 * width)
    return nn.Sequential(expand, nn.BatchNorm1d(4 * width), nn.SiLU(), contract, nn.BatchNorm1d(2 * width))


def _sinusoidal(t: Tensor) -> Tensor:
    """Return sines and cosines (n, 16) of normalised time (n,), at geometrically spaced frequencies."""
    half = TIME_FEATURES // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32, device=t.device) * (-math.log(1e4) / (half - 1)))
    angles = t.float()[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)
