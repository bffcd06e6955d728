"""What holds for every plot."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest

from dice import pl

#: Pages are not plots, but hold many.
PLOTS = [getattr(pl, name) for name in pl.__all__ if name not in ("explore", "report")]


def test_import_is_light():
    code = "import sys, dice.pl; print([m for m in ('scanpy', 'umap', 'torch', 'sklearn') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("plot", PLOTS)
def test_arguments_are_alike(plot):
    parameters = inspect.signature(plot).parameters
    assert {"show", "save", "return_fig"} <= set(parameters)
    assert len(parameters) <= 15
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert len(positional) <= 2
    documented = inspect.getdoc(plot).split("Returns\n")[0].splitlines()
    entries = [name for line in documented for name in line.split(", ") if set(line.split(", ")) <= set(parameters)]
    assert entries == list(parameters)


def test_names_are_taken_literally(labelled):
    """Names that matplotlib would take for a formula, or hide."""
    names = {"B": r"$\oops$", "NK": "_hidden", "T": "50% <b>"}
    labelled.obs["cell_type"] = labelled.obs["cell_type"].cat.rename_categories(names)
    labelled.uns["cell_type_dice"]["labels"] = list(names.values())
    drawn = {
        "legend": pl.comparison(labelled, color="cell_type", show=False)[1].get_legend().get_texts(),
        "boxes": pl.distribution(labelled, groupby="cell_type", show=False)[1].get_yticklabels(),
        "coverage": pl.reliability(labelled, "cell_type", show=False)[1].get_yticklabels()[1:],
    }
    for texts in drawn.values():
        texts[0].figure.canvas.draw()
        assert {text.get_text().split(" (")[0] for text in texts} == set(names.values())


def test_figures_are_saved_returned_or_left_open(reference, tmp_path):
    plt.close("all")
    assert pl.prior(reference, save=tmp_path / "a.svg") is None
    assert (tmp_path / "a.svg").exists()
    assert plt.get_fignums() == []
    assert pl.prior(reference) is None
    (figure,) = map(plt.figure, plt.get_fignums())
    assert len(pl.prior(reference, show=False)) == 2
    assert pl.prior(reference, return_fig=True) is not figure


def test_numba_leaves_the_threads_of_torch_alone():
    """Numba starts its threads once per process, hence a process of its own."""
    code = """
import numba
from dice._processes import openmp_threads_kept

@numba.njit(parallel=True)
def double(values):
    for i in numba.prange(len(values)):
        values[i] *= 2

import numpy as np
with openmp_threads_kept():
    double(np.ones(3))
import torch
print(torch.get_num_threads())
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "1"
