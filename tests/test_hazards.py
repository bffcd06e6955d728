"""One test for each hazard, for every kind of matrix and every call; test_stored_prior has the forged files."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from pathlib import Path
from typing import Any, ClassVar

import anndata as ad
import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from hazards import forged_files, forgery, fuzz, oddities
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dice
from dice._model.schema import checksum

settings.register_profile("ci", derandomize=True, max_examples=25, deadline=None, database=None)
settings.register_profile("long", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("DICE_HYPOTHESIS", "ci"))

PRIOR = dice.Prior.load(forgery.fixture("gmm"))
#: What a user does with a query, in order.
CALLS = {
    "denoise": lambda adata: dice.tl.denoise(adata, PRIOR, n_samples=3),
    "neighbors": lambda adata: dice.tl.neighbors(adata, PRIOR, n_neighbors=5, n_samples=3),
    "evaluate": lambda adata: dice.tl.evaluate(adata, "label", n_neighbors=5),
    "transfer_labels": lambda adata: dice.tl.transfer_labels(adata, oddities.labelled_reference(), "label"),
    "novelty": lambda adata: dice.tl.novelty(adata, oddities.labelled_reference()),
    "tune_rho": lambda adata: dice.tl.tune_rho(adata, PRIOR, grid=[0.5, 2]),
    "train_prior": lambda adata: dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=3)),
}
FORMS = {
    "dense": np.asarray,
    "fortran": np.asfortranarray,
    "float16": lambda x: x.astype(np.float16),
    "float64": lambda x: x.astype(np.float64),
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
    "csc_matrix": sparse.csc_matrix,
    "csc_array": sparse.csc_array,
    "dask": lambda x: da.from_array(x, chunks=(10, -1)),
}


def expression(n=40, seed=0):
    rng = np.random.default_rng(seed)
    rates = np.exp(rng.normal(size=(2, 20)))[np.arange(n) % 2]
    return np.log1p(rng.poisson(rates)).astype(np.float32)


def query(x=None, genes=oddities.GENES):
    x = expression() if x is None else x
    adata = ad.AnnData(x, obs=pd.DataFrame(index=[f"cell{i}" for i in range(x.shape[0])]))
    adata.var_names = list(genes)
    adata.obs["label"] = pd.Categorical(["a", "b"] * (x.shape[0] // 2) + ["a"] * (x.shape[0] % 2))
    return adata


def denoised(adata, **arguments):
    return np.asarray(dice.tl.denoise(adata, PRIOR, copy=True, **arguments).obsm["X_dice"])


def content(adata):
    """Bytes of everything that a call must not change."""
    x = adata.X
    parts = (x.data, x.indices, x.indptr) if sparse.issparse(x) else (np.asarray(x),)
    return [part.tobytes() for part in parts] + [adata.obs_names.tolist(), adata.var_names.tolist()]


# ---- input of every kind -----------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_the_kind_of_matrix_does_not_matter(form):
    expected = denoised(query(np.asarray(FORMS["float16"](expression()), dtype=np.float32)))
    x = expression().astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(denoised(query(FORMS[form](x))), expected, atol=1e-4)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64])
def test_whole_numbers_are_numbers(dtype):
    x = (expression() > 1).astype(dtype)
    np.testing.assert_allclose(denoised(query(x), check=False), denoised(query(x.astype(np.float32)), check=False))


@pytest.mark.parametrize("form", [form for form in FORMS if form != "dask"])
@pytest.mark.parametrize("call", ["denoise", "train_prior"])
def test_no_byte_of_the_input_changes(form, call):
    adata = query(FORMS[form](expression()))
    before = content(adata)
    CALLS[call](adata)
    assert content(adata) == before


@pytest.mark.filterwarnings(
    "ignore:Posterior samples do not hold:dice.DiceWarning",
    "ignore:Single cells are not tested",
    "ignore:The query differs",
)
@pytest.mark.filterwarnings("ignore:With 36 calibration cells none of")
def test_no_byte_of_the_input_changes_in_a_whole_analysis():
    adata = query()
    before = content(adata)
    for call in CALLS.values():
        call(adata)
    assert content(adata) == before
    stored = copy.deepcopy(adata.uns["dice"])
    dice.tl.denoise(query(), adata)
    assert stored["sha256"] == checksum(adata.uns["dice"])


@pytest.mark.filterwarnings("ignore:Setting element:anndata.ImplicitModificationWarning")
def test_views():
    adata = query()
    half = adata[::2]
    dice.tl.denoise(half, PRIOR)
    np.testing.assert_allclose(half.obsm["X_dice"], denoised(adata[::2].copy()), atol=1e-5)
    assert "X_dice" not in adata.obsm


@pytest.mark.parametrize(
    "spoil",
    [
        lambda names: names[:3] + names[:1] + names[4:],
        lambda names: [names[0], np.nan, *names[2:]],
        lambda names: pd.CategoricalIndex(names),
        lambda names: names[::-1],
    ],
    ids=["duplicate", "missing", "categorical", "permuted"],
)
@pytest.mark.filterwarnings("ignore:\\s*AnnData expects", "ignore:Variable names are not unique")
def test_odd_gene_names_are_matched_or_refused(spoil):
    """Whatever the names are: the right genes are used, or one sentence says why not."""
    adata = query()
    adata.var_names = spoil(list(oddities.GENES))
    if not adata.var_names.is_unique:
        with pytest.raises(dice.DiceError, match=r"duplicate names, for example \['GENE0'\]"):
            dice.tl.denoise(adata, PRIOR)
        return
    found = [name for name in oddities.GENES if name in set(adata.var_names)]
    plain = query(np.asarray(adata[:, found].X), found)
    np.testing.assert_allclose(denoised(adata), denoised(plain), atol=1e-4)


def test_constant_genes_say_nothing():
    adata = query()
    adata.X[:, 3] = 2.0
    dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=3))
    assert np.abs(adata.varm["dice_loadings"][3]).max() < 1e-6
    adata.X[:] = 1
    with pytest.raises(dice.DiceError, match="No gene varies"):
        dice.tl.train_prior(adata, n_latent=3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n_latent": 40}, "`n_latent` must be a number from 1 to 19 or .elbow., got 40"),
        ({"labels_key": "one"}, "at least two labels, got 1"),
        ({"layer": "none"}, "no layer 'none'"),
    ],
)
def test_what_cannot_be_learned(arguments, sentence):
    adata = query()
    adata.obs["one"] = "same"
    before = oddities.slots(adata)
    with pytest.raises(dice.DiceError, match=sentence):
        dice.tl.train_prior(adata, **arguments)
    assert oddities.slots(adata) == before


@pytest.mark.parametrize("n_cells", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_nobody_and_a_single_cell(form, n_cells):
    adata = query(FORMS[form](expression()[:n_cells].astype(np.float16).astype(np.float32)))
    dice.tl.denoise(adata, PRIOR, n_samples=2)
    assert adata.obsm["X_dice"].shape == (n_cells, 3)
    assert adata.obsm["X_dice_samples"].shape == (n_cells, 2, 3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", ["denoise", "train_prior", "transfer_labels", "novelty", "tune_rho"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named_by_their_cell(form, call, value):
    x = expression()
    x[7, 3] = value
    adata = query(FORMS[form](x))
    before = oddities.slots(adata)
    with pytest.raises(dice.DiceError, match=r"1 cells hold NaN or infinite values, for example \['cell7'\]"):
        CALLS[call](adata)
    assert oddities.slots(adata) == before


def test_a_loss_that_is_not_finite_ends_the_training(monkeypatch):
    def loss(self, clean, generator):
        return self.outlet.bias.sum() * torch.nan

    monkeypatch.setattr("dice._model.networks.depth.DepthDenoiser.loss", loss)
    adata = query()
    with pytest.raises(dice.DiceError, match=r"training loss became nan at step 1 .* smaller learning_rate"):
        dice.tl.train_prior(adata, n_latent=3)
    assert not adata.uns


# ---- properties --------------------------------------------------------------------------------

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_permuted_genes_and_cells_permute_the_output(seed):
    rng = np.random.default_rng(seed)
    adata = query(expression(12, seed))
    order, genes = rng.permutation(12), rng.permutation(20)
    expected = denoised(adata)[order]
    np.testing.assert_allclose(denoised(adata[order][:, genes].copy()), expected, atol=1e-4)


@given(seeds, st.integers(1, 13))
def test_the_chunk_size_does_not_matter(seed, size):
    adata = query(expression(12, seed))
    with dice.settings.using(chunk_size=size):
        found = denoised(adata)
    np.testing.assert_allclose(found, denoised(adata), atol=1e-4)


@given(seeds)
def test_noise_to_zero_gives_the_data_and_to_infinity_the_prior(seed):
    adata = query(expression(6, seed))
    data = dice.tl.denoise(adata, PRIOR, rho=0, copy=True, likelihood=dice.Gaussian(1e-4), shift=False).obsm
    np.testing.assert_allclose(data["X_dice"], data["X_dice_pca"], atol=1e-2)
    mean = PRIOR.denoiser.weights @ PRIOR.denoiser.means * PRIOR.latent_scale
    far = denoised(adata, rho=1e7)
    np.testing.assert_allclose(far, np.broadcast_to(mean, far.shape), atol=0.05 * PRIOR.latent_scale)


@given(seeds, st.floats(0.1, 10))
def test_a_gaussian_prior_gives_the_closed_form(seed, rho):
    """With one component, E[U | y] = mu + S (S + s^2 I)^-1 (y - mu)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 20)).astype(np.float32) @ rng.normal(size=(20, 20)).astype(np.float32)
    reference = query(x)
    dice.tl.train_prior(reference, n_latent=3, preset="gmm", scale=False, check=False)
    prior = dice.Prior.from_anndata(reference)
    if prior.denoiser.n_components > 1:
        return
    dice.tl.denoise(reference, rho=rho, check=False, likelihood=dice.Gaussian(1.0), shift=False)
    mixture, scale = prior.denoiser, prior.latent_scale
    mean = mixture.means[0].numpy() * scale
    axes, variances = mixture.axes[0].numpy(), mixture.variances[0].numpy() * scale**2
    gain = axes @ np.diag(variances / (variances + rho**2 + 1)) @ axes.T
    expected = mean + (reference.obsm["X_dice_pca"] - mean) @ gain.T
    np.testing.assert_allclose(reference.obsm["X_dice"], expected, atol=1e-3 * scale)


