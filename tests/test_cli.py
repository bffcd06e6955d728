"""The command line, and the demonstration as a newcomer runs it."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import warnings

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr

import dice
from dice import _log
from dice._model.training import Trainer
from dice.cli import _parser, main
from dice.cli._flags import VERBS, in_flags, read_flags


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder with a reference and a query, and the same after the calls from Python."""
    folder = tmp_path_factory.mktemp("cli")
    cells = dice.datasets.pbmc68k()
    reference, query = cells[:500].copy(), cells[500:].copy()
    reference.write_h5ad(folder / "reference.h5ad")
    query.write_h5ad(folder / "query.h5ad")
    dice.tl.train_prior(reference, labels_key="cell_type", training=dice.Training(max_steps=40), random_state=3)
    dice.tl.denoise(query, reference, n_samples=2)
    reference.write_h5ad(folder / "trained.h5ad")
    return folder, reference, query


@pytest.fixture
def files(made):
    """The folder, and objects that a test may write to."""
    folder, reference, query = made
    return folder, reference.copy(), query.copy()


def summary(capsys, *arguments):
    """What a successful command says with --json."""
    code = main([*map(str, arguments), "--json", "--quiet"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert captured.out.count("\n") == 1
    return json.loads(captured.out)


def test_training_equals_the_call(files, tmp_path, capsys):
    folder, reference, _ = files
    options = ("--labels", "cell_type", "--max-steps", 40, "--seed", 3)
    said = summary(capsys, "train", folder / "reference.h5ad", "-o", tmp_path / "trained.zarr", *options)
    assert said["n_cells"] == 500
    assert said["command"] == "train"
    assert ad.read_zarr(tmp_path / "trained.zarr").uns["dice"]["sha256"] == reference.uns["dice"]["sha256"]
    summary(
        capsys, "train", folder / "reference.h5ad", "-o", tmp_path / "prior.h5ad", "--prior-only", "--stream", *options
    )
    prior, expected = dice.Prior.load(tmp_path / "prior.h5ad"), dice.Prior.from_anndata(reference)
    np.testing.assert_allclose(prior.projection.loadings, expected.projection.loadings, atol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"trained.zarr", "prior.h5ad"}


@pytest.mark.parametrize("name", ["denoised.h5ad", "denoised.zarr"])
def test_denoising_equals_the_call(files, name, tmp_path, capsys):
    folder, _, query = files
    for _ in range(2):  # The second run replaces what the first has written.
        said = summary(
            capsys, "denoise", folder / "query.h5ad", folder / "trained.h5ad", "-o", tmp_path / name, "--n-samples", 2
        )
    assert said["genes"] == query.uns["X_dice"]["genes"]["text"]
    assert said["noise"] == pytest.approx(query.uns["X_dice"]["params"]["noise"])
    found = (ad.read_zarr if name.endswith("zarr") else ad.read_h5ad)(tmp_path / name)
    for key in query.obsm:
        np.testing.assert_allclose(found.obsm[key], query.obsm[key], atol=1e-5, rtol=1e-5)
    assert found.X is not None
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_shift_and_rho_can_be_chosen(files, tmp_path, capsys):
    folder, reference, query = files
    query = query.copy()
    dice.tl.denoise(query, reference, rho="auto", shift=dice.Shift("mean", batch_key="cell_type"))
    options = ("--rho", "auto", "--shift", "mean", "--batch-key", "cell_type")
    output = tmp_path / "denoised.h5ad"
    said = summary(capsys, "denoise", folder / "query.h5ad", folder / "trained.h5ad", "-o", output, *options)
    found = ad.read_h5ad(output)
    assert said["rho"] == query.uns["X_dice"]["params"]["rho"]
    assert found.uns["X_dice"]["shift"]["strategy"] == "mean"
    np.testing.assert_allclose(found.obsm["X_dice"], query.obsm["X_dice"], atol=1e-5, rtol=1e-5)
    summary(capsys, "denoise", folder / "query.h5ad", folder / "trained.h5ad", "-o", output, "--shift", "none")
    assert ad.read_h5ad(output).uns["X_dice"]["shift"] == {"strategy": "none"}


def test_transfer_equals_the_call(files, tmp_path, capsys):
    folder, reference, query = files
    query = query.copy()
    dice.tl.transfer_labels(query, reference, "cell_type", alpha=0.2)
    command = ("transfer", folder / "query.h5ad", folder / "trained.h5ad", "--labels", "cell_type", "--alpha", 0.2)
    said = summary(capsys, *command, "-o", tmp_path / "labelled.h5ad")
    assert said["labels"] == query.obs["cell_type_dice"].value_counts().to_dict()
    found = ad.read_h5ad(tmp_path / "labelled.h5ad")
    assert found.obs["cell_type_dice"].astype(str).equals(query.obs["cell_type_dice"].astype(str))
    assert found.obsm["cell_type_dice_prob"].equals(query.obsm["cell_type_dice_prob"])
    summary(capsys, *command, "-o", tmp_path / "labelled.zarr", "--stream")
    streamed = ad.read_zarr(tmp_path / "labelled.zarr")
    np.testing.assert_allclose(streamed.obsm["cell_type_dice_prob"], found.obsm["cell_type_dice_prob"], atol=1e-3)


def test_transfer_of_features_equals_the_call(files, tmp_path, capsys):
    folder, reference, query = files
    reference, query = reference.copy(), query.copy()
    reference.obsm["adt"] = np.asarray(reference.obsm["X_dice_pca"])[:, :2]
    reference.write_h5ad(tmp_path / "reference.h5ad")
    dice.tl.transfer_features(query, reference, "adt", alpha=0.2)
    command = ("features", folder / "query.h5ad", tmp_path / "reference.h5ad", "--features", "adt", "--alpha", 0.2)
    said = summary(capsys, *command, "-o", tmp_path / "features.h5ad")
    assert said["features"] == 2
    assert said["useless"] == []
    found = ad.read_h5ad(tmp_path / "features.h5ad")
    np.testing.assert_allclose(found.obsm["adt_dice"], query.obsm["adt_dice"], atol=1e-4)
    np.testing.assert_allclose(found.obsm["adt_dice_low"], query.obsm["adt_dice_low"], atol=1e-4)


def test_a_prior_alone_transfers_its_labels(files, tmp_path, capsys):
    folder, reference, query = files
    query = query.copy()
    dice.tl.transfer_labels(query, reference, "cell_type")
    dice.Prior.from_anndata(reference).save(tmp_path / "prior.h5ad")
    command = ("transfer", folder / "query.h5ad", tmp_path / "prior.h5ad", "-o", tmp_path / "labelled.h5ad")
    said = summary(capsys, *command)
    assert said["status"] == query.obs["cell_type_dice_status"].value_counts().to_dict()
    found = ad.read_h5ad(tmp_path / "labelled.h5ad")
    assert found.obsm["cell_type_dice_prob"].equals(query.obsm["cell_type_dice_prob"])
    summary(capsys, "annotate", *command[1:], "--labels", "cell_type")
    assert "cell_type_dice" in ad.read_h5ad(tmp_path / "labelled.h5ad").obs


@pytest.mark.data
def test_preparation_training_and_transfer_on_pancreas_cells(shared_data, tmp_path, capsys, monkeypatch):
    """`dice prepare`, `dice train && dice transfer` equal the calls, from the files as they come."""
    names = ("pancreas_cellhint_atlas", "pancreas_baron_h1")
    raw = [ad.read_h5ad(shared_data(name)) for name in names]
    # With all of the prior's genes in the query, a posterior takes one evaluation in place of a chain.
    shared = raw[0].var_names.intersection(raw[1].var_names)
    reference, query = (cells[:, shared].copy() for cells in raw)
    files = [tmp_path / f"{name}.h5ad" for name in names]
    for cells, file in zip((reference, query), files, strict=True):
        cells.write_h5ad(tmp_path / "raw.h5ad")
        said = summary(capsys, "prepare", tmp_path / "raw.h5ad", "-o", file, "--n-top-genes", 1000, "--min-cells", 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dice.pp.prepare(cells, n_top_genes=1000, min_cells=1)
        if cells is reference:
            assert "like a technology" in " ".join(said["warnings"])
            assert "pass --batch-key" in " ".join(said["warnings"])
    dice.tl.train_prior(reference, labels_key="cell_type", training=dice.Training(max_steps=60))
    classifier = dice.Classifier("denoised")
    options = {"classifier": classifier, "check": dice.Checks(min_gene_overlap=0.5)}
    with pytest.warns(dice.DiceWarning, match="The query differs from its reference"):
        dice.tl.transfer_labels(query, reference, "cell_type", **options)
    trained, labelled = tmp_path / "trained.h5ad", tmp_path / "labelled.h5ad"
    monkeypatch.setattr(_log, "_shown", set())  # A command is a process of its own.
    summary(capsys, "train", files[0], "-o", trained, "--labels", "cell_type", "--max-steps", 60)
    choice = ("--classifier", "denoised", "--min-gene-overlap", 0.5)
    said = summary(capsys, "transfer", files[1], trained, "-o", labelled, "--labels", "cell_type", *choice)
    found = ad.read_h5ad(labelled)
    assert len(said["warnings"]) == len(query.uns["cell_type_dice"]["warnings"])
    assert "with dice evaluate --protocol labels." in said["warnings"][0]
    assert (found.obs["cell_type_dice"].astype(str) == query.obs["cell_type_dice"].astype(str)).all()
    np.testing.assert_array_equal(found.obsm["cell_type_dice_prob"], query.obsm["cell_type_dice_prob"])
    known = found.obs["cell_type"].isin(reference.obs["cell_type"])
    assert (found.obs["cell_type_dice"].astype(str) == found.obs["cell_type"].astype(str))[known].mean() > 0.6


def test_annotation_clusters_and_novelty_equal_the_calls(files, tmp_path, capsys):
    """Raw counts in files: the one command, and the single ones."""
    folder, rng = tmp_path, np.random.default_rng(0)
    profiles, codes = 3 * rng.gamma(0.3, size=(4, 200)), np.arange(700) % 4
    cells = ad.AnnData(rng.poisson(profiles[codes]).astype(np.float32))
    cells.obs["cell_type"] = pd.Categorical([f"type {code}" for code in codes])
    cells.obs_names = [f"cell {i}" for i in range(700)]
    reference, query = cells[:500].copy(), cells[500:].copy()
    reference.write_h5ad(folder / "reference.h5ad")
    query.write_h5ad(folder / "query.h5ad")
    training = ("--max-steps", 20, "--calibration-fraction", 0.3, "--n-top-genes", 150)
    command = ("annotate", folder / "query.h5ad", folder / "reference.h5ad", "--labels", "cell_type", *training)
    written = ("-o", folder / "out.h5ad", "--trained", folder / "trained.h5ad", "--report", folder / "report.html")
    said = summary(capsys, *command, *written)
    options = {"n_top_genes": 150, "training": dice.Training(max_steps=20, calibration_fraction=0.3)}
    dice.tl.annotate(query, reference, "cell_type", **options)
    found, trained = ad.read_h5ad(folder / "out.h5ad"), ad.read_h5ad(folder / "trained.h5ad")
    assert said["summary"] == query.uns["dice_annotate"]["summary"]
    assert trained.uns["dice"]["sha256"] == reference.uns["dice"]["sha256"]
    assert json.dumps(said["summary"]) in (folder / "report.html").read_text()
    for column in ("dice_cluster", "cell_type_dice", "cell_type_dice_status", "dice_novel_group"):
        assert (found.obs[column].astype(str) == query.obs[column].astype(str)).all(), column
    # Once more with the prior that is there: the summary is a result, and shown once.
    capsys.readouterr()
    assert (
        main([*map(str, command[:1]), str(folder / "query.h5ad"), str(folder / "trained.h5ad"), *map(str, written[:2])])
        == 0
    )
    captured = capsys.readouterr()
    assert captured.out.count("look at") == 1
    assert "look at" not in captured.err
    assert "this prior is used (--prior-key new" in captured.err

    # Without labels, what to look at is told in commands as well, in words and as JSON.
    bare = ("annotate", folder / "query.h5ad", folder / "reference.h5ad", *training, "-o", folder / "bare.h5ad")
    said = summary(capsys, *bare)
    assert said["summary"].endswith(
        "the clusters (dice report --color dice_cluster), and cells with a large dice_uncertainty"
    )
    assert "as --labels, for example 'cell_type'" in said["summary"]
    assert main([*map(str, bare), "--quiet"]) == 0
    assert said["summary"] in capsys.readouterr().out

    layer = ("--layer", "dice_lognorm")
    again = ("novelty", folder / "out.h5ad", folder / "trained.h5ad", "--groupby", "dice_cluster", *layer)
    said = summary(capsys, *again, "-o", folder / "tested.h5ad")
    assert len(said["groups"]) == query.obs["dice_cluster"].nunique()
    np.testing.assert_allclose(ad.read_h5ad(folder / "tested.h5ad").obs["dice_novelty"], query.obs["dice_novelty"])
    said = summary(capsys, "cluster", folder / "out.h5ad", folder / "trained.h5ad", "-o", folder / "clustered.h5ad")
    assert said["clusters"] == {str(n): int(c) for n, c in query.obs["dice_cluster"].value_counts().items()}


def test_annotate_takes_several_references(files, tmp_path, monkeypatch, capsys):
    folder, *_ = files
    given = []

    def annotate(query, references, **_):
        given.extend(references)
        query.uns["dice_annotate"] = {"summary": "done", "params": {}}

    monkeypatch.setattr(dice.tl, "annotate", annotate)
    command = ["annotate", folder / "query.h5ad", folder / "trained.h5ad", folder / "reference.h5ad"]
    assert summary(capsys, *command, "-o", tmp_path / "out.h5ad")["summary"] == "done"
    assert [cells.n_obs for cells in given] == [500, 500]
    assert main([*map(str, command), "-o", str(tmp_path / "o.h5ad"), "--trained", str(tmp_path / "t.h5ad")]) == 1
    assert "needs a single reference with its cells" in capsys.readouterr().err
    assert main([*map(str, command), "-o", str(command[-1])]) == 1
    assert "is an input of the command" in capsys.readouterr().err


def test_results_are_tables(files, tmp_path, capsys):
    folder, *_ = files
    command = ["transfer", folder / "query.h5ad", folder / "trained.h5ad", "-o", tmp_path / "out.h5ad", "--quiet"]
    assert main([*map(str, command)]) == 0
    printed = capsys.readouterr().out
    assert "{" not in printed
    labels = ad.read_h5ad(tmp_path / "out.h5ad").obs["cell_type_dice"].value_counts()
    assert re.search(rf"^labels\n  {re.escape(labels.index[0])} +{labels.iloc[0]}$", printed, re.MULTILINE)


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("pass check=dice.Checks(min_gene_overlap=0.15).", "pass --min-gene-overlap 0.15."),
        ("method=dice.Gibbs(fast=True, n_chains=30)", "--fast --n-chains 30"),
        ("call dice.tl.train_prior(ref, labels_key='a b').", "run dice train --labels 'a b'."),
        ("a larger dice.Training(calibration_fraction=).", "a larger --calibration-fraction."),
        ("pass gene_key='symbol'.", "pass --gene-key symbol."),
        ("reference_batch_key=None ranks.", "--reference-batch-key none ranks."),
        ("pass a larger max_pct_mt.", "pass a larger --max-pct-mt."),
        ("in adata.obs['max_pct_mt'], adata.X", "in obs['max_pct_mt'], X"),
        ("`alpha` must be a number, and `this` too", "--alpha must be a number, and this too"),
    ],
)
def test_sentences_speak_of_flags(sentence, words):
    assert words in in_flags(sentence)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("denoise q --n-chains 3", {"method": dice.Gibbs(3)}),
        ("denoise q --method gibbs --burn-in none", {"method": dice.Gibbs()}),
        ("denoise q --no-uncertainty --df 3", {"method": dice.Direct(False), "likelihood": dice.StudentT(3)}),
        ("denoise q --noise 2", {"likelihood": dice.Gaussian(2)}),
        ("denoise q --rho 5,0.5 --seed 3", {"rho": (5, 0.5), "random_state": 3}),
        ("denoise q --no-check --species mouse", {"check": dice.Checks(False, species="mouse")}),
        ("denoise q --batch-key donor --layer none", {"shift": dice.Shift(batch_key="donor"), "layer": None}),
        ("transfer q r --labels a --labels b", {"labels_key": dice.Levels("b", columns=["a"]), "shift": "auto"}),
        ("transfer q r --per-class --classifier genes", {"sets": dice.Sets(per_class=True), "classifier": "genes"}),
        ("cluster q --level 0.9", {"level": 0.9}),
        ("cluster q --level fine", {"level": "fine"}),
        ("train q --mixup none", {"mixup": None}),
    ],
)
def test_flags_are_arguments(command, expected):
    """The fields of a settings object, given without its name, choose it."""
    name, *given = command.split()
    found = read_flags(_parser().parse_args([name, *given, "-o", "x"]), VERBS[name])
    assert {key: found[key] for key in expected} == expected
    assert "training" not in found


