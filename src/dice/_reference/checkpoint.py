"""Training that can be left and taken up again."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dice import _log
from dice._core.prior.mixup import Mixup
from dice._core.prior.presets import Split
from dice._core.prior.training import Trainer
from dice._errors import InputError
from dice._files import atomic

#: A checkpoint is written after so many steps, or so many seconds where steps are slow.
EVERY_STEPS, EVERY_SECONDS = 200, 60.0


def check_path(path: str | os.PathLike[str]) -> Path:
    """A place that can be written to, found out before the training and not after it."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"checkpoint={path!r} is no path: pass a file name such as 'training.npz'.")
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise InputError(f"checkpoint={str(path)!r} cannot be written: pass a file name in a folder that exists.")
    return target


def fingerprint(trainer: Trainer, data: Split, mixup: Mixup | None, seed: int) -> str:
    """SHA-256 of all that the course of a training depends on: data, network, settings and seed."""
    settings = {
        "checkpoint_format": 1,
        "denoiser": type(trainer.denoiser).__name__,
        "size": trainer.denoiser.config,
        "training": asdict(trainer.config),
        "mixup": None if mixup is None else [mixup.n_points, mixup.probability, mixup.concentration],
        "seed": seed,
        "device": data.train.device.type,
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    held_out = [] if trainer.held_out is None else [trainer.held_out.clean, trainer.held_out.levels]
    for tensor in (data.train, *held_out):
        digest.update(f"{tuple(tensor.shape)}".encode() + tensor.cpu().numpy().tobytes())
    if mixup is not None:
        digest.update(np.asarray(mixup.mates, dtype="<i8").tobytes())
    return digest.hexdigest()


class Checkpoint:
    """The state of a training in one .npz file of plain arrays.

    Parameters
    ----------
    path
        The file; it need not exist yet.
    key
        Fingerprint of the training that it belongs to.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.key = key
        self._step = 0
        self._time = time.monotonic()

    def resume(self, trainer: Trainer) -> None:
        """Put `trainer` where the file left off, if there is one."""
        if not self.path.exists():
            return
        try:
            # allow_pickle=False is numpy's default; here it is a promise.
            with self.path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                key = str(file["fingerprint"])
                if key == self.key:
                    trainer.load_state({name: file[name] for name in file.files})
        except Exception as error:
            raise InputError(
                f"The checkpoint {str(self.path)!r} cannot be read ({type(error).__name__}): "
                "it is damaged or something else, so delete it to start again, or name another file."
            ) from error
        if key != self.key:
            raise InputError(
                f"The checkpoint {str(self.path)!r} belongs to a call with other arguments or other cells: "
                "repeat that call, name another file, or delete it to start again."
            )
        self._step = trainer.step
        _log.info(f"Training goes on from step {trainer.step} in {str(self.path)!r}.")

    def save_if_due(self, trainer: Trainer) -> None:
        """Write the file every so often; call between steps."""
        if trainer.step - self._step >= EVERY_STEPS or time.monotonic() - self._time >= EVERY_SECONDS:
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write the file now. A full disk is no reason to lose a training: it is warned of."""
        try:
            with atomic(self.path) as draft, draft.open("wb") as stream:
                arrays: dict[str, Any] = {"fingerprint": np.array(self.key), **trainer.state()}
                np.savez(stream, **arrays)
        except OSError as error:
            _log.warn(f"The checkpoint {str(self.path)!r} could not be written, but training goes on: {error}.")
        self._step, self._time = trainer.step, time.monotonic()
