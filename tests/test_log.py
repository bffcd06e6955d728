"""Warnings are raised in one place, and calls keep those that they caused; progress in a log."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anndata as ad
import numpy as np
import pytest

import dice
from dice import _log, settings
from dice._errors import DiceWarning


def test_warnings_are_recorded_by_every_block_around_them():
    def block() -> tuple[list[str], list[str]]:
        with _log.recorded() as outer:
            _log.warn("one")
            with _log.recorded() as inner:
                _log.warn("two")
            _log.warn("three")
        return outer, inner

    with pytest.warns(DiceWarning):
        found = block()
    assert found == (["one", "two", "three"], ["two"])


def test_threads_record_their_own():
    def call(name: str) -> list[str]:
        with _log.recorded() as messages:
            for _ in range(50):
                _log.warn(name)
        return messages

    with pytest.warns(DiceWarning), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(call, "abcd"))
    assert found == [[name] * 50 for name in "abcd"]


@pytest.fixture(scope="module")
def trained():
    reference, query = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    return reference, query


def test_denoise_keeps_its_warnings(trained, tmp_path):
    reference, query = trained[0], trained[1].copy()
    dice.tl.denoise(query, reference)
    assert query.uns["X_dice"]["warnings"].tolist() == []
    query.write_h5ad(tmp_path / "query.h5ad")
    assert ad.read_h5ad(tmp_path / "query.h5ad").uns["X_dice"]["warnings"].tolist() == []
    with pytest.warns(DiceWarning, match="1400/2000 genes") as caught:
        some = dice.tl.denoise(query[:, :1400].copy(), reference, copy=True)
    stored = some.uns["X_dice"]["warnings"]
    assert stored.tolist() == [str(warning.message) for warning in caught]
    some.write_zarr(tmp_path / "query.zarr")
    np.testing.assert_array_equal(ad.read_zarr(tmp_path / "query.zarr").uns["X_dice"]["warnings"], stored)


def heard(call, *args, **kwargs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return [str(warning.message) for warning in caught]


def test_a_message_that_steps_repeat_is_shown_once_and_recorded_always():
    def steps() -> list[list[str]]:
        with _log.recorded() as whole:
            for _ in range(2):
                with _log.recorded() as step:
                    _log.warn("too few genes")
        return [whole, step]

    assert heard(steps) == ["too few genes"]
    with pytest.warns(DiceWarning):
        assert steps() == [["too few genes"] * 2, ["too few genes"]]
    assert heard(_log.warn, "alone") == heard(_log.warn, "alone") == ["alone"]


def test_a_message_that_was_ignored_is_shown_later():
    """pl.rho ignores the warnings of its own calls: they hid those of the user's next call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiceWarning)
        _log.warn("too few sites")
    assert heard_by_default("too few sites") == ["too few sites"]


