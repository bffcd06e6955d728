"""Labels, probabilities and sets of a query."""

from __future__ import annotations

import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from simulation import TYPES, simulate

import dice
from dice._plot.explorer import records

COLORS = ["#111111", "#222222", "#333333", "#444444"]


@pytest.fixture(scope="module")
def trained():
    reference = simulate(1500, 0)
    reference.uns["cell_type_colors"] = list(COLORS)
    dice.tl.train_prior(reference, n_latent=6, preset="gmm", training=dice.Training(calibration_fraction=0.2))
    return reference


@pytest.fixture
def reference(trained):
    return trained.copy()


@pytest.fixture(scope="module")
def labelled(trained):
    query = simulate(300, 1)
    del query.obs["cell_type"]
    dice.tl.transfer_labels(query, trained, "cell_type")
    return query


def test_slots(labelled):
    label = labelled.obs["cell_type_dice"]
    assert list(label.cat.categories) == TYPES
    assert labelled.uns["cell_type_dice_colors"] == COLORS
    table, sets = labelled.obsm["cell_type_dice_prob"], labelled.obsm["cell_type_dice_set"]
    assert list(table.columns) == list(sets.columns) == ["T_NK naive", "B", "Plasma", "Mono"]
    assert (table.dtypes == np.float32).all()
    assert set(sets.dtypes) == {np.dtype(bool)}
    np.testing.assert_allclose(table.sum(1), 1, atol=1e-5)
    ordered = np.sort(table.to_numpy(), 1)
    np.testing.assert_allclose(labelled.obs["cell_type_dice_prob"], ordered[:, -1])
    np.testing.assert_allclose(labelled.obs["cell_type_dice_margin"], ordered[:, -1] - ordered[:, -2], atol=1e-6)
    record = labelled.uns["cell_type_dice"]
    assert list(record["labels"]) == TYPES
    assert record["call"]["alpha"] == 0.1
    assert record["params"]["n_calibration"] == 300
    candidates = pd.DataFrame({name: record["candidates"][name] for name in ("candidate", "weight", "log_loss")})
    assert candidates["candidate"].iloc[-1] == "blend"
    assert candidates["weight"].iloc[:-1].sum() == pytest.approx(1)
    assert candidates["log_loss"].iloc[-1] < candidates["log_loss"].iloc[:-1].mean()


def test_sets_in_words_are_the_sets(labelled):
    sets = labelled.obsm["cell_type_dice_set"].to_numpy()
    for words, row in zip(labelled.obs["cell_type_dice_set"], sets, strict=True):
        assert words == " | ".join(np.array(TYPES)[row])


def test_every_cell_has_its_most_likely_label_and_a_set_with_it(labelled):
    """Labels that were left out because their set was empty were right for up to 92 % of the cells."""
    best = labelled.obsm["cell_type_dice_prob"].to_numpy().argmax(1)
    assert list(labelled.obs["cell_type_dice"].astype(str)) == [TYPES[code] for code in best]
    assert labelled.obsm["cell_type_dice_set"].to_numpy()[np.arange(300), best].all()


def test_unassigned_is_an_option(trained):
    query = simulate(300, 1)
    dice.tl.transfer_labels(query, trained, "cell_type", classifier=dice.Classifier(min_probability=0.8))
    unlikely = (query.obs["cell_type_dice_prob"] < 0.8).to_numpy()
    assert 0 < unlikely.sum() < 300
    np.testing.assert_array_equal(query.obs["cell_type_dice"] == "unassigned", unlikely)
    assert query.uns["cell_type_dice_colors"] == [*COLORS, "#B8B8B8"]


def test_labels_that_no_cell_has_are_no_categories(trained):
    """scanpy's tests between groups stop at a group without cells."""
    query = simulate(300, 1)
    query = query[query.obs["cell_type"] == "Mono"][:4].copy()
    dice.tl.transfer_labels(query, trained, "cell_type", shift=False)
    for column in ("cell_type_dice", "cell_type_dice_status"):
        assert (query.obs[column].value_counts() > 0).all()
    assert list(query.obs["cell_type_dice"].cat.categories) == ["Mono"]
    assert query.uns["cell_type_dice_colors"] == COLORS[-1:]


def test_the_status_says_what_to_do(trained):
    """Confident labels are wrong as often as alpha says at most, ambiguous ones have rivals, strangers are named."""
    query = simulate(3000, 12)
    strange = np.arange(3000) % 10 == 0
    query.X[strange] = query.X[strange][:, ::-1]
    dice.tl.transfer_labels(query, trained, "cell_type", shift=False, check=False)
    status = query.obs["cell_type_dice_status"].astype(str).to_numpy()
    right = (query.obs["cell_type_dice"].astype(str) == query.obs["cell_type"].astype(str)).to_numpy()
    size = query.obsm["cell_type_dice_set"].to_numpy().sum(1)
    assert (size[status == "confident"] == 1).all()
    assert (size[status == "ambiguous"] > 1).all()
    known = (status == "confident") & ~strange
    assert (~right[known]).mean() < 0.1 + 3 * np.sqrt(0.09 * (1 / known.sum() + 1 / 300))
    assert right[known].mean() > right[(status == "ambiguous") & ~strange].mean() + 0.1
    unlike = status == "unlike the reference"
    assert unlike[strange].mean() > 0.9
    assert unlike[~strange].mean() < 0.01 + 4 * np.sqrt(0.01 * (1 / 2700 + 1 / 300))


