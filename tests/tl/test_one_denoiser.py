"""What is trained is used: every default result is read from the one network of the prior."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import anndata as ad
import numpy as np
import pytest
import torch
from scipy import sparse

import dice


def pair():
    """A reference with its prior, and a query, of ten types that differ little."""
    rng = np.random.default_rng(0)
    base = rng.gamma(0.5, size=300)
    rates = base * np.exp(0.5 * rng.normal(size=(10, 300)))
    codes = rng.integers(10, size=700)
    counts = rng.poisson(800 * (rates / rates.sum(1, keepdims=True))[codes])
    cells = ad.AnnData(sparse.csr_matrix(np.log1p(1e4 * counts / counts.sum(1, keepdims=True)).astype(np.float32)))
    cells.obs["cell_type"] = codes.astype(str)
    reference, query = cells[:500].copy(), cells[500:].copy()
    dice.tl.train_prior(reference, n_latent=20, training=dice.Training(max_steps=50))
    return reference, query


def with_random_weights(reference):
    """The same reference under a prior whose network learned nothing."""
    prior = dice.Prior.from_anndata(reference)
    network, generator = deepcopy(prior.denoiser), torch.Generator().manual_seed(0)
    for weights in network.parameters():
        weights.copy_(0.1 * torch.randn(weights.shape, generator=generator))
    changed = reference.copy()
    changed.uns["dice"] = replace(prior, denoiser=network, labels=None, soft_clusters=None).to_arrays()
    return changed


def results(reference, query):
    """What the verbs write by default, but for novelty, which looks at projections alone (docs/concepts.md)."""
    query = query.copy()
    dice.tl.denoise(query, reference, n_samples=40)
    dice.tl.cluster(query, reference)
    dice.tl.transfer_labels(query, reference, "cell_type")
    dice.tl.tune_rho(query, reference)
    dice.tl.neighbors(query, n_samples=2)
    return {
        "mean": query.obsm["X_dice"],
        "samples": query.obsm["X_dice_samples"],
        "uncertainty": query.obs["dice_uncertainty"].to_numpy(),
        "region": np.array(dice.tl.credible_region(query, 0).radius),
        "clusters": query.obsp["dice_cluster_distances"].toarray(),
        "probabilities": query.obsm["cell_type_dice_prob"].to_numpy(),
        "rho": query.uns["dice_rho"]["loss"],
        "graph": query.obsp["dice_neighbors_connectivities"].toarray(),
    }


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_random_weights_change_every_default_result():
    """Once, the network that training spent its time on was never evaluated."""
    reference, query = pair()
    learned, random = results(reference, query), results(with_random_weights(reference), query)
    same = [name for name, values in learned.items() if np.array_equal(values, random[name])]
    assert same == []
