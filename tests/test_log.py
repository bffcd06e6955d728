"""Warnings are raised in one place and once per object, calls keep those that they caused; progress in a log."""

from __future__ import annotations

import gc
import io
import os
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


def test_denoise_keeps_its_warnings(tmp_path):
    reference, query = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
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


@_log.once_per_object
def worried(adata, message="too few genes"):
    _log.warn(message)


def heard(call, *args, **kwargs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return [str(warning.message) for warning in caught]


def test_a_warning_is_said_once_about_an_object():
    one, other = ad.AnnData(np.ones((2, 2))), ad.AnnData(np.ones((2, 2)))
    assert heard(worried, one) == ["too few genes"]
    assert heard(worried, one) == heard(worried, adata=one) == []
    assert heard(worried, one, "too few cells") == ["too few cells"]
    assert heard(worried, adata=other) == ["too few genes"]
    # What no object is known of, and what cannot be followed, is said every time.
    assert heard(_log.warn, "alone") == heard(_log.warn, "alone") == ["alone"]
    assert heard(worried, "a path") == heard(worried, "a path") == ["too few genes"]


def test_what_was_said_about_a_reference_is_not_said_again_for_its_queries():
    @_log.once_per_object
    def verb(query, reference):
        _log.warn("odd labels", about=reference)

    query, other, reference = (ad.AnnData(np.ones((2, 2))) for _ in range(3))
    assert [heard(verb, cells, reference) for cells in (query, query, other)] == [["odd labels"], [], []]


def test_what_was_said_is_forgotten_with_its_object():
    before = len(_log._said)
    for _ in range(20):
        cells = ad.AnnData(np.ones((2, 2)))
        assert heard(worried, cells) == ["too few genes"]
    del cells
    gc.collect()
    assert len(_log._said) <= before


def test_a_warning_that_was_made_an_error_is_raised_again():
    cells = ad.AnnData(np.ones((2, 2)))
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(DiceWarning):
                worried(cells)
    assert heard(worried, cells) == ["too few genes"]


def test_verbs_say_once_and_record_always():
    reference, query = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    few = query[:, :1400].copy()
    first, second = (heard(dice.tl.denoise, few, reference) for _ in range(2))
    assert len(first) == 1
    assert "1400/2000 genes" in first[0]
    assert second == []
    assert first[0] not in heard(dice.tl.novelty, few, reference)
    assert few.uns["X_dice"]["warnings"].tolist() == first
    assert few.uns["dice_novelty"]["warnings"].tolist()[0] == first[0]


@pytest.fixture
def log(monkeypatch, capsys):
    """What was written to a file in place of a terminal, line by line."""
    monkeypatch.setattr(settings, "verbosity", 1)
    return lambda: capsys.readouterr().err.split("\n")[:-1]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_log.time, "monotonic", lambda: now[0])
    return now


def run(clock, *, total, seconds, n=300, **kwargs):
    with _log.progress(total=total, desc="Training", **kwargs) as bar:
        for _ in range(n):
            clock[0] += seconds
            bar.update()
            bar.set_postfix(loss="0.5")


def stated(lines):
    return [line.split(" after")[0] for line in lines]


def test_a_log_has_a_line_for_every_tenth_of_the_work(log, clock):
    run(clock, total=300, seconds=1)
    lines = log()
    assert lines[0] == "Training: 10 % after 30 s, about 270 s left, loss 0.5"
    assert "left" not in lines[-2]
    assert stated(lines) == [*(f"Training: {10 * i} %" for i in range(1, 11)), "Training: done"]
    assert not any("\r" in line for line in lines)


def test_quick_work_leaves_no_line_and_slow_steps_one_each(log, clock):
    run(clock, total=300, seconds=0.01)
    assert log() == []
    run(clock, total=3, n=3, seconds=100)
    assert stated(log()) == ["Training: 33 %", "Training: 67 %", "Training: 100 %", "Training: done"]


def test_work_of_unknown_length_has_ever_fewer_lines(log, clock):
    run(clock, total=None, seconds=1, n=10_000)
    assert 5 < len(log()) < 15


def test_work_that_goes_on_from_a_checkpoint_counts_from_there(log, clock):
    run(clock, total=300, initial=270, n=30, seconds=10)
    assert stated(log()) == ["Training: 100 %", "Training: done"]


def test_stages_have_names(log, clock):
    with _log.progress(total=100, desc="Annotating: the prior") as bar:
        clock[0] += 60
        _log.next_stage(bar, 60, "Annotating: labels")
        clock[0] += 40
        bar.update(40)
    prior, labels, _ = log()
    assert prior == "Annotating: the prior: 60 % after 60 s, about 40 s left"
    assert labels == "Annotating: labels: 100 % after 100 s"


def test_silent(log, clock, monkeypatch):
    monkeypatch.setattr(settings, "verbosity", 0)
    run(clock, total=300, seconds=1)
    assert log() == []


def test_bars_are_for_terminals_and_notebooks(monkeypatch):
    assert isinstance(_log.progress(total=3, desc="x"), _log.Lines)
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert isinstance(_log.progress(total=3, desc="x"), _log.Lines)
    shell.kernel = object()
    assert _log._is_watched()
    shell.kernel = None
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    with _log.progress(total=3, desc="x") as bar:
        assert isinstance(bar, _log.tqdm)


def test_a_chain_tells_every_iteration(monkeypatch):
    """The bar of a query that is one chunk stood still until its chains were done."""
    told = {}

    class Bar(_log.Lines):
        def update(self, n=1):
            super().update(n)
            told.setdefault(self.desc, []).append(self.n / self.total)

    monkeypatch.setattr(_log, "progress", lambda *, total, desc, **_: Bar(total, desc))
    reference, query = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=5, scale=False, preset="gmm")
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