def test_most_labels_are_right(labelled):
    truth = simulate(300, 1).obs["cell_type"].astype(str).to_numpy()
    best = np.array(TYPES)[labelled.obsm["cell_type_dice_prob"].to_numpy().argmax(1)]
    assert (best == truth).mean() > 0.85


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_everything_survives_files(labelled, tmp_path, ending):
    """Also names with a slash, which files take for folders."""
    path = tmp_path / f"query.{ending}"
    getattr(labelled, f"write_{ending}")(path)
    back = getattr(ad, f"read_{ending}")(path)
    pd.testing.assert_frame_equal(back.obs, labelled.obs)
    for key in ("cell_type_dice_prob", "cell_type_dice_set"):
        pd.testing.assert_frame_equal(back.obsm[key], labelled.obsm[key])
    assert list(back.uns["cell_type_dice"]["labels"]) == TYPES
    assert list(back.uns["cell_type_dice_colors"]) == labelled.uns["cell_type_dice_colors"]


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("per_class", [False, True])
def test_coverage_on_cells_of_known_type(trained, method, per_class):
    """Within what the finite calibration and the finite query allow: four standard deviations of both together."""
    query = simulate(2000, 2)
    dice.tl.transfer_labels(
        query,
        trained,
        "cell_type",
        alpha=0.2,
        sets=dice.Sets(method=method, per_class=per_class),
    )
    sets = query.obsm["cell_type_dice_set"].to_numpy()
    inside = sets[np.arange(query.n_obs), query.obs["cell_type"].cat.codes]
    error = np.sqrt(0.2 * 0.8 * (1 / query.n_obs + 1 / 300))
    # Sets that would be empty hold the most likely label: coverage is at most too large by their share.
    assert -4 * error < inside.mean() - 0.8 < 0.2
    if per_class:
        for name in TYPES:
            of_type = (query.obs["cell_type"] == name).to_numpy()
            assert inside[of_type].mean() > 0.8 - 4 * np.sqrt(0.16 * (1 / of_type.sum() + 1 / 25))


def test_same_result_in_any_order_and_without_a_trace(trained):
    """A cell's label depends on nothing around it; neither random state nor input change."""
    query = simulate(120, 3)
    before, state = query.X.copy(), np.random.get_state()[1].copy()  # noqa: NPY002
    reference = trained.uns["dice"]["sha256"]
    arguments = {"sets": dice.Sets("aps"), "classifier": "projection"}
    dice.tl.transfer_labels(query, trained, "cell_type", **arguments)
    order = np.random.default_rng(0).permutation(120)
    shuffled = simulate(120, 3)[order].copy()
    dice.tl.transfer_labels(shuffled, trained, "cell_type", **arguments)
    for column in ("cell_type_dice", "cell_type_dice_set"):
        assert list(query.obs[column].astype(str).iloc[order]) == list(shuffled.obs[column].astype(str))
    np.testing.assert_array_equal(query.X, before)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert trained.uns["dice"]["sha256"] == reference
    assert "cell_type_dice" not in trained.obs


def test_its_own_labels_are_never_looked_at(trained):
    one, other = simulate(60, 4), simulate(60, 4)
    other.obs["cell_type"] = pd.Categorical(["nonsense"] * 60)
    for query in (one, other):
        dice.tl.transfer_labels(query, trained, "cell_type")
    pd.testing.assert_frame_equal(one.obsm["cell_type_dice_prob"], other.obsm["cell_type_dice_prob"])


@pytest.mark.parametrize("representation", ["projection", "denoised", "genes"])
def test_named_classifiers(trained, representation):
    query = simulate(100, 5)
    dice.tl.transfer_labels(query, trained, "cell_type", classifier=representation, key_added="mine")
    assert list(query.uns["mine"]["candidates"]["candidate"]) == [representation, "blend"]
    # Views that match genes need the classifiers of all representations.
    assert list(query.uns["mine"]["views"]["view"]) == ["measured", "clusters", "centered"]
    assert (query.obs["mine"].astype(str) == query.obs["cell_type"].astype(str)).mean() > 0.7


@pytest.mark.parametrize("missing", [np.nan, ""])
def test_missing_labels_and_unused_categories(missing, trained, reference):
    """Cells without a label are not learned from, and a category without cells is none."""
    categories = ["", "nobody", *TYPES]
    labels = reference.obs["cell_type"].astype(object)
    labels[::5] = missing
    reference.obs["cell_type"] = pd.Categorical(labels, categories=categories)
    reference.uns["cell_type_colors"] = ["#ffffff", "#000000", *COLORS]
    query = simulate(100, 6)
    dice.tl.transfer_labels(query, reference, "cell_type")
    assert list(query.obs["cell_type_dice"].cat.categories) == TYPES
    assert query.uns["cell_type_dice_colors"] == COLORS
    assert query.uns["cell_type_dice"]["params"]["n_calibration"] < 300


