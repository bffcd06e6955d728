from __future__ import annotations

import doctest
import random
import sys

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans

import dice
from dice import metrics
from dice._clusters.partition import communities
from dice._data.graph import neighbor_graph
from dice._errors import InputError, SlotError
from dice._labels.tree import LabelTree
from dice.tl._evaluate import evaluate

COLUMNS = [
    "protocol",
    "silhouette",
    "ari",
    "nmi",
    "nmi_max",
    "v_measure",
    "best_resolution",
    "n_clusters",
    "ari_fixed",
    "kmeans_ari",
    "clisi",
    "seconds",
]


@pytest.fixture
def cells() -> ad.AnnData:
    """120 cells of three types: vague in X_dice_pca, sharp in X_dice."""
    rng = np.random.default_rng(0)
    codes = np.arange(120) % 3
    vague = rng.normal(size=(3, 6))[codes] * 1.5 + rng.normal(size=(120, 6))
    sharp = rng.normal(size=(3, 6))[codes] * 10 + rng.normal(size=(120, 6))
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical(np.array(["B", "NK", "T"])[codes]),
            "batch": rng.integers(2, size=120).astype(str),
        },
        index=[f"cell_{i}" for i in range(120)],
    )
    obsm = {"X_dice_pca": vague.astype(np.float32), "X_dice": sharp.astype(np.float32)}
    return ad.AnnData(rng.normal(size=(120, 4)).astype(np.float32), obs=obs, obsm=obsm)


def content(adata: ad.AnnData) -> dict[str, object]:
    return {
        "X": adata.X.tobytes(),
        "obs": adata.obs.to_csv(),
        "var": adata.var.to_csv(),
        "obsm": {key: np.asarray(value).tobytes() for key, value in adata.obsm.items()},
        "rest": [list(part) for part in (adata.uns, adata.obsp, adata.varm, adata.layers)],
    }


def test_table_of_the_embedding_protocol(cells) -> None:
    before = content(cells)
    table = evaluate(cells, "cell_type")
    assert content(cells) == before
    assert table.index.tolist() == ["X_dice_pca", "X_dice"]
    assert table.index.name == "representation"
    assert table.columns.tolist() == COLUMNS
    assert not table.isna().to_numpy().any()
    labels = cells.obs["cell_type"]
    for key, row in table.iterrows():
        values = cells.obsm[key]
        sweep = metrics.leiden_sweep(values, labels)
        best = sweep.loc[sweep["ari"].idxmax()]
        assert row["ari"] == best["ari"]
        assert row["best_resolution"] == best["resolution"]
        assert row["nmi_max"] == best["nmi_max"] <= row["nmi"]
        assert row["nmi"] == pytest.approx(row["v_measure"])
        assert row["ari_fixed"] == metrics.ari(labels, communities(neighbor_graph(values, 15), 1.0))
        assert row["kmeans_ari"] == metrics.ari(labels, KMeans(3, n_init=10, random_state=0).fit_predict(values))
        assert row["silhouette"] == metrics.silhouette(values, labels)
        assert row["clisi"] == metrics.clisi(values, labels)
    assert table.loc["X_dice", "ari"] == 1.0
    assert table.loc["X_dice", "silhouette"] > table.loc["X_dice_pca", "silhouette"]
    assert table.loc["X_dice", "clisi"] < table.loc["X_dice_pca", "clisi"]


def test_table_of_the_paper_protocol(cells) -> None:
    before = content(cells)
    state, python_state = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    table = evaluate(cells, "cell_type", use_rep="X_dice", protocol="paper", batch_key="batch")
    assert content(cells) == before
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    assert random.getstate() == python_state
    assert table["protocol"].tolist() == ["paper"]
    row = table.iloc[0]
    assert row["ari"] == 1.0
    assert row["clisi"] == 1.0
    assert 1 < row["ilisi"] <= 2
    assert row["silhouette"] == metrics.silhouette(cells.obsm["X_dice"], cells.obs["cell_type"])
    again = evaluate(cells, "cell_type", use_rep="X_dice", protocol="paper", batch_key="batch")
    pd.testing.assert_frame_equal(table.drop(columns="seconds"), again.drop(columns="seconds"))