def test_evaluation_equals_the_call(files, tmp_path, capsys):
    _, _, query = files
    query.write_h5ad(tmp_path / "denoised.h5ad")
    command = ("evaluate", tmp_path / "denoised.h5ad", "--labels", "cell_type", "--table", tmp_path / "scores.csv")
    said = summary(capsys, *command)
    expected = dice.tl.evaluate(query, "cell_type")
    assert said["table"]["X_dice"]["ari"] == expected.loc["X_dice", "ari"]
    assert list(pd.read_csv(tmp_path / "scores.csv", index_col=0).index) == list(expected.index)
    assert main([*map(str, command), "--quiet"]) == 0
    assert "silhouette" in capsys.readouterr().out


def test_labels_of_another_vocabulary_are_evaluated(files, tmp_path, capsys):
    _, reference, query = files
    names = {name: f"my {name}" for name in reference.obs["cell_type"].unique()}
    dice.tl.transfer_labels(query, reference, "cell_type", key_added="theirs")
    query.obs["mine"] = [names[name] for name in query.obs["cell_type"]]
    query.write_h5ad(tmp_path / "labelled.h5ad")
    file = tmp_path / "names.json"
    file.write_text(json.dumps({own: name for name, own in names.items()}))
    command = ["evaluate", tmp_path / "labelled.h5ad", "--labels", "mine", "--protocol", "labels", "--key", "theirs"]
    said = summary(capsys, *command, "--label-map", file)
    expected = dice.tl.evaluate(query, "cell_type", protocol="labels", key="theirs")
    assert said["table"]["all cells"]["accuracy"] == expected.loc["all cells", "accuracy"]
    table, names = "must be a table in JSON", "must be labels of the reference such as"
    odd = {b"[1]": "--label-map must be a dict", b"{": table, b"\xff": table, b"[" * 100_000: table}
    odd |= {b"1" * 10_000: table, b'{"my T": 5}': names, b'{"my T": [[5]]}': names}
    for text, message in odd.items():
        file.write_bytes(text)
        assert main([*map(str, command), "--label-map", str(file)]) == 1
        assert message in capsys.readouterr().err


