"""Trees of labels from columns, mappings, tables and ontologies, and cells that have only a coarse label."""

from __future__ import annotations

import gzip
import os
import sys
from itertools import pairwise

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from dice import DiceError, Levels
from dice._labels.learn import _drawn
from dice._labels.stored import labels_in_tree, read_hierarchy
from dice._labels.tree import UNRESOLVED, LabelTree
from dice._model.arrays import fit_logistic

OBO = """format-version: 1.2
ontology: small

[Term]
id: X:0
name: cell

[Term]
id: X:1
name: lymphocyte
is_a: X:0 ! cell

[Term]
id: X:2
name: T cell
is_a: X:1 ! lymphocyte

[Term]
id: X:3
name: naive cell
is_a: X:1 ! lymphocyte

[Term]
id: X:4
name: CD4 T cell
is_a: X:2 ! T cell

[Term]
id: X:5
name: CD4 naive
is_a: X:4 ! CD4 T cell
is_a: X:3 ! naive cell

[Term]
id: X:6
name: CD4 memory
is_a: X:4 ! CD4 T cell

[Term]
id: X:7
name: B naive
is_a: X:3 ! naive cell

[Term]
id: X:8
name: monocyte
is_a: X:0 ! cell
relationship: part_of X:1 ! lymphocyte
"""
LABELS = ["CD4 naive", "CD4 memory", "B naive", "monocyte"]


def reference(**columns):
    cells = ad.AnnData(np.zeros((len(next(iter(columns.values()))), 1), np.float32))
    for name, values in columns.items():
        cells.obs[name] = pd.Categorical(values)
    return cells


def labelled(levels, **columns):
    cells = reference(**columns)
    return labels_in_tree(cells, levels, np.zeros(cells.n_obs, dtype=np.intp))


def parents_of(tree):
    return {tree.names[node]: tree.names[parent] for node, parent in enumerate(tree.parents[:-1])}


def test_columns_are_levels_and_missing_labels_are_coarse():
    found = labelled(
        Levels("fine", columns=["coarse"]), coarse=["T", "T", "T", "T", "B", "B", "T", "T", None],
        fine=["naive", "naive", "memory", "memory", "plasma", "plasma", None, None, None],
    )  # fmt: skip
    assert found.names == ["memory", "naive", "plasma"]
    assert parents_of(found.tree) == {
        "memory": "T", "naive": "T", "plasma": "B", "T": UNRESOLVED, "B": UNRESOLVED
    }  # fmt: skip
    assert found.tree.level_names[:5] == ["fine"] * 3 + ["coarse"] * 2
    assert found.codes.tolist() == [1, 1, 0, 0, 2, 2, -1, -1, -1]
    assert found.nodes.tolist() == [1, 1, 0, 0, 2, 2] + [found.tree.names.index("T")] * 2 + [-1]


def test_a_coarse_label_may_have_the_name_of_a_fine_one_below_it():
    """As in the bone marrow of the NeurIPS competition: NK is a label, and one of the two labels below it."""
    found = labelled(Levels("fine", columns=["coarse"]), coarse=["NK"] * 4 + ["B"] * 2,
                     fine=["NK", "NK", "NK CD158", "NK CD158", "B", "B"])  # fmt: skip
    parents = parents_of(found.tree)
    assert parents["NK"] == parents["NK CD158"] == "NK (coarse)"
    assert parents["B"] == "B (coarse)"
    assert found.n_coarse == 0
    found = labelled(Levels("b", columns=["a"]), a=list("TTBB"), b=list("xxTT"))
    assert parents_of(found.tree) == {"x": "T (a)", "T": "B", "T (a)": UNRESOLVED, "B": UNRESOLVED}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": list("LLMM"), "b": list("TTTB")}, "'b' is not nested in 'a': cells of 'T' are both 'L' and 'M'"),
        ({"a": ["L", "L", "M", None, None], "b": list("ttuzz")}, r"The labels \['z'\] have no parent in 'a'"),
    ],
)
def test_columns_that_are_not_nested_are_refused(columns, message):
    with pytest.raises(DiceError, match=message):
        labelled(Levels("b", columns=["a"]), **columns)