def test_fixed_resolution_does_not_take_part_in_the_choice(cells) -> None:
    odd = evaluate(cells, "cell_type", use_rep="X_dice_pca", resolution=3.7)
    assert odd["best_resolution"].isin(metrics.PAPER_RESOLUTIONS).all()
    clusters = communities(neighbor_graph(cells.obsm["X_dice_pca"], 15), 3.7)
    assert odd["ari_fixed"].iloc[0] == metrics.ari(cells.obs["cell_type"], clusters)


def test_views_and_batches(cells) -> None:
    view = cells[::-1]
    table = evaluate(view, "cell_type", batch_key="batch", use_rep=["X_dice"])
    assert view.is_view
    assert table.columns.tolist() == [*COLUMNS[:-1], "ilisi", "seconds"]
    assert table.loc["X_dice", "ilisi"] == metrics.ilisi(view.obsm["X_dice"], view.obs["batch"])


def test_missing_labels_and_empty_categories(cells) -> None:
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.add_categories("nobody")
    cells.obs.loc[["cell_3", "cell_7"], "cell_type"] = np.nan
    table = evaluate(cells, "cell_type", use_rep="X_dice")
    labels = cells.obs["cell_type"]
    assert table.loc["X_dice", "kmeans_ari"] == 1.0
    assert table.loc["X_dice", "silhouette"] == metrics.silhouette(cells.obsm["X_dice"], labels)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"labels_key": "type"}, SlotError, r"labels_key to one of \['cell_type', 'batch'"),
        ({"batch_key": "lane"}, SlotError, r"batch_key to one of \['cell_type', 'batch'"),
        ({"use_rep": "X_pca"}, SlotError, "run dice.tl.denoise.*'X_dice_pca', 'X_dice'"),
        ({"use_rep": []}, InputError, "name at least one key of adata.obsm"),
        ({"protocol": "authors"}, InputError, "'embedding', 'paper'"),
        ({"use_rep": "cube"}, InputError, r"adata.obsm\['cube'\].*mean over axis 1"),
        ({"labels_key": "same"}, InputError, "pass a column with more labels"),
        ({"resolution": -1.0}, InputError, "positive numbers"),
    ],
)
def test_errors_name_the_fix(cells, arguments, error, text) -> None:
    if arguments.get("use_rep") == "cube":
        cells.obsm["cube"] = np.zeros((120, 2, 3))
    if arguments.get("labels_key") == "same":
        cells.obs["same"] = "B"
    with pytest.raises(error, match=text):
        evaluate(cells, **{"labels_key": "cell_type"} | arguments)


def test_error_where_nothing_is_there() -> None:
    with pytest.raises(SlotError, match=r"labels_key to one of \[\]"):
        evaluate(ad.AnnData(np.ones((3, 2), dtype=np.float32)), "cell_type")


def test_example_runs() -> None:
    assert doctest.testmod(sys.modules[evaluate.__module__]).failed == 0


@pytest.fixture
def transferred():
    """Six cells with three labels; one label is wrong, and one set misses."""
    cells = ad.AnnData(np.zeros((6, 1), np.float32))
    names, given = ["B/plasma", "T", "NK"], [0, 0, 1, 1, 2, 1]
    sets = np.eye(3, dtype=bool)[given]
    sets[5, 2] = True
    cells.obs["cell_type"] = ["B/plasma", "B/plasma", "T", "T", "T", "NK"]
    cells.obs["cell_type_dice"] = pd.Categorical.from_codes(given, names)
    cells.obs["cell_type_dice_status"] = ["confident"] * 5 + ["ambiguous"]
    cells.obsm["cell_type_dice_prob"] = np.eye(3)[given]
    cells.obsm["cell_type_dice_set"] = sets
    cells.uns["cell_type_dice"] = {"labels": np.array(names), "call": {"alpha": 0.1}}
    cells.obs["cell_type_dice_safe"] = ["B/plasma", "B/plasma", "T", "lymphoid", "lymphoid", "unresolved"]
    tree = LabelTree.of(names, {"T": "lymphoid", "NK": "lymphoid"})
    cells.uns["cell_type_dice_safe"] = tree.to_plain() | {"params": {"learned": False}}
    return cells