def test_genes_that_the_query_lacks(trained):
    query = simulate(150, 7)[:, 10:].copy()
    dice.tl.transfer_labels(query, trained, "cell_type")
    best = np.array(TYPES)[query.obsm["cell_type_dice_prob"].to_numpy().argmax(1)]
    assert (best == query.obs["cell_type"].astype(str)).mean() > 0.8


def test_a_query_without_cells(trained):
    query = simulate(5, 8)[:0].copy()
    dice.tl.transfer_labels(query, trained, "cell_type", check=False)
    assert query.obsm["cell_type_dice_prob"].shape == (0, 4)


def test_a_shifted_query_is_named(trained):
    query = simulate(300, 9)
    query.X = query.X + np.linspace(0, 1.5, query.n_vars, dtype=np.float32)
    with pytest.warns(dice.DiceWarning, match="The query differs from its reference"):
        dice.tl.transfer_labels(query, trained, "cell_type", check=False, shift=False)
    assert len(query.uns["cell_type_dice"]["warnings"]) == 1


def test_labels_with_too_few_calibration_cells_are_named(trained):
    query = simulate(50, 10)
    with pytest.warns(dice.DiceWarning, match="labels have fewer than 99 calibration cells"):
        dice.tl.transfer_labels(
            query,
            trained,
            "cell_type",
            alpha=0.01,
            sets=dice.Sets(per_class=True),
        )


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dice.Levels("a", {"b": "c"}, ["d"]), "both describe the tree of labels: pass one of them"),
        (lambda: dice.Levels("a", 5), "`hierarchy` must be a dict from child to parent, or a file, got 5"),
        (lambda: dice.Sets("best"), "`method` must be one of .*got 'best'"),
        (lambda: dice.Classifier(representation="umap"), "`classifier` must be one of .*got 'umap'"),
        (lambda: dice.Classifier(min_probability="a"), "`min_probability` must be .*got 'a'"),
        (lambda: dice.Classifier(min_probability=2), "`min_probability` must be a number from 0 to 1, got 2"),
    ],
)
def test_settings_check_themselves(make, sentence):
    with pytest.raises(dice.DiceError, match=sentence):
        make()


def without_calibration(reference):
    reference.obs["dice_split"] = "train"
    return reference


def without_roles(reference):
    del reference.obs["dice_split"]
    return reference


