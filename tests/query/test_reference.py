"""Labels of a reference that can be learned and checked, and the genes that it must still have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

import dice
from dice import Levels
from dice._labels.learn import _sample
from dice._labels.model import Labelled
from dice._labels.stored import (
    check_labelled,
    labels_in_tree,
    labels_to_learn,
    levels_of,
    read_or_learn,
)
from dice._model.training_data import ROLES
from dice._query.reference import own_genes

TRAIN, CALIBRATION = ROLES.index("train"), ROLES.index("calibration")


def labelled(codes, roles):
    return Labelled("t", np.array(codes), ["a", "b"], np.array(roles), None, "")


def test_roles_and_known_cells():
    cells = labelled([0, 1, 0, -1, 1], [TRAIN, 1, CALIBRATION, TRAIN, -1])
    np.testing.assert_array_equal(cells.cells("train", "calibration"), [0, 2])


def test_labels_need_cells_to_learn_from_and_to_check_by():
    sound = labelled([0, 1, 0, 1], [TRAIN, TRAIN, CALIBRATION, CALIBRATION])
    assert check_labelled(sound) is sound
    with pytest.raises(dice.DiceError, match=r"No training cell of the reference has a label in obs\['t'\]"):
        check_labelled(labelled([-1, -1, 0, 1], sound.roles))
    with pytest.raises(
        dice.DiceError, match=r"No calibration cell of the reference has a label in obs\['t'\]: train its prior"
    ):
        check_labelled(labelled([0, 1, -1, -1], sound.roles))


def test_labels_of_a_single_cell_are_left_out():
    reference = ad.AnnData(np.zeros((6, 2), np.float32))
    # Categories were sorted when one of them was left out.
    reference.obs["t"] = pd.Categorical(["a", "a", "b", "b", "c", None], categories=["b", "a", "c"])
    reference.uns["t_colors"] = np.array(["red", "green", "blue"])
    with pytest.warns(UserWarning, match=r"^Labels with only one cell are left out \(1, for example \['c'\]\)"):
        found = labels_in_tree(reference, Levels("t"), np.zeros(6, dtype=int))
    assert found.names == ["b", "a"]
    np.testing.assert_array_equal(found.codes, [1, 1, 0, 0, -1, -1])
    assert found.colors == ["red", "green"]


def test_the_reference_has_the_genes_of_its_prior():
    reference = ad.AnnData(np.zeros((2, 4), np.float32), var=pd.DataFrame(index=list("dcba")))
    genes = np.array(list("abc"), dtype=object)
    query = SimpleNamespace(prior=SimpleNamespace(genes=genes), match=SimpleNamespace(prior=np.array([0, 2])))
    np.testing.assert_array_equal(own_genes(reference, query), [3, 1])
    with pytest.raises(dice.DiceError, match=r"^The reference has lost 1 genes of its prior, for example \['c'\]"):
        own_genes(reference[:, ["a", "b"]], query)


def test_rare_classes_are_kept_whole():
    codes = np.repeat([0, 1], [9950, 50])
    kept = codes[_sample(np.arange(10_000), codes, 0, most=1000)]
    assert (kept == 1).sum() == 50
    assert abs((kept == 0).sum() - 995) < 150
    few = np.arange(1000)
    assert _sample(few, few * 0, 0, most=1000) is few


def reference_with(names, roles):
    reference = ad.AnnData(np.zeros((len(names), 2), np.float32))
    reference.obs["t"], reference.obs["dice_split"] = pd.Categorical(names), [ROLES[role] for role in roles]
    return reference


def test_labels_need_cells_to_learn_and_to_check_by():
    roles = np.array([TRAIN, TRAIN, CALIBRATION, CALIBRATION], dtype=np.int8)
    reference = reference_with(list("abab"), roles)
    assert labels_to_learn(reference, roles, None) is None
    assert labels_to_learn(reference, roles, Levels("t")).names == ["a", "b"]
    for lacking, lonely in (("calibration", [TRAIN] * 4), ("train", [CALIBRATION] * 4)):
        with pytest.warns(dice.DiceWarning, match=f"will hold no labels. No {lacking}"):
            assert labels_to_learn(reference, np.array(lonely, np.int8), Levels("t")) is None


def test_one_label_and_single_cells_are_no_labels():
    roles = np.array([TRAIN, TRAIN, CALIBRATION, CALIBRATION], dtype=np.int8)
    with (
        pytest.warns(dice.DiceWarning, match="only one cell"),
        pytest.raises(dice.DiceError, match="must hold two labels or more, each with two cells or more"),
    ):
        labels_to_learn(reference_with(list("aaab"), roles), roles, Levels("t"))


@dataclass(frozen=True)
class Stored:
    names: list[str]
    card: dict[str, Any]


def test_edited_labels_have_another_checksum():
    """Also if every label keeps its number of cells, as after shuffling."""

    def checksum(labels, order=slice(None)):
        cells = reference_with(labels, [TRAIN] * len(labels))[order]
        return labels_in_tree(cells, Levels("t"), np.full(len(labels), TRAIN)).checksum

    first = checksum(list("aabbb"))
    assert checksum(list("aabbb"), [4, 1, 0, 3, 2]) == first
    for other in ("ababb", "bbaaa", "aaabb", "ccbbb"):
        assert checksum(list(other)) != first
    unlabelled = reference_with([None, *"aabbb"], [TRAIN] * 6)
    unlabelled.obs_names = ["new", *"01234"]
    assert labels_in_tree(unlabelled, Levels("t"), np.full(6, TRAIN)).checksum == first


def test_stored_labels_are_read_and_others_learned(monkeypatch):
    monkeypatch.setattr("dice._labels.stored.learn_labels", lambda *a: SimpleNamespace(names=["b", "a"]))
    roles = [TRAIN, TRAIN, CALIBRATION, CALIBRATION]
    reference = reference_with(list("abab"), roles)
    checksum = labels_in_tree(reference, Levels("t"), np.array(roles)).checksum
    stored = Stored(["a", "b"], {"labels": ["a", "b"], "checksum": checksum, "colors": ["red", "blue"]})
    prior = SimpleNamespace(labels=stored, params={"labels_key": "t"})
    # Colours are those of the reference, if it is passed with its labels.
    assert read_or_learn(reference, prior, Levels("t"), "dice", 0) == replace(stored, card=stored.card | {"colors": []})
    assert read_or_learn(prior, prior, Levels("t"), "dice", 0) is stored
    lost = reference_with(list("abab"), [TRAIN, TRAIN, CALIBRATION, CALIBRATION])
    del lost.obs["t"]
    assert read_or_learn(lost, prior, Levels("t"), "dice", 0) is stored
    reference.uns["t_colors"] = np.array(["green", "grey"])
    assert read_or_learn(reference, prior, Levels("t"), "dice", 0).card["colors"] == ["green", "grey"]
    changed = read_or_learn(reference_with([*"aabbbb"], [0, 2, 0, 2, 0, 2]), prior, Levels("t"), "dice", 0)
    assert changed.names == ["b", "a"]
    bare = SimpleNamespace(labels=None, params={})
    with pytest.raises(dice.DiceError, match="trained without labels: pass `labels_key`"):
        levels_of(bare, None)
    with pytest.raises(dice.DiceError, match="The prior holds no labels"):
        read_or_learn(None, bare, Levels("t"), "dice", 0)
    with pytest.raises(dice.DiceError, match="The prior holds only the labels 't'"):
        read_or_learn(None, prior, Levels("other"), "dice", 0)
