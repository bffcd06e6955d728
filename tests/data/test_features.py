"""Features wherever a reference keeps them, and what is said of those that cannot be learned."""

from __future__ import annotations

from types import SimpleNamespace

import anndata as ad
import numpy as np
import pandas as pd
import pytest

import dice
from dice._data.features import FEWEST_MEASURED, feature_key, read_features, title_of, with_cells
from dice._data.write import is_mudata

N = 2 * FEWEST_MEASURED + 4
VALUES = np.random.default_rng(0).normal(size=(N, 2))


@pytest.fixture
def reference():
    adata = ad.AnnData(np.ones((N, 3), np.float32), var=pd.DataFrame(index=list("abc")))
    adata.obsm["protein"] = pd.DataFrame(VALUES.copy(), index=adata.obs_names, columns=["CD3", "CD4"])
    adata.obs["age"], adata.obs["kind"] = np.arange(float(N)), "x"
    adata.layers["other"] = 2 * adata.X
    return adata


def modality(names):
    cells = ad.AnnData(
        VALUES[: len(names)].copy(), obs=pd.DataFrame(index=names), var=pd.DataFrame(index=["CD3", "CD4"])
    )
    return SimpleNamespace(mod={"prot": cells})


def test_places(reference):
    for key, names, values in (
        ("protein", ["CD3", "CD4"], VALUES),
        ("age", ["age"], np.arange(N)[:, None]),
        (["age"], ["age"], np.arange(N)[:, None]),
        ("layer:other", ["a", "b", "c"], np.full((N, 3), 2)),
    ):
        found = read_features(reference, reference, key)
        assert found.names == names
        np.testing.assert_allclose(found.values, values)


def test_modalities_are_joined_by_the_names_of_cells(reference):
    """Cells that the modality lacks were not measured; one that has none of them is another data set."""
    some = list(reference.obs_names[::-1][: N - 2])
    found = read_features(modality(some), reference, "mod:prot")
    np.testing.assert_allclose(found.values[2:], VALUES[: N - 2][::-1])
    assert np.isnan(found.values[:2]).all()
    np.testing.assert_array_equal(found.known, np.arange(N) >= 2)
    with pytest.raises(
        dice.DiceError, match="The modality 'prot' and the reference share no cells: give both the same"
    ):
        read_features(modality([f"other-{i}" for i in range(N)]), reference, "mod:prot")
    with pytest.raises(dice.DiceError, match="'mod:prot' names a modality: pass a MuData object"):
        read_features(reference, reference, "mod:prot")
    assert is_mudata(modality(some))
    assert not is_mudata(reference)


def test_fewest_cells(reference):
    table = reference.obsm["protein"]
    table.iloc[: N - FEWEST_MEASURED, 0] = np.nan
    assert read_features(reference, reference, "protein").names == ["CD3", "CD4"]
    table.iloc[: N - FEWEST_MEASURED + 1, 0] = np.nan
    with pytest.raises(dice.DiceError, match=rf"must be measured in at least {FEWEST_MEASURED} cells.*\['CD3'\]"):
        read_features(reference, reference, "protein")


def test_features_that_are_none(reference):
    for key, sentence in (
        ("nowhere", "has no features 'nowhere': name one of obsm"),
        ("kind", r"are not real numbers: convert them by \.astype\(float\)"),
        (["kind", "age"], r"got \['kind'\], which are not real numbers"),
        ([], "got none: pass another"),
    ):
        with pytest.raises(dice.DiceError, match=sentence):
            read_features(reference, reference, key)
    reference.obsm["protein"].iloc[0, 1] = np.inf
    with pytest.raises(dice.DiceError, match=r"features \['CD4'\] are infinite in some cells"):
        read_features(reference, reference, "protein")
    reference.obsm["protein"].columns = ["CD3", "CD3"]
    with pytest.raises(dice.DiceError, match=r"names that repeat, for example \['CD3'\]"):
        read_features(reference, reference, "protein")


def test_the_cells_of_a_reference(reference):
    assert with_cells(reference, "dice") is reference
    both = modality(list(reference.obs_names))
    with pytest.raises(dice.DiceError, match=r"^Exactly one modality must have a prior, got 0"):
        with_cells(both, "dice")
    reference.uns["dice"] = {"format": 1}
    both.mod["rna"] = reference
    assert with_cells(both, "dice") is reference
    with pytest.raises(dice.DiceError, match="a prior has no cells"):
        with_cells(reference[:0], "dice")
    with pytest.raises(dice.DiceError, match=r"`reference` must be .*got \[\]"):
        with_cells([], "dice")
    with pytest.raises(dice.DiceError, match=r"There is no file 'none\.h5ad'"):
        with_cells("none.h5ad", "dice")


def test_keys_of_predictions(reference):
    assert feature_key(reference, None, title_of("a/b")) == "a_b_dice"
    reference.obsm["mine_low"] = VALUES
    with pytest.raises(dice.DiceError, match="'mine_low' in adata was not written by dice"):
        feature_key(reference, "mine", "x")
    reference.uns["mine"] = {"features": {}}
    assert feature_key(reference, "mine", "x") == "mine"
