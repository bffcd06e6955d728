"""benchmarks/open_problems.py, on files that have the layout of the task."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

IDS = {"dataset_id": "simulated", "normalization_id": "log_cp10k"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three well separated types in two batches, written as train, test and solution."""
    rng = np.random.default_rng(0)
    folder, types = tmp_path_factory.mktemp("task"), np.arange(600) % 3
    rates = rng.gamma(0.5, 4.0, size=(3, 80))
    counts = sparse.csr_matrix(rng.poisson(rates[types]).astype(np.int64))
    obs = pd.DataFrame({"label": np.array(["B cell", "T cell", "NK"])[types], "batch": np.where(types > 1, "a", "b")})
    obs.index = [f"cell{i}" for i in range(600)]
    var = pd.DataFrame({"feature_name": [f"G{i}" for i in range(80)], "hvg": True, "hvg_score": np.arange(80.0)})
    var.index = [f"ENSG{i:011d}" for i in range(80)]
    # The task leaves X empty.
    cells = ad.AnnData(obs=obs, var=var, layers={"counts": counts}, uns=dict(IDS))
    cells[:400].copy().write_h5ad(folder / "train.h5ad")
    cells[400:].copy().write_h5ad(folder / "solution.h5ad")
    test = cells[400:].copy()
    del test.obs["label"]
    test.write_h5ad(folder / "test.h5ad")
    return folder


def test_prediction_and_score_have_the_layout_of_the_task(script, files, capsys) -> None:
    names = [str(files / f"{name}.h5ad") for name in ("train", "test", "prediction")]
    script("open_problems").main(
        [*names, "--solution", str(files / "solution.h5ad"), "--score", str(files / "score.h5ad")]
    )
    prediction, score = ad.read_h5ad(files / "prediction.h5ad"), ad.read_h5ad(files / "score.h5ad")
    truth = ad.read_h5ad(files / "solution.h5ad").obs["label"].astype(str)
    guess = prediction.obs["label_pred"].astype(str)
    assert prediction.obs_names.equals(truth.index)
    assert dict(prediction.uns) == IDS | {"method_id": "dice"}
    assert (guess == truth).mean() > 0.95
    values = dict(zip(score.uns["metric_ids"], score.uns["metric_values"], strict=True))
    assert list(values) == ["accuracy", "f1_macro", "f1_micro", "f1_weighted"]
    # Of single labels the micro-averaged F1 is the accuracy.
    assert values["accuracy"] == values["f1_micro"] == pytest.approx((guess == truth).mean())
    assert "scANVI + scArches" in capsys.readouterr().out


def test_score_by_hand(script) -> None:
    obs_names = ["1", "2", "3", "4"]
    prediction = ad.AnnData(obs=pd.DataFrame({"label_pred": ["a", "a", "b", "c"]}, index=obs_names), uns=dict(IDS))
    solution = ad.AnnData(obs=pd.DataFrame({"label": ["a", "b", "b", "b"]}, index=obs_names))
    values = script("open_problems").score(prediction, solution).uns["metric_values"]
    # F1 is 2/3 of a, 1/2 of b (one of one right, one of three found), 0 of c, which no cell is.
    np.testing.assert_allclose(values, [0.5, (2 / 3 + 1 / 2) / 3, 0.5, (2 / 3 + 3 / 2) / 4])


def test_cells_in_another_order_are_refused(script) -> None:
    prediction = ad.AnnData(obs=pd.DataFrame({"label_pred": ["a", "b"]}, index=["1", "2"]), uns=dict(IDS))
    solution = ad.AnnData(obs=pd.DataFrame({"label": ["a", "b"]}, index=["2", "1"]))
    with pytest.raises(SystemExit, match="same order"):
        script("open_problems").score(prediction, solution)


def test_a_score_needs_a_solution(script, files) -> None:
    names = [str(files / f"{name}.h5ad") for name in ("train", "test", "prediction")]
    with pytest.raises(SystemExit):
        script("open_problems").main([*names, "--score", "score.h5ad"])