def test_labels_above_others_are_coarse():
    values = ["naive"] * 2 + ["memory"] * 2 + ["T"] * 3 + ["B"] * 2
    found = labelled(Levels("t", {"naive": "T", "memory": "T"}), t=values)
    assert found.names == ["B", "memory", "naive"]
    assert (found.nodes >= 3).tolist() == [name == "T" for name in values]
    assert found.tree.all_levels == ("1", "2")
    with pytest.raises(DiceError, match="must have at least two labels without children"):
        labelled(Levels("t", {"naive": "T", "memory": "naive", "B": "memory"}), t=values)
    with pytest.raises(DiceError, match=r"has \['nobody'\], which are neither"):
        labelled(Levels("t", {"nobody": "T"}), t=values)


def test_labels_of_single_cells_may_be_in_the_tree():
    with pytest.warns(UserWarning, match="only one cell"):
        found = labelled(Levels("t", {"a": "A", "b": "A", "c": "C"}), t=["a", "a", "b", "b", "c"])
    assert found.names == ["a", "b"]
    assert found.tree.names == ("a", "b", "A", UNRESOLVED)


def test_a_table_of_parents(tmp_path):
    path = tmp_path / "tree.csv"
    path.write_text("child,parent\nnaive,T\nmemory,T\nT,lymphocyte\n")
    assert read_hierarchy(path, []) == {"naive": "T", "memory": "T", "T": "lymphocyte"}
    path.write_text("child,parent\nnaive,T\nnaive,B\n")
    with pytest.raises(DiceError, match=r"has several parents for \['naive'\]"):
        read_hierarchy(path, [])
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DiceError, match="columns child and parent"):
        read_hierarchy(path, [])
    with pytest.raises(DiceError, match="There is no file"):
        read_hierarchy(tmp_path / "nothing.csv", [])


@pytest.fixture
def ontology(tmp_path):
    path = tmp_path / "small.obo"
    path.write_text(OBO)
    return path


@pytest.mark.parametrize("labels", [LABELS, ["X:5", "X:6", "X:7", "X:8"]], ids=["names", "ids"])
def test_an_ontology_becomes_a_tree(ontology, labels):
    """A term with two parents is below the more specific one; other relations do not count."""
    parents = read_hierarchy(ontology, labels)
    naive, memory, b, monocyte = labels
    assert parents == {naive: "CD4 T cell", memory: "CD4 T cell", "CD4 T cell": "lymphocyte", b: "lymphocyte"}
    assert monocyte not in parents
    LabelTree.of(labels, parents)


def test_labels_above_others_in_an_ontology_are_coarse(ontology):
    values = np.repeat([*LABELS, "T cell", "lymphocyte"], 2)
    found = labelled(Levels("t", ontology), t=values)
    assert sorted(found.names) == sorted(LABELS)
    held = {found.tree.names[node] for node in found.nodes[found.nodes >= len(LABELS)]}
    assert held == {"T cell", "lymphocyte"}


def test_a_hierarchy_is_a_file_and_nothing_else(tmp_path):
    """pandas waited for a pipe without end, and would have downloaded an address."""
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", tmp_path, tmp_path / "nothing.obo", "https://localhost/tree.csv"):
        with pytest.raises(DiceError, match="There is no file"):
            read_hierarchy(path, LABELS)


