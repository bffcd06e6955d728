"""Training of a denoiser with settings, a progress bar, Ctrl-C and checkpoints."""

import hashlib
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dice import _log
from dice._arguments import as_plain, choice, said
from dice._data.door import check_archive
from dice._errors import InputError
from dice._files import atomic, check_target
from dice._model import networks
from dice._model.networks import Denoiser
from dice._model.training import Trainer, make_trainer
from dice._model.training_data import TrainingData
from dice._processes import interrupts, one_torch_thread
from dice._types import Floats
from dice.options import Mixup, Training

#: Format number of checkpoints. Files with another number are refused.
CHECKPOINT_FORMAT = 5
#: A checkpoint is written every `EVERY_STEPS` steps, or every `EVERY_SECONDS` seconds if steps are slow.
EVERY_STEPS, EVERY_SECONDS = 200, 60.0
#: Networks with fewer weights than this are trained on one thread. The paper's network for cells has 35 million
#: weights; all others have less than one million.
SMALL_NETWORK = 2_000_000
#: Smallest number of held-out rows to train on counts.
MIN_HELD_OUT = 40
#: Names of the columns of a trainer's history.
HISTORY = ("step", "loss", "validation")
#: Settings of `dice.Training` that replace those of a preset.
OVERRIDES = ("max_steps", "batch_size", "learning_rate")


def check_settings(preset: Any, training: Any, mixup: Any, labels_key: str | None) -> Mixup | None:
    """Check the settings of a training against its preset. Return the mixup, or None to train without mixtures."""
    recipes = networks.by_preset()
    recipe = recipes[choice("preset", preset, tuple(recipes))][1]
    if not isinstance(training, Training):
        raise InputError(f"`training` must be a dice.Training, got {said(training)}.")
    if isinstance(mixup, str) and mixup == "auto":
        mixup = Mixup() if recipe.mixup and labels_key is not None else None
    if mixup is not None and not isinstance(mixup, Mixup):
        raise InputError(f"`mixup` must be 'auto', None or a dice.Mixup, got {said(mixup)}.")
    if mixup is not None and not recipe.mixup:
        mixing = [name for name, (_, other) in recipes.items() if other.mixup]
        raise InputError(
            f"preset={preset!r} does not train on mixtures, only {' and '.join(mixing)} do: leave mixup out."
        )
    if mixup is not None and labels_key is None:
        raise InputError("Mixup needs labels: name their column of adata.obs with labels_key=.")
    if recipe.training is None:
        given = [name for name in (*OVERRIDES, "checkpoint") if getattr(training, name) is not None]
        if given:
            raise InputError(f"preset={preset!r} is fitted at once, without training steps: leave {given[0]} out.")
        if training.validation_fraction == 0:
            raise InputError(f"preset={preset!r} chooses its size on held-out cells: pass validation_fraction=0.1.")
    if training.checkpoint is not None:
        check_target(training.checkpoint, argument="checkpoint=")
    return mixup


