"""Labels by several references: who counts for which cell, and what is left in the query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import stored_priors

import dice
from dice._keys import LabelKeys
from dice._labels.several import UNLIKE_ALL, Opinion, combined
from dice.cli import main

CELLS = ["c0", "c1", "c2", "c3"]


def opinion(name, labels, probabilities, novelty, status=("confident",) * 4, cells=100):
    table = pd.DataFrame(np.array(probabilities), index=CELLS, columns=labels)
    flags = np.stack([np.array(novelty) > 4] * 2, axis=1)
    known = pd.Series(cells, table.columns, dtype=float)
    return Opinion(name, known, table, table > 0.2, np.array(status), np.array(novelty, float), flags)


def test_the_reference_that_explains_a_cell_labels_it():
    """T cells are unknown to the second reference, B cells to the first; the last cell is like none."""
    unlike = "unlike the reference"
    first = opinion(
        "a", ["T", "NK"], [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55]], [0, 6, 0, 9],
        ("confident", "confident", "confident", unlike),
    )  # fmt: skip
    second = opinion(
        "b", ["NK", "B"], [[0.95, 0.05], [0.1, 0.9], [0.7, 0.3], [0.55, 0.45]], [6, 0, 0, 9],
        (unlike, "confident", "ambiguous", unlike),
    )  # fmt: skip
    slots = combined([first, second], LabelKeys("x"), {})
    assert list(slots.obs["x"]) == ["T", "B", "NK", "NK"]
    assert list(slots.obs["x_reference"]) == ["a", "b", "b", "b"]
    assert list(slots.obs["x_status"]) == ["confident", "confident", "ambiguous", UNLIKE_ALL]
    assert list(slots.obs["dice_novel"]) == [False, False, False, True]
    assert list(slots.obsm["x_prob"].columns) == ["T", "NK", "B"]
    np.testing.assert_allclose(slots.obsm["x_prob"].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(slots.obsm["x_prob"].loc["c0"], [0.9, 0.1, 0], atol=1e-6)  # the second does not count
    # Both know NK cells and count by their expected errors, 0.2875 and 0.225; T and B are known to one of them.
    one, other = 1 / 0.2875, 1 / 0.225
    share = one / (one + other)
    expected = np.array([0.2, 0.8**share * 0.7 ** (1 - share), 0.3])
    np.testing.assert_allclose(slots.obsm["x_prob"].loc["c2"], expected / expected.sum(), atol=1e-6)
    assert list(slots.obs["x_set"]) == ["T", "B", "NK | B", "T | NK | B"]


def test_a_reference_counts_for_a_label_by_the_square_root_of_its_cells():
    """Numbers of cells differ by label, and so do the shares of two references of the same error."""
    first = opinion("a", ["T", "NK"], [[0.6, 0.4]] * 4, [0] * 4, cells=[900, 100])
    second = opinion("b", ["T", "NK"], [[0.4, 0.6]] * 4, [0] * 4, cells=[100, 400])
    expected = np.array([0.6**0.75 * 0.4**0.25, 0.4 ** (1 / 3) * 0.6 ** (2 / 3)])
    found = combined([first, second], LabelKeys("x"), {}).obsm["x_prob"]
    np.testing.assert_allclose(found.loc["c0"], expected / expected.sum(), atol=1e-6)


def test_novelty_says_nothing_of_labels_that_all_references_know():
    """The technology of a reference makes cells novel to it, whatever they are."""
    sure = opinion("a", ["T", "NK"], [[0.9, 0.1]] * 4, [0, 0, 3, 3])
    other = opinion("b", ["T", "NK"], [[0.3, 0.7]] * 4, [0, 0, 0, 0])
    slots = combined([sure, other], LabelKeys("x"), {})
    assert list(slots.obs["x"]) == ["T"] * 4
    np.testing.assert_allclose(slots.obsm["x_prob"]["T"], slots.obsm["x_prob"]["T"].iloc[0])


def test_a_reference_has_no_say_about_a_label_that_it_lacks():
    knows = opinion("a", ["T", "Treg"], [[0.3, 0.7]] * 4, [0, 0, 0, 5])
    lacks = opinion("b", ["T"], [[1.0]] * 4, [0, 0, 0, 0])
    lacks = replace(lacks, probabilities=lacks.probabilities * 0.7)
    slots = combined([knows, lacks], LabelKeys("x"), {})
    # By a plain mean, T would have 0.5 and Treg 0.35 of all cells; the last cell is explained by `b` alone.
    assert list(slots.obs["x"]) == ["Treg", "Treg", "Treg", "T"]


def test_one_reference_twice_is_that_reference():
    one = opinion("a", ["T", "NK"], [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]], [0, 1, 2, 3])
    both, alone = (combined([one] * n, LabelKeys("x"), {}) for n in (2, 1))
    for key in ("x", "x_prob", "x_set", "x_status"):
        assert list(both.obs[key]) == list(alone.obs[key])


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_annotate_takes_a_list():
    prior, query = dice.Prior.load(stored_priors.path("labels")), stored_priors.cells(60)
    query.obsm["X_umap"] = np.zeros((60, 2))  # umap compiles for seconds.
    alone = dice.tl.annotate(query, prior, copy=True)
    dice.tl.annotate(query, [prior, (str(stored_priors.path("labels")), {"alpha": "A"})])
    assert list(query.uns["label_dice"]["labels"]) == ["alpha", "beta/gamma", "δ", "A"]
    names = query.obs["label_dice"].astype(str).replace("A", "alpha")
    assert (names == alone.obs["label_dice"].astype(str)).all()
    assert list(query.uns["label_dice"]["references"]["name"]) == ["reference 1", stored_priors.path("labels").stem]
    np.testing.assert_allclose(query.obsm["X_dice"], alone.obsm["X_dice"], atol=1e-5)
    # Safe labels and labels by view are those of one reference.
    assert {"label_dice_safe", "label_dice_views"} <= {*alone.obs, *alone.obsm}
    assert not [name for name in (*query.obs, *query.obsm, *query.uns) if "safe" in name or "_views" in name]
    with pytest.raises(dice.DiceError, match="for several, leave `report` out"):
        dice.tl.annotate(query, [])
    with pytest.raises(dice.DiceError, match="must be a dict of texts, got"):
        dice.tl.annotate(query, [(prior, "A")])
    with pytest.raises(dice.DiceError, match=r"Reference 2 has no labels \['alpah', 3\] to rename: pass .*'alpha'"):
        dice.tl.annotate(query, [prior, (prior, {"alpha": "A", "alpah": "A", 3: "B"})])
    with pytest.raises(dice.DiceError, match="Reference 1 has no labels"):
        dice.tl.annotate(query, [stored_priors.path("counts")])


def test_a_reference_without_the_labels_that_are_asked_for():
    """A prior was used with its own labels, whatever the column that was asked for."""
    prior, query = dice.Prior.load(stored_priors.path("labels")), stored_priors.cells(60)
    cells = stored_priors.cells(90)
    cells.obs = pd.DataFrame({"cell_type": np.array(["T", "B", "NK"])[np.arange(90) % 3]}, index=cells.obs_names)
    before = list(query.obs)
    with pytest.raises(dice.DiceError, match="Reference 2 has no labels 'cell_type', only 'label': use one name"):
        dice.tl.annotate(query, [cells, prior], "cell_type")
    with pytest.raises(dice.DiceError, match=r"no column 'label' in reference 2.obs; available: .*'cell_type'"):
        dice.tl.annotate(query, [prior, cells], "label")
    with pytest.raises(dice.DiceError, match=r"Reference 1 has no labels \['alpha'\] to rename"):
        dice.tl.annotate(query, [(cells, {"T": "t", "alpha": "A"}), cells], "cell_type")
    assert list(query.obs) == before


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_the_file_of_a_prior_among_several_on_the_command_line(tmp_path, capsys):
    """The file was read as cells, of which there are none."""
    query = stored_priors.cells(60)
    query.obsm["X_umap"] = np.zeros((60, 2))  # umap compiles for seconds.
    query.write_h5ad(tmp_path / "q.h5ad")
    dice.Prior.load(stored_priors.path("labels")).save(tmp_path / "prior.h5ad")
    command = ["annotate", str(tmp_path / "q.h5ad"), *[str(tmp_path / "prior.h5ad")] * 2, "--quiet"]
    command += ["-o", str(tmp_path / "out.h5ad")]
    assert main([*command, "--labels", "cell_type"]) == 1
    error = capsys.readouterr().err
    assert "Reference 1 has no labels 'cell_type', only 'label'" in error
    assert "leave --labels out" in error
    assert main(command) == 0


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_a_query_without_cells():
    """A copy without cells is false, and was mistaken for no copy."""
    prior, query = dice.Prior.load(stored_priors.path("labels")), stored_priors.cells(5)[:0].copy()
    found = dice.tl.annotate(query, [prior, prior], check=False, copy=True)
    assert "label_dice" not in query.obs
    assert found.obsm["label_dice_prob"].shape == (0, 3)
    assert list(found.uns["label_dice"]["references"]["weight"]) == [0, 0]
