"""Training of a denoiser: a loop that the caller drives, one step at a time.

The trainer knows nothing of progress bars, files or clocks. Its whole state (weights, averages, optimiser,
random generator, best weights so far) can be taken out as plain arrays and put back, and the steps that
follow are then the same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dice._core.augment import BatchSampler, Mixup
from dice._core.denoiser import Denoiser
from dice._errors import TrainingError


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; the defaults are those of the ``"default"`` preset.

    ``patience`` evaluations without a better held-out loss end the training; 0 trains to the end and keeps
    the last weights, as the paper does. ``ema_decay`` 0 turns weight averaging off.
    """

    max_steps: int = 1500
    batch_size: int = 512
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    beta2: float = 0.99
    warmup: int = 50
    clip_norm: float = 1.0
    ema_decay: float = 0.999
    evaluate_every: int = 50
    patience: int = 8


@dataclass(frozen=True)
class Progress:
    """What one step reports; ``validation`` only where the held-out loss was evaluated."""

    step: int
    loss: float
    validation: float | None = None


class HeldOut:
    """Denoising loss on held-out cells in the noise band that inference uses.

    Relative to the best linear denoiser (the Wiener filter): 1 is what PCA alone could do, less is what the
    prior adds. Noise is drawn once, so that evaluations differ by the weights alone.
    """

    def __init__(self, latents: Tensor, variances: Tensor, band: tuple[float, float], seed: int):
        generator = torch.Generator(latents.device).manual_seed(seed)
        levels = np.geomspace(*band, num=6)
        self.clean = latents
        self.levels = torch.as_tensor(levels, dtype=latents.dtype, device=latents.device)
        self.noisy = [
            latents + s * torch.randn(latents.shape, generator=generator, device=latents.device) for s in self.levels
        ]
        self.wiener = [(variances * s**2 / (variances + s**2)).sum() for s in self.levels]

    @torch.no_grad()
    def loss(self, denoiser: Denoiser) -> float:
        ratios = [
            (denoiser(noisy, s) - self.clean).square().sum(1).mean() / wiener
            for noisy, s, wiener in zip(self.noisy, self.levels, self.wiener, strict=True)
        ]
        return float(torch.stack(ratios).mean())


