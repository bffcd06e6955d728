"""A stored shift: what is given back, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import dice
from dice._model.offsets import recall

CLUSTERS = SimpleNamespace(means=np.zeros((4, 3)))
PRIOR, BARE = SimpleNamespace(soft_clusters=CLUSTERS, n_latent=3), SimpleNamespace(soft_clusters=None, n_latent=3)
CELLS = np.zeros(5, dtype=np.intp)


def record(offset, strategy="offset", **more):
    return {"strategy": strategy, "offset": offset, **more}


def test_without_a_shift_nothing_is_moved():
    for names in (None, ["a"]):
        assert recall(PRIOR, {"strategy": "none"}, CELLS, names) is None


@pytest.mark.parametrize("strategy", ["offset", "clusters", "mean"])
@pytest.mark.parametrize("n_clusters", [1, 4])
def test_offsets_come_back(strategy, n_clusters):
    offsets = np.arange(3.0 * n_clusters).reshape(1, n_clusters, 3)
    found = recall(PRIOR, record(offsets, strategy), CELLS, None)
    np.testing.assert_array_equal(found.offsets, offsets)
    assert found.offsets.dtype == np.float32
    assert found.clusters is CLUSTERS
    np.testing.assert_array_equal(found.batches, CELLS)


def test_batches_are_found_by_name():
    offsets = np.arange(9.0).reshape(3, 1, 3)
    stored = record(offsets, batches=np.array(["a", "b", "c"]))
    found = recall(BARE, stored, np.array([0, 1, 1]), ["c", "a"])
    np.testing.assert_array_equal(found.batches, [2, 0, 0])


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"strategy": "other"},
        {"strategy": "offset"},
        record("x"),
        record(np.array(["1.0"])),
        record(1.0, "sideways"),
    ],
)
def test_a_table_that_nobody_stored_is_refused(table):
    with pytest.raises(dice.DiceError, match=r"stored with it in query.uns\['X_dice'\]\['shift'\]"):
        recall(PRIOR, table, CELLS, None)


@pytest.mark.parametrize(("stored", "names"), [(["a", "b"], None), (None, ["a"]), (["a", "b"], ["a", "z"])])
def test_other_batches_are_refused(stored, names):
    table = record(np.zeros((len(stored or [0]), 1, 3)), **({} if stored is None else {"batches": stored}))
    with pytest.raises(dice.DiceError, match="pass the batch_key of the call that stored it"):
        recall(PRIOR, table, CELLS, names)


@pytest.mark.parametrize(
    ("prior", "offsets"),
    [
        (PRIOR, np.zeros((1, 2, 3))),
        (BARE, np.zeros((1, 4, 3))),
        (PRIOR, np.zeros((1, 1, 2))),
        (PRIOR, np.zeros((1, 3))),
        (PRIOR, np.zeros((2, 1, 3))),
        (PRIOR, np.full((1, 1, 3), np.nan)),
    ],
)
def test_offsets_of_another_prior_are_refused(prior, offsets):
    with pytest.raises(dice.DiceError, match=r"do not fit the prior: pass the shift that dice.tl.denoise stored"):
        recall(prior, record(offsets), CELLS, None)
