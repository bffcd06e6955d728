"""The one call: equal to the single verbs, all or nothing, and clear about what it did."""

from __future__ import annotations

import json
import re

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

import dice
from dice._data.read import names

TRAINING = dice.Training(max_steps=30, calibration_fraction=0.3)


def simulated(n_reference=500, n_query=200, n_genes=300):
    """Raw counts of four types, in genes of which either side has some for itself."""
    rng = np.random.default_rng(0)
    profiles = 3 * rng.gamma(0.3, size=(4, n_genes))
    codes = np.arange(n_reference + n_query) % 4
    counts = sparse.csr_matrix(rng.poisson(profiles[codes]).astype(np.float32))
    obs = pd.DataFrame({"cell_type": pd.Categorical([f"type {code}" for code in codes])})
    cells = ad.AnnData(counts, obs=obs.set_index(np.array([f"cell {i}" for i in range(len(codes))])))
    cells.var_names = [f"gene {i}" for i in range(n_genes)]
    return cells[:n_reference, 20:].copy(), cells[n_reference:, : n_genes - 20].copy()


def normalised(*adatas):
    for adata in adatas:
        sc.pp.normalize_total(adata, target_sum=1e4)
        sc.pp.log1p(adata)
    return adatas


def never_trains(monkeypatch):
    """Whatever is wrong must be found before the minutes that a training takes."""

    def fail(*args, **kwargs):
        raise AssertionError("The prior is trained.")

    monkeypatch.setattr("dice.tl._annotate.train_prior", fail)


@pytest.fixture(scope="module")
def raw():
    """Raw counts after the call, and what they were before."""
    reference, query = simulated()
    before = reference.copy(), query.copy()
    dice.tl.annotate(query, reference, "cell_type", n_top_genes=150, training=TRAINING)
    return reference, query, before


