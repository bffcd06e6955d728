"""Learning a prior: what is written, what it is worth, and what is refused."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
import torch
from oracle import exact_mixture
from scipy import sparse

import dice
from dice._model.pca import elbow


def small(n=120, d=40, seed=0, *, counts=True):
    """Log-normalised expression of two easily told cell types; or values that are no counts, whose noise is assumed."""
    rng = np.random.default_rng(seed)
    types = np.repeat([0, 1], n // 2)
    rates = np.exp(rng.normal(size=(2, d)))[types]
    expression = np.log1p(rng.poisson(rates) / rates.sum(1, keepdims=True) * 100)
    expression = expression if counts else expression * np.linspace(0.9, 1.1, d)
    adata = ad.AnnData(sparse.csr_matrix(expression.astype(np.float32)))
    adata.obs["cell_type"] = np.array(["a", "b"])[types]
    return adata


@pytest.mark.parametrize(("rho", "bound"), [(20, 0.35), (30, 0.30), (60, 0.20)])
@pytest.mark.parametrize("setup", [1, 2, 3, 4])
def test_posterior_mean_is_close_to_the_exact_one(reference, setup, rho, bound):
    """RMSE to the exact posterior mean, relative to the distance that there is to go.

    All setups have the same reference; benchmarks/train.py --oracle repeats this for five seeds.
    """
    _, query = dice.datasets.synthetic(setup)
    prior = dice.Prior.from_anndata(reference)
    y = torch.as_tensor(prior.projection.project(query.X))
    s = torch.tensor(np.hypot(1.0 if setup in (1, 3) else 10**0.5, rho), dtype=torch.float32)
    target = exact_mixture(reference, prior)(y.double(), s.double())
    error = (prior.denoise(y, s) - target).square().mean().sqrt()
    assert error / (y - target).square().mean().sqrt() < bound


def test_slots(reference):
    k = dice.Prior.from_anndata(reference).n_latent
    assert reference.varm["dice_loadings"].shape == (2000, k)
    assert reference.obsm["X_dice_pca"].shape == (1600, k)
    assert reference.obsm["X_dice_pca"].dtype == np.float32
    stored = reference.uns["dice"]
    assert stored["format"] == 5
    assert len(stored["sha256"]) == 64
    prior = dice.Prior.from_anndata(reference)
    np.testing.assert_allclose(prior.projection.project(reference.X), reference.obsm["X_dice_pca"], atol=1e-3)
    assert prior.projection.noise == pytest.approx(1, abs=0.02)
    roles = reference.obs["dice_split"]
    assert roles.value_counts()[["train", "validation", "calibration"]].tolist() == [1280, 160, 160]
    seen = (roles != "calibration").to_numpy()
    variances = reference.obsm["X_dice_pca"][seen].var(0)
    assert prior.latent_scale == pytest.approx(np.sqrt(variances.mean()), rel=1e-5)
    np.testing.assert_array_equal(prior.calibration["y"], reference.obsm["X_dice_pca"][~seen])
    assert prior.calibration["residual"].mean() == pytest.approx(1, abs=0.03)


def test_calibration_cells_leave_no_trace_in_the_prior():
    """Whatever they express, nothing that was learned changes."""
    one, other = small(), small()
    dice.tl.train_prior(one, n_latent=3, training=dice.Training(max_steps=5))
    kept = (one.obs["dice_split"] == "calibration").to_numpy()
    dense = other.X.toarray()
    dense[kept] = dense[kept][::-1]
    other.X = sparse.csr_matrix(dense)
    dice.tl.train_prior(other, n_latent=3, training=dice.Training(max_steps=5))
    first, second = (adata.uns["dice"] for adata in (one, other))
    for name in ("mean", "scale", "loadings", "singular_values", "gene_noise", "latent_scale", "noise"):
        np.testing.assert_array_equal(first[name], second[name])
    for name, weight in first["weights"].items():
        np.testing.assert_array_equal(weight, second["weights"][name])
    assert not np.array_equal(first["calibration"]["y"], second["calibration"]["y"])


def test_no_calibration_cells_on_request():
    adata = small()
    dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=5, calibration_fraction=0))
    assert "calibration" not in adata.uns["dice"]
    assert set(adata.obs["dice_split"]) == {"train", "validation"}


def test_copy_leaves_the_input_alone():
    adata = small()
    result = dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=5), copy=True)
    assert "dice" in result.uns
    assert not any((adata.uns, adata.varm, adata.obsm))


def test_same_seed_same_prior_and_global_random_state_untouched():
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    digests = []
    for seed in (0, 0, 1):
        adata = small()
        dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=30), random_state=seed)
        digests.append(adata.uns["dice"]["sha256"])
    assert digests[0] == digests[1] != digests[2]
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize("preset", ["default", "gmm"])
def test_a_generator_gives_the_seed(preset):
    digests = []
    for _ in range(2):
        adata, training = small(), dice.Training(max_steps=2 if preset == "default" else None)
        state = np.random.default_rng(5)
        dice.tl.train_prior(adata, n_latent=3, preset=preset, training=training, random_state=state)
        digests.append(adata.uns["dice"]["sha256"])
    assert digests[0] == digests[1]
    assert dice.Prior.from_anndata(adata).params["random_state"] > 2**32


def test_highly_variable_genes_are_the_default_mask():
    adata = small()
    adata.var["highly_variable"] = np.arange(40) < 25
    dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=5))
    assert list(adata.uns["dice"]["genes"]) == sorted(adata.var_names[:25])
    assert not adata.varm["dice_loadings"][25:].any()


@pytest.mark.parametrize("counts", [True, False])
def test_labels_do_not_change_the_denoiser(counts):
    plain, labelled = small(200, counts=counts), small(200, counts=counts)
    settings = {"n_latent": 3, "training": dice.Training(max_steps=5)}
    dice.tl.train_prior(plain, **settings)
    dice.tl.train_prior(labelled, **settings, labels_key="cell_type")
    for name, weights in plain.uns["dice"]["weights"].items():
        np.testing.assert_array_equal(labelled.uns["dice"]["weights"][name], weights)


@pytest.mark.parametrize("preset", ["gmm", "paper-small"])
def test_other_presets_denoise_too(preset, query):
    reference, _ = dice.datasets.synthetic(1)
    training = dice.Training(max_steps=None if preset == "gmm" else 10)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset=preset, training=training)
    dice.tl.denoise(query, reference, rho=20)
    assert np.isfinite(query.obsm["X_dice"]).all()


@pytest.mark.filterwarnings("ignore:Labels with only one cell are left out")
@pytest.mark.parametrize("preset", ["default", "paper-small"])
def test_labels_may_be_rare_or_missing(preset):
    adata = small(100)
    labels = adata.obs["cell_type"].astype(object)
    labels.iloc[:30] = np.nan
    labels.iloc[-1] = "the only one"
    adata.obs["cell_type"] = labels
    dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=5), labels_key="cell_type", preset=preset)
    assert np.isfinite(adata.uns["dice"]["history"]["loss"]).all()


def test_mixup_is_recorded_and_can_be_turned_off():
    plain, off, on = small(), small(), small()
    settings = {"n_latent": 3, "preset": "paper-small", "training": dice.Training(max_steps=5)}
    dice.tl.train_prior(plain, **settings)
    dice.tl.train_prior(off, **settings, labels_key="cell_type", mixup=None)
    dice.tl.train_prior(on, **settings, labels_key="cell_type", mixup=dice.Mixup(points=3, concentration=2.0))
    params = [dice.Prior.from_anndata(adata).params for adata in (plain, off, on)]
    assert "mixup_points" not in params[0]
    assert "mixup_points" not in params[1]
    assert params[1]["labels_key"] == "cell_type"
    recorded = {"mixup_points": 3, "mixup_probability": 0.9, "mixup_concentration": 2.0}
    assert recorded.items() <= params[2].items()
    weights = [adata.uns["dice"]["weights"]["inlet.weight"] for adata in (plain, off, on)]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_the_papers_presets_mix_five_cells():
    adata, training = small(), dice.Training(max_steps=2)
    dice.tl.train_prior(adata, n_latent=3, labels_key="cell_type", preset="paper-small", training=training)
    assert dice.Prior.from_anndata(adata).params["mixup_points"] == 5


def test_small_references_may_be_sorted_by_type():
    """All cells fit into one batch; each must still meet all noise levels, or large noise means the last type."""
    adata = small(400, counts=False)
    dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=200))
    assert dice.Prior.from_anndata(adata).history["validation"].min() < 0.9
    dice.tl.denoise(adata, rho=3)
    mean = {name: adata.obsm["X_dice"][adata.obs["cell_type"] == name, 0].mean() for name in "ab"}
    assert abs(mean["a"] - mean["b"]) > 4


def test_reference_statistics_are_kept():
    adata = small()
    dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=2))
    statistics = dice.Prior.from_anndata(adata).statistics
    assert statistics["maximum"] == pytest.approx(adata.X.max())
    assert statistics["counts"] == 0


def test_scaled_genes_are_learned_from_where_nothing_is_checked():
    adata = scaled()
    dice.tl.train_prior(adata, n_latent=4, training=dice.Training(max_steps=3), check=False)
    assert dice.Prior.from_anndata(adata).n_latent == 4


def test_only_a_prior_is_replaced_under_its_key():
    adata, theirs = small(), {"score": 1.0}
    adata.uns["dice"] = theirs
    with pytest.raises(dice.DiceError, match=r"adata.uns\['dice'\] was not written by dice.*pass another key_added"):
        dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=2))
    assert adata.uns == {"dice": theirs}
    for seed in (0, 1):  # An earlier prior of ours is.
        dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=2), key_added="mine", random_state=seed)
    assert dice.Prior.from_anndata(adata, key="mine").params["random_state"] == 1
    assert adata.uns["dice"] is theirs


@pytest.mark.parametrize(("shape", "k"), [((120, 40), 20), ((30, 70), 13), ((130, 110), 50)])
def test_number_of_latents_by_default(shape, k):
    """50, as long as half of the cells and genes are left."""
    adata = small(*shape)
    dice.tl.train_prior(adata, training=dice.Training(max_steps=1))
    prior = dice.Prior.from_anndata(adata)
    assert prior.n_latent == k
    assert prior.params["n_latent"] == "auto"


def test_the_elbow_and_the_whole_spectrum_are_recorded():
    adata = small()
    dice.tl.train_prior(adata, n_latent="elbow", training=dice.Training(max_steps=2))
    prior = dice.Prior.from_anndata(adata)
    assert prior.params["n_latent"] == "elbow"
    assert len(prior.projection.singular_values) == 40
    assert prior.n_latent == elbow(prior.projection.singular_values)


def test_cells_without_expression_and_constant_genes_are_learned_from():
    adata = small()
    adata.X = adata.X.toarray()
    adata.X[:3] = 0
    adata.X[:, :2] = 1.5
    adata.X[:3, :2] = 1.5
    dice.tl.train_prior(adata, n_latent=3, training=dice.Training(max_steps=2))
    assert np.isfinite(adata.obsm["X_dice_pca"]).all()
    np.testing.assert_allclose(adata.varm["dice_loadings"][:2], 0, atol=1e-6)


def counts():
    adata = small()
    adata.layers["raw"] = sparse.csr_matrix(np.random.default_rng(0).poisson(5, adata.shape).astype(np.float32))
    return adata


def with_nan():
    adata = small()
    adata.X = adata.X.toarray()
    adata.X[3, 4] = np.nan
    return adata


def with_duplicates():
    adata = small()
    adata.var_names = ["gene"] * 40
    return adata


def scaled():
    adata = small()
    adata.X = adata.X.toarray()
    sc.pp.scale(adata, max_value=10)
    return adata


GMM = {"preset": "gmm", "training": dice.Training()}


def one_class():
    adata = small()
    adata.obs["cell_type"] = "a"
    return adata


@pytest.mark.parametrize(
    ("make", "arguments", "sentence"),
    [
        (counts, {"layer": "raw"}, "sc.pp.normalize_total"),
        (scaled, {}, r"were scaled or centred \(the smallest value is -.*from before sc.pp.scale.*or pass check=False"),
        (with_nan, {}, r"1 cells hold NaN or infinite values, for example \['3'\]"),
        (with_duplicates, {}, r"var_names_make_unique"),
        (one_class, {"labels_key": "cell_type"}, "at least two"),
        (small, {"labels_key": "nothing"}, "no column 'nothing' in adata.obs"),
        (small, {"n_latent": 40}, "must be a number from 1 to 39"),
        (small, {"n_latent": 0}, "must be a number from 1 to 39"),
        (small, {"preset": "huge"}, "`preset` must be one of .*got 'huge'"),
        (small, {"layer": "nothing"}, "There is no layer 'nothing'"),
        (small, {"mask_var": "nothing"}, "There is no column 'nothing' in adata.var"),
        (small, {"mixup": "noise"}, "`mixup` must be 'auto', None or a dice.Mixup, got"),
        (small, {"key_added": "a/b"}, "`key_added` must be .*got 'a/b'"),
        (small, {"mixup": dice.Mixup(), "preset": "paper"}, "name their column of adata.obs with labels_key="),
        (small, {"mixup": dice.Mixup(), "labels_key": "cell_type"}, "only paper and paper-small do: leave mixup out"),
        (small, GMM | {"mixup": dice.Mixup(), "labels_key": "cell_type"}, "leave mixup out"),
        (small, GMM | {"training": dice.Training(validation_fraction=0)}, "chooses its size on held-out cells"),
        (small, GMM | {"training": dice.Training(max_steps=5)}, "leave max_steps out"),
        (small, {"training": {"max_steps": 5}}, "`training` must be a dice.Training, got"),
        (small, {"training": dice.Training(learning_rate=1e6, max_steps=100)}, "smaller learning_rate"),
        (lambda: small(6), {"n_latent": 10}, "`n_latent` must be a number from 1 to 4 or"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(make, arguments, sentence):
    adata = make()
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        dice.tl.train_prior(adata, **{"n_latent": 3, "training": dice.Training(max_steps=5)} | arguments)
    assert "\n" not in str(caught.value)
    assert not any((adata.uns, adata.varm, adata.obsm))


@pytest.mark.parametrize(
    ("settings", "arguments", "sentence"),
    [
        (dice.Training, {"validation_fraction": 0.9}, "must be a number from 0 to 0.5"),
        (dice.Mixup, {"points": "a"}, "`points` must be .*got 'a'"),
        (dice.Mixup, {"points": 101}, "`points` must be .*got 101"),
        (dice.Training, {"validation_fraction": "a"}, "`validation_fraction` must be .*got 'a'"),
        (
            dice.Training,
            {"calibration_fraction": 0.6},
            "`calibration_fraction` must be .*0 to 0.5, got 0.6",
        ),
        (dice.Training, {"checkpoint": 3}, "`checkpoint` must be .*got 3"),
        (dice.Training, {"max_steps": True}, "`max_steps` must be .*got True"),
        (dice.Mixup, {"points": 1}, "`points` must be .*got 1"),
        (dice.Mixup, {"points": 2.5}, "`points` must be .*got 2.5"),
        (dice.Mixup, {"probability": 1.1}, "`probability` must be .*got 1.1"),
        (dice.Mixup, {"concentration": 0}, "`concentration` must be .*got 0"),
    ],
)
def test_bad_settings_are_one_sentence(settings, arguments, sentence):
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        settings(**arguments)
    assert "\n" not in str(caught.value)


def test_the_device_is_that_of_the_settings(monkeypatch):
    monkeypatch.setattr(dice.settings, "device", "toaster")
    with pytest.raises(dice.DiceError, match="'toaster' cannot be used"):
        dice.tl.train_prior(small(), n_latent=3)


def test_it_says_what_it_learns_from(capsys):
    reference = small()
    reference.obs["cell_type"] = np.where(np.arange(120) < 7, "rare", reference.obs["cell_type"].astype(object))
    reference.var["highly_variable"] = np.arange(40) < 30
    dice.tl.train_prior(reference, labels_key="cell_type", training=dice.Training(max_steps=2))
    said = capsys.readouterr().err
    assert "Prior of 30 of 40 genes (marked in adata.var['highly_variable']) and 120 cells (96 for training" in said
    assert "with 3 labels, with few cells of rare (7)." in said
    with dice.settings.using(verbosity=0):
        dice.tl.train_prior(reference, training=dice.Training(max_steps=2))
    assert not capsys.readouterr().err