def without_labels(reference):
    reference.obs["cell_type"] = pd.Categorical([None] * reference.n_obs, categories=TYPES)
    return reference


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        (without_calibration, {}, "calibration_fraction=0.1"),
        (without_roles, {}, "The prior holds no labels"),
        (without_labels, {}, "at least two labels, got 0"),
        (None, {"labels_key": "nothing"}, "no column 'nothing'"),
        (None, {"alpha": 0}, "`alpha` must be a number between 0 and 1, got 0"),
        (None, {"alpha": 1.5}, "`alpha` must be a number between 0 and 1, got 1.5"),
        (None, {"classifier": "tree"}, "`classifier` must be one of .*got 'tree'"),
        (None, {"sets": "lac"}, r"`sets` must be a dice.Sets, got 'lac'"),
        (None, {"key_added": "a/b"}, "`key_added` must be .*got 'a/b'"),
        (dice.Prior.from_anndata, {}, "The prior holds no labels: pass the reference with its cells"),
        (None, {"labels_key": None}, "The prior was trained without labels: pass"),
        (lambda reference: "reference.h5ad", {}, "reference.h5ad"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(reference, change, arguments, sentence):
    query = simulate(20, 11)
    before = query.copy()
    reference = reference if change is None else change(reference)
    arguments = {"labels_key": "cell_type"} | arguments
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        dice.tl.transfer_labels(query, reference, **arguments)
    assert "\n" not in str(caught.value)
    assert list(query.obs) == list(before.obs)
    assert not query.obsm
    assert not query.uns


def test_the_reference_itself_is_no_query(reference):
    with pytest.raises(dice.DiceError, match="are the same object"):
        dice.tl.transfer_labels(reference, reference, "cell_type")
    assert "cell_type_dice" not in reference.obs


def test_the_refined_atlas_labels_a_query(trained):
    """The reference denoised by its own prior keeps its prior, labels and calibration cells."""
    reference = trained.copy()
    dice.tl.denoise(reference)
    assert reference.obsm["X_dice"].shape == (1500, 6)
    query = simulate(100, 12)
    dice.tl.transfer_labels(query, reference, "cell_type", classifier=dice.Classifier(representation="denoised"))
    assert (query.obs["cell_type_dice"].astype(str) == query.obs["cell_type"].astype(str)).mean() > 0.7


@pytest.mark.parametrize(
    "names",
    [["-", "B", "Plasma", "Mono"], ["A", "A | B", "B", "C"], ["_index", ".", "..", "a\\b"], ["x" * 300, "b", "c", "d"]],
)
def test_odd_names_survive(reference, names, tmp_path):
    """Also those that read like sets of others, or that files keep for themselves."""
    reference.obs["odd"] = reference.obs["cell_type"].cat.rename_categories(dict(zip(TYPES, names, strict=True)))
    query = simulate(80, 1)
    dice.tl.transfer_labels(query, reference, "odd", alpha=0.4)
    assert list(query.uns["odd_dice"]["labels"]) == list(reference.obs["odd"].cat.categories)
    query.write_h5ad(tmp_path / "query.h5ad")
    query.write_zarr(tmp_path / "query.zarr")
    for read in (ad.read_h5ad(tmp_path / "query.h5ad"), ad.read_zarr(tmp_path / "query.zarr")):
        pd.testing.assert_frame_equal(read.obsm["odd_dice_set"], query.obsm["odd_dice_set"], check_dtype=False)


def test_labels_that_read_the_same_are_refused(reference):
    values = np.array([1, "1"], dtype=object)
    reference.obs["mixed"] = values[np.arange(reference.n_obs) % 2]
    with pytest.raises(dice.DiceError, match=r"reference.obs\['mixed'\] holds different values with the same text"):
        dice.tl.transfer_labels(simulate(20, 1), reference, "mixed")


def test_colors_do_not_outlive_their_labels(reference):
    query = simulate(50, 1)
    dice.tl.transfer_labels(query, reference, "cell_type")
    assert "cell_type_dice_colors" in query.uns
    del reference.uns["cell_type_colors"]
    dice.tl.transfer_labels(query, reference, "cell_type")
    assert "cell_type_dice_colors" not in query.uns


def test_colors_that_are_none_are_not_used(reference):
    """They may be anything in a file; scanpy then chooses its own."""
    reference.uns["cell_type_colors"] = ["red", "no colour", "10", ""]
    query = simulate(50, 1)
    dice.tl.transfer_labels(query, reference, "cell_type")
    assert "cell_type_dice_colors" not in query.uns


def test_labels_of_a_single_cell_are_left_out(reference):
    """They were an error after training."""
    reference.obs["cell_type"] = reference.obs["cell_type"].astype(object)
    reference.obs.iloc[0, reference.obs.columns.get_loc("cell_type")] = "alone"
    query = simulate(20, 1)
    with pytest.warns(dice.DiceWarning, match=r"Labels with only one cell are left out \(1, for example \['alone'\]\)"):
        dice.tl.transfer_labels(query, reference, "cell_type")
    assert "alone" not in query.uns["cell_type_dice"]["labels"]
    assert len(query.uns["cell_type_dice"]["warnings"]) == 1


def test_numbers_are_questioned(reference):
    reference.obs["n_counts"] = np.linspace(0, 1, reference.n_obs)
    with pytest.raises(dice.DiceError, match="must hold names of labels, got numbers such as 0"):
        dice.tl.transfer_labels(simulate(20, 1), reference, "n_counts")
    reference.obs["cluster"] = reference.obs["cell_type"].cat.codes.astype(int)
    with pytest.warns(dice.DiceWarning, match="4 different numbers, which are taken as names"):
        dice.tl.transfer_labels(simulate(20, 1), reference, "cluster")


@pytest.mark.parametrize("verb", ["transfer_labels", "novelty", "denoise"])
def test_swapped_arguments_are_recognised(reference, verb):
    key = ("cell_type",) if verb == "transfer_labels" else ()
    with pytest.raises(dice.DiceError, match="adata has a prior and reference has none: pass the query first"):
        getattr(dice.tl, verb)(reference, simulate(20, 1), *key)


@pytest.mark.parametrize("verb", ["transfer_labels", "transfer_features", "novelty"])
def test_a_key_that_is_none_is_refused(reference, verb):
    key = () if verb == "novelty" else ("cell_type",)
    with pytest.raises(dice.DiceError, match=r"`prior_key` must be a non-empty name .*got \{\}"):
        getattr(dice.tl, verb)(simulate(20, 1), reference, *key, prior_key={})


def test_training_cells_need_labels_too(reference):
    kept = reference.obs["dice_split"] == "calibration"
    reference.obs["cell_type"] = reference.obs["cell_type"].where(kept)
    with pytest.raises(dice.DiceError, match="No training cell of the reference has a label"):
        dice.tl.transfer_labels(simulate(20, 1), reference, "cell_type")
    with pytest.raises(dice.DiceError, match="No labelled cell of the reference is a training cell"):
        dice.tl.novelty(simulate(20, 1), reference, labels_key="cell_type")


def test_arguments_that_are_out_of_bounds(reference):
    query = simulate(20, 1)
    query.uns["dice"] = reference.uns["dice"]
    with pytest.raises(dice.DiceError, match="key_added='dice' is taken"):
        dice.tl.transfer_labels(query, reference, "cell_type", key_added="dice")
    assert set(query.obs) == {"cell_type"}


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory):
    """A reference whose prior was trained with its labels, and the file of the prior alone."""
    reference = simulate(1500, 0)
    reference.uns |= {"cell_type_colors": list(COLORS), "title": "four types"}
    training = dice.Training(calibration_fraction=0.2, max_steps=30)
    dice.tl.train_prior(reference, labels_key="cell_type", n_latent=6, training=training)
    path = tmp_path_factory.mktemp("prior") / "prior.h5ad"
    dice.Prior.from_anndata(reference).save(path)
    return reference, path