@given(seeds)
def test_any_changed_byte_of_a_stored_prior_is_refused(seed):
    """Without a new checksum, nothing but the original passes."""
    rng = np.random.default_rng(seed)
    raw = copy.deepcopy(forgery.stored(str(rng.choice(forgery.KINDS))))
    tables = [raw, *(raw[name] for name in ("weights", "measurement", "labels") if name in raw)]
    table = tables[rng.integers(len(tables))]
    arrays = [name for name, value in table.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    array = table[arrays[rng.integers(len(arrays))]]
    array.reshape(-1).view(np.uint8)[rng.integers(array.nbytes)] ^= np.uint8(1 << rng.integers(8))
    with pytest.raises(dice.DiceError):
        dice.Prior.from_arrays(raw)


@pytest.mark.parametrize("kind", forgery.KINDS)
def test_an_array_without_values_is_refused_wherever_it_stands(kind):
    """HDF5 has arrays that have a type and no shape."""
    stored = forgery.stored(kind)
    tables = [(name, entry) for name, value in stored.items() if isinstance(value, dict) for entry in value]
    for name, entry in [*((name, None) for name in stored), *tables]:
        raw = copy.deepcopy(stored)
        if entry is None:
            raw[name] = h5py.Empty("f4")
        else:
            raw[name][entry] = h5py.Empty("f4")
        with pytest.raises(dice.DiceError) as caught:
            dice.Prior.from_arrays(raw)
        forgery.assert_sentence(caught.value)


@given(seeds)
@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_forged_priors_are_refused_or_correct(seed):
    assert forgery.verdict(forgery.forge(np.random.default_rng(seed))) in ("refused", "accepted")


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    """A folder in which every door has let the honest file in, so that all that doors load is loaded."""
    folder, cache = tmp_path_factory.mktemp("doors"), os.environ.get("DICE_CACHE")
    forged_files.warm_up(folder)
    yield folder
    os.environ.pop("DICE_CACHE", None)
    if cache is not None:
        os.environ["DICE_CACHE"] = cache


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured on Linux only")
@pytest.mark.parametrize("change", [*forged_files.HDF5, *forged_files.ZARR], ids=lambda change: change.__name__)
@pytest.mark.filterwarnings("ignore")
def test_forged_files_are_refused_at_every_door(change, doors):
    for seed in range(2):
        assert forged_files.verdict(np.random.default_rng(seed), doors, change) == "refused"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured on Linux only")
@pytest.mark.parametrize("change", forged_files.ANYWHERE, ids=lambda change: change.__name__)
@pytest.mark.filterwarnings("ignore")
def test_forged_cells_are_refused_at_every_door_that_reads_them(change, doors):
    for seed in range(3):
        assert forged_files.verdict_on_cells(np.random.default_rng(seed), doors, change) in ("refused", "accepted")


@given(seeds)
@pytest.mark.filterwarnings("ignore")
def test_odd_objects_and_arguments_are_refused_or_served(seed):
    assert oddities.verdict(np.random.default_rng(seed)) in ("refused", "accepted")


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_names_of_cells_may_be_any_text():
    """Also text that UTF-8 does not have, as half of a pair of surrogates."""
    adata = query()
    adata.obs_names = [f"\ud800{i}" for i in range(40)]
    dice.tl.denoise(adata, PRIOR)
    dice.tl.transfer_labels(adata, oddities.labelled_reference(), "label")
    assert np.isfinite(adata.obsm["X_dice"]).all()


OWN_KEYS = {
    "denoise": lambda adata, key: dice.tl.denoise(adata, PRIOR, key_added=key),
    "transfer_labels": lambda adata, key: dice.tl.transfer_labels(
        adata, oddities.labelled_reference(), "label", key_added=key
    ),
    "novelty": lambda adata, key: dice.tl.novelty(adata, oddities.labelled_reference(), key_added=key),
    "cluster": lambda adata, key: dice.tl.cluster(adata, oddities.labelled_reference(), use_rep="X", key_added=key),
    "correct_batches": lambda adata, key: dice.pp.correct_batches(adata, "label", n_comps=2, layer_added=key),
}


@pytest.mark.parametrize("call", OWN_KEYS)
def test_what_the_user_keeps_under_a_key_is_not_replaced(call):
    adata, own = query(), np.ones((40, 2), dtype=np.float32)
    adata.obs["label"] = ["a", "b"] * 20
    adata.obs["own"], adata.obsm["own"], adata.layers["own"] = "kept", own, adata.X + 1
    before = oddities.slots(adata)
    with pytest.raises(
        dice.DiceError, match=r"\['own'\] was not written by dice and would be overwritten: pass another"
    ):
        OWN_KEYS[call](adata, "own")
    assert oddities.slots(adata) == before
    assert (adata.obs["own"] == "kept").all()


def test_clusters_and_graphs_of_scanpy_are_not_replaced():
    """They have a record in ``uns``, which was taken for one of dice."""
    adata = query()
    dice.tl.denoise(adata, PRIOR)
    adata.obs["leiden"], adata.uns["leiden"] = "kept", {"params": {"resolution": 1.0}}
    adata.obsp["own_connectivities"] = np.eye(40)
    adata.uns["graph"] = {"connectivities_key": "connectivities", "params": {"n_neighbors": 15}}
    before = oddities.slots(adata)
    for verb, key in ((dice.tl.cluster, "leiden"), (dice.tl.neighbors, "own"), (dice.tl.neighbors, "graph")):
        with pytest.raises(dice.DiceError, match=rf"\['{key}\w*'\] was not written by dice and would be overwritten"):
            verb(adata, PRIOR, key_added=key)
    assert oddities.slots(adata) == before


def test_a_graph_and_proteins_under_a_key_are_replaced():
    adata = query()
    adata.obsm["protein"] = np.arange(80.0).reshape(40, 2)
    dice.tl.denoise(adata, PRIOR)
    for n_neighbors, across in ((5, "features"), (7, "cells")):
        dice.tl.neighbors(adata, PRIOR, key_added="own", n_neighbors=n_neighbors, n_samples=2)
        dice.pp.clr(adata, across=across)
    assert adata.uns["own"]["params"]["n_neighbors"] == 7
    assert adata.uns["protein_clr"]["params"]["across"] == "cells"


def test_results_under_a_key_are_replaced():
    adata = query()
    for rho in (0.5, 1.0):
        dice.tl.denoise(adata, PRIOR, key_added="own", rho=rho)
    assert adata.uns["own"]["params"]["rho"] == 1.0


def test_round_trip_is_the_identity(tmp_path: Path):
    for kind in forgery.KINDS:
        prior = dice.Prior.load(forgery.fixture(kind))
        prior.save(tmp_path / "prior.h5ad")
        again = dice.Prior.load(tmp_path / "prior.h5ad").to_arrays()
        assert again["sha256"] == prior.to_arrays()["sha256"] == forgery.stored(kind)["sha256"]


class Unpickled:
    """Keeps the frame that unpickles it."""

    frames: ClassVar[list[Any]] = []

    def __reduce__(self):
        return Unpickled.told, ()

    @staticmethod
    def told():
        Unpickled.frames.append(sys._getframe(1))
        return Unpickled()


def test_the_fuzz_knows_what_dask_has_pickled_itself():
    """dask pickles the steps of a stream and looks their classes up again. No other look-up is overlooked."""
    from dask.tokenize import tokenize

    Unpickled.frames = []
    tokenize(Unpickled())
    by_dask = [fuzz.is_own_pickle(frame) for frame in Unpickled.frames]
    assert by_dask
    assert all(by_dask)
    Unpickled.frames = []
    pickle.loads(pickle.dumps(Unpickled()))
    assert [fuzz.is_own_pickle(frame) for frame in Unpickled.frames] == [False]
