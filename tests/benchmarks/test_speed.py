"""The comparison of speeds, without any of the tools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch


def test_clock(script) -> None:
    clock = script("clock").Clock()
    calls = []
    clock("task", lambda: calls.append(np.ones(12_000_000)), repeats=2)
    clock("half of it", lambda: calls.append(0), share=0.5)
    assert len(calls) == 3
    first, second = clock.rows
    assert first["task"] == "task"
    assert 0 < first["seconds"] < 5
    assert second["seconds"] < first["seconds"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by Linux alone")
def test_the_clock_tells_memory() -> None:
    """In a process of its own: one that has freed much memory would serve the arrays from it."""
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); import numpy as np; from clock import Clock; kept = [];"
        "clock = Clock(); clock('task', lambda: kept.append(np.ones(12_000_000)), repeats=2);"
        "print(clock.rows[0]['extra MB'])"
    )
    root = Path(__file__).parents[2]
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert 170 < float(found.stdout) < 230


def test_ratios_are_those_of_one_repetition(script) -> None:
    speed_peers = script("speed_peers")
    seconds = {("DICE", 0): 1.0, ("MAGIC", 0): 3.0, ("DICE", 1): 2.0, ("MAGIC", 1): 4.0}
    task = speed_peers.PCS
    rows = [{"task": task, "tool": tool, "seed": seed, "seconds": s} for (tool, seed), s in seconds.items()]
    rows.append({"task": "other", "tool": "MAGIC", "seed": 0, "seconds": 1.0})
    table = speed_peers.with_ratios(rows)
    assert table["times DICE"].tolist()[:4] == [1, 3, 1, 2]
    text = speed_peers.note(table, "cells", {"CellTypist": "it is not there"}, 20)
    assert "faster than by MAGIC: yes, 2.5 times" in text
    assert "scVI with its defaults" not in text
    assert "CellTypist was not run: it is not there" in text


def test_a_tool_that_fails_is_named_with_its_reason(script, tmp_path) -> None:
    speed_peers = script("speed_peers")
    assert "Error" in speed_peers.run_apart("NMF", tmp_path, 1, sys.executable)
    assert speed_peers.run_apart("NMF", tmp_path, 1, str(tmp_path / "nowhere")) == "No such file or directory"


def test_evaluations_are_counted(script) -> None:
    speed = script("speed")
    denoiser = speed.dice._model.networks.depth.DepthDenoiser(3)
    assert speed.count(lambda: denoiser(torch.zeros(7, 3), torch.tensor(1.0))) == 7
