"""Panels: a query that measures few of the reference's genes, each with an efficiency of its own."""

from __future__ import annotations

import warnings

import anndata as ad
import numpy as np
import pytest

import dice
from dice._data.store import find_prior
from dice._labels.cells import with_tissue

pytestmark = pytest.mark.filterwarnings("ignore:The query differs:dice.DiceWarning")
TRAINING = dice.Training(max_steps=20, calibration_fraction=0.2)
TYPES = np.array(["B", "T", "NK", "DC"])


def pair(n_genes: int, seed: int = 0) -> tuple[ad.AnnData, ad.AnnData]:
    """Counts of a transcriptome of 200 genes, and of some of them in other cells by another technology."""
    rng = np.random.default_rng(seed)
    profiles = rng.gamma(1.5, size=(4, 200))
    reference = ad.AnnData(rng.poisson(profiles[np.arange(500) % 4]).astype(np.float32))
    reference.obs["cell_type"] = TYPES[np.arange(500) % 4]
    seen = profiles[:, :n_genes] * rng.gamma(3, 1 / 3, size=n_genes) + 0.1
    query = ad.AnnData(rng.poisson(seen[np.arange(200) % 4]).astype(np.float32))
    query.var_names = reference.var_names[:n_genes]
    query.obs_names = [f"query {i}" for i in range(200)]
    query.obs["truth"] = TYPES[np.arange(200) % 4]
    query.obsm["spatial"] = rng.random((200, 2))
    return query, reference


@pytest.fixture(scope="module")
def annotated() -> tuple[ad.AnnData, ad.AnnData]:
    query, reference = pair(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dice.DiceWarning)
        dice.tl.annotate(query, reference, "cell_type", training=TRAINING)
    return query, reference


def accuracy(query: ad.AnnData) -> float:
    return float((query.obs["cell_type_dice"].astype(str) == query.obs["truth"].astype(str)).mean())


def test_a_panel_is_labelled_by_a_prior_of_its_genes(annotated):
    query, reference = annotated
    assert accuracy(query) > 0.9
    assert len(find_prior(reference).genes) == 40
    totals = np.expm1(query.layers["dice_panel"]).sum(1)
    np.testing.assert_allclose(totals, np.median(np.asarray(query.X.sum(1))), rtol=0.01)
    assert set(query.uns["cell_type_dice"]["views"]["view"]) == {"measured", "centered", "standardized"}


def test_the_summary_tells_what_the_genes_can_reach(annotated):
    query, _ = annotated
    record = query.uns["dice_annotate"]
    assert "40 of the 40 shared genes" in record["summary"]
    assert "of held-out reference cells the right label at the query's depth" in record["summary"]
    assert 0.8 < record["params"]["held_out_accuracy"] <= 1


def test_counts_are_normalised_like_the_prior_of_a_panel(annotated):
    """Later calls find the genes and the depth in the prior."""
    query, reference = annotated
    again = ad.AnnData(query.X.copy(), obs=query.obs[["truth"]].copy(), var=query.var[[]].copy())
    dice.tl.transfer_labels(again, reference, "cell_type")
    expected, found = (each.obsm["cell_type_dice_prob"].to_numpy() for each in (query, again))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_labels_depend_on_the_network(annotated):
    """A network with other weights gives other labels: it is used."""
    query, reference = annotated
    prior = find_prior(reference)
    other = prior.denoiser.state_dict()
    weights = {name: value.clone() for name, value in other.items()}
    rng = np.random.default_rng(0)
    try:
        for value in other.values():
            value += value.new_tensor(rng.normal(size=value.shape))
        cells = query[:, :].copy()
        dice.tl.transfer_labels(cells, prior, "cell_type")
    finally:
        prior.denoiser.load_state_dict(weights)
    apart = np.abs(cells.obsm["cell_type_dice_prob"] - query.obsm["cell_type_dice_prob"]).to_numpy().max()
    assert apart > 1e-3


def test_ten_genes_are_an_error_and_twenty_a_warning():
    query, reference = pair(10)
    with pytest.raises(dice.DiceError, match=r"at least 15 shared genes, got 10, which give \d+% of held-out .* tell"):
        dice.tl.annotate(query, reference, "cell_type", training=TRAINING)
    assert "dice_panel" not in query.layers
    assert "dice" not in reference.uns
    query, reference = pair(20)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dice.tl.annotate(query, reference, "cell_type", training=TRAINING)
    assert any("Only 20 genes are shared, which give" in str(each.message) for each in warned)
    assert query.obsm["cell_type_dice_set"].sum(1).mean() > 1.3


def test_neighbours_in_a_tissue_count_as_far_as_they_agree(annotated):
    query, reference = annotated
    call = {"layer": "dice_panel", "key_added": "near"}
    query = query.copy()
    # Positions at random say nothing, and positions by type say a lot.
    query.obsm["by_type"] = query.obsm["spatial"] + 10 * (np.arange(200) % 4)[:, None]
    weights = {}
    for key in ("spatial", "by_type"):
        dice.tl.transfer_labels(query, reference, classifier=dice.Classifier(spatial_key=key), **call)
        weights[key] = query.uns["near"]["params"]["tissue_weight"]
    assert weights["spatial"] < 0.2 < 0.8 < weights["by_type"]
    assert (query.obs["near"].astype(str) == query.obs["truth"]).mean() >= accuracy(query)
    dice.tl.transfer_labels(query, reference, **call)
    assert query.uns["near"]["params"]["tissue_weight"] == 0


def test_unknown_positions_are_refused(annotated):
    query, reference = annotated
    with pytest.raises(dice.DiceError, match=r"no array 'xy' in adata\.obsm; available"):
        dice.tl.transfer_labels(query, reference, classifier=dice.Classifier(spatial_key="xy"), layer="dice_panel")


def test_the_average_with_neighbours_is_weighted_by_kappa():
    probabilities = np.eye(2)[[0] * 20 + [1] * 20]
    apart = np.arange(40)[:, None] + 100.0 * (np.arange(40) >= 20)[:, None]
    smoothed, weight = with_tissue(probabilities, apart)
    assert weight == 1
    np.testing.assert_allclose(smoothed, probabilities)
    single, weight = with_tissue(probabilities[:1], apart[:1])
    assert weight == 0
    np.testing.assert_array_equal(single, probabilities[:1])
