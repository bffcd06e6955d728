from __future__ import annotations

import doctest
import random
import sys
import types

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import torch
from oracle import Chunks
from scipy import sparse

from dice import metrics
from dice._data.read import names
from dice._errors import DiceError, InputError, SlotError
from dice._model.arrays import harmony
from dice._model.pca import fit_projection
from dice.pp import _correct_batches, correct_batches, prepare

SHIFT = 0.3


@pytest.fixture
def cells() -> ad.AnnData:
    """Two cell types in two batches; in the second one, 15 genes are higher."""
    rng = np.random.default_rng(0)
    kind, batch = np.arange(200) % 2, np.arange(200) // 100
    mean = rng.uniform(0.5, 2, size=(2, 40))[kind]
    mean[:, :15] += SHIFT * batch[:, None]
    values = np.maximum(mean + rng.normal(scale=0.3, size=mean.shape), 0).astype(np.float32)
    obs = pd.DataFrame(
        {"type": np.array(["T", "B"])[kind], "batch": np.array(["one", "two"])[batch]},
        index=[f"cell{i}" for i in range(200)],
    )
    var = pd.DataFrame(index=[f"gene{i}" for i in range(40)])
    return ad.AnnData(sparse.csr_matrix(values), obs=obs, var=var)


def components(values: np.ndarray, n_comps: int) -> np.ndarray:
    """PCA of the values, fitted to them."""
    return fit_projection(Chunks(lambda: iter([values])).total, n_latent=n_comps).project(values)


def test_batches_mix_and_types_stay(cells) -> None:
    assert correct_batches(cells, "batch", n_comps=5) is None
    corrected = cells.layers["harmony"]
    assert corrected.dtype == np.float32
    assert isinstance(corrected, np.ndarray)
    before, after = components(cells.X.toarray(), 5), components(corrected, 5)
    assert metrics.ilisi(before, cells.obs["batch"]) < 1.4
    assert metrics.ilisi(after, cells.obs["batch"]) > 1.8
    assert metrics.clisi(after, cells.obs["type"]) < 1.1
    assert cells.uns["dice_harmony"]["params"] == {
        "batch_key": "batch",
        "n_comps": 5,
        "random_state": 0,
    }


def test_correction_lies_in_the_components(cells) -> None:
    """x + ((z* - z) V') s: seen in scaled genes, the shift has rank k and leads exactly to z*."""
    correct_batches(cells, "batch", n_comps=3)
    projection = fit_projection(Chunks(lambda: iter([cells.X])).total, n_latent=3)
    shift = (cells.layers["harmony"] - cells.X.toarray()) / projection.scale
    latent = shift @ projection.loadings
    np.testing.assert_allclose(latent @ projection.loadings.T, shift, atol=1e-4)
    z = projection.project(cells.X)
    moved = harmony(z, cells.obs["batch"].to_numpy(dtype=str), 0)
    np.testing.assert_allclose(z + latent, moved, atol=1e-4)


def test_only_variable_genes_move(cells) -> None:
    cells.var["highly_variable"] = np.arange(40) < 30
    correct_batches(cells, "batch", n_comps=5)
    moved = cells.layers["harmony"] != cells.X.toarray()
    assert not moved[:, 30:].any()
    assert moved[:, :30].mean() > 0.9
    bare = cells[:, :30].copy()
    correct_batches(bare, "batch", n_comps=5)
    np.testing.assert_allclose(bare.layers["harmony"], cells.layers["harmony"][:, :30], rtol=1e-5, atol=1e-5)


def test_all_kinds_of_matrix_agree(cells) -> None:
    expected = correct_batches(cells, "batch", n_comps=5, copy=True).layers["harmony"]
    for make in (lambda x: x.toarray(), sparse.csc_matrix, sparse.csr_array):
        cells.layers["other"] = make(cells.X)
        correct_batches(cells, "batch", n_comps=5, layer="other", layer_added="moved")
        np.testing.assert_allclose(cells.layers["moved"], expected, atol=1e-5)
    assert "dice_moved" in cells.uns
    assert "harmony" not in cells.layers


def test_copy_leaves_the_input_alone(cells) -> None:
    before = cells.X.data.tobytes(), cells.obs.to_csv(), cells.var.to_csv()
    result = correct_batches(cells, "batch", n_comps=5, copy=True)
    assert (cells.X.data.tobytes(), cells.obs.to_csv(), cells.var.to_csv()) == before
    assert not names(cells, "layers")
    assert not cells.uns
    correct_batches(cells, "batch", n_comps=5)
    np.testing.assert_array_equal(result.layers["harmony"], cells.layers["harmony"])