@pytest.mark.filterwarnings("ignore:.*genes found")
@pytest.mark.parametrize("n_genes", [60, 45])
def test_a_prior_alone_labels_as_its_reference_does(handed_over, n_genes):
    """No cells, no pickle: the same labels, probabilities, sets, status and colours."""
    reference, path = handed_over
    with_cells, alone, loaded = (simulate(200, 3)[:, :n_genes].copy() for _ in range(3))
    dice.tl.transfer_labels(with_cells, reference, "cell_type")
    dice.tl.transfer_labels(alone, path)
    dice.tl.transfer_labels(loaded, dice.Prior.load(path), "cell_type")
    for query in (alone, loaded):
        pd.testing.assert_frame_equal(query.obs, with_cells.obs)
        for key in ("cell_type_dice_prob", "cell_type_dice_set"):
            pd.testing.assert_frame_equal(query.obsm[key], with_cells.obsm[key])
        assert list(query.uns["cell_type_dice_colors"]) == COLORS
    right = with_cells.obs["cell_type_dice"].astype(str) == with_cells.obs["cell_type"].astype(str)
    assert right.mean() > 0.85


def test_labels_in_another_order_are_the_same(handed_over, caplog):
    """Files sort the categories of text otherwise than pandas; the labels were learned again."""
    reference = handed_over[0].copy()
    reference.obs["cell_type"] = reference.obs["cell_type"].cat.reorder_categories(TYPES[::-1])
    reference.uns["cell_type_colors"] = COLORS[::-1]
    query, expected = simulate(50, 3), simulate(50, 3)
    dice.tl.transfer_labels(expected, handed_over[0], "cell_type")
    dice.tl.transfer_labels(query, reference, "cell_type")
    assert "Learning the labels" not in caplog.text
    pd.testing.assert_frame_equal(query.obs, expected.obs)
    assert query.uns["cell_type_dice_colors"] == expected.uns["cell_type_dice_colors"]


def test_novelty_knows_the_labels_of_a_prior(handed_over):
    path = handed_over[1]
    query = simulate(300, 4)
    query.X[:30] = query.X[:30][:, ::-1]
    for source in (path, dice.Prior.load(path)):
        dice.tl.novelty(query, source, check=False)
        assert query.obs["dice_novel"].iloc[:30].mean() > 0.8
        assert query.obs["dice_novel"].iloc[30:].mean() < 0.05


def test_the_card_of_a_prior(handed_over):
    reference, path = handed_over
    text = str(dice.Prior.load(path))
    counts = reference.obs["cell_type"].value_counts()
    assert text.startswith("Prior('default', 60 genes, 6 latents)\nlearned from 1500 cells and 60 genes, four types\n")
    assert "labels 'cell_type': accuracy 0." in text
    for name in TYPES:
        line = next(line for line in text.splitlines() if line.endswith(f"  {name}"))
        assert str(counts[name]) in line
    assert path.stat().st_size < 3_000_000
    query = simulate(50, 3)
    dice.tl.transfer_labels(query, path)
    assert text.endswith(query.uns["cell_type_dice"]["reference"])
    assert records(query)["cell_type_dice"]["reference"].startswith("learned from 1500 cells")


def test_labels_that_the_prior_has_not_learned_are_learned_now(handed_over):
    """Others, and those that were changed since."""
    reference, path = handed_over
    reference = reference.copy()
    coarse = {"T/NK naive": "T", "B": "B lineage", "Plasma": "B lineage", "Mono": "Mono"}
    reference.obs["coarse"] = reference.obs["cell_type"].astype(str).map(coarse).astype("category")
    query = simulate(100, 3)
    dice.tl.transfer_labels(query, reference, "coarse")
    assert set(query.uns["coarse_dice"]["labels"]) == {"B lineage", "Mono", "T"}
    reference.obs["cell_type"] = reference.obs["coarse"]
    dice.tl.transfer_labels(query, reference, "cell_type")
    assert set(query.uns["cell_type_dice"]["labels"]) == {"B lineage", "Mono", "T"}
    with pytest.raises(dice.DiceError, match="The prior holds only the labels 'cell_type'"):
        dice.tl.transfer_labels(query, path, "coarse")


def test_a_harder_query_gets_wider_sets(trained):
    """The call says how many labels may be wrong, and makes sets that allow for it."""
    query = simulate(600, 9)
    rng = np.random.default_rng(0)
    changed = query.X + np.linspace(0, 1, query.n_vars) + rng.normal(size=query.shape)
    query.X = np.maximum(changed, 0).astype(np.float32)
    with pytest.warns(dice.DiceWarning, match="of the labels may be wrong"):
        dice.tl.transfer_labels(query, trained, "cell_type", check=False, shift=False)
    params = query.uns["cell_type_dice"]["params"]
    table = dice.tl.evaluate(query, "cell_type", protocol="labels").loc["all cells"]
    assert params["shift_strength"] == 1
    assert params["expected_coverage"] >= 0.9
    assert params["expected_error"] > 0.5 * (1 - table["accuracy"])
    assert table["coverage"] > 0.88