def test_a_packed_hierarchy_is_bounded(tmp_path, monkeypatch):
    """3 MB became 3 GB."""
    table = "child,parent\n" + "".join(f"{label},cell\n" for label in LABELS)
    (tmp_path / "tree.csv.gz").write_bytes(gzip.compress(table.encode()))
    assert read_hierarchy(tmp_path / "tree.csv.gz", LABELS) == dict.fromkeys(LABELS, "cell")
    monkeypatch.setattr("dice._data.files.LONGEST_TEXT", len(table) - 1)
    with pytest.raises(DiceError, match="MB of text: pass a smaller file"):
        read_hierarchy(tmp_path / "tree.csv.gz", LABELS)
    (tmp_path / "tree.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(DiceError, match="cannot be read: Not a gzipped file"):
        read_hierarchy(tmp_path / "tree.csv.gz", LABELS)


def test_bad_ontologies_are_refused(ontology, tmp_path, monkeypatch):
    with pytest.raises(DiceError, match=r"no terms with the ids or names \['unknown'\]"):
        read_hierarchy(ontology, ["CD4 naive", "unknown"])
    (tmp_path / "empty.obo").write_text("no ontology")
    with pytest.raises(DiceError, match=r"must be an ontology in the \.obo format"):
        read_hierarchy(tmp_path / "empty.obo", LABELS)
    monkeypatch.setitem(sys.modules, "obonet", None)
    with pytest.raises(ImportError, match=r'pip install "scdice\[ontology\]"'):
        read_hierarchy(ontology, LABELS)


@pytest.mark.parametrize("key", [[], ["a", "a"], ["a", 5]])
def test_names_of_columns_are_checked(key):
    with pytest.raises(DiceError, match="different columns from coarse to fine"):
        Levels.of(key)


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=5, max_size=5), st.integers(0, 1000), st.floats(0, 1))
def test_coarse_labels_are_above_fine_ones(parents, seed, threshold):
    """For any tree and probabilities: every level holds the next finer one, and the safe label is on the same path."""
    hierarchy = {f"label {i}": f"node {parent}" for i, parent in enumerate(parents)} | {
        f"node {i}": f"top {i % 2}" for i in set(parents)
    }
    tree = LabelTree.of([f"label {i}" for i in range(6)], hierarchy)
    p = np.random.default_rng(seed).dirichlet(np.full(6, 0.5), size=20)
    codes, nodes = p.argmax(1), tree.nodes(p, threshold)
    at = [tree.at_level(depth)[codes] for depth in range(1, len(tree.all_levels) + 1)]
    for above, below in pairwise(at):
        assert (tree.members[below] <= tree.members[above]).all()
        assert (tree.probability(p, below) <= tree.probability(p, above) + 1e-12).all()
    assert (at[-1] == codes).all(), "the finest level is the most likely label"
    assert tree.members[nodes, codes].all(), "the safe label holds the most likely label"
    again = LabelTree.from_plain(tree.to_plain() | {"params": {"learned": False}})
    assert again.names == tree.names
    assert (again.parents == tree.parents).all()


def test_f1_of_labels_is_scikit_learns():
    rng = np.random.default_rng(0)
    truth, given = rng.integers(3, size=300), rng.integers(4, size=300)
    f1 = LabelTree.of(["a", "b", "c", "d"], {}).f1(truth, given)
    np.testing.assert_allclose(f1[:3], f1_score(truth, given, average=None, labels=[0, 1, 2]))
    assert np.isnan(f1[3])


def test_f1_of_a_node_counts_its_labels_as_one():
    tree = LabelTree.of(["a", "b", "c"], {"a": "A", "b": "A"})
    f1 = tree.f1(np.array([0, 0, 1, 2]), np.array([1, 0, 1, 2]))
    np.testing.assert_allclose(f1, [2 / 3, 2 / 3, 1, 1, 1])


def test_coarse_labels_teach_the_sum_of_their_labels():
    """Cells whose label is one of two move the boundary to the third label and not the one between the two."""
    rng = np.random.default_rng(0)
    means, codes = np.array([[-4.0, 1], [-4, -1], [4, 0]]), rng.integers(3, size=3000)
    x = means[codes] + rng.normal(size=(3000, 2))
    possible = np.eye(3, dtype=bool)[codes]
    plain, masked = (fit_logistic(x, y, 3, strength=1.0) for y in (codes, possible))
    np.testing.assert_allclose(plain(x), masked(x), atol=2e-3)
    hidden = (codes < 2) & (rng.random(3000) < 0.9)
    possible[hidden] = [True, True, False]
    kept = ~hidden & (np.arange(3000) % 10 == 0)
    taught = fit_logistic(x[hidden | kept], possible[hidden | kept], 3, strength=1.0)
    alone = fit_logistic(x[kept], codes[kept], 3, strength=1.0)
    loss = [-np.log(p(x)[np.arange(3000), codes]).mean() for p in (taught, alone)]
    assert loss[0] < loss[1]
    drawn = _drawn(possible, plain(x), 0)
    assert possible[np.arange(3000), drawn].all()
    assert (drawn[~hidden] == codes[~hidden]).all()
