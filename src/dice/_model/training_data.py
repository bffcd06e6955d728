"""The data that a denoiser learns from: roles of cells, thinned copies, batches, and the held-out loss.

A denoiser learns from rows. A row holds one thinned copy of a cell, in four parts: the latents of a random share of its
counts (the input), the latents of the remaining counts (the target), the latents of two halves of the target (for the
variance), and the log depths of input, target and halves. Without counts, a row holds the latents of a cell.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice._model.counts import CellCounts, split
from dice._model.projection import Projection, without_self
from dice._types import Codes, Floats
from dice.options import Mixup

if TYPE_CHECKING:
    from dice._model.networks import Denoiser

#: Roles of cells in the order of their codes.
ROLES = ("train", "validation", "calibration")
#: Gaussian noise levels of the held-out loss for priors of counts, in units of the latents' spread.
COUNTED_LEVELS = (0.0, 0.5)
#: Smallest and largest share of a cell's counts in the input. Shares are log-uniform, and the target has all other
#: counts. Whole cells are hardly deeper than the deepest inputs, and the depth of targets varies enough for the network
#: to learn the effect of depth.
SMALLEST_SHARE, LARGEST_SHARE = 0.05, 0.8
#: Maximum number of thinned copies of a cell, and number of rows to aim at. With 2, 4 and 8 copies of 4,000 cells, the
#: held-out error after 300 steps was .209, .205 and .203 (bmmc) or .300, .294 and .292 (TEA-seq). Against the exact
#: posterior of twelve profiles, 16 copies had 97 to 99 % of the error of 8 copies (four seeds).
MAX_COPIES, ROWS = 16, 64_000


class Rows:
    """Access by name to the parts of rows: thinned copies (n, 4 k + 3), or latents (n, k) without counts."""

    def __init__(self, values: Tensor, n_latent: int) -> None:
        self.values, self.n_latent = values, n_latent
        self.noisy = values[:, :n_latent]
        if values.shape[1] == n_latent:
            self.target = self.first = self.second = values
            self.depths: Tensor | None = None
            self.half_depths: Tensor | None = None
            return
        k = n_latent
        self.target, self.first, self.second = values[:, k : 4 * k].split(k, dim=1)
        #: Log depths (n, 2) of input and target, and log depths (n, 2) of input and halves.
        self.depths, self.half_depths = values[:, 4 * k : 4 * k + 2], values[:, [4 * k, 4 * k + 2]]

    def __len__(self) -> int:
        return len(self.values)

    def clean_scale(self) -> float:
        """Return the root mean variance of clean latents.

        The variance is the covariance of two halves of the counts, which have independent noise.
        """
        first, second = self.first - self.first.mean(0), self.second - self.second.mean(0)
        return float((first * second).mean().clamp_min(1e-12).sqrt())

    def scaled(self, scale: float) -> Tensor:
        """Return the rows with latents divided by `scale`. Depths do not change."""
        values = self.values.clone()
        values[:, : values.shape[1] if self.depths is None else 4 * self.n_latent] /= scale
        return values


def n_copies(n_cells: int) -> int:
    """Return the number of thinned copies to make of every cell."""
    return int(np.clip(-(-ROWS // max(n_cells, 1)), 2, MAX_COPIES))


def make_rows(projection: Projection, cells: CellCounts, rng: np.random.Generator, *, target_sum: float) -> Tensor:
    """Make rows (copies, n, 4 k + 3) of reference cells, with latents corrected by :func:`without_self`."""
    whole = projection.standardizer(cells.expression)
    own, energy = whole @ projection.loadings, whole.squared_norms()

    def latents(part: CellCounts) -> Floats:
        x = projection.standardizer(part.expression)
        return without_self(x @ projection.loadings, own, x.inner(whole), energy, projection.influence)

    def copy() -> Tensor:
        share = np.exp(rng.uniform(np.log(SMALLEST_SHARE), np.log(LARGEST_SHARE), len(own)))
        shares = np.column_stack([share, (1 - share) / 2, (1 - share) / 2])
        part, first, second = split(cells, shares, rng, target_sum=target_sum)
        rest = first.joined(second)
        depths = np.column_stack([part.log_depth, rest.log_depth, rest.log_depth - np.float32(np.log(2))])
        row = [*(latents(each) for each in (part, rest, first, second)), depths]
        return torch.as_tensor(np.concatenate(row, axis=1), dtype=torch.float32)

    return torch.stack([copy() for _ in range(n_copies(len(own)))])


@dataclass(frozen=True)
class TrainingData:
    """Training data in scaled units: rows of thinned copies or, without counts, latents."""

    train: Tensor
    #: Data of held-out cells; None if there are none.
    held_out: Tensor | None
    #: Number that latents in PCA units were divided by.
    scale: float
    n_latent: int
    #: Positions of the training cells among all cells.
    cells: NDArray[np.intp]
    #: Log depth of a typical cell; None without counts.
    typical: float | None = None


def assign_roles(n_cells: int, validation: float, calibration: float, seed: int) -> NDArray[np.int8]:
    """Return a random role (n,) of every cell, as a code in `ROLES`, for given shares of validation and calibration."""
    order = np.random.default_rng(seed).permutation(n_cells)
    # At least two cells are left for training.
    n_validation = min(round(validation * n_cells), max(n_cells - 2, 0))
    n_calibration = min(round(calibration * n_cells), max(n_cells - n_validation - 2, 0))
    roles = np.empty(n_cells, dtype=np.int8)
    roles[order] = np.repeat([1, 2, 0], [n_validation, n_calibration, n_cells - n_validation - n_calibration])
    return roles


def plain_data(latents: NDArray[np.floating], roles: NDArray[np.int8], device: torch.device) -> TrainingData:
    """Make training data from latents (n, k) in PCA units, without counts. Calibration cells are left out."""
    cells, held_out = np.flatnonzero(roles == 0), np.flatnonzero(roles == 1)
    scale = float(np.sqrt(latents[(roles == 0) | (roles == 1)].var(0).mean()))
    values = torch.as_tensor(latents / scale, dtype=torch.float32, device=device)
    judged = values[held_out] if len(held_out) else None
    return TrainingData(values[cells], judged, scale, values.shape[1], cells)


def thinned_data(copies: Tensor, cells: Codes, roles: NDArray[np.int8], n_latent: int, typical: float) -> TrainingData:
    """Make training data from thinned copies (copies, n, 4 k + 3) in PCA units of `cells` (n,) with these roles."""
    learned, judged = (Rows(copies[:, roles == role].flatten(0, 1), n_latent) for role in (0, 1))
    scale = learned.clean_scale()
    held_out = judged.scaled(scale) if len(judged) else None
    return TrainingData(learned.scaled(scale), held_out, scale, n_latent, cells[roles == 0], typical)


class Batches:
    """Batches of training data (n, m), drawn with replacement. A batch is never larger than the data.

    Parameters
    ----------
    data
        Rows or latents, on the device to train on.
    labels
        Label code (n,) of every cell, for a mixup; -1 for cells without a label, which are never mixed.
    mixup
        Settings to replace cells by random mixtures with cells of their label. With the default settings, a mixture has
        one third of the variance within its label, so labels differ more clearly in the prior than in the data.
    """

    def __init__(self, data: Tensor, labels: Codes | None = None, mixup: Mixup | None = None) -> None:
        self.data, self.labels, self.mixup = data, labels, mixup
        if labels is not None:
            # Cells of a label are adjacent in `order`, so a random offset from its start gives a cell of the label.
            self.order = np.argsort(labels, kind="stable")
            _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
            self.starts, self.counts = (np.cumsum(counts) - counts)[codes], counts[codes]

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw one batch (size, m), mixed if there is a mixup."""
        n, device = len(self.data), self.data.device
        if size >= n:
            cells = torch.arange(n, device=device)
        else:
            cells = torch.randint(n, (size,), generator=generator, device=device)
        return self.data[cells] if self.mixup is None else self._mixed(cells, self.mixup, generator)

    def _mixed(self, cells: Tensor, mixup: Mixup, generator: torch.Generator) -> Tensor:
        assert self.labels is not None
        # numpy draws the weights, because torch draws Gamma variables from its global generator only.
        seed = torch.randint(2**62, (), generator=generator, device=cells.device)
        rng, own = np.random.default_rng(int(seed)), cells.cpu().numpy()
        weights = rng.dirichlet(np.full(mixup.points, mixup.concentration), len(own))
        offsets = rng.random((len(own), mixup.points - 1)) * self.counts[own, None]
        parts = np.column_stack([own, self.order[self.starts[own, None] + offsets.astype(np.intp)]])
        # In the mixture of a cell that is not mixed, the cell has the weight 1 and all other cells have the weight 0.
        stays = (rng.random(len(own)) >= mixup.probability) | (self.labels[own] < 0)
        weights[stays] = np.eye(1, mixup.points)
        shares = torch.as_tensor(weights, dtype=self.data.dtype, device=cells.device)
        return torch.einsum("np,npk->nk", shares, self.data[torch.as_tensor(parts, device=cells.device)])