def heard_by_default(message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        _log.warn(message)
    return [str(warning.message) for warning in caught]


def test_a_message_is_shown_once_to_a_user_without_filters():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        _log.warn("too few donors")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python would forget what it has shown.
        _log.warn("too few donors")
    assert [str(warning.message) for warning in caught] == ["too few donors"]


def test_a_warning_that_was_made_an_error_is_raised_again():
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(DiceWarning):
                _log.warn("too few studies")


def test_every_verb_records_its_warnings(trained):
    reference, query = trained
    few = query[:, :1400].copy()
    first = heard(dice.tl.denoise, few, reference)
    assert len(first) == 1
    assert "1400/2000 genes" in first[0]
    assert first[0] in heard(dice.tl.novelty, few, reference)
    assert few.uns["X_dice"]["warnings"].tolist() == first
    assert few.uns["dice_novelty"]["warnings"].tolist()[0] == first[0]


@pytest.fixture
def log(monkeypatch, capsys):
    """Lines that were written to a file in place of a terminal."""
    monkeypatch.setattr(settings, "verbosity", 1)
    return lambda: capsys.readouterr().err.split("\n")[:-1]


def run(total=3, n=3, **kwargs):
    with _log.progress(total=total, desc="Training", mininterval=0, **kwargs) as bar:
        for _ in range(n):
            bar.update()
            bar.set_postfix(loss="0.5")


def test_a_log_has_a_line_every_half_minute(log, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_log.time, "monotonic", lambda: now[0])
    with _log.progress(total=300, desc="Training", mininterval=0) as bar:
        for _ in range(300):
            now[0] += 1
            bar.update()
    lines = log()
    assert len(lines) == 10
    assert re.fullmatch(r"Training: 10 % after 00:0\d, 00:0\d left", lines[0])
    run()
    assert log() == []


def test_lines_hold_figures_and_no_control_characters(log, monkeypatch):
    monkeypatch.setattr(_log, "BETWEEN_LINES", 0.0)
    run()
    lines = log()
    assert any(line.startswith("Training: 33 %") and line.endswith(", loss=0.5") for line in lines)
    assert not any("\r" in line for line in lines)
    run(total=None)
    assert any(line.startswith("Training: 2 after") for line in log())
    with _log.progress(total=100, desc="Annotating: the prior") as bar:
        # A bar within a bar wrote "\x1b[A" into log files.
        run()
        _log.next_stage(bar, 60, "Annotating: labels")
    lines = log()
    assert any(line.startswith("Annotating: labels: 60 %") for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_silent(log, monkeypatch):
    monkeypatch.setattr(settings, "verbosity", 0)
    monkeypatch.setattr(_log, "BETWEEN_LINES", 0.0)
    run()
    assert log() == []


def test_bars_are_for_terminals_and_notebooks(monkeypatch):
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert not _log._in_notebook()
    shell.kernel = object()
    assert _log._in_notebook()
    shell.kernel = None
    monkeypatch.setattr(settings, "verbosity", 1)
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    run()
    assert terminal.getvalue() == ""
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    run()
    assert "\rTraining:" in terminal.getvalue()


def test_a_chain_tells_every_iteration(trained, monkeypatch):
    """The bar of a query that is one chunk stood still until its chains were done."""
    told = {}

    class Bar(_log.tqdm):
        def update(self, n=1):
            super().update(n)
            told.setdefault(self.desc.removesuffix(": "), []).append(self.n / self.total)

    monkeypatch.setattr(settings, "verbosity", 1)
    monkeypatch.setattr(_log, "tqdm", Bar)
    reference, query = trained[0], trained[1].copy()
    for method, n_steps in ((dice.Gibbs(n_iterations=6, n_chains=2), 12), ("direct", 1)):
        told.clear()
        dice.tl.denoise(query, reference, rho=30, method=method)
        np.testing.assert_allclose(told["Denoising"], np.arange(1, n_steps + 1) / n_steps)


WORKFLOW = """
import numpy as np, scanpy as sc, anndata as ad
import dice

rng = np.random.default_rng(0)
codes = rng.integers(6, size=900)
cells = ad.AnnData(rng.poisson(2 * rng.gamma(0.3, size=(6, 400))[codes]).astype(np.float32))
cells.obs["cell_type"] = [f"type {code}" for code in codes]
cells.var_names = [f"gene{i}" for i in range(400)]
reference, query = cells[:600].copy(), cells[600:].copy()
reference, query = (dice.pp.prepare(part, min_genes=20, copy=True) for part in (reference, query))
dice.tl.train_prior(reference, labels_key="cell_type", training=dice.Training(max_steps=300))
some = query[:, :-120].copy()  # Genes that are not measured are warned of.
for _ in range(2):
    dice.tl.denoise(some, reference)
    dice.tl.cluster(some)
    dice.tl.transfer_labels(some, reference, "cell_type")
    dice.tl.novelty(some, reference)
dice.pl.report(some, "report.html", reference=reference)
"""


def test_the_log_of_a_whole_workflow_is_short(tmp_path):
    """As ``python script.py 2> log`` leaves it."""
    (tmp_path / "script.py").write_text(WORKFLOW)
    with (tmp_path / "log").open("wb") as stream:
        environment = os.environ | {"PYTHONPATH": str(Path(dice.__file__).parents[1])}
        call = [sys.executable, "script.py"]
        subprocess.run(call, cwd=tmp_path, stderr=stream, env=environment, check=True, timeout=600)
    written = (tmp_path / "log").read_bytes()
    assert b"\r" not in written
    lines = written.decode().splitlines()
    assert len(lines) < 60
    assert sum("genes found" in line and "Warning" in line for line in lines) == 1, lines
    assert (tmp_path / "report.html").stat().st_size > 0


def test_a_warning_points_to_the_call_through_decorated_steps():
    """It pointed to contextlib, which calls functions that a context manager decorates."""
    inside = {"__name__": "dice.made", "warn": _log.warn}
    exec("def step():\n    warn('careful')", inside)
    step = _log.within(_log.within_call, True)(inside["step"])
    with pytest.warns(dice.DiceWarning, match="careful") as caught:
        step()
    assert caught[0].filename == __file__
