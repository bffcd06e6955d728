"""Training of a denoiser, one step at a time, driven by the caller.

The state of the trainer (weights, averaged weights, optimiser, random generator, best weights so far) can be saved as
plain arrays. After loading, training continues exactly as if it had not been interrupted.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dice._errors import InputError, TrainingError
from dice._model import networks
from dice._model.networks import Denoiser, TrainingConfig
from dice._model.training_data import Batches, HeldOut, TrainingData
from dice._types import Codes
from dice.options import Mixup


class Trainer:
    """Loop that minimises the loss of a denoiser over batches, and stops when the held-out loss no longer falls.

    Parameters
    ----------
    denoiser
        Network to train in place. At the end, the network has the best weights.
    batches
        Batches of rows or latents.
    held_out
        Held-out loss, evaluated every ``config.evaluate_every`` steps. None trains to the end.
    config
        Settings of the training.
    seed
        Seed of batches and noise.
    """

    def __init__(
        self, denoiser: Denoiser, batches: Batches, held_out: HeldOut | None, config: TrainingConfig, *, seed: int = 0
    ) -> None:
        self.denoiser, self.batches, self.held_out, self.config = denoiser, batches, held_out, config
        self.generator = torch.Generator(batches.data.device).manual_seed(seed)
        decay, betas = config.weight_decay, (0.9, config.beta2)
        parameters, rate = denoiser.parameters(), config.learning_rate
        self.optimizer = torch.optim.AdamW(parameters, rate, betas, weight_decay=decay, fused=True)
        self.average = AveragedModel(denoiser, multi_avg_fn=_ema(config.ema_decay), use_buffers=False)
        self.step, self.best_step, self.best_loss = 0, 0, math.inf
        self.best: dict[str, Tensor] = deepcopy(denoiser.state_dict())
        #: Step, mean training loss and held-out loss of every evaluation.
        self.history: list[tuple[float, float, float]] = []
        self._losses: list[Tensor] = []

    @property
    def finished(self) -> bool:
        """Whether the last step was taken, or the held-out loss has not improved for too long."""
        waited = (self.step - self.best_step) / self.config.evaluate_every
        impatient = bool(self.config.patience) and waited >= self.config.patience
        return self.step >= self.config.max_steps or impatient

    def steps(self) -> Iterator[int]:
        """Take steps until the training is finished, and yield their numbers. Then load the best weights."""
        self.denoiser.train()
        while not self.finished:
            self._step()
            if self.step % self.config.evaluate_every == 0 or self.step == self.config.max_steps:
                self.evaluate()
            yield self.step
        self.restore_best()

    def evaluate(self) -> None:
        """Record the losses, and keep the averaged weights if they are the best so far.

        Without patience or held-out cells, the last weights are kept.
        """
        loss = self._mean_loss()
        averaged: Any = self.average.module.eval()
        validation = self.held_out.loss(averaged) if self.held_out else math.nan
        if self.held_out and not math.isfinite(validation):
            self._fail("held-out loss", validation, self.step)
        if validation < self.best_loss or not self.config.patience or not self.held_out:
            self.best_loss, self.best_step = validation, self.step
            self.best = deepcopy(averaged.state_dict())
        self.history.append((self.step, loss, validation))

    def restore_best(self) -> None:
        """Load the best weights so far into the denoiser and switch it to inference."""
        self.denoiser.load_state_dict(self.best)
        self.denoiser.eval()

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0. It rises linearly, then falls as half a cosine."""
        config = self.config
        rise = min(1.0, (step + 1) / max(config.warmup, 1))
        return config.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * step / config.max_steps))

    def _step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.step)
        clean = self.batches.draw(self.config.batch_size, self.generator)
        loss: Tensor = self.denoiser.loss(clean, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.denoiser.parameters(), self.config.clip_norm)
        self.optimizer.step()
        self.average.update_parameters(self.denoiser)
        # If a gradient is not finite, make the loss NaN. Otherwise the ruined weights would go unnoticed.
        self._losses.append(loss.detach() + 0 * norm)
        self.step += 1

    def _mean_loss(self) -> float:
        """Return the mean loss since the last evaluation, read from the device in one transfer."""
        if not self._losses:
            return math.nan
        losses = torch.stack(self._losses).cpu().numpy()
        self._losses.clear()
        bad = np.flatnonzero(~np.isfinite(losses))
        if len(bad):
            self._fail("training loss", float(losses[bad[0]]), self.step - len(losses) + int(bad[0]) + 1)
        return float(losses.mean(dtype=np.float64))

    def _fail(self, what: str, value: float, step: int) -> NoReturn:
        self.restore_best()
        raise TrainingError(
            f"The {what} became {value} at step {step} (learning rate {self.rate(step - 1):.2g}) and training stopped: "
            f"train again with a smaller learning_rate, for example {self.config.learning_rate / 4:.2g}."
        )

    def state(self) -> dict[str, NDArray]:
        """Return the state of the training as plain arrays."""
        parts = {"best": self.best, "model": self.denoiser.state_dict(), "average": self.average.state_dict()}
        parts |= {f"optimizer/{index}": slots for index, slots in self.optimizer.state_dict()["state"].items()}
        arrays = {
            f"{part}/{name}": tensor.cpu().numpy().copy() for part, own in parts.items() for name, tensor in own.items()
        }
        arrays["generator"] = self.generator.get_state().numpy()
        arrays["progress"] = np.array([self.step, self.best_step, self.best_loss], np.float64)
        arrays["history"] = np.array(self.history, np.float64).reshape(-1, 3)
        arrays["losses"] = np.array([float(loss) for loss in self._losses], np.float32)
        return arrays

    def load_state(self, arrays: dict[str, NDArray]) -> None:
        """Load arrays from :meth:`state` of a trainer with the same denoiser and arguments."""
        device = self.batches.data.device
        parts: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
        for path in (path for path in arrays if "/" in path):
            part, name = path.rsplit("/", 1)
            parts[part][name] = torch.tensor(arrays[path], device=device)
        self.best = parts.pop("best")
        self.denoiser.load_state_dict(parts.pop("model"))
        self.average.load_state_dict(parts.pop("average"))
        slots = {int(part.removeprefix("optimizer/")): tensors for part, tensors in parts.items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.generator.set_state(torch.as_tensor(arrays["generator"]))
        step, best_step, self.best_loss = arrays["progress"].tolist()
        self.step, self.best_step = int(step), int(best_step)
        self.history = [tuple(row) for row in arrays["history"].tolist()]
        self._losses = list(torch.tensor(arrays["losses"], device=device))


def make_trainer(
    preset: str, data: TrainingData, *, noise: float, labels: Codes | None = None, mixup: Mixup | None = None,
    seed: int = 0, **overrides: Any,
) -> Trainer:  # fmt: skip
    """Return the trainer of a preset.

    Parameters
    ----------
    preset, data
        Name of a preset that is trained, and its data.
    noise
        Noise of the reference in scaled units. Without counts, it is the smallest noise level of the held-out loss.
    labels, mixup
        Label of every training cell, and mixup within labels.
    seed
        Seed of weights, batches and noise.
    overrides
        Fields of ``TrainingConfig``; None keeps the value of the preset.
    """
    network, chosen = networks.by_preset()[preset]
    assert chosen.training is not None
    config = replace(chosen.training, **{k: v for k, v in overrides.items() if v is not None})
    if chosen.epochs and overrides.get("max_steps") is None:
        config = replace(config, max_steps=chosen.epochs * math.ceil(len(data.train) / config.batch_size))
    if config.batch_size < network.least_batch:
        raise InputError(
            f"preset={preset!r} normalises over the cells of a batch: pass batch_size={network.least_batch} or more."
        )
    denoiser = network.empty({"n_latent": data.n_latent, **chosen.size})
    denoiser.initialize(torch.Generator().manual_seed(seed))
    denoiser.start(data.train.cpu(), None if data.held_out is None else data.held_out.cpu(), data.typical)
    denoiser.to(data.train.device)
    held_out = HeldOut.of(data, denoiser, noise, seed)
    trainer = Trainer(denoiser, Batches(data.train, labels, mixup), held_out, config, seed=seed)
    if held_out is not None and denoiser.counted:
        trainer.best_loss = 1.0  # Relative loss of the linear filter, the start of the training.
    return trainer


def _ema(decay: float) -> Callable[..., None]:
    """Return a function that averages weights exponentially, with a decay that grows from 0.1 to `decay`."""

    def update(averages: list[Tensor], current: list[Tensor], n_averaged: Tensor | int) -> None:
        n = int(n_averaged)
        keep = min(decay, (1 + n) / (10 + n)) if decay else 0.0
        get_ema_multi_avg_fn(keep)(averages, current, n_averaged)

    return update
