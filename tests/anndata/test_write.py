"""The one place that writes: every slot, at once, to the object or to a copy of it."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest

import dice
from dice._anndata.write import Slots, check_writable, replace, write


@pytest.fixture
def empty():
    return ad.AnnData(np.zeros((3, 2), np.float32), uns={"old": 1, "kept": 2})


def test_every_slot_is_written(empty):
    one = np.ones((3, 2), np.float32)
    slots = Slots(
        X=one,
        layers={"counts": 2 * one},
        obsm={"Z": one},
        varm={"V": one.T},
        obsp={"near": np.eye(3)},
        uns={"note": "new"},
        var={"mark": [True, False]},
        obs={"kind": ["a", "b", "c"]},
        stale=frozenset({"old", "absent"}),
    )
    result = write(empty, slots, copy=True)
    assert not empty.X.any()
    assert not len(empty.layers)
    assert set(empty.uns) == {"old", "kept"}
    assert write(empty, slots, copy=False) is None
    for adata in (result, empty):
        np.testing.assert_array_equal(adata.X, one)
        np.testing.assert_array_equal(adata.layers["counts"], 2 * one)
        assert set(adata.uns) == {"kept", "note"}
        assert list(adata.var["mark"]) == [True, False]
        assert list(adata.obs["kind"]) == ["a", "b", "c"]
        assert {*adata.obsm, *adata.varm, *adata.obsp} == {"Z", "V", "near"}


def test_an_object_is_replaced_as_a_whole(empty):
    other = ad.AnnData(np.ones((5, 4), np.float32), uns={"new": 1})
    assert replace(empty, other, copy=True) is other
    assert empty.shape == (3, 2)
    assert replace(empty, other, copy=False) is None
    assert empty.shape == (5, 4)
    assert set(empty.uns) == {"new"}


def test_views_of_files_cannot_be_written_to(empty, tmp_path):
    empty.write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    check_writable(backed, copy=False)
    for adata, copy in ((backed, True), (backed[:2], False)):
        with pytest.raises(dice.DiceError, match="to_memory"):
            check_writable(adata, copy=copy)
    backed.file.close()