def test_safe_labels_and_levels_against_known_ones(transferred):
    """One T cell is called NK, and one NK cell T: both are right at the level of lymphoid cells."""
    row = dice.tl.evaluate(transferred, "cell_type", protocol="labels").loc["all cells"]
    assert (row["safe_error"], row["safe_resolved"], row["safe_finest"]) == (0, 5 / 6, 0.5)
    assert (row["accuracy_1"], row["accuracy_2"]) == (1, 4 / 6)
    assert (row["resolved_1"], row["resolved_2"]) == (5 / 6, 0.5)
    transferred.obs["cell_type"] = ["B/plasma", "B/plasma", "lymphoid", "lymphoid", "lymphoid", "lymphoid"]
    known = dice.tl.evaluate(transferred, "cell_type", protocol="labels")
    assert known.loc["lymphoid", "accuracy"] == 1, "known labels may be nodes of the tree"


def test_labels_and_sets_against_known_ones(transferred):
    """Ten lines of a tutorial, of which one replaced the slashes."""
    table = dice.tl.evaluate(transferred, "cell_type", protocol="labels")
    assert list(table.index) == ["all cells", "B/plasma", "NK", "T"]
    assert table["n_cells"].tolist() == [6, 2, 1, 3]
    np.testing.assert_allclose(table["accuracy"], [4 / 6, 1, 0, 2 / 3])
    np.testing.assert_allclose(table["coverage"], [5 / 6, 1, 1, 2 / 3])
    np.testing.assert_allclose(table["f1"], [(1 + 0 + 2 / 3) / 3, 1, 0, 2 / 3])
    np.testing.assert_allclose(table["set_size"], [7 / 6, 1, 2, 1])
    np.testing.assert_allclose(table["confident_accuracy"], [4 / 5, 1, np.nan, 2 / 3])


def test_labels_of_another_vocabulary(transferred):
    transferred.obs["mine"] = ["B cell"] * 2 + ["lymphocyte"] * 3 + ["unknown"]
    arguments = {"protocol": "labels", "key": "cell_type_dice"}
    with pytest.raises(dice.DiceError, match=r"no label in common: .* label_map=\{'B cell'"):
        dice.tl.evaluate(transferred, "mine", **arguments)
    names = {"B cell": "B/plasma", "lymphocyte": ["T", "NK"]}
    with pytest.warns(dice.DiceWarning, match=r"1 cells have labels that the reference lacks .*'unknown'"):
        table = dice.tl.evaluate(transferred, "mine", label_map=names, **arguments)
    assert table["n_cells"].tolist() == [5, 2, 3]
    np.testing.assert_allclose(table["accuracy"], 1)


@pytest.mark.parametrize("wrong", ["b", ["T", "b"], None])
def test_a_misspelt_name_of_a_label_is_refused(transferred, wrong):
    """It would count all of its cells as wrong, without a word."""
    transferred.obs["mine"] = ["B cell"] * 2 + ["lymphocyte"] * 4
    names = {"B cell": "B/plasma", "lymphocyte": wrong}
    with pytest.raises(
        dice.DiceError, match=r"label_map\['lymphocyte'\] must be labels of the reference such as .*got"
    ):
        dice.tl.evaluate(transferred, "mine", protocol="labels", key="cell_type_dice", label_map=names)


def test_names_of_labels_may_be_numbers(transferred):
    transferred.obs["mine"] = [1, 1, 2, 2, 2, 2]
    names = {1: "B/plasma", 2: ("T", "NK")}
    table = dice.tl.evaluate(transferred, "mine", protocol="labels", key="cell_type_dice", label_map=names)
    assert table["n_cells"].tolist() == [6, 2, 4]
