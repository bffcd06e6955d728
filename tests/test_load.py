"""One prior, many threads, processes and calls: the same answers as one after the other, and no growth of memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
import stored_priors

import dice
from dice import _log

#: A thousand by `make fuzz`.
N_CALLS = 1000 if os.environ.get("DICE_HYPOTHESIS") == "long" else 200
FIXTURE = stored_priors.path("plain")


def query(n=60):
    rng = np.random.default_rng(0)
    adata = ad.AnnData(np.log1p(rng.poisson(1.0, size=(n, 20))).astype(np.float32))
    adata.var_names = [f"GENE{i}" for i in range(20)]
    return adata


def test_eight_threads_with_one_prior():
    prior, cells = dice.Prior.load(FIXTURE), query(30)
    jobs = [{"rho": rho, "n_samples": 3, "random_state": seed} for rho in (1, 2) for seed in range(4)]

    def run(arguments):
        return dice.tl.denoise(cells, prior, copy=True, **arguments).obsm["X_dice_samples"]

    serial = [run(job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        for one, other in zip(serial, pool.map(run, jobs), strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5)


WORKER = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np, dice, test_load
dice.settings.verbosity = 0
cells = test_load.query()
for _ in range(5):
    dice.tl.denoise(cells, sys.argv[2], n_samples=2)
np.save(sys.argv[3], cells.obsm["X_dice_samples"])
"""


def test_four_processes_share_one_file(tmp_path):
    prior, cells = dice.Prior.load(FIXTURE), query()
    path = tmp_path / "prior.h5ad"
    prior.save(path)
    results = [tmp_path / f"{index}.npy" for index in range(4)]
    folder = str(Path(__file__).parent)
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, folder, str(path), str(r)]) for r in results]
    while any(worker.poll() is None for worker in workers):
        prior.save(path)  # Replaced under their eyes, again and again.
        time.sleep(0.1)
    assert [worker.returncode for worker in workers] == [0] * 4
    dice.tl.denoise(cells, prior, n_samples=2)
    for result in results:
        np.testing.assert_allclose(np.load(result), cells.obsm["X_dice_samples"], atol=1e-5)


def memory():
    """Resident memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_from_call_to_call():
    prior, cells = dice.Prior.load(FIXTURE), query(10)
    for _ in range(50):
        dice.tl.denoise(cells, prior, n_samples=2)
    gc.collect()
    before = memory()
    for _ in range(N_CALLS):
        dice.tl.denoise(cells, prior, n_samples=2)
    gc.collect()
    assert memory() - before < 20 * N_CALLS / 1000 + 2


COSTLY = {
    "denoise": lambda cells, prior: dice.tl.denoise(cells, prior),
    "transfer_labels": lambda cells, prior: dice.tl.transfer_labels(cells, prior),
    "cluster": lambda cells, prior: dice.tl.cluster(cells, prior),
    "annotate": lambda cells, prior: dice.tl.annotate(cells, prior),
    "train_prior": lambda cells, _: dice.tl.train_prior(cells, n_latent=3, training=dice.Training(max_steps=3)),
}


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
@pytest.mark.parametrize("verb", COSTLY)
def test_a_call_on_many_cells_says_first_what_it_takes(verb, monkeypatch, capsys):
    """One line, before all others; a call on few cells says nothing of it."""
    cells, prior = stored_priors.cells(60), stored_priors.path("labels")
    COSTLY[verb](cells.copy(), prior)
    assert "cells take about" not in capsys.readouterr().err
    # As if each of the sixty cells took a minute and 10 MB.
    monkeypatch.setattr(_log, "COSTS", _log.COSTS | {verb: (60_000.0, 10_000.0)})
    COSTLY[verb](cells.copy(), prior)
    said = capsys.readouterr().err
    assert said.count("cells take about") == 1
    assert "60 cells take about 60.0 minutes and 0.6 GB on an idle core." in said


def test_only_what_takes_long_or_much_is_said(monkeypatch, capsys):
    for seconds, megabytes, said in ((29.9, 999, 0), (30, 0, 1), (0, 1000, 1)):
        monkeypatch.setattr(_log, "COSTS", {"denoise": (seconds, megabytes)})
        _log.say_cost("denoise", 1000)
        assert capsys.readouterr().err.count("cells take about") == said
