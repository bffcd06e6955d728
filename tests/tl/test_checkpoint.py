"""A training that is interrupted goes on where it was, and ends with the same prior to the bit."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import anndata as ad
import numpy as np
import pytest

import dice
from dice import _log
from dice._train import train as _train

ARGUMENTS = {"n_latent": 3, "scale": False, "labels_key": "cell_type"}
TRAINING = dice.Training(max_steps=70, batch_size=64)


def reference():
    """Two well separated groups of cells in few genes."""
    rng = np.random.default_rng(0)
    types = np.repeat([0, 1], 60)
    expression = rng.normal(size=(120, 12)) + 3 * rng.normal(size=(2, 12))[types]
    adata = ad.AnnData(expression.astype(np.float32))
    adata.obs["cell_type"] = np.array(["a", "b"])[types]
    return adata


def train(arguments=None, **changes):
    """A prior of the reference, with other arguments of the call or changes of its training."""
    training = replace(TRAINING, **changes)
    return dice.tl.train_prior(reference(), **ARGUMENTS | (arguments or {}), training=training, copy=True)


@pytest.fixture(scope="module")
def whole():
    """The prior of a training that nobody interrupted."""
    return train().uns["dice"]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(_train, "EVERY_STEPS", 20)


@pytest.fixture
def ctrl_c():
    """Ctrl-C as a terminal has it: a shell that starts tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Bar:
    """A progress bar that does something at a certain step."""

    stage = "Training prior"

    def __init__(self, at, action):
        self.at, self.action, self.step = at, action, 0

    def __call__(self, *, desc="", initial=0, **_):
        if desc != self.stage:
            return contextlib.nullcontext(SimpleNamespace(update=lambda *_: None, set_postfix=lambda **_: None))
        self.step = initial
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def set_postfix(self, **_):
        pass

    def update(self):
        self.step += 1
        if self.step == self.at:
            self.action()


def raising(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize("at", [33, 50, 70])
def test_a_crash_is_taken_up_from_the_last_checkpoint(at, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_log, "progress", Bar(at, raising(MemoryError())))
        with pytest.raises(MemoryError):
            train(checkpoint=tmp_path / "state")
    steps = []
    monkeypatch.setattr(_log, "progress", Bar(np.inf, None))
    monkeypatch.setattr(Bar, "update", lambda self: steps.append(1))
    resumed = train(checkpoint=str(tmp_path / "state")).uns["dice"]
    assert 0 < len(steps) < 70 - at + 21
    assert resumed["sha256"] == whole["sha256"]
    for name, values in whole["history"].items():
        np.testing.assert_array_equal(resumed["history"][name], values)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_call_and_can_be_taken_up(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_log, "progress", Bar(57, lambda: signal.raise_signal(signal.SIGINT)))
        with pytest.raises(KeyboardInterrupt):
            train(checkpoint=tmp_path / "state")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with np.load(tmp_path / "state") as state:
        assert state["progress"][0] == 57
    assert train(checkpoint=tmp_path / "state").uns["dice"]["sha256"] == whole["sha256"]


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("step", [7, 20])
def test_ctrl_c_writes_nothing(step, monkeypatch):
    """Also where it comes with the last step."""
    rng = np.random.default_rng(0)
    rates = 3 * rng.gamma(0.3, size=(4, 100))[np.arange(400) % 4]
    counts = rng.poisson(rates) + (np.arange(100) == 0)
    adata = ad.AnnData(np.log1p(1e4 * counts / counts.sum(1, keepdims=True)).astype(np.float32))
    monkeypatch.setattr(_log, "progress", Bar(step, lambda: signal.raise_signal(signal.SIGINT)))
    training = dice.Training(max_steps=20)
    with pytest.raises(KeyboardInterrupt):
        dice.tl.train_prior(adata, n_latent=5, training=training)
    assert not any((adata.uns, adata.varm, adata.obsm, len(adata.obs.columns)))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_before_the_first_step_is_ctrl_c(monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("dice._model.training.Trainer._step", interrupted)
    adata = reference()
    with pytest.raises(KeyboardInterrupt):
        dice.tl.train_prior(adata, **ARGUMENTS, training=TRAINING)
    assert not any((adata.uns, adata.varm, adata.obsm))


def test_a_finished_training_is_not_repeated(whole, tmp_path, monkeypatch):
    train(checkpoint=tmp_path / "state")
    monkeypatch.setattr("dice._model.training.Trainer._step", raising(AssertionError()))
    assert train(checkpoint=tmp_path / "state").uns["dice"]["sha256"] == whole["sha256"]


def test_a_killed_process_is_taken_up(whole, tmp_path):
    """kill -9 leaves no time for anything; another process goes on."""
    state = tmp_path / "state"
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import test_checkpoint as t\n"
        "t._train.EVERY_STEPS = 20\n"
        "t._log.progress = t.Bar(50, lambda: time.sleep(600))\n"
        "t.train(checkpoint=sys.argv[2])"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(Path(__file__).parent), str(state)])
    try:
        deadline = time.monotonic() + 120
        while _step_of(state) < 40 and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.1)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert _step_of(state) == 40
    assert train(checkpoint=state).uns["dice"]["sha256"] == whole["sha256"]


