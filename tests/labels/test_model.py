"""Labels inside of a stored prior: the same after files, refused where they were forged."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from simulation import TYPES, simulate

import dice
from dice._labels.model import LISTED, describe, log_loss
from dice._model.schema import checksum


@pytest.fixture(scope="module")
def raw():
    reference = simulate(400, 0)
    reference.uns["cell_type_colors"] = ["#111111"] * 4
    dice.tl.train_prior(reference, labels_key="cell_type", n_latent=5, training=dice.Training(max_steps=5))
    return reference.uns["dice"]


def test_labels_survive_to_the_bit(raw, tmp_path):
    assert raw["format"] == 5
    prior = dice.Prior.from_arrays(raw)
    prior.save(tmp_path / "prior.h5ad")
    back = dice.Prior.load(tmp_path / "prior.h5ad")
    assert back.sha256 == raw["sha256"]
    assert back.labels.names == TYPES
    assert back.labels.card == prior.labels.card
    for name, array in raw["labels"].items():
        np.testing.assert_array_equal(back.labels.to_arrays()[name], array)


def card(raw, **changes):
    raw["card"] = json.dumps(json.loads(raw["card"]) | changes, sort_keys=True)


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (lambda raw: raw["labels"].pop("whiten"), "missing or unknown entries of 'labels'"),
        (lambda raw: raw["labels"].update(more=np.zeros(1, np.float32)), "missing or unknown entries of 'labels'"),
        (lambda raw: raw["labels"]["genes_slopes"].fill(np.nan), "'labels/genes_slopes' is not between"),
        (lambda raw: raw["labels"]["centres"].fill(1e30), "'labels/centres' is not between"),
        (lambda raw: raw["labels"].update(counts=np.zeros(9, np.float32)), "float32 of shape"),
        (lambda raw: raw["labels"]["calibration_codes"].fill(7), "must be codes of its labels"),
        (lambda raw: raw["labels"]["calibration_codes"].fill(0.5), "must be codes of its labels"),
        (lambda raw: raw["labels"]["gene_variances"].fill(-1), "is not between 0 and"),
        (lambda raw: raw["labels"]["counts"].fill(0), "must not be all zero"),
        (lambda raw: raw["labels"].update(temperature=np.ones((), np.float32)), "float32 of shape"),
        (lambda raw: raw["labels"]["temperature"].fill(0), "'labels/temperature' must be positive"),
        (lambda raw: card(raw, labels=["a", "a", "b", "c"]), "does not list its labels"),
        (lambda raw: card(raw, labels=7), "does not list its labels"),
        (lambda raw: raw.update(card="[]"), "'card' is not a table"),
        (lambda raw: raw.pop("card"), "must be stored together"),
        (lambda raw: raw.pop("labels"), "must be stored together"),
        (lambda raw: raw.update(format=2), "this version of dice reads 5"),
    ],
)
def test_forged_labels_are_refused(raw, forge, sentence):
    raw = copy.deepcopy(raw)
    forge(raw)
    raw["sha256"] = checksum(raw)
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        dice.Prior.from_arrays(raw)
    assert "\n" not in str(caught.value)


def test_a_card_of_unknown_origin_is_still_text():
    """Cards come from anybody's file: whatever is in them is shown, in short lines."""
    told = describe(
        {"labels": [f"label\n{i}" for i in range(LISTED + 5)], "f1": "none", "versions": 3, "cells": [1] * 999}
    )
    assert LISTED < len(told.splitlines()) < LISTED + 6
    assert max(map(len, told.splitlines())) < 300
    assert describe({})
    assert "\x1b" not in describe({"labels": ["\x1b[31mred"], "source": "\x07\x1b]0;title"})


def test_labels_without_training_cells_are_no_known_groups(raw):
    model = dice.Prior.from_arrays(raw).labels
    groups, y, known = replace(model, counts=model.counts * [0, 1, 1, 1]).groups(1.0)
    assert len(groups.means) == 3
    assert len(y) == len(known)
    np.testing.assert_array_equal(known, model.calibration_codes - 1)


def test_log_loss_of_a_wrong_label_is_bounded():
    sure = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert log_loss(sure, np.array([1, 0])) == pytest.approx(-(np.log(1e-4) + np.log(0.5)) / 2)