class HeldOut:
    """Denoising error of held-out cells at the noise levels of inference, relative to a linear denoiser.

    The noise is drawn once, so that evaluations differ only by the weights of the network.
    """

    def __init__(self, rows: Tensor, levels: Tensor, linear: Tensor | None, denoiser: "Denoiser", seed: int) -> None:
        """Draw the noise. Errors are relative to `linear` (levels,); None means the present errors of `denoiser`."""
        self.rows, self.levels = rows, levels
        generator = torch.Generator(rows.device).manual_seed(seed)
        shape = (len(levels), len(rows), denoiser.n_latent)
        self.noise = torch.randn(shape, generator=generator, device=rows.device)
        self.linear = (self.errors(denoiser) if linear is None else linear).clamp_min(1e-12)

    @classmethod
    def of(cls, data: TrainingData, denoiser: "Denoiser", noise: float, seed: int) -> Self | None:
        """Return the held-out loss, or None without held-out cells.

        With counts, the loss is relative to the present `denoiser`, which is the linear filter. Without counts, the
        loss is relative to the Wiener filter.
        """
        if data.held_out is None:
            return None
        if data.typical is not None:
            return cls(data.held_out, data.train.new_tensor(COUNTED_LEVELS), None, denoiser, seed)
        levels = data.train.new_tensor(np.geomspace(float(np.clip(noise, 0.05, 0.5)), 2.0, num=6))
        # If all cells are equal, the variances are zero and the loss would be NaN.
        variances, squares = data.train.var(0).clamp_min(1e-6), levels.square()[:, None]
        return cls(data.held_out, levels, (variances * squares / (variances + squares)).mean(1), denoiser, seed)

    @torch.no_grad()
    def errors(self, denoiser: "Denoiser") -> Tensor:
        """Return the mean squared error at every noise level."""
        pairs = zip(self.levels, self.noise, strict=True)
        return torch.stack([denoiser.error(self.rows, level, noise) for level, noise in pairs])

    def loss(self, denoiser: "Denoiser") -> float:
        return float((self.errors(denoiser) / self.linear).mean())
