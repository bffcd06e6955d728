from __future__ import annotations

import doctest
import logging

import anndata as ad
import neocortex_cells
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dice import pp


def portal_file(n_cells: int, order: np.ndarray, **columns: object) -> ad.AnnData:
    """Log-normalised cells in gEAR's layout: Ensembl ids, and symbols with a double and a gap."""
    rng = np.random.default_rng(n_cells)
    values = np.log1p(rng.poisson(rng.gamma(1.0, 2.0, size=len(order)), (n_cells, len(order))))
    symbols = np.array([f"GENE{i}" for i in order], dtype=object)
    symbols[order == 1] = "GENE0"
    symbols[order == 2] = None
    return ad.AnnData(
        values,
        obs=pd.DataFrame({"age": 10, **columns}, index=[f"c{i}" for i in range(n_cells)]),
        var=pd.DataFrame({"gene_symbol": symbols}, index=[f"ENSG{i:03}" for i in order]),
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DICE_CACHE", str(tmp_path))
    reference = portal_file(60, np.arange(100), cell_type=["RG", "EN", "IPC"] * 20)
    reference.write_h5ad(tmp_path / "neocortex_nowakowski2017.h5ad")
    portal_file(80, np.arange(119, 9, -1)).write_h5ad(tmp_path / "neocortex_polioudakis2019.h5ad")
    return tmp_path


def test_files_of_the_portal(folder, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="dice"):
        reference, query = neocortex_cells.neocortex()
    assert reference.shape == (60, 100)
    assert query.shape == (80, 110)
    assert list(reference.var_names[:4]) == ["GENE0", "GENE0-1", "ENSG002", "GENE3"]
    assert reference.var["ensembl_id"].iloc[3] == "ENSG003"
    assert isinstance(reference.X, sparse.csr_matrix)
    assert reference.X.dtype == np.float32
    assert list(reference.obs["cell_type"].cat.categories) == ["EN", "IPC", "RG"]
    assert "cell_type" not in query.obs
    assert "used 3495 of these cells; the file holds 60" in caplog.text


def test_paths_of_the_user(folder, tmp_path) -> None:
    moved = folder / "neocortex_nowakowski2017.h5ad"
    moved = moved.rename(tmp_path / "mine.h5ad")
    reference, _ = neocortex_cells.neocortex(reference=moved)
    assert reference.n_obs == 60


def test_columns_with_cell_types(tmp_path) -> None:
    paths = {"reference": tmp_path / "a.h5ad", "query": tmp_path / "b.h5ad"}
    portal_file(20, np.arange(30)).write_h5ad(paths["query"])
    portal_file(20, np.arange(30), WGCNAcluster="RG", mine="x").write_h5ad(paths["reference"])
    assert neocortex_cells.neocortex(**paths)[0].obs["cell_type"].iloc[0] == "RG"
    assert neocortex_cells.neocortex(**paths, labels_key="mine")[0].obs["cell_type"].iloc[0] == "x"
    with pytest.raises(KeyError, match=r"no column 'nope'.*labels_key="):
        neocortex_cells.neocortex(**paths, labels_key="nope")


def test_missing_files_come_with_the_steps(folder) -> None:
    (folder / "neocortex_polioudakis2019.h5ad").unlink()
    with pytest.raises(OSError, match=r"https://nemoanalytics\.org") as caught:
        neocortex_cells.neocortex()
    text = str(caught.value)
    assert "Dataset Explorer" in text
    assert "download button (h5ad)" in text
    assert f"{folder / 'neocortex_polioudakis2019.h5ad'} (missing)" in text
    assert "pass its path as query=" in text


def test_missing_reference_of_the_user(folder) -> None:
    with pytest.raises(OSError, match=r"no file .*mine\.h5ad: pass another reference=, or None"):
        neocortex_cells.neocortex(reference=folder / "mine.h5ad")


def test_pair_of_the_paper(folder) -> None:
    reference, query = neocortex_cells.neocortex()
    genes = pp.shared_genes(reference, query, n_top_genes=40)
    pair = neocortex_cells.paper_neocortex_pair(reference, query, n_top_genes=40)
    for part in pair:
        assert list(part.var_names) == list(genes)
        assert not part.is_view
    assert reference.n_vars == 100
    assert 5 < len(genes) < 40


def test_example_runs() -> None:
    assert doctest.testmod(neocortex_cells).failed == 0