def _step_of(path):
    if not path.exists():
        return 0
    with np.load(path) as state:
        return state["progress"][0]


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ({"random_state": 1}, {}),
        ({}, {"learning_rate": 1e-3}),
        ({}, {"max_steps": 71}),
        ({"n_latent": 4}, {}),
        ({"preset": "paper-small"}, {}),
        ({}, {"validation_fraction": 0.2}),
    ],
    ids=str,
)
def test_other_arguments_are_refused(arguments, changes, state):
    with pytest.raises(dice.DiceError, match="other arguments or other cells") as caught:
        train(arguments, checkpoint=state, **changes)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """The checkpoint of a training that was left after one step."""
    path = tmp_path_factory.mktemp("state") / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_log, "progress", Bar(2, raising(MemoryError())))
        patch.setattr(_train, "EVERY_STEPS", 1)
        with pytest.raises(MemoryError):
            train(checkpoint=path)
    return path


def damaged(state):
    return [
        b"",
        b"hello",
        state[: len(state) // 2],
        state[:5000] + b"X" + state[5001:],
        state[:-30],
        b"\x93NUMPY" + state,
    ]


def test_a_damaged_checkpoint_is_refused_and_left_alone(tmp_path):
    train(checkpoint=tmp_path / "state", max_steps=20)
    for number, content in enumerate(damaged((tmp_path / "state").read_bytes())):
        path = tmp_path / f"damaged{number}"
        path.write_bytes(content)
        with pytest.raises(dice.DiceError, match="cannot be read") as caught:
            train(checkpoint=path, max_steps=20)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == content


def test_a_checkpoint_with_odd_arrays_is_refused(tmp_path):
    path = tmp_path / "state.npz"
    train(checkpoint=path, max_steps=20)
    with np.load(path) as state:
        arrays = dict(state)
    arrays.pop("generator")
    np.savez(path, **arrays)
    with pytest.raises(dice.DiceError, match="cannot be read"):
        train(checkpoint=path, max_steps=20)


def test_a_full_disk_does_not_end_the_training(whole, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(dice.DiceWarning, match="No space left on device"):
        assert train(checkpoint=tmp_path / "state").uns["dice"]["sha256"] == whole["sha256"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", [".", "nowhere/state"])
def test_a_place_that_cannot_be_written_is_refused_at_once(place, tmp_path):
    with pytest.raises(dice.DiceError, match="cannot be written"):
        train(checkpoint=tmp_path / place)


@pytest.mark.parametrize("name", [".", ""])
def test_a_folder_is_no_checkpoint(name):
    with pytest.raises(dice.DiceError, match="it is a folder"):
        train(checkpoint=name)