def test_clusters_vote(trained, tmp_path):
    query = simulate(300, 1)
    clusters = query.obs["cell_type"].cat.codes.to_numpy()
    query.obs["cluster"] = pd.Categorical(np.where(np.arange(300) < 5, None, clusters.astype(str).astype(object)))
    dice.tl.transfer_labels(query, trained, "cell_type", groupby="cluster")
    voted, votes = query.obs["cell_type_dice_voted"], query.uns["cell_type_dice"]["votes"]
    assert voted.iloc[:5].isna().all()
    assert (voted.iloc[5:].astype(str) == query.obs["cell_type"].iloc[5:].astype(str)).all()
    assert list(votes["label"]) == TYPES
    expected = pd.crosstab(query.obs["cluster"], query.obs["cell_type_dice"], normalize="index")[TYPES]
    np.testing.assert_allclose(votes["shares"], expected)
    means = query.obsm["cell_type_dice_prob"].groupby(query.obs["cluster"], observed=True).mean().max(axis=1)
    np.testing.assert_allclose(votes["probability"], means, atol=1e-5)
    assert all(label in words.split(" | ") for label, words in zip(votes["label"], votes["set"], strict=True))
    query.write_h5ad(tmp_path / "query.h5ad")
    assert list(ad.read_h5ad(tmp_path / "query.h5ad").uns["cell_type_dice"]["votes"]["set"]) == list(votes["set"])
    dice.tl.transfer_labels(query, trained, "cell_type")
    assert "cell_type_dice_voted" not in query.obs
    with pytest.raises(dice.DiceError, match="no column 'nothing'"):
        dice.tl.transfer_labels(query, trained, "cell_type", groupby="nothing")


def without_layer(reference):
    del reference.layers["mine"]


def with_nan(reference):
    reference.layers["mine"][3, :] = np.nan


@pytest.fixture(scope="module")
def in_layers():
    """A reference that keeps expression and counts in layers, and a query that has neither."""
    rng = np.random.default_rng(0)
    profiles, codes = 3 * rng.gamma(0.3, size=(3, 60)), np.arange(400) % 3
    cells = ad.AnnData(rng.poisson(profiles[codes]).astype(np.float32))
    cells.layers["counts"] = cells.X.copy()
    cells.X = np.log1p(1e4 * cells.X / np.maximum(cells.X.sum(1, keepdims=True), 1))
    cells.layers["mine"] = cells.X.copy()
    cells.obs["cell_type"] = pd.Categorical([f"type {code}" for code in codes])
    cells.obsm["protein"] = profiles[codes, :2] + rng.normal(size=(400, 2))
    cells.obs_names = [f"cell {i}" for i in range(400)]
    reference, query = cells[:300].copy(), cells[300:].copy()
    training = dice.Training(max_steps=5, calibration_fraction=0.3)
    dice.tl.train_prior(reference, n_latent=5, layer="mine", training=training)
    del query.layers["mine"], query.layers["counts"]
    return reference, query


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (without_layer, r"no layer 'mine' in reference\.layers"),
        (with_nan, r"for example \['cell 3'\] in reference\.layers\['mine'\]"),
    ],
)
@pytest.mark.parametrize(
    "verb",
    [
        lambda query, reference: dice.tl.transfer_labels(query, reference, "cell_type"),
        lambda query, reference: dice.tl.novelty(query, reference),
        lambda query, reference: dice.tl.transfer_features(query, reference, "protein"),
    ],
    ids=["transfer_labels", "novelty", "transfer_features"],
)
def test_a_fault_of_the_reference_is_told_by_its_name(in_layers, verb, spoil, sentence):
    """As the query is called adata, a sentence about adata would be looked for there."""
    reference, query = in_layers[0].copy(), in_layers[1].copy()
    spoil(reference)
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        verb(query, reference)
    assert "adata" not in str(caught.value)
    query.X[5, 3] = np.inf
    with pytest.raises(dice.DiceError, match=r"\['cell 305'\] in adata\.X: .*adata\.X = np\.nan_to_num"):
        verb(query, in_layers[0])


def with_empty(query, n):
    """The same cells, and `n` without any expression."""
    empty = ad.AnnData(np.zeros((n, query.n_vars), np.float32), var=query.var)
    empty.obs_names = [f"empty {i}" for i in range(n)]
    return ad.concat([query, empty])


def test_empty_cells_change_nothing_for_others(trained):
    """They said that the whole query differs: 50 of them made sets of 200 others twice as long."""
    query = simulate(200, 1)
    del query.obs["cell_type"]
    changed = query.X + np.linspace(0, 1, query.n_vars) + np.random.default_rng(0).normal(size=query.shape)
    query.X = np.maximum(changed, 0).astype(np.float32)
    both = with_empty(query, 60)
    for cells in (query, both):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dice.tl.transfer_labels(cells, trained, "cell_type", check=False, shift=False)
        assert cells.uns["cell_type_dice"]["params"]["shift_strength"] == 1
    for column in ("cell_type_dice", "cell_type_dice_status", "cell_type_dice_set"):
        assert list(both.obs[column].iloc[:200].astype(str)) == list(query.obs[column].astype(str))
    assert set(both.obs["cell_type_dice_status"].iloc[200:]) == {"unlike the reference"}


