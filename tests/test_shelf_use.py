"""What users of priors do: genes of another species, several references, and other normalisations."""

from __future__ import annotations

import shutil
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import stored_priors

import dice
from dice._data.gene_names import names_of
from dice._data.genes import match_genes


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_mouse_genes_in_capitals_are_matched_by_orthologs_if_the_species_is_named():
    """They were matched to human genes of the same name, of which some are no orthologs."""
    # Amylase: human AMY1A to AMY2B, mouse Amy1 to Amy2b are not one-to-one. The last two are in no table.
    names = ["AMY2B", "GCG", "ACTB", "SEPT7", "H19", "EGFP", "my_gene"]
    wanted = np.array(["AMY2B", "GCG", "ACTB", "SEPTIN7", "H19", "EGFP", "KRT19"], dtype=object)
    cells = ad.AnnData(np.zeros((3, len(names)), np.float32), var=pd.DataFrame(index=pd.Index(names)))
    assert match_genes(cells, wanted).ways == {"name": 5, "former symbol": 1}
    named = match_genes(cells, wanted, species="mouse")
    assert named.missing.tolist() == ["AMY2B", "KRT19"]
    assert named.ways == {"name": 2, "ortholog": 3}


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_two_files_of_one_name_can_be_told_apart(tmp_path):
    """The column said "prior" for both, as a text or as a path."""
    (tmp_path / "other").mkdir()
    paths = [shutil.copy(stored_priors.path("labels"), tmp_path / part) for part in ("prior.h5ad", "other/prior.h5ad")]
    query = stored_priors.cells(60)
    dice.tl.annotate(query, [str(paths[0]), Path(paths[1])])
    names = ["prior (1)", "prior (2)"]
    assert list(query.uns["label_dice"]["references"]["name"]) == names
    assert list(query.obs["label_dice_reference"].cat.categories) == names


@pytest.mark.parametrize("new", [3, None, "", " ", "a\0b"])
def test_new_names_of_labels_are_texts_that_files_can_hold(new):
    """None became the label "None", and a null character a result that could not be saved."""
    prior, query = dice.Prior.load(stored_priors.path("labels")), stored_priors.cells(60)
    with pytest.raises(dice.DiceError, match="The new names of labels must be a dict of texts, got"):
        dice.tl.annotate(query, [prior, (prior, {"alpha": new})])
    with pytest.raises(dice.DiceError, match="`reference` must be an AnnData object, a prior, a path or a name, got"):
        dice.tl.annotate(query, [prior, (prior, {"alpha": "A"}, 3)])


def test_no_ortholog_has_the_name_of_another_gene():
    """Tmsb4x, of which every cell is full, was taken for TMSB4Y, of which human cells have next to none."""
    human, mouse = names_of("human"), names_of("mouse")
    assert "TMSB4Y" not in human.orthologs
    for own, other in ((human, mouse), (mouse, human)):
        named = [(gene, pair) for gene, pair in own.orthologs.items() if gene.upper() != pair.upper()]
        assert len(named) > 500  # Other names are no reason to drop a pair.
        assert not [(gene, pair) for gene, pair in named if other.symbol(gene)[1] in ("name", "case")]


def test_a_prior_that_is_saved_again_keeps_its_description(tmp_path, monkeypatch):
    """A copy of a ready prior under another name had neither licence nor source."""
    monkeypatch.setenv("DICE_CACHE", str(tmp_path))
    path = dice.priors.save(stored_priors.path("labels"), "first", tissue="lung", licence="CC BY 4.0", source="us")
    dice.priors.save(path, "second", tissue="liver")
    table = dice.priors.list()
    assert table.loc["second", ["tissue", "licence", "source"]].tolist() == ["liver", "CC BY 4.0", "us"]
    assert dice.priors.load("first").params["shelf"]["tissue"] == "lung"
