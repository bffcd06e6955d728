"""A prior is verified once for every object that holds it, and never goes unnoticed when it changes."""

from __future__ import annotations

import copy
import gc

import anndata as ad
import numpy as np
import pytest

import dice
from dice._data import store
from dice._data.store import find_prior, known_prior, remember
from dice._model import schema


@pytest.fixture
def holder(prior):
    """An object of its own for every test."""
    cells = ad.AnnData(np.random.default_rng(0).gamma(2, 1, size=(40, len(prior.genes))).astype(np.float32))
    cells.uns["dice"] = copy.deepcopy(prior.to_arrays())
    return cells


@pytest.fixture
def verified(monkeypatch):
    """Counts how often a stored prior is verified."""
    calls = []
    real = schema.validate

    def counting(raw):
        calls.append(1)
        return real(raw)

    monkeypatch.setattr(schema, "validate", counting)
    return calls


def test_a_prior_is_verified_once(holder, verified):
    first = find_prior(holder)
    assert find_prior(holder) is first
    assert len(verified) == 1
    assert first.sha256 == holder.uns["dice"]["sha256"] == dice.Prior.from_anndata(holder).sha256
    assert find_prior(first) is first


def test_another_object_has_a_prior_of_its_own(holder, verified):
    one, other = find_prior(holder), find_prior(holder.copy())
    assert len(verified) == 2
    assert one is not other
    assert one.sha256 == other.sha256


@pytest.mark.parametrize(
    "edit",
    [
        lambda raw: raw["mean"].__setitem__(0, 9),
        lambda raw: raw["weights"][sorted(raw["weights"])[0]].fill(1),
        lambda raw: raw.update(latent_scale=raw["latent_scale"] * 2),
        lambda raw: raw.update(config=raw["config"].replace("gmm", "ggm")),
        lambda raw: raw["genes"].__setitem__(0, "another"),
        lambda raw: raw["statistics"].update(more=1.0),
        lambda raw: raw.pop("loadings"),
        lambda raw: raw.update(weights=raw),
        lambda raw: raw.update(mean=None),
    ],
    ids=["array", "weights", "number", "text", "names", "more", "less", "circle", "nothing"],
)
def test_an_edited_prior_is_refused(holder, edit):
    kept = find_prior(holder)
    mean = kept.projection.mean.copy()
    edit(holder.uns["dice"])
    with pytest.raises(dice.DiceError):
        find_prior(holder)
    # What was verified stays as it was, also for those who use it still.
    np.testing.assert_array_equal(kept.projection.mean, mean)


def test_a_replaced_prior_is_seen(holder):
    first = find_prior(holder)
    other = copy.deepcopy(holder)
    dice.tl.train_prior(other, n_latent=2, preset="gmm", random_state=5)
    holder.uns["dice"] = other.uns["dice"]
    assert find_prior(holder).sha256 == other.uns["dice"]["sha256"] != first.sha256
    del holder.uns["dice"]
    with pytest.raises(dice.DiceError, match="No prior found"):
        find_prior(holder)


def test_keys_are_kept_apart(holder):
    holder.uns["atlas"] = holder.uns.pop("dice")
    assert find_prior(holder, key="atlas").sha256 == holder.uns["atlas"]["sha256"]
    with pytest.raises(dice.DiceError, match="No prior found"):
        find_prior(holder)


def test_a_fresh_prior_is_remembered(holder, verified):
    prior = dice.Prior.from_anndata(holder)
    verified.clear()
    kept = remember(holder, prior)
    assert find_prior(holder) is kept
    assert not verified
    assert not np.shares_memory(kept.projection.mean, holder.uns["dice"]["mean"])


def test_priors_in_use_are_known_by_their_checksum(holder):
    prior = find_prior(holder)
    assert known_prior(prior.sha256).sha256 == prior.sha256
    assert known_prior("no such prior") is None


def test_a_prior_is_known_as_long_as_any_equal_one_lives(holder):
    prior = find_prior(holder)
    other = dice.Prior.from_anndata(holder)
    assert other.sha256 == prior.sha256
    del other
    gc.collect()
    assert known_prior(prior.sha256) is not None


def test_nothing_outlives_its_object(holder):
    own = holder.copy()
    dice.tl.train_prior(own, n_latent=2, preset="gmm", random_state=7)
    sha256 = find_prior(own).sha256
    places = len(store._verified)
    del own
    gc.collect()
    assert len(store._verified) < places
    assert known_prior(sha256) is None


def test_a_prior_in_a_file_is_read_each_time(holder, tmp_path, verified):
    find_prior(holder).save(tmp_path / "prior.h5ad")
    verified.clear()
    one, other = (find_prior(tmp_path / "prior.h5ad") for _ in range(2))
    assert one.sha256 == other.sha256 == holder.uns["dice"]["sha256"]
    assert len(verified) == 2
    with pytest.raises(dice.DiceError, match=r"must be an AnnData object, a prior, a path or a name"):
        find_prior(3)


def test_views_find_the_prior(holder):
    view = holder[:10]
    assert isinstance(view, ad.AnnData)
    assert find_prior(view).sha256 == find_prior(holder).sha256
    assert view.is_view