def test_empty_cells_do_not_vote(trained):
    query = with_empty(simulate(100, 1), 40)
    query.obs["cluster"] = pd.Categorical(["a"] * 4 + ["b"] * 96 + ["a"] * 30 + ["nobody"] * 10)
    with pytest.warns(dice.DiceWarning, match="express no gene"):
        dice.tl.transfer_labels(query, trained, "cell_type", groupby="cluster")
    votes = query.uns["cell_type_dice"]["votes"]
    assert list(votes["n_cells"]) == [4, 96, 0]
    assert votes["label"][2] == ""
    assert query.obs["cell_type_dice_voted"].iloc[130:].isna().all()
    means = query.obsm["cell_type_dice_prob"].iloc[:4].mean()
    assert votes["label"][0] == TYPES[int(means.to_numpy().argmax())]
    assert votes["probability"][0] == pytest.approx(means.max(), abs=1e-5)


def test_the_set_of_every_class_holds_the_label(trained):
    query = simulate(300, 3)
    dice.tl.transfer_labels(query, trained, "cell_type", sets=dice.Sets(per_class=True), alpha=0.3)
    best = query.obsm["cell_type_dice_prob"].to_numpy().argmax(1)
    assert query.obsm["cell_type_dice_set"].to_numpy()[np.arange(300), best].all()


def test_nobody_is_confident_of_a_label_that_is_not_given(trained):
    query = simulate(300, 1)
    query.X = np.maximum(query.X + np.random.default_rng(0).normal(scale=1.5, size=query.shape), 0).astype(np.float32)
    strict = dice.Classifier(min_probability=0.95)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dice.tl.transfer_labels(query, trained, "cell_type", classifier=strict, alpha=0.3, check=False)
    unassigned = query.obs["cell_type_dice"] == "unassigned"
    assert 0 < unassigned.sum() < 300
    assert "confident" not in set(query.obs["cell_type_dice_status"][unassigned])


def test_an_alpha_that_no_calibration_can_tell_is_said(trained):
    with pytest.warns(
        dice.DiceWarning, match=r"300 calibration cells are too few for alpha=0\.001, so every set holds"
    ):
        dice.tl.transfer_labels(simulate(400, 1), trained, "cell_type", alpha=0.001)


VIEWS = ["measured", "clusters", "centered", "standardized", "profiles"]


def changed(n, seed):
    """Cells with another offset and spread of every gene, and more of one type."""
    query, rng = simulate(2 * n, seed), np.random.default_rng(7)
    rare = query.obs["cell_type"].to_numpy() == TYPES[0]
    query = query[np.flatnonzero(~rare | (np.arange(2 * n) % 3 == 0))[:n]].copy()
    moved = query.X * rng.uniform(0.5, 1.5, query.n_vars) + rng.uniform(0, 1.5, query.n_vars)
    query.X = moved.astype(np.float32)
    return query


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_views_are_averaged_under_a_shift(trained):
    query = changed(400, 11)
    dice.tl.transfer_labels(query, trained, "cell_type", check=False)
    record = query.uns["cell_type_dice"]
    assert list(record["views"]["view"]) == VIEWS
    assert record["views"]["weight"].sum() == pytest.approx(1)
    assert ((record["views"]["agreement"] >= 0) & (record["views"]["agreement"] <= 1)).all()
    assert record["composition"].sum() == pytest.approx(1)
    truth = query.obs["cell_type"].value_counts(normalize=True).reindex(TYPES).to_numpy()
    assert np.abs(record["composition"] - truth).sum() / 2 < 0.15
    right = {}
    for shift in ("auto", False, "offset", "clusters", "centered", "standardized", "profiles"):
        alone = dice.tl.transfer_labels(query, trained, "cell_type", check=False, shift=shift, copy=True)
        right[shift] = (alone.obs["cell_type_dice"].astype(str) == query.obs["cell_type"].astype(str)).mean()
        if shift != "auto":
            assert list(alone.uns["cell_type_dice"]["views"]["view"]) == [shift or "measured"]
            assert alone.uns["cell_type_dice"]["views"]["weight"] == pytest.approx([1])
    assert right["auto"] > max(right.values()) - 0.03
    assert right["auto"] > right[False] + 0.05


