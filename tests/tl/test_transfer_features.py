"""Features of a query: predictions, intervals, and whatever a reference may hold in their place."""

from __future__ import annotations

from types import SimpleNamespace

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from simulation import simulate

import dice

#: One of the features is noise.
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be predicted from expression:dice.DiceWarning")


def with_features(adata, seed):
    """Two features of the types, one of them with noise, one of a gene, and one of nothing."""
    rng, codes = np.random.default_rng(seed), adata.obs["cell_type"].cat.codes.to_numpy()
    values = np.stack(
        [3.0 * (codes == 3) + 0.2 * rng.normal(size=len(codes)), codes + rng.normal(size=len(codes)),
         2 * adata.X[:, 0] + 0.1 * rng.normal(size=len(codes)), rng.normal(size=len(codes))], axis=1,
    )  # fmt: skip
    adata.obsm["protein"] = pd.DataFrame(values, adata.obs_names, ["CD14", "CD3/CD4", "CD8", "isotype"])
    return adata


@pytest.fixture(scope="module")
def trained():
    reference = with_features(simulate(1200, 0), 0)
    dice.tl.train_prior(reference, n_latent=6, preset="gmm")
    return reference


@pytest.fixture
def reference(trained):
    return trained.copy()


@pytest.fixture
def query():
    return with_features(simulate(600, 1), 1)


@pytest.fixture(scope="module")
def predicted(trained):
    query = with_features(simulate(600, 1), 1)
    with pytest.warns(dice.DiceWarning, match=r"1 of 4 features cannot be predicted from expression.*isotype"):
        dice.tl.transfer_features(query, trained, "protein")
    return query


def test_slots(predicted):
    mean, low, high = (predicted.obsm[f"protein_dice{end}"] for end in ("", "_low", "_high"))
    assert list(mean.columns) == list(low.columns) == list(high.columns) == ["CD14", "CD3_CD4", "CD8", "isotype"]
    assert set(mean.dtypes) == {np.dtype(np.float32)}
    assert (low.to_numpy() < mean.to_numpy()).all()
    assert (mean.to_numpy() < high.to_numpy()).all()
    record = predicted.uns["protein_dice"]
    features = pd.DataFrame(record["features"]).set_index("name")
    assert list(features["useless"]) == [False, False, False, True]
    np.testing.assert_allclose(features["width"], (high - low).mean(), rtol=1e-4)
    assert (features["n_cells"] == 1200).all()
    np.testing.assert_allclose(record["candidates"]["weights"].sum(1), 1, rtol=1e-5)
    assert record["call"]["features_key"] == "protein"
    assert record["params"]["widened"] == 1
    assert record["params"]["shift_auc"] < 0.65


def test_intervals_hold_what_was_measured(predicted):
    truth = predicted.obsm["protein"].to_numpy()
    mean, low, high = (predicted.obsm[f"protein_dice{end}"].to_numpy() for end in ("", "_low", "_high"))
    np.testing.assert_allclose(((low <= truth) & (truth <= high)).mean(0), 0.9, atol=0.04)
    found = [np.corrcoef(mean[:, i], truth[:, i])[0, 1] for i in range(4)]
    told = predicted.uns["protein_dice"]["features"]["correlation"]
    assert found[0] > 0.95
    np.testing.assert_allclose(found, told, atol=0.08)


def test_own_features_are_not_looked_at(trained, predicted, query):
    query.obsm["protein"] = query.obsm["protein"] * np.nan
    before = trained.obsm["protein"].copy()
    dice.tl.transfer_features(query, trained, "protein")
    pd.testing.assert_frame_equal(query.obsm["protein_dice"], predicted.obsm["protein_dice"])
    pd.testing.assert_frame_equal(trained.obsm["protein"], before)
    # Once more, and nothing else is in the way.
    dice.tl.transfer_features(query, trained, "protein")