def test_global_random_state_is_untouched(cells) -> None:
    states = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()  # noqa: NPY002
    correct_batches(cells, "batch", n_comps=5)
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tobytes() == states[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[2])


def test_the_seed_decides(cells) -> None:
    once, again = (
        correct_batches(cells, "batch", n_comps=5, random_state=3, copy=True).layers["harmony"] for _ in range(2)
    )
    np.testing.assert_array_equal(once, again)
    for seed in (np.random.default_rng(0), 2**40 - 1):  # more bits than harmonypy takes
        correct_batches(cells, "batch", n_comps=5, random_state=seed)
        assert isinstance(cells.uns["dice_harmony"]["params"]["random_state"], int)


def test_the_correction_is_carried_back(cells, monkeypatch) -> None:
    def fake(data: np.ndarray, *_: object, **__: object) -> object:
        return types.SimpleNamespace(Z_corr=data + 1)

    monkeypatch.setitem(sys.modules, "harmonypy", types.SimpleNamespace(run_harmony=fake))
    correct_batches(cells, "batch", n_comps=3)
    projection = fit_projection(Chunks(lambda: iter([cells.X])).total, n_latent=3)
    shift = (cells.layers["harmony"] - cells.X.toarray()) / projection.scale
    np.testing.assert_allclose(shift @ projection.loadings, 1, atol=1e-4)


def test_nonsense_from_harmonypy_is_refused(cells, monkeypatch) -> None:
    fake = types.SimpleNamespace(run_harmony=lambda *_, **__: types.SimpleNamespace(Z_corr=[np.nan]))
    monkeypatch.setitem(sys.modules, "harmonypy", fake)
    with pytest.raises(DiceError, match="not finite"):
        correct_batches(cells, "batch")
    assert not names(cells, "layers")


def test_few_cells(cells) -> None:
    few = cells[[0, 1, 2, 100, 101, 102]].copy()
    correct_batches(few, "batch")
    assert few.uns["dice_harmony"]["params"]["n_comps"] == 5
    assert np.isfinite(few.layers["harmony"]).all()


@pytest.mark.parametrize(
    ("spoil", "options", "error", "text"),
    [
        (lambda a: a.obs.pop("batch"), {}, SlotError, "no column 'batch'"),
        (lambda a: a.obs.__setitem__("batch", "x"), {}, InputError, "must hold two or more batches"),
        (
            lambda a: a.obs.__setitem__("batch", [None] + ["a", "b"] * 99 + ["a"]),
            {},
            InputError,
            "notna",
        ),
        (lambda a: None, {"n_comps": 0}, InputError, "`n_comps` must be .*got 0"),
        (lambda a: None, {"layer": "nope"}, SlotError, "nope"),
        (lambda a: None, {"mask_var": "nope"}, SlotError, "nope"),
    ],
)
def test_errors_name_the_fix(cells, spoil, options, error, text) -> None:
    spoil(cells)
    with pytest.raises(error, match=text):
        correct_batches(cells, "batch", **options)
    assert not names(cells, "layers")


@pytest.mark.data
def test_bone_marrow_of_four_sites(shared_data) -> None:
    adata = ad.read_h5ad(shared_data("bmmc_neurips_cite"))
    adata = adata[np.random.default_rng(0).choice(adata.n_obs, 1500, replace=False)].copy()
    # The file holds 4,000 chosen genes only: thresholds for whole transcriptomes do not apply.
    prepare(adata, batch_key="site", n_top_genes=1000, min_genes=50, max_pct_mt=100)
    mixing, blurring = change(adata, "site", n_comps=30)
    assert mixing > 1.15
    assert blurring < 1.05


@pytest.mark.data
def test_blood_in_three_chemistries(shared_data) -> None:
    adata = ad.read_h5ad(shared_data("pbmc_symphony_3chem"))
    mixing, blurring = change(adata, "tech", n_comps=20)
    assert mixing > 1.6
    assert blurring < 1.05


def change(adata: ad.AnnData, key: str, *, n_comps: int) -> tuple[float, float]:
    """Factors by which batches mix better (iLISI) and cell types blur (cLISI)."""
    correct_batches(adata, key, n_comps=n_comps)
    genes = adata.var.get("highly_variable", pd.Series(True, adata.var_names)).to_numpy()
    before = components(adata.X[:, genes].toarray(), n_comps)
    after = components(adata.layers["harmony"][:, genes], n_comps)
    batches, types = adata.obs[key], adata.obs["cell_type"]
    return (
        metrics.ilisi(after, batches) / metrics.ilisi(before, batches),
        metrics.clisi(after, types) / metrics.clisi(before, types),
    )


def test_example_runs() -> None:
    assert doctest.testmod(_correct_batches).failed == 0
