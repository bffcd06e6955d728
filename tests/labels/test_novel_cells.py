"""Tables of groups, and when a test had no power."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dice
from dice._labels.novel_cells import CalledGroups, call_groups, group_table, known_groups, warn_of_doubt
from dice._labels.novelty import Groups


def query_of(empty):
    cells, prior = np.arange(len(empty)), SimpleNamespace(latent_scale=1.0)
    return SimpleNamespace(latents=SimpleNamespace(empty=empty), prior=prior, seeds=cells, expressing=cells[~empty])


def powerless(n_cells, n_calibration, alpha, n_novel=0):
    """What is said of a query that is like its calibration cells."""
    query = query_of(np.zeros(n_cells, dtype=bool))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nothing = CalledGroups(np.zeros(0), np.zeros(0), np.zeros(0), auc=0.5)
        warn_of_doubt(query, n_calibration, alpha, n_novel, nothing)
    return [str(warning.message) for warning in caught if "can be called novel at alpha" in str(warning.message)]


def test_a_test_without_power_says_so():
    """With 100 calibration cells a tenth of 1,000 cells has to be novel at once."""
    assert not powerless(1000, 101, 0.1)
    (text,) = powerless(1000, 100, 0.1)
    assert text.startswith(
        "With 100 calibration cells, none of 1000 cells can be called novel at alpha=0.1 unless 100 are more"
    )
    assert not powerless(1000, 100, 0.1, n_novel=1)
    (text,) = powerless(120, 1, 0.1)
    assert "none of 120 cells can be called novel at alpha=0.1: train the prior" in text
    # A cell alone can be called by itself.
    assert not powerless(1, 110, 0.1)
    assert not powerless(9, 110, 0.1)


@pytest.fixture
def known():
    rng = np.random.default_rng(1)
    y, codes = rng.normal(size=(600, 3)) + 6 * np.eye(3)[np.arange(600) % 3], np.arange(600) % 3
    return Groups.of(y[:400], codes[:400]), y[400:], codes[400:]


def test_the_table_of_groups(known):
    """Cells without a group or without expression count nowhere; a group of none of the others is still listed."""
    rng = np.random.default_rng(2)
    names = pd.Categorical.from_codes(np.r_[np.repeat([0, 1], 40), [2, 2], [-1]], ["a", "b", "c", "d"])
    empty = np.zeros(83, dtype=bool)
    empty[[0, 80, 81]] = True
    y = rng.normal(size=(83, 3)) + 6 * np.eye(3)[np.r_[np.repeat([0, 1], 40), [0, 0, 0]]]
    codes = np.where(empty, -1, names.codes).astype(np.intp)
    called = call_groups(query_of(empty), y, codes, 4, known, 0.05)
    table = group_table(list(names.categories), codes, np.arange(83.0), called)
    assert list(table["group"]) == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(table["n_cells"], [39, 40, 0, 0])
    np.testing.assert_allclose(table["score"], [np.arange(1, 40).mean(), np.arange(40, 80).mean(), 0, 0])
    assert np.isnan(table["p"][2:]).all()


def groups_of(rng, n_groups, shift=0.0):
    """Groups of 25 cells of three known types, all of them moved alike."""
    codes = np.repeat(np.arange(n_groups), 25)
    y = rng.normal(size=(len(codes), 3)) + 6 * np.eye(3)[codes % 3] + shift
    return y, codes


def test_many_cells_of_a_new_type_are_no_shift(known):
    """They are told apart from the reference, but the others are not: calibration cells still tell."""
    rng = np.random.default_rng(3)
    y, codes = groups_of(rng, 16)
    y[codes >= 12] = 10 + rng.normal(size=(100, 3))
    called = call_groups(query_of(np.zeros(400, dtype=bool)), y, codes, 16, known, 0.1)
    assert not called.shifted
    np.testing.assert_array_equal(called.novel, np.arange(16) >= 12)
    assert (called.p[12:] < 0.01).all()


def test_a_shift_of_all_groups_is_not_new(known):
    """559 of 1,000 cells were called where 5 were new; now the one group that is further away than the others is."""
    rng = np.random.default_rng(4)
    y, codes = groups_of(rng, 16, shift=np.array([2.5, 2.5, 0.0]))
    empty = np.zeros(400, dtype=bool)
    called = call_groups(query_of(empty), y, codes, 16, known, 0.1)
    assert called.shifted
    assert not called.novel.any()
    assert np.isnan(called.p).all()
    y[codes == 15] = 14 + rng.normal(size=(25, 3))
    called = call_groups(query_of(empty), y, codes, 16, known, 0.1)
    np.testing.assert_array_equal(np.flatnonzero(called.novel), [15])
    # The summary of annotate, which compares groups, advised to pass groupby="auto".
    for groupby, advice in ((None, ". Pass groupby='auto' to compare groups with"), ("auto", ", but groups are comp")):
        with pytest.warns(dice.DiceWarning, match=f"because the query differs from its reference as a whole{advice}"):
            warn_of_doubt(query_of(empty), 200, 0.1, 0, called, groupby)


def test_few_groups_are_not_compared_with_each_other(known):
    y, codes = groups_of(np.random.default_rng(5), 4, shift=5.0)
    y[codes == 3] += 20
    called = call_groups(query_of(np.zeros(100, dtype=bool)), y, codes, 4, known, 0.1)
    assert isinstance(called, CalledGroups)
    assert called.shifted
    assert not called.novel.any()


@pytest.mark.parametrize(
    ("labels_key", "labelled"),
    [("auto", True), ("t", True), (None, False), ("other", "needs the reference with its cells")],
)
def test_a_prior_alone_knows_the_groups_of_its_labels(known, labels_key, labelled):
    groups, y, _ = known
    labels = SimpleNamespace(groups=lambda scale: known)
    prior = SimpleNamespace(labels=labels, params={"labels_key": "t"}, calibration={"y": y}, latent_scale=1.0)
    query = SimpleNamespace(prior=prior, match=SimpleNamespace(missing=()))
    if isinstance(labelled, str):
        with pytest.raises(dice.DiceError, match=labelled):
            known_groups(None, query, labels_key, "dice")
        return
    found, calibration, positions = known_groups(None, query, labels_key, "dice")
    assert (found is groups) == labelled
    np.testing.assert_array_equal(calibration, y if labelled else y[1::2])
    assert len(positions) == len(calibration)
    prior.labels, prior.calibration = None, {"y": y[:1]}
    if labels_key in (None, "auto"):
        with pytest.raises(dice.DiceError, match="calibration"):
            known_groups(None, query, labels_key, "dice")