def test_a_cell_does_not_depend_on_others(trained, predicted, query):
    order = np.random.default_rng(0).permutation(query.n_obs)
    shuffled = query[order].copy()
    dice.tl.transfer_features(shuffled, trained, "protein", shift=False)
    dice.tl.transfer_features(query, trained, "protein", shift=False)
    np.testing.assert_allclose(shuffled.obsm["protein_dice"], query.obsm["protein_dice"].iloc[order], atol=1e-4)


def test_alpha(trained, predicted, query):
    dice.tl.transfer_features(query, trained, "protein", alpha=0.4, key_added="half")
    inside = (query.obsm["half_low"].to_numpy() > predicted.obsm["protein_dice_low"].to_numpy()).mean()
    assert inside == 1


@pytest.mark.parametrize("kind", ["array", "sparse", "columns", "column", "layer", "file"])
def test_wherever_features_are(reference, predicted, query, kind, tmp_path):
    values, key = reference.obsm["protein"].to_numpy(), "adt"
    title, names = "adt", [f"adt {i}" for i in range(4)]
    if kind == "array":
        reference.obsm["adt"], reference.uns["adt_names"] = values, np.array(list("abcd"))
        names = list("abcd")
    elif kind == "sparse":
        reference.obsm["adt"] = sparse.csr_matrix(values)
    elif kind == "columns":
        key, title, names = ["one", "two"], "features", ["one", "two"]
        reference.obs["one"], reference.obs["two"] = values[:, 0], values[:, 1]
    elif kind == "column":
        reference.obs["adt"], names = values[:, 0], ["adt"]
    elif kind == "layer":
        reference.layers["adt"] = np.tile(values, (1, 15))
        key, names = "layer:adt", list(reference.var_names)
    else:
        del reference.obsm["protein"]
        reference.obsm["adt"] = values
        reference.write_h5ad(tmp_path / "reference.h5ad")
        reference = tmp_path / "reference.h5ad"
    dice.tl.transfer_features(query, reference, key)
    found = query.obsm[f"{title}_dice"]
    assert list(found.columns) == names
    np.testing.assert_allclose(found.iloc[:, 0], predicted.obsm["protein_dice"]["CD14"], atol=1e-4)


def test_modalities(trained, predicted, query):
    protein = ad.AnnData(trained.obsm["protein"].to_numpy(np.float32)[::-1], trained.obs.iloc[::-1][[]])
    both = SimpleNamespace(mod={"rna": trained, "adt": protein})
    dice.tl.transfer_features(query, both, "mod:adt")
    np.testing.assert_allclose(query.obsm["adt_dice"], predicted.obsm["protein_dice"], atol=1e-4)
    with pytest.raises(KeyError, match="no modality 'atac'"):
        dice.tl.transfer_features(query, both, "mod:atac")
    repeated, nothing = protein.copy(), ad.AnnData(obs=trained.obs[[]])
    repeated.var_names = ["a", "a", "b", "c"]
    with pytest.raises(ValueError, match=r"names that repeat.*\['a'\]"):
        dice.tl.transfer_features(query, SimpleNamespace(mod={"rna": trained, "adt": repeated}), "mod:adt")
    repeated.obs_names = [repeated.obs_names[0], *repeated.obs_names[:-1]]
    with pytest.raises(ValueError, match="Cells of the modality 'adt' have names that repeat"):
        dice.tl.transfer_features(query, SimpleNamespace(mod={"rna": trained, "adt": repeated}), "mod:adt")
    with pytest.raises(ValueError, match=r"The modality 'adt' has no \.X"):
        dice.tl.transfer_features(query, SimpleNamespace(mod={"rna": trained, "adt": nothing}), "mod:adt")
    with pytest.raises(ValueError, match="adata and reference are the same object"):
        dice.tl.transfer_features(trained, both, "mod:adt")
    with pytest.raises(ValueError, match=r"has several modalities: pass one of \['rna', 'adt'\]"):
        dice.tl.transfer_features(both, both, "mod:adt")
    with pytest.raises(ValueError, match="Exactly one modality must have a prior, got 0"):
        dice.tl.transfer_features(query, SimpleNamespace(mod={"adt": protein}), "mod:adt")


