"""The paper's experiments on real cells, end to end on small files of the same layout."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

TRIAL = ["--steps", "20", "--seeds", "1"]


def run(script, name, tmp_path, *arguments) -> pd.DataFrame:
    module = script(name)
    module.main(module.EXPERIMENT, ["--stand-in", str(tmp_path), *TRIAL, *arguments])
    return pd.read_csv(tmp_path / f"{name}.csv")


def test_citeseq(script, tmp_path) -> None:
    rows = run(script, "citeseq", tmp_path, "--methods", "NMF", "DICE labels")
    assert rows.method.tolist() == ["NMF", "NMF", "DICE labels", "DICE labels"]
    assert (rows.k == 25).all()
    page = check(rows, tmp_path / "citeseq.md")
    assert "| PCA | 0.745 | 1.334 | 0.689 | 0.787 |" in page
    assert "umap" not in page


def test_neocortex_with_two_numbers_of_latents(script, tmp_path) -> None:
    rows = run(script, "neocortex", tmp_path, "--methods", "kNN-5", "DICE", "--n-latent", "5", "15")
    assert rows[rows.protocol == "paper"][["k", "method"]].to_numpy().tolist() == [
        [5, "DICE"],
        [15, "kNN-5"],
        [15, "DICE"],
    ]
    page = check(rows, tmp_path / "neocortex.md")
    assert "| PCA | 0.347 | 1.496 | 0.496 | 0.525 |" in page
    assert "(neocortex_umap.png)" in page
    assert (tmp_path / "neocortex_umap.png").exists()


def check(rows: pd.DataFrame, page: Path) -> str:
    assert rows.protocol.tolist() == ["paper", "embedding"] * (len(rows) // 2)
    assert rows.ari.between(0.3, 1).all()
    assert rows[rows.protocol == "embedding"].knn_f1.between(0.5, 1).all()
    text = page.read_text()
    assert "a trial on a stand-in" in text
    assert "## The paper's protocol" in text
    return text


def test_goes_on_where_it_stopped(script, tmp_path, capsys) -> None:
    first = run(script, "neocortex", tmp_path, "--methods", "PCA")
    capsys.readouterr()
    second = run(script, "neocortex", tmp_path, "--methods", "PCA", "kNN-5")
    assert capsys.readouterr().out.count("\n") == 1
    assert second.method.tolist() == ["PCA", "PCA", "kNN-5", "kNN-5"]
    pd.testing.assert_frame_equal(second.iloc[:2][list(first)], first)


def test_cells_are_the_same_with_and_without_correction(script, tmp_path) -> None:
    module = script("citeseq")
    cells = module.split(module.citeseq_cells.pbmc_citeseq(path=module.stand_in(tmp_path)), 0, small=True)
    for corrected, plain in zip(cells.corrected, cells.plain, strict=True):
        assert list(corrected.obs_names) == list(plain.obs_names)
        assert list(corrected.var_names) == list(plain.var_names)
        assert plain.X.min() == 0
    assert cells.corrected[0].X.min() < 0


@pytest.mark.parametrize("name", ["citeseq", "neocortex"])
def test_without_data_one_sentence_and_status_1(script, name, tmp_path, monkeypatch) -> None:
    from dice._errors import FileError

    def refuse(*_, **__):
        raise FileError("pbmc_seurat_v4.h5ad cannot be downloaded.")

    monkeypatch.setattr(script("citeseq_cells"), "fetch", refuse)
    monkeypatch.setenv("DICE_CACHE", str(tmp_path))
    module = script(name)
    with pytest.raises(SystemExit, match="download") as caught:
        module.main(module.EXPERIMENT, TRIAL)
    # A text as code is printed, and the status is 1.
    assert isinstance(caught.value.code, str)
    assert "\n" not in caught.value.code
    assert not list(tmp_path.iterdir())
