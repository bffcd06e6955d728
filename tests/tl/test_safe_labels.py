"""Labels at the level that the data support."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from simulation import TYPES, simulate

import dice

CLASSES = dict(zip(TYPES, ["lymphoid", "lymphoid", "lymphoid", "myeloid"], strict=True))
TREE = dice.Levels("cell_type", CLASSES)
KEY = "cell_type_dice_safe"


@pytest.fixture(scope="module")
def trained():
    reference = simulate(1500, 0)
    reference.obs["class"] = reference.obs["cell_type"].astype(str).map(CLASSES).astype("category")
    training = dice.Training(calibration_fraction=0.2)
    dice.tl.train_prior(reference, n_latent=6, preset="gmm", labels_key="cell_type", training=training)
    return reference


@pytest.fixture(scope="module")
def labelled(trained):
    query = simulate(600, 1)
    dice.tl.transfer_labels(query, trained, "cell_type")
    return query


@pytest.fixture
def query(labelled):
    return labelled.copy()


def right(query):
    """Whether every safe label holds the true one."""
    record = query.uns[KEY]
    parents = dict(zip(record["node"], record["parent"], strict=True))
    held = []
    for truth, safe in zip(query.obs["cell_type"].astype(str), query.obs[KEY].astype(str), strict=True):
        path = [truth]
        while parents[path[-1]] != path[-1]:
            path.append(parents[path[-1]])
        held.append(safe in path)
    return np.array(held)


@pytest.mark.parametrize("tree", [{"labels_key": ["class", "cell_type"]}, {"labels_key": TREE}, {}])
def test_every_cell_has_a_label_that_can_be_trusted(query, trained, tree):
    dice.tl.safe_labels(query, trained, alpha=0.05, **tree)
    error = 1 - right(query).mean()
    assert error <= 0.05 + 3 * np.sqrt(0.05 * 0.95 * (1 / 300 + 1 / 600))
    assert error < (query.obs["cell_type_dice"].astype(str) != query.obs["cell_type"].astype(str)).mean()
    params = query.uns[KEY]["params"]
    assert params["resolved"] == (query.obs[KEY] != "unresolved").mean()
    assert query.obs[KEY].isin(TYPES).mean() == params["finest"]
    dice.tl.safe_labels(query, trained, **tree)
    confident = query.obs["cell_type_dice_status"] == "confident"
    assert (query.obs[KEY].astype(str) == query.obs["cell_type_dice"].astype(str))[confident].all()


def test_levels_have_the_names_of_their_columns(query, trained):
    dice.tl.safe_labels(query, trained, ["class", "cell_type"], alpha=0.02)
    level = query.obs["cell_type_dice_level"].astype(str)
    kind = np.select([query.obs[KEY].isin(TYPES), query.obs[KEY] == "unresolved"], ["cell_type", "unresolved"], "class")
    assert (level == kind).all()
    assert {"cell_type", "class"} <= set(level)


def test_a_smaller_rate_gives_larger_nodes(query, trained):
    sizes = []
    for alpha in (0.3, 0.1, 0.03, 0.01):
        dice.tl.safe_labels(query, trained, "cell_type", alpha=alpha)
        sizes.append(query.uns[KEY]["params"]["finest"])
    assert sizes == sorted(sizes, reverse=True)


def test_the_prior_alone_says_the_same(query, trained, tmp_path):
    dice.Prior.from_anndata(trained).save(tmp_path / "prior.h5ad")
    others = [dice.tl.safe_labels(query, known, copy=True) for known in (trained, tmp_path / "prior.h5ad")]
    pd.testing.assert_frame_equal(others[0].obs, others[1].obs)
    with pytest.raises(dice.DiceError, match="pass the reference, or a hierarchy"):
        dice.tl.safe_labels(query, tmp_path / "prior.h5ad", ["class", "cell_type"])


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_files_keep_everything(query, trained, tmp_path, suffix):
    dice.tl.safe_labels(query, trained, TREE)
    path = tmp_path / f"query.{suffix}"
    getattr(query, f"write_{suffix}")(path)
    again = (ad.read_h5ad if suffix == "h5ad" else ad.read_zarr)(path)
    assert list(again.obs[KEY].astype(str)) == list(query.obs[KEY].astype(str))
    assert list(again.uns[KEY]["node"]) == list(query.uns[KEY]["node"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labels_key": ["cell_type", "cell_type"]}, "different columns from coarse to fine"),
        ({"labels_key": ["nothing", "cell_type"]}, "nothing"),
        ({"labels_key": dice.Levels("cell_type", {TYPES[0]: TYPES[1]})}, "are also labels of cells"),
        ({"labels_key": dice.Levels("cell_type", {"nothing": "T"})}, "neither labels nor parents"),
        ({"alpha": 2}, "alpha"),
    ],
)
def test_bad_input_changes_nothing(query, trained, settings, message):
    before = set(query.obs)
    with pytest.raises(dice.DiceError, match=message):
        dice.tl.safe_labels(query, trained, **{"labels_key": "cell_type"} | settings)
    assert set(query.obs) == before


def test_labels_come_first(trained):
    with pytest.raises(dice.DiceError, match="transfer_labels"):
        dice.tl.safe_labels(simulate(50, 3), trained, "cell_type")


def test_labels_of_all_levels_come_with_the_labels(trained, tmp_path):
    """Columns, the prior alone and a table give the same safe labels; coarse labels are above fine ones."""
    query, columns = simulate(200, 4), ["class", "cell_type"]
    reference = trained.copy()
    dice.tl.train_prior(
        reference, n_latent=6, preset="gmm", labels_key=columns, training=dice.Training(calibration_fraction=0.2)
    )
    table = tmp_path / "tree.csv"
    pd.DataFrame({"child": list(CLASSES), "parent": list(CLASSES.values())}).to_csv(table, index=False)
    sources = [(reference, columns), (dice.Prior.from_anndata(reference), None), (reference, "cell_type"),
               (trained, dice.Levels("cell_type", table))]  # fmt: skip
    found = [dice.tl.transfer_labels(query, source, key, copy=True) for source, key in sources]
    for other in found[1:]:
        assert list(other.obs[KEY].astype(str)) == list(found[0].obs[KEY].astype(str))
    labels = found[0].obs["cell_type_dice"].astype(str)
    assert (found[0].obs["cell_type_dice_at_class"].astype(str) == labels.map(CLASSES)).all()
    assert (found[0].obs["cell_type_dice_at_cell_type"].astype(str) == labels).all()
    assert {"cell_type_dice_at_1", "cell_type_dice_at_2_prob"} <= set(found[3].obs)
    again = dice.tl.transfer_labels(found[3], reference, columns, copy=True)
    assert not [name for name in again.obs if name.startswith("cell_type_dice_at_1")], "levels of earlier calls go"


def test_cells_with_a_coarse_label_are_not_thrown_away(trained):
    reference, query = trained.copy(), simulate(200, 5)
    reference.obs["cell_type"] = reference.obs["cell_type"].astype(str)
    hidden = (reference.obs["class"] == "lymphoid") & (np.arange(reference.n_obs) % 3 > 0)
    reference.obs.loc[hidden, "cell_type"] = None
    dice.tl.transfer_labels(query, reference, ["class", "cell_type"])
    right = (query.obs["cell_type_dice"].astype(str) == query.obs["cell_type"].astype(str)).mean()
    assert right > 0.8
    text = query.uns["cell_type_dice"]["reference"]
    assert "learned from 1500 cells" in text
    assert set(query.obs["cell_type_dice"]) <= set(TYPES), "no cell is labelled by a coarse label"


def test_a_column_alone_means_the_tree_that_the_prior_was_trained_with():
    """A column was a tree without levels, so that coarse labels were no longer those that the prior had learned."""
    reference, query = simulate(300, 2), simulate(60, 3)
    reference.obs["class"] = reference.obs["cell_type"].astype(str).map(CLASSES)
    reference.obs["cell_type"] = reference.obs["cell_type"].astype(object).where(np.arange(300) % 3 > 0)
    columns, training = ["class", "cell_type"], dice.Training(max_steps=5, calibration_fraction=0.3)
    dice.tl.train_prior(reference, labels_key=columns, n_latent=5, training=training)
    dice.tl.transfer_labels(query, reference, columns)
    again = dice.tl.safe_labels(query, reference, "cell_type", copy=True)
    assert again.uns[KEY]["levels"].tolist() == columns
    assert again.obs[KEY].equals(query.obs[KEY])


def test_cells_unlike_the_reference_are_unresolved(query):
    unlike = query.obs["cell_type_dice_status"] == "unlike the reference"
    assert (query.obs[KEY][unlike] == "unresolved").all()