def test_without_a_shift_cells_count_as_they_were_measured(trained):
    """Sets are then those of split conformal prediction, to the bit."""
    query = simulate(800, 12)
    alone = dice.tl.transfer_labels(query, trained, "cell_type", shift=False, copy=True)
    dice.tl.transfer_labels(query, trained, "cell_type")
    assert query.uns["cell_type_dice"]["params"]["shift_strength"] == 0
    np.testing.assert_array_equal(query.uns["cell_type_dice"]["views"]["weight"], np.eye(len(VIEWS))[0])
    for name in ("cell_type_dice_prob", "cell_type_dice_set"):
        pd.testing.assert_frame_equal(query.obsm[name], alone.obsm[name])


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_the_prior_alone_gives_the_same_labels(reference, tmp_path):
    """Moments, temperature and evidence travel with it: no digit depends on the reference's cells."""
    dice.tl.train_prior(reference, labels_key="cell_type", n_latent=5, training=dice.Training(max_steps=5))
    prior = dice.Prior.from_anndata(reference)
    prior.save(tmp_path / "prior.h5ad")
    query = changed(300, 13)
    by_cells = dice.tl.transfer_labels(query, reference, "cell_type", check=False, copy=True)
    for source in (prior, tmp_path / "prior.h5ad"):
        alone = dice.tl.transfer_labels(query, source, "cell_type", check=False, copy=True)
        for name in ("cell_type_dice_prob", "cell_type_dice_set"):
            pd.testing.assert_frame_equal(alone.obsm[name], by_cells.obsm[name])
        pd.testing.assert_series_equal(alone.obs["cell_type_dice_status"], by_cells.obs["cell_type_dice_status"])


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_labels_that_were_edited_after_training_are_learned(trained):
    """Also if each label keeps its number of cells: two types of equal size whose names were swapped."""
    first, second = trained.obs["cell_type"].cat.categories[:2]
    twins = trained[~trained.obs["cell_type"].isin([first, second])].copy()
    cells = [trained[trained.obs["cell_type"] == name][:40] for name in (first, second)]
    reference = ad.concat([*cells, twins], uns_merge="first", merge="first")
    dice.tl.train_prior(reference, labels_key="cell_type", n_latent=5, training=dice.Training(max_steps=5))
    query, right = changed(300, 13), {first: second, second: first}
    before = dice.tl.transfer_labels(query, reference, "cell_type", check=False, copy=True)
    reference.obs["cell_type"] = reference.obs["cell_type"].astype(str).replace(right)
    after = dice.tl.transfer_labels(query, reference, "cell_type", check=False, copy=True)
    swapped = before.obs["cell_type_dice"].astype(str).replace(right)
    assert before.obs["cell_type_dice"].isin([first, second]).any()
    assert (after.obs["cell_type_dice"].astype(str) == swapped).mean() > 0.95


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_views_do_not_depend_on_the_order_of_cells_or_on_chunks(trained, monkeypatch):
    """Also where only some cells teach the composition, and the others are read chunk by chunk."""
    monkeypatch.setattr("dice._labels.cells.LABEL_SAMPLE", 250)
    query = changed(400, 14)
    order = np.random.default_rng(0).permutation(400)
    other = query[order].copy()
    dice.tl.transfer_labels(query, trained, "cell_type", check=False)
    with dice.settings.using(chunk_size=57):
        dice.tl.transfer_labels(other, trained, "cell_type", check=False)
    found = other.obsm["cell_type_dice_prob"].to_numpy()
    np.testing.assert_allclose(found, query.obsm["cell_type_dice_prob"].to_numpy()[order], atol=1e-4)


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
@pytest.mark.parametrize("n_cells", [1, 3, 30])
def test_small_queries_have_all_views(trained, n_cells):
    query = changed(40, 15)[:n_cells].copy()
    dice.tl.transfer_labels(query, trained, "cell_type", check=False)
    assert list(query.uns["cell_type_dice"]["views"]["view"]) == VIEWS
    assert np.isfinite(query.obsm["cell_type_dice_prob"].to_numpy()).all()


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
@pytest.mark.parametrize("make", [simulate, changed])
def test_fewer_cells_never_mean_more_confidence(trained, make):
    """Of one query, 30 cells alone were 83 % confident where all 1,000 were 56 %."""
    whole = make(600, 16)
    dice.tl.transfer_labels(whole, trained, "cell_type", check=False)
    confident = (whole.obs["cell_type_dice_status"] == "confident").mean()
    rng = np.random.default_rng(0)
    for n_cells in (30, 100):
        shares = []
        for _ in range(8):
            some = whole[np.sort(rng.choice(600, n_cells, replace=False))].copy()
            dice.tl.transfer_labels(some, trained, "cell_type", check=False)
            shares.append((some.obs["cell_type_dice_status"] == "confident").mean())
        assert np.mean(shares) <= confident + 0.02


def test_fine_groups_vote(trained):
    query = simulate(500, 17)
    dice.tl.transfer_labels(query, trained, "cell_type", groupby="auto")
    voted, votes = query.obs["cell_type_dice_voted"], query.uns["cell_type_dice"]["votes"]
    assert len(votes["group"]) == 20
    truth = query.obs["cell_type"].astype(str)
    assert (voted.astype(str) == truth).mean() > 0.9


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_cells_of_a_novel_group_are_unlike_the_reference(trained):
    """They were confident: 43 of 70 cells of a type that the reference lacks."""
    query = simulate(400, 18)
    new = query[:60].copy()
    new.obs_names = [f"new {i}" for i in range(60)]
    rng = np.random.default_rng(3)
    new.X = np.maximum(new.X[rng.permutation(60)][:, rng.permutation(query.n_vars)], 0)
    both = ad.concat([query, new])
    both.obs["cell_type"] = both.obs["cell_type"].astype("category")
    dice.tl.transfer_labels(both, trained, "cell_type", check=False)
    status = both.obs["cell_type_dice_status"].astype(str).to_numpy()
    assert (status[400:] == "unlike the reference").mean() > 0.8
    assert (status[:400] == "unlike the reference").mean() < 0.1
