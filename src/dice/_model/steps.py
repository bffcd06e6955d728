"""The likelihood step of split Gibbs: draws of Z given the expression x and the latents U, in scaled units.

The target density is proportional to f(x - V Z) exp(-|Z - U|^2 / 2 rho^2). Given U (n, k) and rho (1 or n, 1), the
method ``draw`` of a step draws Z (n, k) from this density exactly, or makes moves that leave it invariant. `z` is the
last Z, which only some steps use.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from dice._errors import InputError
from dice._model.likelihood import GaussianLikelihood
from dice._model.sampler import CellNoise
from dice._types import Floats
from dice.options import Gaussian, LogDensity, StudentT


@dataclass(frozen=True)
class GaussianStep:
    """Exact step for the Gaussian likelihood in the latent space, y = Z + N(0, Q diag(variances) Q').

    This is the paper's Proposition 3.1.
    """

    #: Latent points (n, k), variances (k,) or (n, k) along the axes, and the axes Q (k, k).
    y: Tensor
    variances: Tensor
    axes: Tensor

    def draw(self, z: Tensor, u: Tensor, rho: Tensor, noise: CellNoise) -> Tensor:
        """Draw Z exactly. In a direction without noise, Z equals y."""
        gain = self.variances / (self.variances + rho.square())
        y = self.y @ self.axes
        mean = y + gain * (u @ self.axes - y)
        drawn = mean + rho * gain.sqrt() * noise.normal(0, u.shape[1])
        return drawn @ self.axes.T


@dataclass(frozen=True)
class StudentCellStep:
    """Step for multivariate t noise: draw one Gamma-distributed precision for each cell, then take a Gaussian step."""

    gaussian: GaussianStep
    #: Residual sum of squares (n,) that the loadings cannot explain, in units of the squared noise scale.
    energy: Tensor
    n_genes: int
    df: float

    def draw(self, z: Tensor, u: Tensor, rho: Tensor, noise: CellNoise) -> Tensor:
        inside = (((self.gaussian.y - z) @ self.gaussian.axes).square() / self.gaussian.variances).sum(1)
        rate = (self.df + self.energy + inside) / 2
        shape = (self.df + self.n_genes) / 2
        precision = draw_gamma(shape, rate[:, None], noise.spawn(0))
        weighted = replace(self.gaussian, variances=self.gaussian.variances / precision)
        return weighted.draw(z, u, rho, noise.spawn(1))


@dataclass(frozen=True)
class StudentGeneStep:
    """Step for independent t noise of every gene: draw a precision for each entry, then take a Gaussian step."""

    #: Standardised expression (n, d), scaled loadings (d, k), noise variances (n, d).
    x: Tensor
    loadings: Tensor
    variances: Tensor
    df: float

    def draw(self, z: Tensor, u: Tensor, rho: Tensor, noise: CellNoise) -> Tensor:
        residual = self.x - z @ self.loadings.T
        rate = (self.df + residual.square() / self.variances) / 2
        weights = draw_gamma((self.df + 1) / 2, rate, noise.spawn(0)) / self.variances
        n_genes, k = self.loadings.shape
        outer = (self.loadings[:, :, None] * self.loadings[:, None]).reshape(n_genes, k * k)
        precision = (weights @ outer).reshape(-1, k, k) + torch.eye(k).to(u) / rho.square()[:, :, None]
        root = torch.linalg.cholesky(precision)
        linear = (weights * self.x) @ self.loadings + u / rho.square()
        mean = torch.cholesky_solve(linear[:, :, None], root)
        normal = noise.spawn(1).normal(0, k)[:, :, None]
        return (mean + torch.linalg.solve_triangular(root.mT, normal, upper=True))[:, :, 0]


@dataclass
class LangevinStep:
    """Step for any differentiable log f: Langevin moves with a Metropolis test.

    A proposal is an Ornstein-Uhlenbeck step, tilted by the gradient of log f. Without the tilt, it leaves N(U, rho^2)
    invariant for every step size. The Metropolis test removes the error of the tilt. The step size of a cell adapts
    during the warm-up and is constant afterwards.
    """

    x: Tensor
    loadings: Tensor
    log_density: LogDensity
    n_moves: int = 10
    warm_up: int = 50
    moves: int = 0
    accepted: Tensor | float = 0.0

    def __post_init__(self) -> None:
        self.step = torch.full((len(self.x), 1), 0.1, dtype=self.x.dtype, device=self.x.device)

    def draw(self, z: Tensor, u: Tensor, rho: Tensor, noise: CellNoise) -> Tensor:
        value, gradient = self._likelihood(z)
        for move in range(self.n_moves):
            decay = torch.exp(-self.step)
            spread = rho * (1 - decay.square()).sqrt()
            tilt = (1 - decay) * rho.square()
            forward = u + decay * (z - u) + tilt * gradient
            proposal = forward + spread * noise.normal(2 * move, u.shape[1])
            new_value, new_gradient = self._likelihood(proposal)
            backward = u + decay * (proposal - u) + tilt * new_gradient
            # Log of the Metropolis ratio: target densities, then proposal densities in both directions.
            ratio = new_value - value + ((z - u).square() - (proposal - u).square()).sum(1) / (2 * rho[:, 0] ** 2)
            ratio += ((proposal - forward).square() - (z - backward).square()).sum(1) / (2 * spread[:, 0] ** 2)
            accept = (noise.uniform(2 * move + 1, 1)[:, 0].log() < ratio)[:, None]
            z = torch.where(accept, proposal, z)
            gradient = torch.where(accept, new_gradient, gradient)
            value = torch.where(accept[:, 0], new_value, value)
            self._adapt(accept)
        return z

    def _adapt(self, accept: Tensor) -> None:
        """Adapt the step size towards 60 % acceptance during the warm-up, and count accepted moves afterwards."""
        self.moves += 1
        if self.moves <= self.warm_up:
            factor = torch.where(accept, 1.1, 1.1**-1.5)
            self.step = (self.step * factor).clamp(1e-6, 3.0)
        else:
            self.accepted = self.accepted + accept[:, 0].float()

    @property
    def acceptance(self) -> float | None:
        """Share of accepted moves after the warm-up; None without such moves."""
        counted = self.moves - self.warm_up
        return float(torch.as_tensor(self.accepted).mean()) / counted if counted > 0 and len(self.x) else None

    def _likelihood(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return log f(x - V Z) (n,) and its gradient in Z (n, k)."""
        with torch.enable_grad():
            point = z.detach().clone().requires_grad_()
            value = self.log_density(self.x - point @ self.loadings.T)
            if value.shape != (len(z),):
                raise InputError(
                    f"The likelihood function returned shape {tuple(value.shape)} for {len(z)} cells: it must sum over "
                    "genes and return one log density for each cell, shape (cells,)."
                )
            (gradient,) = torch.autograd.grad(value.sum(), point)
        return value.detach(), gradient


LikelihoodStep: TypeAlias = GaussianStep | StudentCellStep | StudentGeneStep | LangevinStep


def likelihood_step(
    kind: Gaussian | StudentT | LogDensity, gaussian: GaussianStep, likelihood: GaussianLikelihood, residual: Floats,
    noise: float, x: Floats | None, scale: float,
) -> LikelihoodStep:  # fmt: skip
    """Return the step for a likelihood of this `kind`.

    `residual` (n,) holds the residual variances of the cells, `noise` is the scale of the noise, and `x` (n, d) is the
    standardised expression, for steps that need it.
    """
    tensor = partial(torch.as_tensor, dtype=torch.float32, device=gaussian.y.device)
    if isinstance(kind, Gaussian):
        return gaussian
    if isinstance(kind, StudentT) and not kind.per_gene:
        energy = residual * likelihood.degrees_of_freedom / max(noise, 1e-12) ** 2
        return StudentCellStep(gaussian, tensor(energy), len(likelihood.loadings), kind.df)
    # In scaled units the loadings carry the scale: V U = (V scale) (U / scale).
    cells, loadings = tensor(x), tensor(likelihood.loadings) * scale
    if not isinstance(kind, StudentT):
        return LangevinStep(cells, loadings, kind)
    relative = 1.0 if likelihood.weights is None else 1 / likelihood.weights
    return StudentGeneStep(cells, loadings, tensor(relative * noise**2).expand(cells.shape), kind.df)


def draw_gamma(shape: float, rate: Tensor, noise: CellNoise, *, n_rounds: int = 8) -> Tensor:
    """Draw Gamma variables with one `shape` >= 1 and `rate` (n, m), by Marsaglia and Tsang's method.

    The number of rounds is fixed, so that the result of a cell does not depend on other cells. After eight rounds,
    fewer than one in 10^10 variables have no accepted proposal. These keep their last proposal.
    """
    d = shape - 1 / 3
    c = (9 * d) ** -0.5
    size = rate.shape[1]
    result = torch.ones_like(rate)
    pending = torch.ones_like(rate, dtype=torch.bool)
    for attempt in range(n_rounds):
        x = noise.normal(2 * attempt, size).to(rate.dtype)
        v = (1 + c * x) ** 3
        log_v = v.clamp_min(1e-30).log()
        u = noise.uniform(2 * attempt + 1, size).to(rate.dtype)
        accept = (v > 0) & (u.log() < 0.5 * x.square() + d * (1 - v + log_v))
        result = torch.where(pending & (v > 0), v, result)
        pending = pending & ~accept
        if not pending.any():
            break
    return d * result / rate
