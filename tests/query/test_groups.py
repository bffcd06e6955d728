"""Tables of groups, positions of labels, and when a test had no power."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dice
from dice._core.labels.novelty import Groups
from dice._query.groups import _positions, judge_groups, known_groups, warn_of_doubt


def test_positions_among_the_labels_in_use():
    np.testing.assert_array_equal(_positions(np.array([-1, 0, 2, 3, 5, 9]), np.array([0, 3, 5])), [-1, 0, -1, 1, 2, -1])


def powerless(n_cells, n_calibration, fdr, n_novel=0):
    """What is said of a query that is like its calibration cells."""
    rng = np.random.default_rng(0)
    query = SimpleNamespace(
        latents=SimpleNamespace(y=rng.normal(size=(n_cells, 2)), empty=np.zeros(n_cells, dtype=bool)),
        prior=SimpleNamespace(latent_scale=1.0),
        seeds=np.arange(n_cells),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_doubt(query, rng.normal(size=(n_calibration, 2)), fdr, n_novel)
    return [str(warning.message) for warning in caught if "is called at fdr" in str(warning.message)]


def test_a_test_without_power_says_so():
    """With 100 calibration cells a tenth of 1,000 cells has to be novel at once."""
    assert not powerless(1000, 101, 0.1)
    (text,) = powerless(1000, 100, 0.1)
    assert text.startswith("With 100 calibration cells none of 1000 cells is called at fdr=0.1 unless 100 are more")
    assert not powerless(1000, 100, 0.1, n_novel=1)
    (text,) = powerless(120, 1, 0.1)
    assert "none of 120 cells is called at fdr=0.1 whatever they are like" in text
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
    query = rng.normal(size=(83, 3)) + 6 * np.eye(3)[np.r_[np.repeat([0, 1], 40), [0, 0, 0]]]
    query[40:80] += 4
    score = np.arange(83.0)
    table, novel = judge_groups(names, score, empty, query, known, 0.05)
    assert list(table["group"]) == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(table["n_cells"], [39, 40, 0, 0])
    np.testing.assert_allclose(table["score"], [np.arange(1, 40).mean(), np.arange(40, 80).mean(), 0, 0])
    assert np.isnan(table["p"][2:]).all()
    assert table["p"][0] > table["p"][1]
    np.testing.assert_array_equal(novel, np.append(table["novel"], False)[np.where(empty, -1, names.codes)])
    assert not novel[80:].any()


@pytest.mark.parametrize(
    ("labels_key", "labelled"),
    [("auto", True), ("t", True), (None, False), ("other", "needs the reference with its cells")],
)
def test_a_prior_alone_knows_the_groups_of_its_labels(known, labels_key, labelled):
    groups, y, codes = known
    labels = SimpleNamespace(groups=lambda scale: groups, calibration_y=y, calibration_codes=codes)
    prior = SimpleNamespace(labels=labels, params={"labels_key": "t"}, calibration={"y": y}, latent_scale=1.0)
    query = SimpleNamespace(prior=prior, match=SimpleNamespace(complete=True))
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