def test_a_real_mudata_object(trained, predicted, query):
    mudata = pytest.importorskip("mudata", reason="mudata is optional, and not installed")
    mudata.set_options(pull_on_update=False)
    protein = ad.AnnData(trained.obsm["protein"].to_numpy(np.float32), trained.obs[[]])
    protein.var_names = [f"protein {name}" for name in protein.var_names]
    dice.tl.transfer_features(query, mudata.MuData({"rna": trained.copy(), "adt": protein}), "mod:adt")
    np.testing.assert_allclose(query.obsm["adt_dice"], predicted.obsm["protein_dice"], atol=1e-4)


def test_a_query_that_is_a_mudata_object(trained, predicted, query, tmp_path):
    mudata = pytest.importorskip("mudata", reason="mudata is optional, and not installed")
    mudata.set_options(pull_on_update=False)
    protein = ad.AnnData(np.zeros((query.n_obs, 1), np.float32), query.obs[[]])
    protein.var_names = ["protein 1"]
    del query.obsm["protein"]
    both = mudata.MuData({"rna": query, "adt": protein})
    with pytest.raises(ValueError, match="adata has several modalities: pass one"):
        dice.tl.transfer_features(both, trained, "protein")
    dice.tl.transfer_features(both.mod["rna"], trained, "protein")
    both.write(tmp_path / "both.h5mu")
    found = mudata.read_h5mu(tmp_path / "both.h5mu").mod["rna"].obsm["protein_dice"]
    pd.testing.assert_frame_equal(found, predicted.obsm["protein_dice"])
    reference = mudata.MuData({"rna": trained.copy()})
    with pytest.raises(ValueError, match="adata and reference are the same object"):
        dice.tl.transfer_features(reference.mod["rna"], reference, "protein")


def test_cells_that_a_modality_lacks(trained, query):
    protein = ad.AnnData(trained.obsm["protein"].to_numpy(np.float32), trained.obs[[]])[:700].copy()
    dice.tl.transfer_features(query, SimpleNamespace(mod={"rna": trained, "adt": protein}), "mod:adt")
    assert (query.uns["adt_dice"]["features"]["n_cells"] == 700).all()


def test_missing_values_are_not_learned_from(reference, predicted, query):
    values = reference.obsm["protein"]
    values.iloc[::2, 0] = np.nan
    values.iloc[:5] = np.nan
    dice.tl.transfer_features(query, reference, "protein")
    assert np.isfinite(query.obsm["protein_dice"].to_numpy()).all()
    assert np.corrcoef(query.obsm["protein_dice"]["CD14"], predicted.obsm["protein_dice"]["CD14"])[0, 1] > 0.98
    n_cells = query.uns["protein_dice"]["features"]["n_cells"]
    assert n_cells[0] < 600 < n_cells[1]


def test_constant_features_tell_nothing(reference, query):
    reference.obsm["protein"]["CD8"] = 7.0
    with pytest.warns(dice.DiceWarning, match=r"1 features hardly vary in the reference, for example \['CD8'\]"):
        dice.tl.transfer_features(query, reference, "protein")
    np.testing.assert_allclose(query.obsm["protein_dice"]["CD8"], 7, rtol=1e-6)
    assert query.uns["protein_dice"]["features"]["useless"][2]


def test_a_query_that_differs_gets_wider_intervals(reference, query):
    query.X = np.maximum(query.X + np.random.default_rng(3).normal(size=query.n_vars) * (query.X > 0.5), 0)
    with pytest.warns(dice.DiceWarning, match="intervals are 1.5 times as wide"):
        dice.tl.transfer_features(query, reference, "protein", check=False, shift=False)
    assert query.uns["protein_dice"]["params"]["widened"] == 1.5
    reference.obs["batch"] = pd.Categorical(np.arange(reference.n_obs) % 3)
    with pytest.warns(dice.DiceWarning, match="calibrated between batches of the reference"):
        dice.tl.transfer_features(query, reference, "protein", reference_batch_key="batch", check=False, shift=False)
    assert query.uns["protein_dice"]["params"]["widened"] == 1


