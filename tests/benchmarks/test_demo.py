"""The demonstration: what it compares, and on which cells."""

from __future__ import annotations

import importlib
import sys

import anndata as ad
import numpy as np
import pandas as pd
import pytest

import dice


@pytest.mark.filterwarnings("ignore")
def test_it_writes_what_it_says(script, tmp_path, monkeypatch, capsys):
    """Without a registry, cells that come with scanpy take the place of two studies."""

    def unreachable(**_):
        raise OSError("No connection.")

    demo, folder = script("demo"), tmp_path / "demo"
    monkeypatch.setattr(dice.datasets, "pancreas", unreachable)
    monkeypatch.setitem(demo.METHODS, "CellTypist", lambda *_: (_ for _ in ()).throw(ImportError("no celltypist")))
    monkeypatch.setattr(sys, "argv", ["demo.py", "--output", str(folder)])
    demo.main()
    captured = capsys.readouterr()
    for word in ("pbmc68k", demo.OURS, *demo.METHODS, "macro-F1", "cluster ARI", "set coverage", "seconds", "demo.png"):
        assert word in captured.out
    assert "No connection. Blood cells" in captured.out
    assert "CellTypist is left out: no celltypist." in captured.out
    query = ad.read_h5ad(folder / "query.h5ad")
    assert {"dice_cluster", "cell_type_dice", "cell_type_dice_status"} <= set(query.obs)
    assert '"png": "' in (folder / "report.html").read_text()
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(folder / "demo.csv", index_col="method")
    assert table.loc["Leiden, resolution 1", ["cluster ARI", "clusters"]].notna().all()
    assert table.loc["logistic regression on PCs", "macro-F1"] > 0.5


def test_cells_are_divided_and_thinned(script):
    demo, cells = script("demo"), dice.datasets.pbmc68k()
    reference, query = demo.hold_out(cells, 0)
    assert reference.n_obs + query.n_obs == cells.n_obs
    assert not set(reference.obs_names) & set(query.obs_names)
    counts = ad.AnnData(np.random.default_rng(0).poisson(9.0, size=(200, 50)).astype(np.float32))
    shallow = demo.thinned(counts, 0.1, 0)
    assert (shallow.X.toarray() <= counts.X).all()
    assert abs(shallow.X.sum() / counts.X.sum() - 0.1) < 0.01
    np.testing.assert_array_equal(demo.thinned(counts, 0.1, 0).X.toarray(), shallow.X.toarray())


def test_stages_are_timed(script, monkeypatch):
    demo = script("demo")

    def work(name: str) -> float:
        where = importlib.import_module("dice.pl._report" if name == "report" else "dice.tl._annotate")
        return getattr(where, name)()

    for name in demo.STAGES:
        where = importlib.import_module("dice.pl._report" if name == "report" else "dice.tl._annotate")
        monkeypatch.setattr(where, name, lambda: sum(range(300_000)))
    monkeypatch.setattr(demo, "ours", lambda *_: [work(name) for name in demo.STAGES])
    seconds = demo.stages(None, None, 0, None)["CPU seconds"]
    total = seconds.pop("all of the call")
    assert set(seconds.index) == {*demo.STAGES.values(), "importing umap"}
    assert (seconds[list(demo.STAGES.values())] > 0).all()
    assert seconds.sum() == pytest.approx(total, abs=0.05)
