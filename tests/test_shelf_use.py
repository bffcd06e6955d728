"""What users of ready priors do: genes of another species in capitals, and other normalisations."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest

import dice
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
