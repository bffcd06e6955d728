"""The genes behind labels: contributions that add up to what classifiers said, beside means that are what they say."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from simulation import TYPES, simulate

import dice

MARKERS = {"T/NK naive": "0", "B": "1", "Plasma": "2", "Mono": "3"}


def marked(n, seed, d=60):
    """Four types, each with a gene that no other has."""
    cells = simulate(n, seed, d=d)
    for name, gene in MARKERS.items():
        cells.X[:, int(gene)] = np.where(cells.obs["cell_type"] == name, cells.X[:, int(gene)] + 2, 0.1)
    return cells


@pytest.fixture(scope="module")
def reference():
    cells = marked(1500, 0)
    dice.tl.train_prior(cells, n_latent=6, preset="gmm", mixup=None, labels_key="cell_type")
    return cells


def labelled(reference, cells=None, **arguments):
    query = marked(300, 1) if cells is None else cells
    dice.tl.transfer_labels(query, reference, "cell_type", **{"shift": False, "check": False} | arguments)
    return query


def log_odds(query, label, groups):
    """Mean log-odds of a label against the mean of all others, by group, from the probabilities that cells were given.

    Logits are log-probabilities up to a constant of the cell, which contrasts do not see.
    """
    logs = np.log(query.obsm["cell_type_dice_prob"].to_numpy().astype(np.float64))
    at = TYPES.index(label)
    return pd.Series(logs[:, at] - np.delete(logs, at, axis=1).mean(1)).groupby(np.asarray(groups)).mean()


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_cells_with_a_coarse_label_have_no_expression_of_their_own():
    cells = marked(900, 0)
    names = cells.obs["cell_type"].astype(str).to_numpy()
    fine, coarse = [name for name in MARKERS if name != "Mono"], "lymphocyte"
    hidden = np.isin(names, fine) & (np.arange(900) % 3 == 0)
    cells.obs["cell_type"] = np.where(hidden, coarse, names)
    tree = dice.Levels("cell_type", dict.fromkeys(fine, coarse) | {"Mono": "myeloid"})
    dice.tl.train_prior(cells, n_latent=6, preset="gmm", mixup=None, labels_key=tree)
    query = marked(300, 1)
    dice.tl.transfer_labels(query, cells, tree, shift=False, check=False)
    table = dice.tl.label_genes(query, cells, "cell_type", n_genes=1)
    assert coarse not in set(table["label"])
    kept = cells[~hidden]
    for row in table[table["gene"] == table["label"].map(MARKERS)].itertuples():
        known = kept[kept.obs["cell_type"] == row.label][:, row.gene].X.mean()
        np.testing.assert_allclose(row.reference_mean, known, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
@pytest.mark.parametrize("classifier", ["projection", "genes"])
@pytest.mark.parametrize(("n_genes", "shift"), [(60, False), (60, "offset"), (40, False)])
def test_contributions_add_up_to_the_log_odds(reference, classifier, n_genes, shift):
    """Both are linear: nothing is left over, also after a shift, or where genes are missing."""
    query = marked(300, 1)[:, 60 - n_genes :].copy()
    query.X[:, -20:] += 0 if shift is False else 0.7
    query = labelled(reference, query, classifier=classifier, shift=shift)
    assert query.uns["cell_type_dice"]["shift"]["strategy"] == (shift or "none")
    groups = (np.arange(300) % 3).astype(str)
    query.obs["third"] = groups
    table = dice.tl.label_genes(query, reference, groupby="third", label="B", n_genes=None)
    assert len(table) == 3 * n_genes
    sums, odds = table.groupby("group")["contribution"].sum(), log_odds(query, "B", groups)
    offset = dice.Prior.from_anndata(reference).labels.classifiers[classifier].offset
    start = offset[1] - np.delete(offset, 1).mean()
    # A shifted query has flatter probabilities: all log-odds are divided by one number.
    temperature = 1.0 if shift is False and n_genes == 60 else float(((sums + start) / odds).mean())
    assert temperature >= 1 - 1e-3
    np.testing.assert_allclose(sums + start, temperature * odds, atol=1e-3 * temperature)
    np.testing.assert_allclose(table["score"], sums[table["group"]], atol=1e-4)
    np.testing.assert_allclose(table["remainder"], 0, atol=1e-4)
    np.testing.assert_allclose(table["contribution"], table["weight"] * table["difference"])


def test_the_score_of_denoised_latents_is_that_of_the_decision(reference):
    """The mean reference cell has the same score for all groups, whose differences are thus those of log-odds."""
    query = labelled(reference, classifier="denoised")
    table = dice.tl.label_genes(query, reference, groupby="cell_type", label="B", n_genes=None)
    score, odds = table.groupby("group")["score"].first(), log_odds(query, "B", query.obs["cell_type"].astype(str))
    np.testing.assert_allclose(score - score["B"], odds - odds["B"], atol=0.01 * np.ptp(odds))


def test_the_mixture_is_explained_but_for_little():
    """On counts, whose noise is measured: denoising is not linear, and a remainder says by how much."""
    rng = np.random.default_rng(0)
    profiles, codes = 2 * rng.gamma(0.3, size=(4, 300)), rng.integers(4, size=1400)
    cells = simulate(1400, 0, d=300)
    cells.X = rng.poisson(profiles[codes]).astype(np.float32)
    cells.obs["cell_type"] = pd.Categorical.from_codes(codes, TYPES)
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    reference, query = cells[:1000].copy(), cells[1000:].copy()
    dice.tl.train_prior(reference, n_latent=5, training=dice.Training(max_steps=50), labels_key="cell_type")
    assert dice.Prior.from_anndata(reference).measured
    dice.tl.transfer_labels(query, reference)
    table = dice.tl.label_genes(query, reference, n_genes=None)
    sums = table.groupby("group")[["contribution"]].sum()["contribution"]
    np.testing.assert_allclose(table["score"] - table["remainder"], sums[table["group"]])
    assert (table["score"] > 0).all()
    assert (table["remainder"].abs() < 0.1 * table["score"]).all()
    # Its two genes that stand out most are among the ten that matter most.
    for name, rows in table.groupby("group"):
        own, others = profiles[TYPES.index(name)], np.delete(profiles, TYPES.index(name), 0).mean(0)
        best = {cells.var_names[gene] for gene in np.argsort(others - own)[:2]}
        assert best & set(rows["gene"].head(10))


def test_markers_come_first_and_means_are_those_of_the_cells(reference):
    query = labelled(reference)
    table = dice.tl.label_genes(query, reference, n_genes=5)
    assert table["group"].tolist() == [name for name in TYPES for _ in range(5)]
    assert (table["label"] == table["group"]).all()
    assert (table["versus"] == "others").all()
    sizes = table["contribution"].abs().groupby(table["group"]).apply(lambda values: values.is_monotonic_decreasing)
    assert sizes.all()
    for name, gene in MARKERS.items():
        rows = table[table["group"] == name]
        assert rows["gene"].iloc[0] == gene
        assert rows["contribution"].iloc[0] > 0
        for cells, key, prefix in ((query, "cell_type_dice", ""), (reference, "cell_type", "reference_")):
            own = cells[cells.obs[key] == name, rows["gene"].tolist()].X
            np.testing.assert_allclose(rows[f"{prefix}mean"], own.mean(0), rtol=1e-4)
            np.testing.assert_allclose(rows[f"{prefix}fraction"], (own > 0).mean(0), rtol=1e-4)


def test_a_prior_alone_gives_the_same_reasons(reference, tmp_path):
    query = labelled(reference)
    path = tmp_path / "prior.h5ad"
    dice.Prior.from_anndata(reference).save(path)
    whole = dice.tl.label_genes(query, reference)
    for alone in (path, dice.Prior.load(path)):
        table = dice.tl.label_genes(query, alone)
        known = ["reference_mean", "reference_fraction"]
        pd.testing.assert_frame_equal(table.drop(columns=known), whole.drop(columns=known))
        assert table["reference_fraction"].isna().all()
        np.testing.assert_allclose(table["reference_mean"], whole["reference_mean"], atol=0.3)


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_files_and_parts_of_the_cells_give_the_same(reference, tmp_path, ending):
    query = labelled(reference, shift="offset", classifier="projection")
    before = dice.tl.label_genes(query, reference)
    getattr(query, f"write_{ending}")(tmp_path / f"query.{ending}")
    stored = sc.read_h5ad(tmp_path / "query.h5ad") if ending == "h5ad" else dice.read_lazy(tmp_path / "query.zarr")
    pd.testing.assert_frame_equal(dice.tl.label_genes(stored, reference), before, atol=1e-4)
    part = query[query.obs["cell_type_dice"] == "Mono"]
    table = dice.tl.label_genes(part, reference)
    pd.testing.assert_frame_equal(table, before[before["group"] == "Mono"].reset_index(drop=True), atol=1e-4)


def test_lazy_cells_give_the_same(reference):
    query = labelled(reference)
    before = dice.tl.label_genes(query, reference)
    query.X = da.from_array(query.X, chunks=(70, -1))
    pd.testing.assert_frame_equal(dice.tl.label_genes(query, reference), before, atol=1e-4)


def test_rivals(reference):
    query = labelled(reference)
    table = dice.tl.label_genes(query, reference, versus="runner_up")
    rivals = table.drop_duplicates("group").set_index("group")["versus"]
    assert (rivals["B"], rivals["Plasma"]) == ("Plasma", "B")
    table = dice.tl.label_genes(query, reference, versus="B", n_genes=2)
    assert table["group"].unique().tolist() == ["T/NK naive", "Plasma", "Mono"]
    plasma = table[table["group"] == "Plasma"]
    assert set(plasma["gene"]) == {"1", "2"}
    assert (plasma["contribution"] > 0).all()
    assert (plasma["weight"].to_numpy() > 0).tolist() == (plasma["gene"] == "2").tolist()
    one = dice.tl.label_genes(query, reference, label="Plasma", versus="B", n_genes=2)
    pd.testing.assert_frame_equal(one, plasma.reset_index(drop=True))


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_groups_without_cells_and_cells_without_expression(reference):
    query = marked(120, 3)
    query.X[:10] = 0
    query = labelled(reference, query)
    names = ["empty"] * 10 + ["left"] * 50 + [None] * 60
    query.obs["group"] = pd.Categorical(names, categories=["empty", "left", "nobody"])
    table = dice.tl.label_genes(query, reference, groupby="group", n_genes=3)
    assert table["group"].tolist() == ["left"] * 3
    nobody = dice.tl.label_genes(query[:10], reference, groupby="group")
    assert list(nobody.columns) == list(table.columns)
    assert not len(nobody)
    assert not len(dice.tl.label_genes(query[:0], reference))


def test_labels_that_the_prior_was_not_trained_with(reference):
    """They are learned again, as by the call that transferred them; another key finds them."""
    other = reference.copy()
    dice.tl.train_prior(other, n_latent=6, preset="gmm")
    query = marked(300, 1)
    dice.tl.transfer_labels(query, other, "cell_type", key_added="mine", random_state=3)
    table = dice.tl.label_genes(query, other, key="mine", n_genes=1)
    assert table["gene"].tolist() == list(MARKERS.values())
    with pytest.raises(ValueError, match="pass `labels_key`"):
        dice.tl.label_genes(query, other)


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_markers_of_the_pancreas(shared_data):
    """Cells of another technology, a third of whose genes are missing, have their labels for the known reasons."""
    reference, query = (sc.read_h5ad(shared_data(name)) for name in ("pancreas_cellhint_atlas", "pancreas_baron_h1"))
    for cells in (reference, query):
        sc.pp.normalize_total(cells, target_sum=1e4)
        sc.pp.log1p(cells)
    markers = {"beta": {"INS", "IAPP"}, "alpha": {"GCG"}, "delta": {"SST"}, "endothelial": {"PLVAP"}}
    sc.pp.highly_variable_genes(reference, n_top_genes=800)
    # So few genes lack some of the markers.
    reference.var["highly_variable"] |= reference.var_names.isin(set.union(*markers.values()))
    reference = reference[::2, reference.var["highly_variable"]].copy()
    dice.tl.train_prior(reference, labels_key="cell_type", training=dice.Training(max_steps=50))
    dice.tl.transfer_labels(query, reference)
    table = dice.tl.label_genes(query, reference)
    first = {name: set(rows["gene"].head(2)) for name, rows in table[table["contribution"] > 0].groupby("group")}
    assert {name: genes & first[name] for name, genes in markers.items()} == markers
    assert (table["remainder"].abs() < 0.15 * table["score"]).all()


def test_nothing_is_written(reference):
    query = labelled(reference)
    before = query.copy()
    dice.tl.label_genes(query, reference)
    assert set(query.uns) == set(before.uns)
    assert list(query.obs) == list(before.obs)
    np.testing.assert_array_equal(query.X, before.X)


def test_errors_name_the_fix(reference):
    with pytest.raises(KeyError, match=r"run dice\.tl\.transfer_labels\(adata, reference, 'cell_type'\) first"):
        dice.tl.label_genes(marked(50, 4), reference)
    query = labelled(reference)
    with pytest.raises(ValueError, match=r"`label` must be one of \['T/NK naive'.*got 'T cell'"):
        dice.tl.label_genes(query, reference, label="T cell")
    with pytest.raises(ValueError, match=r"`label` must be a label of the reference, .*got 'T cell'"):
        dice.tl.label_genes(query, reference, label="T cell", groupby="cell_type")
    with pytest.raises(ValueError, match=r"`versus` must be a label of the reference, .*got 'T cell'"):
        dice.tl.label_genes(query, reference, versus="T cell")
    with pytest.raises(ValueError, match="`versus` must differ from the explained label, got 'B'"):
        dice.tl.label_genes(query, reference, label="B", versus="B")
    query.uns["cell_type_dice"]["labels"] = np.array([*TYPES[:3], "other"])
    with pytest.raises(ValueError, match="labels are from another reference"):
        dice.tl.label_genes(query, reference)
