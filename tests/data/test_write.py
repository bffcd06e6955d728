"""The one place that writes: every slot, at once, to the object or to a copy of it."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest

import dice
from dice._arguments import as_plain, from_plain
from dice._data.read import column_names, names
from dice._data.write import Slots, all_or_nothing, check_writable, replace, write


@pytest.fixture
def empty():
    return ad.AnnData(np.zeros((3, 2), np.float32), uns={"old": 1, "kept": 2})


def test_every_slot_is_written(empty):
    one = np.ones((3, 2), np.float32)
    slots = Slots(
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
    assert not names(empty, "layers")
    assert set(empty.uns) == {"old", "kept"}
    assert write(empty, slots, copy=False) is None
    for adata in (result, empty):
        assert not adata.X.any()
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


def test_what_is_no_object_is_refused_at_once():
    for odd in (None, np.zeros((2, 2)), "cells.h5ad"):
        with pytest.raises(dice.DiceError, match=r"^`query` must be an AnnData object, .*got "):
            check_writable(odd, copy=False, who="query")


def test_arguments_come_back_from_their_plain_form():
    call = {"rho": (2.0, 1), "method": dice.Gibbs(n_iterations=3, fast=True), "layer": None, "n": np.int64(3), "f": len}
    plain = as_plain(call)
    assert "layer" not in plain
    assert plain["rho"] == [2.0, 1.0]
    assert plain["method"]["name"] == "Gibbs"
    assert "burn_in" not in plain["method"]
    assert (plain["n"], type(plain["n"]), plain["f"]) == (3, int, "len")
    back = from_plain(plain, {"Gibbs": dice.Gibbs})
    assert back["method"] == call["method"]
    assert back["rho"] == [2.0, 1.0]
    assert as_plain({"table": {"a": None, "b": ["x"]}}) == {"table": {"b": "['x']"}}


def test_names_of_columns_are_told_apart():
    assert column_names(["a/b", "a\\b", "", "..", "x" * 300]) == ["a_b", "a_b_", "_", ".._", "x" * 200]


def test_the_later_of_two_writers_wins():
    both = Slots(uns={"a": 1, "b": 1}, stale=frozenset("x")) | Slots(uns={"b": 2}, stale=frozenset("y"))
    assert (both.uns, both.stale) == ({"a": 1, "b": 2}, frozenset("xy"))


def snapshot(adata):
    slots = {name: {key: getattr(adata, name)[key] for key in names(adata, name)} for name in ("layers", "obsm", "uns")}
    return slots | {"obs": adata.obs.copy(), "var": adata.var.copy()}


def same(one, other):
    for name in ("layers", "obsm", "uns"):
        assert one[name].keys() == other[name].keys()
        assert all(one[name][key] is other[name][key] for key in one[name])
    return one["obs"].equals(other["obs"]) and one["var"].equals(other["var"])


@pytest.mark.parametrize("place", ["obs", "obsm", "layers", "var"])
def test_all_slots_of_all_objects_or_none(empty, place):
    """The last value of the second object has a wrong shape, or Ctrl-C comes: the first one is as it was, too."""
    first, second = empty, empty.copy()
    for adata in (first, second):
        adata.obs["kind"], adata.obsm["Z"] = ["a", "b", "c"], np.zeros((3, 1))
    before = snapshot(first), snapshot(second)
    one = np.ones((3, 2), np.float32)
    good = {"obsm": {"Z": one, "new": one}, "uns": {"old": 3, "new": 1}, "layers": {"new": one}}
    good |= {"obs": {"kind": list("xyz")}, "var": {"new": [1, 2]}, "stale": frozenset({"kept"})}
    broken = good | {place: {**good[place], "broken": np.ones(7)}}

    def write_both():
        with all_or_nothing(first, second):
            write(first, Slots(**good), copy=False)
            write(second, Slots(**broken), copy=False)

    with pytest.raises(ValueError):  # noqa: PT011 - whatever AnnData says
        write_both()
    assert same(snapshot(first), before[0])
    assert same(snapshot(second), before[1])
    for adata in (first, second):
        write(adata, Slots(**good), copy=False)
    for adata in (first, second):
        assert set(adata.obsm) == {"Z", "new"}
        assert set(adata.uns) == {"old", "new"}