class Trainer:
    """Drives `denoiser` to the minimum of its own loss over `latents`, stopping on held-out cells.

    Parameters
    ----------
    denoiser
        Trained in place; it ends with the best weights. Must offer ``loss(clean, generator)``.
    latents
        Scaled training latents (n, k) on the device to train on.
    held_out
        Evaluated every ``config.evaluate_every`` steps, or None to train to the end.
    config
        How to train.
    mixup
        Augmentation within groups of cells, if any.
    seed
        Seed of batches and noise.
    """

    def __init__(
        self,
        denoiser: Denoiser,
        latents: Tensor,
        held_out: HeldOut | None,
        config: TrainingConfig,
        *,
        mixup: Mixup | None = None,
        seed: int = 0,
    ) -> None:
        self.denoiser = denoiser
        self.held_out = held_out
        self.config = config
        self.batches = mixup.sampler(latents) if mixup else BatchSampler(latents)
        self.generator = torch.Generator(latents.device).manual_seed(seed)
        self.optimizer = torch.optim.AdamW(
            denoiser.parameters(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            betas=(0.9, config.beta2),
            fused=True,
        )
        self.average = AveragedModel(denoiser, multi_avg_fn=_ema(config.ema_decay), use_buffers=False)
        self.step = 0
        self.best_step = 0
        self.best_loss = math.inf
        self.best: dict[str, Tensor] = _clone(denoiser.state_dict())

    @property
    def finished(self) -> bool:
        """Whether the last step was taken or patience ran out."""
        waited = (self.step - self.best_step) / self.config.evaluate_every
        impatient = bool(self.config.patience) and waited >= self.config.patience
        return self.step >= self.config.max_steps or impatient

    def steps(self) -> Iterator[Progress]:
        """Take steps until finished, reporting each; the denoiser ends with the best weights."""
        while not self.finished:
            loss = self._step()
            at_evaluation = self.step % self.config.evaluate_every == 0
            validation = None
            if at_evaluation or self.step == self.config.max_steps:
                self._check(loss)
                validation = self._evaluate()
            yield Progress(self.step, float(loss), validation)
        self.restore_best()

    def restore_best(self) -> None:
        """Put the best weights seen so far into the denoiser and switch it to inference."""
        self.denoiser.load_state_dict(self.best)
        self.denoiser.eval()

    def _step(self) -> Tensor:
        config = self.config
        rate = config.learning_rate * min(1.0, (self.step + 1) / max(config.warmup, 1))
        rate *= 0.5 * (1 + math.cos(math.pi * self.step / config.max_steps))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.denoiser.train()
        clean = self.batches.draw(config.batch_size, self.generator)
        loss: Tensor = self.denoiser.loss(clean, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.denoiser.parameters(), config.clip_norm)
        self.optimizer.step()
        self.average.update_parameters(self.denoiser)
        self.step += 1
        return loss.detach()

    def _check(self, loss: Tensor) -> None:
        if not torch.isfinite(loss):
            self.restore_best()
            rate = self.optimizer.param_groups[0]["lr"]
            raise TrainingError(
                f"The training loss became {float(loss)} at step {self.step} (learning rate {rate:.2g}); "
                f"the best weights so far are from step {self.best_step}: "
                f"train again with a smaller learning_rate, for example {rate / 4:.2g}."
            )

    def _evaluate(self) -> float:
        averaged = cast("Denoiser", self.average.module.eval())
        loss = self.held_out.loss(averaged) if self.held_out else math.nan
        # Without patience or held-out cells the last weights are kept, whatever their loss.
        if loss < self.best_loss or not self.config.patience or not self.held_out:
            self.best_loss, self.best_step = loss, self.step
            self.best = _clone(averaged.state_dict())
        return loss

    def state(self) -> dict[str, NDArray]:
        """Everything that the next step depends on, as plain arrays."""
        arrays = {f"best/{name}": t.cpu().numpy() for name, t in self.best.items()}
        for part, module in (("model", self.denoiser), ("average", self.average)):
            for name, tensor in module.state_dict().items():
                arrays[f"{part}/{name}"] = tensor.cpu().numpy().copy()
        for index, slots in self.optimizer.state_dict()["state"].items():
            for name, tensor in slots.items():
                arrays[f"optimizer/{index}/{name}"] = tensor.cpu().numpy().copy()
        arrays["generator"] = self.generator.get_state().numpy()
        arrays["progress"] = np.array([self.step, self.best_step, self.best_loss], np.float64)
        return arrays

    def load_state(self, arrays: dict[str, NDArray]) -> None:
        """Continue from arrays that :meth:`state` gave for the same denoiser and arguments."""
        device = self.batches.latents.device

        def part(prefix: str) -> dict[str, Tensor]:
            return {
                name.removeprefix(prefix): torch.as_tensor(array, device=device)
                for name, array in arrays.items()
                if name.startswith(prefix)
            }

        self.best = part("best/")
        self.denoiser.load_state_dict(part("model/"))
        self.average.load_state_dict(part("average/"))
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in part("optimizer/").items():
            index, slot = name.split("/")
            slots.setdefault(int(index), {})[slot] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.generator.set_state(torch.as_tensor(arrays["generator"]))
        step, best_step, self.best_loss = arrays["progress"].tolist()
        self.step, self.best_step = int(step), int(best_step)


def _ema(decay: float) -> Callable[..., None]:
    """Exponential average of the weights that follows closely at first and slowly later."""

    def update(averages: list[Tensor], current: list[Tensor], n_averaged: Tensor | int) -> None:
        n = int(n_averaged)
        keep = min(decay, (1 + n) / (10 + n)) if decay else 0.0
        get_ema_multi_avg_fn(keep)(averages, current, n_averaged)

    return update


def _clone(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}