def test_batches_are_held_out_as_a_whole(reference, query):
    reference.obs["batch"] = pd.Categorical(np.arange(reference.n_obs) % 3)
    dice.tl.transfer_features(query, reference, "protein")
    within = query.uns["protein_dice"]["features"]["held_out_width"][2]
    reference.obsm["protein"]["CD8"] += 2.0 * (np.arange(reference.n_obs) % 3)
    dice.tl.transfer_features(query, reference, "protein", reference_batch_key="batch")
    assert query.uns["protein_dice"]["features"]["held_out_width"][2] > 2 * within
    reference.obs["batch"] = "same"
    with pytest.raises(ValueError, match="a single batch, which cannot be held out"):
        dice.tl.transfer_features(query, reference, "protein", reference_batch_key="batch")


def test_a_feature_of_one_batch(reference, predicted, query):
    """It is learned from few cells, without the others being in the way; but that batch cannot be held out."""
    reference.obs["batch"] = pd.Categorical([f"batch {i % 3}" for i in range(reference.n_obs)])
    reference.obsm["protein"].loc[reference.obs["batch"] != "batch 0", "CD8"] = np.nan
    dice.tl.transfer_features(query, reference, "protein")
    found, before = query.obsm["protein_dice"], predicted.obsm["protein_dice"]
    np.testing.assert_allclose(found[["CD14", "isotype"]], before[["CD14", "isotype"]], atol=1e-4)
    assert np.corrcoef(found["CD8"], before["CD8"])[0, 1] > 0.98
    low, high = (query.obsm[f"protein_dice_{end}"]["CD8"] for end in ("low", "high"))
    truth = query.obsm["protein"]["CD8"]
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.9, abs=0.04)
    assert query.uns["protein_dice"]["features"]["n_cells"][2] == 400
    with pytest.raises(ValueError, match=r"1 features are measured in too few batches of .*'batch'\].*CD8"):
        dice.tl.transfer_features(query, reference, "protein", reference_batch_key="batch")


@pytest.mark.parametrize("role", ["train", "validation"])
def test_a_feature_of_cells_that_are_learned_from(reference, query, role):
    only_of(role)(reference)
    dice.tl.transfer_features(query, reference, "protein")
    features = query.uns["protein_dice"]["features"]
    assert features["n_cells"][2] == (reference.obs["dice_split"] == role).sum()
    assert features["correlation"][2] > 0.7
    assert np.isfinite(query.obsm["protein_dice_low"].to_numpy()).all()


def test_no_cells(reference, query):
    none = query[:0].copy()
    dice.tl.transfer_features(none, reference, "protein")
    assert none.obsm["protein_dice"].shape == (0, 4)


def flat(entry, path=""):
    """All leaves of a nested dict by their path."""
    if not isinstance(entry, dict):
        return {path: entry}
    return {name: leaf for key in entry for name, leaf in flat(entry[key], f"{path}/{key}".lstrip("/")).items()}


@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_round_trip(predicted, tmp_path, kind):
    """Every slot, to the bit."""
    path, cells = tmp_path / f"cells.{kind}", predicted.copy()
    del cells.obsm["protein"]
    getattr(cells, f"write_{kind}")(path)
    again = getattr(ad, f"read_{kind}")(path)
    for end in ("", "_low", "_high"):
        pd.testing.assert_frame_equal(again.obsm[f"protein_dice{end}"], predicted.obsm[f"protein_dice{end}"])
    before, after = flat(predicted.uns["protein_dice"]), flat(again.uns["protein_dice"])
    assert {name.split("/")[0] for name in before} == {"call", "params", "features", "candidates", "shift", "warnings"}
    assert set(before) == set(after)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)


