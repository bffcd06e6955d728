"""Driving a training: progress bar, Ctrl-C, checkpoints."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dice import _log
from dice._core.prior import presets
from dice._core.prior.denoiser import Denoiser
from dice._core.prior.mixup import Mixup
from dice._core.prior.training import Trainer
from dice._reference.checkpoint import Checkpoint, fingerprint

History = dict[str, NDArray[np.floating]]


def learn(
    preset: str,
    data: presets.Split,
    *,
    noise: float,
    seed: int,
    mixup: Mixup | None = None,
    checkpoint: Path | None = None,
    **overrides: Any,
) -> tuple[Denoiser, History]:
    """Fit or train the denoiser of a preset; it comes back ready for inference, with its history.

    Parameters
    ----------
    preset
        One of ``presets.NAMES``.
    data
        Scaled latents.
    noise
        Noise of the reference in scaled units.
    seed
        Seed of everything random.
    mixup
        Augmentation of the training cells.
    checkpoint
        File to keep the state of the training in, and to go on from where it exists.
    overrides
        Fields of ``TrainingConfig``; None keeps the preset's.
    """
    if preset == "gmm":
        denoiser, history = presets.fit_mixture(data, seed=seed)
        return denoiser, {name: np.asarray(values) for name, values in history.items()}
    trainer = presets.make_trainer(preset, data, noise=noise, mixup=mixup, seed=seed, **overrides)
    keeper = None
    if checkpoint is not None:
        keeper = Checkpoint(checkpoint, fingerprint(trainer, data, mixup, seed))
        keeper.resume(trainer)
    drive(trainer, keeper)
    _log.info(
        f"Stopped after {trainer.step} steps; best held-out loss {trainer.best_loss:.4f} of the linear "
        f"denoiser's at step {trainer.best_step}."
    )
    columns = np.array(trainer.history).reshape(-1, 3).T
    return trainer.denoiser, dict(zip(("step", "loss", "validation"), columns, strict=True))


def drive(trainer: Trainer, checkpoint: Checkpoint | None = None) -> None:
    """Train to the end, or to the best so far when the user interrupts."""
    total = trainer.config.max_steps
    with (
        _log.progress(total=total, initial=trainer.step, desc="Training prior", unit="step") as bar,
        _patient_interrupt() as interrupted,
    ):
        try:
            for report in trainer.steps():
                bar.update()
                if report.validation is not None:
                    bar.set_postfix(loss=f"{report.loss:.3f}", held_out=f"{report.validation:.3f}")
                if checkpoint is not None:
                    checkpoint.save_if_due(trainer)
                if interrupted():
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            if trainer.step == 0:
                raise
            _conclude(trainer, checkpoint)
            return
    if checkpoint is not None:
        checkpoint.save(trainer)


def _conclude(trainer: Trainer, checkpoint: Checkpoint | None) -> None:
    """Make the most of an interrupted training; its checkpoint is written first and knows nothing of it."""
    if checkpoint is not None and trainer.between_steps:
        checkpoint.save(trainer)
    if not trainer.history or trainer.history[-1][0] != trainer.step:
        trainer.evaluate()
    trainer.restore_best()
    _log.warn(
        f"Training was interrupted at step {trainer.step} of at most {trainer.config.max_steps}; the prior is the "
        f"best so far, from step {trainer.best_step}."
    )


@contextmanager
def _patient_interrupt() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait for the end of the current step, so that its state can be kept; a second one does not wait.

    Only where Ctrl-C does what Python makes it do: a handler of the user's own is left alone.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    asked: list[int] = []

    def wait(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, wait)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