def record(training: Training, mixup: Mixup | None, **arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call as the prior stores them, without the path of the checkpoint."""
    mixed = {} if mixup is None else {f"mixup_{name}": value for name, value in asdict(mixup).items()}
    return as_plain(arguments | mixed | asdict(training) | {"checkpoint": None})


def train_denoiser(
    preset: str, data: TrainingData, training: Training, *, seed: int, **more: Any
) -> tuple[Denoiser, dict[str, Floats]]:
    """Fit or train the denoiser of a preset. Return the denoiser (on the CPU, in inference mode) and its history.

    `more` holds the noise of the reference, labels and mixup, as in :func:`dice._model.training.make_trainer`.
    """
    network, recipe = networks.by_preset()[preset]
    if recipe.training is None:
        denoiser, history = network.fit(data.train, data.held_out, seed)
        return denoiser, {name: np.asarray(values) for name, values in history.items()}
    overrides = {name: getattr(training, name) for name in OVERRIDES}
    trainer = make_trainer(preset, data, seed=seed, **more, **overrides)
    if trainer.denoiser.counted and (data.held_out is None or len(data.held_out) < MIN_HELD_OUT):
        _log.info("Held-out cells are too few to stop a training, so the denoiser is the linear filter.")
        trainer.restore_best()
    else:
        path = training.checkpoint
        drive(trainer, None if path is None else Checkpoint(trainer, Path(path), fingerprint(trainer, seed)))
        _log.info(
            f"Training stopped after {trainer.step} steps. The best held-out loss, at step {trainer.best_step}, is "
            f"{trainer.best_loss:.4f} times that of the linear denoiser."
        )
    columns = np.array(trainer.history).reshape(-1, 3).T
    return trainer.denoiser.cpu().requires_grad_(False), dict(zip(HISTORY, columns, strict=True))


def drive(trainer: Trainer, checkpoint: "Checkpoint | None") -> None:
    """Train to the end. On Ctrl-C, finish the current step, save the checkpoint and stop."""
    small = sum(weights.numel() for weights in trainer.denoiser.parameters()) < SMALL_NETWORK
    with (
        one_torch_thread() if small else nullcontext(),
        _log.progress(total=trainer.config.max_steps, initial=trainer.step, desc="Training prior", unit="step") as bar,
        interrupts(wait=True) as interrupted,
    ):
        for step in trainer.steps():
            bar.update()
            if trainer.history and trainer.history[-1][0] == step:
                _, loss, validation = trainer.history[-1]
                bar.set_postfix(loss=f"{loss:.3f}", held_out=f"{validation:.3f}")
            if checkpoint is not None and (checkpoint.is_due() or trainer.finished or interrupted()):
                checkpoint.save()
            if interrupted():
                raise KeyboardInterrupt


def fingerprint(trainer: Trainer, seed: int) -> str:
    """Return the SHA-256 of everything that determines a training: data, network, settings and seed."""
    batches, held_out, network = trainer.batches, trainer.held_out, trainer.denoiser
    settings = CHECKPOINT_FORMAT, network.kind, network.config, trainer.config, batches.mixup, seed
    digest = hashlib.sha256(repr((*settings, batches.data.device.type)).encode())
    arrays = [batches.data.cpu().numpy()]
    if held_out is not None:
        arrays += [held_out.rows.cpu().numpy(), held_out.levels.cpu().numpy()]
    if batches.labels is not None:
        arrays.append(batches.labels)
    for array in arrays:
        digest.update(repr(array.shape).encode() + array.tobytes())
    return digest.hexdigest()


class Checkpoint:
    """The state of a training in one .npz file of plain arrays. If the file exists, the training resumes from it.

    `key` is the fingerprint of the training.
    """

    def __init__(self, trainer: Trainer, path: Path, key: str) -> None:
        self.trainer, self.path, self.key = trainer, path, key
        self._step, self._time = 0, time.monotonic()
        if path.exists():
            self._resume()

    def _resume(self) -> None:
        try:
            check_archive(self.path)
            # allow_pickle=False is numpy's default; it is explicit because files may come from others.
            with self.path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                key = str(file["fingerprint"])
                if key == self.key:
                    self.trainer.load_state({name: file[name] for name in file.files})
        except Exception as error:
            raise InputError(
                f"The checkpoint {str(self.path)!r} cannot be read ({type(error).__name__}): "
                "delete it to start again, or name another file."
            ) from error
        if key != self.key:
            raise InputError(
                f"The checkpoint {str(self.path)!r} belongs to a call with other arguments or other cells: "
                "repeat that call, name another file, or delete it to start again."
            )
        self._step = self.trainer.step
        _log.info(f"Training resumes from step {self._step} of {str(self.path)!r}.")

    def is_due(self) -> bool:
        """Return whether enough steps or seconds have passed since the file was written."""
        return self.trainer.step - self._step >= EVERY_STEPS or time.monotonic() - self._time >= EVERY_SECONDS

    def save(self) -> None:
        """Write the file now. If writing fails, only warn, so that a full disk does not end the training."""
        try:
            with atomic(self.path) as draft, draft.open("wb") as stream:
                arrays: dict[str, Any] = {"fingerprint": np.array(self.key), **self.trainer.state()}
                np.savez(stream, **arrays)
        except OSError as error:
            _log.warn(f"The checkpoint {str(self.path)!r} could not be written, but training goes on: {error}.")
        self._step, self._time = self.trainer.step, time.monotonic()