def only_of(role):
    """Spoil a reference: CD8 is known in cells of one role alone."""

    def spoil(reference):
        reference.obsm["protein"].loc[reference.obs["dice_split"] != role, "CD8"] = np.nan

    return spoil


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda r: r.obsm.pop("protein"), KeyError, "no features 'protein': name one of obsm"),
        (lambda r: r.obsm["protein"].__setitem__("CD8", np.inf), ValueError, r"\['CD8'\] are infinite in some cells"),
        (lambda r: r.obsm["protein"].__setitem__("CD8", np.nan), ValueError, "must be measured in at least 20 cells"),
        (lambda r: r.obsm["protein"].__setitem__("CD8", "high"), ValueError, r"\['CD8'\], which are not real numbers"),
        (lambda r: setattr(r.obsm["protein"], "columns", list("aabc")), ValueError, r"names that repeat.*\['a'\]"),
        (
            lambda r: r.obsm.__setitem__("protein", np.ones((r.n_obs, 2, 2))),
            ValueError,
            r"must have the shape \(cells, features\)",
        ),
        (lambda r: r.obsm["protein"].__setitem__("CD8", 1e300), ValueError, r"\['CD8'\] are larger than 1e\+30"),
        (lambda r: r.obsm["protein"].__setitem__("CD8", 1j), ValueError, r"\['CD8'\], which are not real numbers"),
        (lambda r: r.obsm.__setitem__("protein", r.obsm["protein"].to_numpy() + 1j), ValueError, "not real numbers"),
        (lambda r: r.obsm.__setitem__("protein", r.obsm["protein"].astype(object)), ValueError, "not real numbers"),
        (only_of("calibration"), ValueError, r"fewer than 20 training cells of the prior.*\['CD8'\]"),
        (lambda r: r.obs.pop("dice_split"), KeyError, "no obs\\['dice_split'\\]"),
    ],
)
def test_bad_features_are_told_in_one_sentence(reference, query, spoil, error, message):
    spoil(reference)
    before = set(query.obsm), set(query.uns)
    with pytest.raises(error, match=message):
        dice.tl.transfer_features(query, reference, "protein")
    assert before == (set(query.obsm), set(query.uns))


def test_bad_arguments_are_told_in_one_sentence(reference, query):
    for arguments, error, message in [
        ({"features_key": "layer:counts"}, KeyError, "no layer 'counts'"),
        ({"features_key": "mod:protein"}, ValueError, "names a modality: pass a MuData object"),
        ({"features_key": ["age"]}, KeyError, "no column 'age'"),
        ({"features_key": None}, ValueError, "columns of obs, got None"),
        ({"features_key": b"protein"}, ValueError, "columns of obs, got b'protein'"),
        ({"features_key": 3}, ValueError, "columns of obs, got 3"),
        ({"features_key": []}, ValueError, "got none"),
        ({"features_key": ["protein"]}, KeyError, "no column 'protein' in reference.obs"),
        ({"features_key": "protein", "alpha": 2}, ValueError, "`alpha` must be .*got 2"),
        ({"features_key": "protein", "key_added": "a/b"}, ValueError, "`key_added` must be .*got 'a/b'"),
    ]:
        with pytest.raises(error, match=message):
            dice.tl.transfer_features(query, reference, **arguments)
    query.obsm["protein_dice"] = np.zeros((query.n_obs, 2))
    with pytest.raises(ValueError, match="'protein_dice' in adata was not written by dice"):
        dice.tl.transfer_features(query, reference, "protein")
    with pytest.raises(ValueError, match="the same object"):
        dice.tl.transfer_features(reference, reference, "protein")
    with pytest.raises(ValueError, match="a prior has no cells"):
        dice.tl.transfer_features(query, dice.Prior.from_anndata(reference), "protein", key_added="other")
    with pytest.raises(ValueError, match="There is no file"):
        dice.tl.transfer_features(query, "nowhere.h5ad", "protein", key_added="other")