def same(one, other, path="") -> None:
    """Equal values in any slot."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            same(one[key], other[key], f"{path}/{key}")
    elif sparse.issparse(one):
        assert abs(one - other).max() < 1e-6, path
    elif isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    elif np.asarray(one).dtype.kind == "f":
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=path)
    else:
        np.testing.assert_array_equal(one, other, err_msg=path)


#: The map that only the one call draws.
MAPS = ("X_umap", "X_dice_umap")


def assert_same_slots(one: ad.AnnData, other: ad.AnnData, leave_out: tuple[str, ...] = ()) -> None:
    pd.testing.assert_frame_equal(one.obs, other.obs)
    for slot in ("obsm", "varm", "obsp", "uns"):
        kept = {key: value for key, value in getattr(one, slot).items() if key not in leave_out}
        same(kept, dict(getattr(other, slot)), slot)


def one_by_one(reference, query, layer):
    """The same by single verbs."""
    training = {"labels_key": "cell_type", "mask_var": "dice_genes", "training": TRAINING}
    dice.tl.train_prior(reference, layer=layer, **training)
    dice.tl.denoise(query, reference, layer=layer)
    dice.tl.cluster(query, reference)
    dice.tl.transfer_labels(query, reference, "cell_type", groupby="auto", layer=layer)
    dice.tl.novelty(query, reference, groupby="auto", labels_key="cell_type", layer=layer)


def test_raw_counts_equal_the_single_verbs(raw):
    reference, query, (reference_before, query_before) = raw
    one, two = reference_before.copy(), query_before.copy()
    one.var["dice_genes"] = reference.var["dice_genes"]
    for cells, done in ((one, reference), (two, query)):
        normal = cells.copy()
        normalised(normal)
        cells.layers["dice_lognorm"] = normal.X
        assert abs(normal.X - done.layers["dice_lognorm"]).max() < 1e-6
        assert abs(done.X - cells.X).max() == 0  # The user's matrix is untouched,
        assert done.var_names.equals(cells.var_names)  # and so are the genes.
    one_by_one(one, two, "dice_lognorm")
    query = query.copy()
    del query.uns["dice_annotate"]
    assert_same_slots(query, two, leave_out=MAPS)
    assert_same_slots(reference, one)


def test_log_normalised_values_equal_the_single_verbs():
    reference, query = normalised(*simulated())
    one, two = reference.copy(), query.copy()
    dice.tl.annotate(query, reference, "cell_type", n_top_genes=150, training=TRAINING)
    assert not names(reference, "layers")
    assert not names(query, "layers")
    assert int(reference.var["dice_genes"].sum()) == 150
    shared = reference.var_names.isin(query.var_names)
    assert shared[reference.var["dice_genes"]].all()
    one.var["dice_genes"] = reference.var["dice_genes"]
    one_by_one(one, two, None)
    del query.uns["dice_annotate"]
    assert_same_slots(query, two, leave_out=MAPS)
    assert_same_slots(reference, one)


def test_a_failure_writes_nothing(monkeypatch):
    reference, query = simulated()
    before = reference.copy(), query.copy()

    def fail(*args, **kwargs):
        raise dice.DiceError("The last step fails.")

    monkeypatch.setattr("dice.tl._annotate.novelty", fail)
    with pytest.raises(dice.DiceError, match="The last step fails"):
        dice.tl.annotate(query, reference, "cell_type", training=TRAINING)
    for cells, old in zip((reference, query), before, strict=True):
        assert_same_slots(cells, old)
        assert cells.var.equals(old.var)
        assert not names(cells, "layers")


def test_the_summary_is_said_and_kept(raw, tmp_path, capsys):
    reference, query, _ = raw
    record = query.uns["dice_annotate"]
    lines = record["summary"].splitlines()
    words = ["genes", "cells", "depth", "values", "shift", "clusters", "labels", "status", "novel", "look at"]
    assert [line.split("  ")[0] for line in lines] == words
    assert "150 of the 260 shared genes" in lines[0]
    assert record["params"]["n_clusters"] == query.obs["dice_cluster"].nunique()
    depth = np.median(np.asarray(query.X.sum(1)))
    assert record["params"]["depth"] == pytest.approx(depth)
    query.write_h5ad(tmp_path / "query.h5ad")
    assert ad.read_h5ad(tmp_path / "query.h5ad").uns["dice_annotate"]["summary"] == record["summary"]
    capsys.readouterr()
    # The prior that is there fits, and is used; the page starts with the summary.
    again, page = query.copy(), tmp_path / "report.html"
    before = reference.uns["dice"]["sha256"]
    dice.tl.annotate(again, reference, "cell_type", report=page)
    said = capsys.readouterr().err
    assert "holds a prior of 150 genes, and the query has 100% of them: this prior is used" in said
    assert "look at" in said
    assert reference.uns["dice"]["sha256"] == before
    assert json.dumps(again.uns["dice_annotate"]["summary"]) in page.read_text()
    same(np.asarray(again.obsm["X_dice"]), np.asarray(query.obsm["X_dice"]))


def test_a_prior_that_does_not_fit_is_replaced(raw, capsys):
    reference, query = raw[0].copy(), raw[2][1].copy()
    genes = query.var_names[:150].tolist()
    assert reference.var["dice_genes"][reference.var_names.isin(genes)].sum() < 120
    few = query[:, genes].copy()
    dice.tl.annotate(few, reference, "cell_type", training=TRAINING)
    assert "a new prior is trained instead" in capsys.readouterr().err
    # Fewer than half of the reference's genes are a panel, which is normalised on these genes alone.
    assert dice.Prior.from_anndata(reference).params["layer"] == "dice_panel"
    assert set(dice.Prior.from_anndata(reference).genes) <= set(genes)


def test_without_labels_and_with_a_prior_alone(raw, capsys):
    reference, query = normalised(*simulated())
    done = dice.tl.annotate(query, reference, training=TRAINING, copy=True)
    assert "dice" not in query.uns
    assert not query.obsm
    assert {"X_dice", "X_dice_pca"} <= set(done.obsm)
    assert "dice_novel" not in done.obs
    assert "labels_key, for example 'cell_type'" in capsys.readouterr().err
    prior, query = dice.Prior.from_anndata(raw[0]), raw[2][1].copy()
    dice.tl.annotate(query, prior)
    assert (query.obs["cell_type_dice"].astype(str) == query.obs["cell_type"].astype(str)).mean() > 0.9


def test_what_an_earlier_call_has_made_is_not_shown_as_this_ones(raw, tmp_path):
    """It is kept, as it may be another annotation of the same cells; the page and the summary leave it to that call."""
    query, page = raw[1].copy(), tmp_path / "report.html"
    reference = normalised(simulated()[0])[0]
    dice.tl.novelty(query, raw[0], layer="dice_lognorm", key_added="other")
    dice.tl.annotate(query, reference, n_top_genes=150, training=TRAINING, report=page)
    text = page.read_text()
    for name in ("cell_type_dice", "cell_type_dice_status", "dice_novel", "other_p"):
        assert name in query.obs
        assert f'"{name}"' not in text, name
    assert "Labels cell_type_dice" not in text
    assert "Novelty: " not in text
    for name in ("dice_cluster", "dice_uncertainty", "cell_type"):  # What it has made, and what is the user's own.
        assert f'"{name}"' in text, name
    dice.pl.report(query, page)
    assert "Labels cell_type_dice" in page.read_text()  # All that is in the object.


def test_a_type_that_the_reference_lacks_is_to_be_looked_at_first():
    """Its cells are in groups called novel, and unlike the reference whatever their label."""
    reference, query = simulated()
    reference = reference[reference.obs["cell_type"] != "type 3"].copy()
    dice.tl.annotate(query, reference, "cell_type", training=TRAINING)
    new, novel = (query.obs["cell_type"] == "type 3").to_numpy(), query.obs["dice_novel_group"].to_numpy()
    assert novel[new].mean() > 0.8
    assert not novel[~new].any()
    assert set(query.obs["cell_type_dice_status"][novel]) == {"unlike the reference"}
    lines = query.uns["dice_annotate"]["summary"].splitlines()
    assert lines[-1] == f"look at   {novel.sum()} cells in obs['dice_novel_group']: unlike all labels of the reference"


def test_a_handful_of_cells(raw):
    few = raw[2][1][:8].copy()
    with pytest.warns(dice.DiceWarning) as caught:
        dice.tl.annotate(few, raw[0], "cell_type")
    assert any("too few for clusters" in str(warning.message) for warning in caught)
    assert few.obs["cell_type_dice"].notna().all()
    assert "dice_cluster" not in few.obs


def test_backed_and_views(raw, tmp_path):
    whole = raw[2][1]
    view = whole[:100]
    with pytest.warns(ad.ImplicitModificationWarning):
        dice.tl.annotate(view, raw[0], "cell_type")
    assert view.obsm["X_dice"].shape[0] == 100
    normal = whole.copy()
    normalised(normal)
    normal.write_h5ad(tmp_path / "query.h5ad")
    backed = ad.read_h5ad(tmp_path / "query.h5ad", backed="r")
    dice.tl.annotate(backed, raw[0], "cell_type")
    np.testing.assert_allclose(backed.obsm["X_dice"], raw[1].obsm["X_dice"], rtol=1e-3, atol=1e-3)
    whole.write_h5ad(tmp_path / "raw.h5ad")
    with pytest.raises(dice.DiceError, match=r"not in memory.*to_memory"):
        dice.tl.annotate(ad.read_h5ad(tmp_path / "raw.h5ad", backed="r"), raw[0], "cell_type")


def test_genes_are_ranked_within_technologies(capsys):
    """Variable genes are chosen after intersecting with the query, and within assays that differ."""
    rng = np.random.default_rng(0)
    reference, query = simulated()
    smart = np.arange(500) % 8 < 4
    factor = np.where(smart[:, None], 3 * rng.gamma(0.3, size=280), 1.0)
    reference.X = sparse.csr_matrix(rng.poisson(reference.X.toarray() * factor).astype(np.float32))
    reference.obs["assay"] = np.where(smart, "smart", "drop")
    shared = reference[:, reference.var_names.isin(query.var_names)].copy()
    normalised(shared)
    by_hand, chosen = {}, {}
    for batch_key, column in ((None, None), ("auto", "assay")):
        cells = reference.copy()
        dice.tl.annotate(query.copy(), cells, reference_batch_key=batch_key, n_top_genes=60, training=TRAINING)
        chosen[batch_key] = set(cells.var_names[cells.var["dice_genes"]])
        whole = reference.copy()
        normalised(whole)
        found = sc.pp.highly_variable_genes(
            whole[:, shared.var_names].copy(), n_top_genes=60, batch_key=column, inplace=False
        )
        by_hand[batch_key] = set(shared.var_names[found["highly_variable"].to_numpy()])
    assert chosen == by_hand
    assert chosen[None] != chosen["auto"]
    said = capsys.readouterr().err
    assert "reference.obs['assay'] explains" in said
    assert "reference_batch_key=None ranks them over all cells" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"labels_key": "nothing"}, "no column 'nothing'"),
        ({"report": "nowhere/at/all.html"}, "writable folder"),
        ({"reference_batch_key": "nothing"}, "no column 'nothing'"),
        ({"n_top_genes": 1}, "`n_top_genes` must be .*got 1"),
        ({"alpha": 2}, "`alpha` must be .*got 2"),
        ({"gene_key": "nothing"}, "no column 'nothing'"),
    ],
)
def test_mistakes_are_found_before_the_work(arguments, sentence):
    reference, query = simulated(100, 50)
    with pytest.raises(dice.DiceError, match=sentence):
        dice.tl.annotate(query, reference, **arguments)
    with pytest.raises(dice.DiceError, match="same object"):
        dice.tl.annotate(query, query, **arguments)


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("who", "name"), [("adata", "query"), ("reference", "reference")])
def test_values_that_are_not_finite_are_found_before_the_training(who, name, value, logged, monkeypatch):
    """In the words of the single verbs, and by the name that the object has in this call."""
    pair = dict(zip(("reference", "query"), simulated(100, 50), strict=True))
    if logged:
        normalised(*pair.values())
    cells = pair[name]
    cells.X = cells.X.toarray()
    cells.X[7, 100] = value
    cell = re.escape(repr([cells.obs_names[7]]))
    never_trains(monkeypatch)
    with pytest.raises(
        dice.DiceError, match=rf"1 cells hold NaN or infinite values, for example {cell} in {who}\."
    ) as e:
        dice.tl.annotate(pair["query"], pair["reference"], "cell_type")
    assert "adata" not in str(e.value).replace(who, "")


BAD_SHIFT = {"strategy": "offset", "offset": np.zeros((1, 1, 3)), "batches": ["a"]}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"shift": "none"}, "`shift` must be one of .*got 'none'"),
        ({"shift": {"strategy": "other"}}, "pass that prior as `reference`"),
        ({"shift": BAD_SHIFT}, "`shift` has offsets of another prior"),
        ({"shift": dice.Shift(batch_key="site")}, "no column 'site' in adata.obs"),
        (
            {"shift": dice.Shift(batch_key="barcode")},
            r"adata.obs\['barcode'\] holds .* values for .* cells, like a column of barcodes",
        ),
        ({"labels_key": "cell/type"}, "`labels_key` must be .*got 'cell/type': rename it"),
        ({"labels_key": "cell_type", "training": dice.Training(calibration_fraction=0)}, "No calibration cell"),
        ({"training": {"max_steps": 5}}, "`training` must be a dice.Training, got"),
        ({"random_state": -1}, "`random_state` must be .*got -1"),
        ({"prior_key": "a/b"}, "`prior_key` must be .*got 'a/b'"),
        ({"layer": "both"}, r"no layer 'both' in adata.layers"),
        ({"layer": "both", "check": False}, r"no layer 'both' in (adata|reference).layers"),
        ({"layer": "mine"}, r"no layer 'mine' in reference.layers"),
        ({"layer": "mine", "check": False}, r"no layer 'mine' in reference.layers"),
        ({"layer": "once_more"}, "The query holds logarithms of logarithms, but the reference holds natural"),
    ],
)
def test_mistakes_about_the_query_are_found_before_the_training(arguments, sentence, monkeypatch):
    """What denoising, labels and novelty would refuse after it."""
    reference, query = normalised(*simulated(300, 80))
    reference.obs["cell/type"] = reference.obs["cell_type"]
    query.obs["barcode"] = query.obs_names
    query.layers["mine"], query.layers["once_more"] = query.X.copy(), np.log1p(query.X)
    reference.layers["once_more"] = reference.X.copy()
    never_trains(monkeypatch)
    with pytest.raises(dice.DiceError, match=sentence):
        dice.tl.annotate(query, reference, **arguments)
    assert not query.obsm
    assert not reference.uns.get("dice")


def test_the_query_is_normalised_as_the_reference_was(capsys):
    """Raw counts beside log-normalised values, whichever has which, are brought to the sum of the others."""
    for raw in ("reference", "query"):
        pair = dict(zip(("reference", "query"), simulated(200, 80), strict=True))
        for name, cells in pair.items():
            if name != raw:
                sc.pp.normalize_total(cells, target_sum=3000)
                sc.pp.log1p(cells)
        dice.tl.annotate(pair["query"], pair["reference"], n_top_genes=150, training=TRAINING)
        sums = np.expm1(pair[raw].layers["dice_lognorm"].toarray()).sum(1)
        np.testing.assert_allclose(sums, 3000, rtol=1e-3)
        said = capsys.readouterr().err
        assert said.count("log-normalised to 3,000 counts per cell") == 1, said


@pytest.mark.parametrize("n_top_genes", [100, 3000])
def test_a_pair_that_was_scaled_is_refused(n_top_genes, monkeypatch):
    reference, query = normalised(*simulated(200, 50))
    for cells in (reference, query):
        cells.X = cells.X.toarray()
        sc.pp.scale(cells, max_value=10)
    never_trains(monkeypatch)
    with pytest.raises(dice.DiceError, match=r"reference were scaled or centred .*reference = reference.raw.to_adata"):
        dice.tl.annotate(query, reference, "cell_type", n_top_genes=n_top_genes)


def test_what_others_keep_under_the_key_of_the_prior_is_not_replaced(monkeypatch):
    reference, query = simulated(100, 50)
    reference.uns["dice"] = theirs = {"score": 1.0}
    never_trains(monkeypatch)
    with pytest.raises(
        dice.DiceError, match=r"reference.uns\['dice'\] was not written by dice .*pass another prior_key"
    ):
        dice.tl.annotate(query, reference, "cell_type")
    assert reference.uns["dice"] is theirs


def test_other_names_are_diagnosed():
    reference, query = simulated(100, 50)
    query.var["symbol"], query.var_names = query.var_names, [f"ENSG{i:011d}" for i in range(query.n_vars)]
    with pytest.raises(dice.DiceError, match="gene_key='symbol'"):
        dice.tl.annotate(query, reference, "cell_type")


def test_estimated_counts_are_normalised_as_raw_ones_are(raw):
    """Counts without ambient molecules, or of transcripts, are no whole numbers."""
    reference, query = simulated()
    reference.X = reference.X * 30.37
    dice.tl.annotate(query, reference, "cell_type", n_top_genes=150, training=TRAINING)
    assert (query.obs["cell_type_dice"] == query.obs["cell_type"]).mean() > 0.9
    np.testing.assert_allclose(np.expm1(reference.layers["dice_lognorm"][:20].toarray()).sum(1), 1e4, rtol=1e-3)


def test_objects_that_cannot_be_written_are_refused_first(tmp_path):
    reference, query = simulated()
    reference.write_h5ad(tmp_path / "reference.h5ad")
    backed = ad.read_h5ad(tmp_path / "reference.h5ad", backed="r")[:300]
    with pytest.raises(dice.DiceError, match=r"call reference\.to_memory\(\) first"):
        dice.tl.annotate(query, backed, "cell_type", training=TRAINING)
    with pytest.raises(dice.DiceError, match=r"`adata` must be an AnnData object, .*got 'query.h5ad'"):
        dice.tl.annotate("query.h5ad", reference, "cell_type")


def test_numbers_as_names_of_cells(raw):
    """Tables with names as text could not be written to cells whose names are numbers, and half of a call was left."""
    reference, annotated, (_, query) = raw
    query = query.copy()
    query.obs.index = np.arange(query.n_obs)
    dice.tl.annotate(query, reference, "cell_type", n_top_genes=150)
    for key in ("cell_type_dice", "cell_type_dice_status", "dice_cluster", "dice_novel"):
        assert query.obs[key].notna().all()
    assert list(query.obs["cell_type_dice"]) == list(annotated.obs["cell_type_dice"])
    assert query.obsm["cell_type_dice_prob"].notna().all(axis=None)


def test_a_failure_while_writing_leaves_both_objects_as_they_were(monkeypatch):
    reference, query = simulated(300, 60, 100)
    before = [{name: list(getattr(x, name)) for name in ("obs", "obsm", "uns", "var")} for x in (query, reference)]

    def interrupted(*_, **__):  # after all steps
        assert "X_dice" in query.obsm
        assert "dice" in reference.uns
        raise KeyboardInterrupt

    monkeypatch.setattr("dice.tl._annotate.summarize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dice.tl.annotate(query, reference, n_top_genes=60, training=TRAINING)
    assert before == [
        {name: list(getattr(x, name)) for name in ("obs", "obsm", "uns", "var")} for x in (query, reference)
    ]
    assert not names(query, "layers") + names(reference, "layers")


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
@pytest.mark.parametrize("n", [150, 30])
def test_a_small_query_says_so(raw, n):
    query = raw[2][1][:n].copy()
    dice.tl.annotate(query, raw[0], "cell_type")
    assert "the query is small" in query.uns["dice_annotate"]["summary"].splitlines()[1]