def test_report_writes_a_page(files, tmp_path, capsys):
    query = files[2][:60].copy()
    query.write_h5ad(tmp_path / "denoised.h5ad")
    summary(capsys, "report", tmp_path / "denoised.h5ad", "-o", tmp_path / "r.html", "--title", "Sixty cells")
    assert "<title>Sixty cells</title>" in (tmp_path / "r.html").read_text()


def test_preparation_equals_the_call(tmp_path, capsys):
    rng = np.random.default_rng(0)
    counts = ad.AnnData(rng.poisson(rng.gamma(2.0, size=600), size=(60, 600)).astype(np.float32))
    counts.obs_names, counts.var_names = [f"c{i}" for i in range(60)], [f"g{i}" for i in range(600)]
    counts.write_h5ad(tmp_path / "raw.h5ad")
    said = summary(capsys, "prepare", tmp_path / "raw.h5ad", "-o", tmp_path / "cells.h5ad", "--n-top-genes", 100)
    dice.pp.prepare(counts, n_top_genes=100)
    assert said["n_genes"] == counts.n_vars
    found = ad.read_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(found.X, counts.X)
    assert found.var["highly_variable"].equals(counts.var["highly_variable"])


def test_a_shell_pipeline_sees_results_only(files, tmp_path):
    """Bars and warnings go to standard error, so that the next program reads what it expects."""
    folder, *_ = files
    few = ad.read_h5ad(folder / "query.h5ad")[:, :400].copy()
    few.write_h5ad(tmp_path / "few.h5ad")
    arguments = ["denoise", tmp_path / "few.h5ad", folder / "trained.h5ad", "-o", tmp_path / "out.h5ad", "--json"]
    run = subprocess.run([sys.executable, "-m", "dice", *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert len(said["warnings"]) == 1
    assert f"dice: warning: {said['warnings'][0]}" in run.stderr


def test_failures_leave_nothing(files, tmp_path, capsys):
    folder, *_ = files
    trained, query, out = folder / "trained.h5ad", folder / "query.h5ad", tmp_path / "out.h5ad"
    (tmp_path / "text.h5ad").write_text("no cells")
    counts, raw = tmp_path / "counts.h5ad", ad.read_h5ad(query)
    raw.X = np.round(np.expm1(raw.X.toarray())).astype(np.float32)
    raw.write_h5ad(counts)
    cases = [
        (["denoise", tmp_path / "none.h5ad", trained, "-o", out], "There is no file"),
        (["denoise", tmp_path / "text.h5ad", trained, "-o", out], "cannot be read as .h5ad or .zarr"),
        (["denoise", query, query, "-o", out], "has no prior"),
        (["denoise", query, trained, "-o", tmp_path / "out.loom"], "neither .h5ad nor .zarr"),
        (["denoise", query, trained, "-o", tmp_path / "no" / "out.h5ad"], "there is no folder"),
        (
            ["denoise", query, trained, "-o", out, "--rho", -1],
            "or 'auto', got -1.",
        ),
        (
            ["denoise", query, trained, "-o", out, "--method", "direct", "--n-chains", 3, "--fast"],
            "--method direct cannot be combined with --n-chains and --fast: leave",
        ),
        (
            ["denoise", query, trained, "-o", out, "--likelihood", "gaussian", "--df", 3],
            "--likelihood gaussian cannot be combined with --df",
        ),
        (
            ["denoise", query, trained, "-o", out, "--method", "magic"],
            "--method must be one of ['auto', 'direct', 'gibbs']",
        ),
        (["train", query, "-o", tmp_path / "prior.zarr", "--prior-only"], "stored as .h5ad"),
        (["train", query, "-o", out, "--labels", "nothing"], "no column 'nothing' in obs"),
        (["train", query, "-o", out, "--max-steps", 0], "--max-steps must be a whole number of at least 1, got 0"),
        (["train", counts, "-o", out, "--stream"], "run dice prepare on the counts first"),
        (["train", counts, "-o", out, "--stream"], "or pass --no-check."),
        (["denoise", counts, trained, "-o", tmp_path / "out.zarr", "--stream"], "or pass --no-check."),
        (["annotate", query, query, "-o", out, "--labels", "nothing"], "no column 'nothing'"),
        (["annotate", query, trained, "-o", out, "--report", tmp_path / "no" / "r.html"], "writable folder"),
        (["novelty", query, query, "-o", out], "dice train"),
        (["evaluate", query, "--labels", "cell_type"], "has no 'X_dice_pca'"),
    ]
    for arguments, message in cases:
        assert main([*map(str, arguments), "--quiet"]) == 1
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.startswith("dice: ")
        assert captured.err.count("\n") == 1
        assert not captured.out
        assert not re.search(r"check=|labels_key|dice\.tl\.|sc\.pp\.", captured.err)
    assert {path.name for path in tmp_path.iterdir()} == {"text.h5ad", "counts.h5ad"}


def test_a_failed_write_keeps_the_old_file(files, tmp_path, monkeypatch, capsys):
    folder, *_ = files
    for name in ("write_h5ad", "write_zarr"):
        output = tmp_path / f"out.{name.removeprefix('write_')}"
        output.mkdir() if output.suffix == ".zarr" else output.write_text("old")

        def full(self, path, *args, **kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(ad.AnnData, name, full)
        arguments = ["train", str(folder / "reference.h5ad"), "-o", str(output), "--max-steps", "2", "--quiet"]
        assert main(arguments) == 1
        assert "No space left" in capsys.readouterr().err
        assert output.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"out.h5ad", "out.zarr"}


def test_interrupted(files, tmp_path, monkeypatch, capsys):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(dice.tl, "denoise", interrupt)
    arguments = ["denoise", files[0] / "query.h5ad", files[0] / "trained.h5ad", "-o", tmp_path / "out.h5ad"]
    assert main([*map(str, arguments)]) == 130
    assert capsys.readouterr().err.endswith("dice: interrupted.\n")


@pytest.fixture
def ctrl_c_at(monkeypatch):
    """Ctrl-C within a certain training step, as a terminal sends it."""
    steps, step, before = itertools.count(1), Trainer._step, signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted_at(number):
        def interrupted(self):
            if next(steps) == number:
                signal.raise_signal(signal.SIGINT)
            return step(self)

        monkeypatch.setattr(Trainer, "_step", interrupted)

    yield interrupted_at
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
@pytest.mark.parametrize("step", [5, 20])
def test_ctrl_c_in_training_keeps_the_old_output(step, suffix, files, tmp_path, ctrl_c_at, capsys):
    output, state = tmp_path / f"out{suffix}", tmp_path / "state.npz"
    cells = ad.AnnData(np.ones((2, 3), np.float32))
    (cells.write_h5ad if suffix == ".h5ad" else cells.write_zarr)(output)
    arguments = ["train", files[0] / "reference.h5ad", "-o", output, "--max-steps", 20, "--checkpoint", state]
    ctrl_c_at(step)
    assert main([*map(str, arguments)]) == 130
    captured = capsys.readouterr()
    assert captured.err.endswith("dice: interrupted.\n")
    assert not captured.out
    assert ad.io.read_elem(open_any(output)).shape == (2, 3)
    assert {path.name for path in tmp_path.iterdir()} == {output.name, state.name}
    # The same command goes on, and ends as if nothing had happened.
    assert main([*map(str, arguments), "--quiet"]) == 0
    options = {"training": dice.Training(max_steps=20), "copy": True}
    expected = dice.tl.train_prior(ad.read_h5ad(files[0] / "reference.h5ad"), **options).uns["dice"]["sha256"]
    assert dice.Prior.load(output).sha256 == expected


def open_any(path):
    return zarr.open_group(path, mode="r") if path.is_dir() else h5py.File(path)


def test_help_and_version(capsys):
    for arguments in (["--help"], ["--version"], ["annotate", "--help"]):
        code = f"import sys, dice.cli; sys.argv[1:] = {arguments}; sys.exit(dice.cli.main())"
        command = [sys.executable, "-X", "importtime", "-c", code]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "dice" in run.stdout
        # Help took 2.5 seconds when torch was loaded for it.
        assert not re.search(r"\| +(torch|anndata|pandas|scipy|matplotlib)$", run.stderr, re.MULTILINE)
    for verb in (*VERBS, "info"):
        with pytest.raises(SystemExit) as caught:
            main([verb, "--help"])
        assert caught.value.code == 0
        assert f"examples:\n  dice {verb}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["denoise"])
    assert caught.value.code == 2


def test_errors_are_one_sentence(monkeypatch, capsys):
    def fail(*args, **kwargs) -> pd.DataFrame:
        raise dice.DiceError("Something is wrong: do this instead.")

    monkeypatch.setattr("dice.cli._verbs.report", fail)
    assert main(["report", "query.h5ad", "-o", "report.html"]) == 1
    assert capsys.readouterr().err == "dice: Something is wrong: do this instead.\n"
    with pytest.raises(dice.DiceError):
        main(["--debug", "report", "query.h5ad", "-o", "report.html"])


def test_labels_of_several_levels(files, tmp_path, capsys):
    """Columns from coarse to fine are given one after the other, and a tree as a table."""
    folder, reference, _ = files
    names = list(reference.obs["cell_type"].astype("category").cat.categories)
    parents = dict.fromkeys(names[:-1], "most") | {names[-1]: "other"}
    reference.obs["class"] = reference.obs["cell_type"].astype(str).map(parents).astype("category")
    reference.write_h5ad(tmp_path / "trained.h5ad")
    tree = tmp_path / "tree.csv"
    tree.write_text("child,parent\n" + "".join(f"{child},{parent}\n" for child, parent in parents.items()))
    command = ("transfer", folder / "query.h5ad", tmp_path / "trained.h5ad", "-o", tmp_path / "out.h5ad")
    said = summary(capsys, *command, "--labels", "class", "--labels", "cell_type")
    assert sum(said["safe labels"].values()) == said["n_cells"]
    assert "cell_type_dice_at_class" in ad.read_h5ad(tmp_path / "out.h5ad").obs
    again = summary(capsys, *command, "--labels", "cell_type", "--hierarchy", tree)
    assert again["safe labels"] == said["safe labels"]
    assert main([str(word) for word in (*command, "--hierarchy", tree)]) == 1
    assert "pass --labels as well" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["=1+1", "@SUM(1)", "\t=1+1", " =1+1", "\u200b=1+1", "\uff1d1+1"])
def test_a_table_holds_no_formulas(name, tmp_path, capsys):
    cells = ad.AnnData(np.zeros((60, 2), np.float32), obs={"label": ["a", "b"] * 30})
    cells.obsm[name] = np.random.default_rng(0).normal(size=(60, 3))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    arguments = ["evaluate", tmp_path / "cells.h5ad", "--labels", "label", "--use-rep", name, "--quiet"]
    assert main([*map(str, arguments), "--table", str(tmp_path / "scores.csv")]) == 0
    assert f"\n'{name}," in (tmp_path / "scores.csv").read_text()


def test_a_terminal_obeys_no_name(tmp_path, capsys):
    """Control characters in a name moved the cursor, and half of a character ended in a traceback."""
    name, shown = "X\x1b[2J\u202e", r"X\x1b[2J\u202e"
    cells = ad.AnnData(np.zeros((60, 2), np.float32), obs={"label": ["a", "b"] * 30})
    cells.obsm[name] = np.random.default_rng(0).normal(size=(60, 3))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    arguments = ["evaluate", str(tmp_path / "cells.h5ad"), "--labels", "label", "--use-rep"]
    assert main([*arguments, name]) == 0
    assert main([*arguments, f"{name}\ud800"]) == 1
    said = capsys.readouterr()
    assert shown in said.out
    assert "no 'X" in said.err
    assert (said.out + said.err).replace("\n", "").isprintable()


def test_a_damaged_store_is_one_sentence(files, tmp_path, capsys):
    """A chunk that ends too early ended in a traceback of `concurrent.futures`."""
    folder, _, query = files
    query.write_zarr(tmp_path / "query.zarr")
    chunk = max(
        (path for path in (tmp_path / "query.zarr" / "obsm").rglob("*") if path.is_file()),
        key=lambda p: p.stat().st_size,
    )
    chunk.write_bytes(chunk.read_bytes()[:20])
    for more in ([], ["--stream"]):
        arguments = ["transfer", tmp_path / "query.zarr", folder / "trained.h5ad", "-o", tmp_path / "out.h5ad", *more]
        assert main([*map(str, arguments), "--quiet"]) == 1
        assert "Traceback" not in capsys.readouterr().err