def test_bad_files_are_told_in_one_sentence(query, tmp_path):
    (tmp_path / "text.h5ad").write_text("hello")
    (tmp_path / "empty.h5ad").touch()
    (tmp_path / "folder.zarr").mkdir()
    for path in tmp_path.iterdir():
        with pytest.raises(dice.DiceError, match=r"cannot be read as .h5ad or .zarr") as caught:
            dice.tl.transfer_features(query, path, "protein")
        assert "\n" not in str(caught.value)
    with h5py.File(tmp_path / "both.h5mu", "w") as file:
        file.attrs["encoding-type"] = "MuData"
    with pytest.raises(dice.DiceError, match=r"holds a MuData object: read it with mudata.read"):
        dice.tl.transfer_features(query, tmp_path / "both.h5mu", "mod:adt")


def test_a_shallow_query_is_compared_with_cells_that_are_as_shallow():
    rng = np.random.default_rng(0)
    profiles = rng.gamma(0.3, size=(4, 150))
    profiles *= 600 / profiles.sum(1, keepdims=True)

    def measured(n, share, seed):
        rng = np.random.default_rng(seed)
        codes = rng.integers(4, size=n)
        counts = rng.poisson(share * profiles[codes] * rng.lognormal(0, 0.2, size=(n, 1)))
        total = np.maximum(counts.sum(1, keepdims=True), 1)
        cells = ad.AnnData(sparse.csr_matrix(np.log1p(1e4 * counts / total).astype(np.float32)))
        cells.obs_names = [f"{seed}-{i}" for i in range(n)]
        cells.obsm["protein"] = (codes[:, None] + 0.3 * rng.normal(size=(n, 1))).astype(np.float32)
        return cells

    reference, query = measured(900, 1.0, 1), measured(500, 0.1, 2)
    dice.tl.train_prior(reference, n_latent=6, training=dice.Training(max_steps=50))
    dice.tl.transfer_features(query, reference, "protein")
    assert query.uns["protein_dice"]["params"]["depth_share"] == pytest.approx(0.1, rel=0.15)
    truth = query.obsm["protein"][:, 0]
    low, high = (query.obsm[f"protein_dice_{end}"].to_numpy()[:, 0] for end in ("low", "high"))
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.9, abs=0.05)


def test_cells_without_expression_have_the_intervals_of_all(reference, query):
    query.X[:40] = 0
    with pytest.warns(dice.DiceWarning, match="40 cells"):
        dice.tl.transfer_features(query, reference, "protein")
    low, high = (query.obsm[f"protein_dice_{end}"].to_numpy() for end in ("low", "high"))
    marginal = query.uns["protein_dice"]["features"]["marginal_width"]
    np.testing.assert_allclose((high - low)[:40], np.tile(marginal, (40, 1)), rtol=1e-4)
    truth = query.obsm["protein"].to_numpy()[:40]
    assert ((truth >= low[:40]) & (truth <= high[:40])).mean() > 0.8


def test_what_tells_nothing_is_said(reference, query):
    """Constants that are not exact in floating point, and an alpha that the cells are too few for."""
    reference.obs["nanoseconds"] = 1e12 + np.arange(reference.n_obs)
    with pytest.warns(dice.DiceWarning, match=r"1 features hardly vary.*nanoseconds"):
        dice.tl.transfer_features(query, reference, "nanoseconds")
    reference.obs["constant"] = 0.1
    with pytest.warns(dice.DiceWarning, match=r"1 features hardly vary.*constant"):
        dice.tl.transfer_features(query, reference, "constant")
    assert query.uns["constant_dice"]["features"]["useless"].all()
    with pytest.warns(dice.DiceWarning, match=r"4 features are measured in too few cells for alpha=0.0005"):
        dice.tl.transfer_features(query, reference, "protein", alpha=0.0005)
    assert query.uns["protein_dice"]["features"]["useless"].all()


def test_tables_of_others_are_not_overwritten(reference, query):
    query.obsm["protein_dice_low"] = np.ones((query.n_obs, 1))
    with pytest.raises(dice.DiceError, match="'protein_dice_low' in adata was not written by dice"):
        dice.tl.transfer_features(query, reference, "protein")
