"""AnnData objects and arguments as odd as users, files and other packages make them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse

import dice
from hazards.forgery import assert_sentence, fixture

GENES = [f"GENE{index}" for index in range(20)]
#: What may stand where an argument is expected.
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2.5,
    np.nan,
    np.inf,
    "",
    "x",
    "\ud800",
    b"x",
    [],
    [1, "a"],
    {},
    object(),
    np.zeros(3),
]

#: A number that is too large for anything, and arguments for which it only means a long wait.
ENDLESS, LONG = 10**12, ("max_steps", "n_iterations")
#: Fields of settings objects that are tried as if they were arguments, by the argument that takes the object.
FIELDS: dict[str, dict[str, Any]] = {
    "likelihood": {"noise": dice.Gaussian, "df": dice.StudentT, "per_gene": dice.StudentT},
    "method": dict.fromkeys(("n_chains", "n_iterations", "burn_in", "schedule", "average", "fast"), dice.Gibbs),
    "check": {"min_gene_overlap": dice.Checks},
    "shift": {"strategy": dice.Shift, "batch_key": dice.Shift},
    "sets": {"set_method": dice.Sets},
    "classifier": {"representation": dice.Classifier, "min_probability": dice.Classifier},
    "mixup": {"mixup_points": dice.Mixup, "mixup_probability": dice.Mixup, "mixup_concentration": dice.Mixup},
    "training": dict.fromkeys(
        ("max_steps", "batch_size", "learning_rate", "validation_fraction", "checkpoint"), dice.Training
    ),
}
#: Names of fields where another argument has the same.
RENAMED = {
    "set_method": "method",
    "mixup_points": "points",
    "mixup_probability": "probability",
    "mixup_concentration": "concentration",
}
#: Package-wide settings that are tried.
SETTINGS = ("chunk_size", "device")
ODD.append(ENDLESS)

Rng = np.random.Generator
Call = Callable[..., Any]


def calling(verb: Call, **defaults: Any) -> Call:
    """A verb whose settings are arguments of their own, so that each of them may be odd."""

    def call(adata: ad.AnnData, **kwargs: Any) -> Any:
        given = defaults | kwargs
        used = {name: given.pop(name) for name in SETTINGS if name in given}
        for argument, fields in FIELDS.items():
            own = [name for name in fields if name in given]
            # Of several objects that one argument may be, the first is passed.
            made = {fields[name]: {} for name in own}
            for name in own:
                made[fields[name]][RENAMED.get(name, name)] = given.pop(name)
            for cls, values in made.items():
                given.setdefault(argument, cls(**values))
        with dice.settings.using(**used):
            return verb(adata, **given)

    return call


@cache
def labelled_reference() -> ad.AnnData:
    """Labelled cells with a prior of their own."""
    rng = np.random.default_rng(0)
    types = np.arange(120) % 2
    rates = np.exp(np.random.default_rng(1).normal(size=(2, 20)))[types]
    reference = ad.AnnData(np.log1p(rng.poisson(rates)).astype(np.float32))
    reference.var_names = GENES
    reference.obs["label"] = pd.Categorical(np.array(["a", "b"])[types])
    reference.obsm["protein"] = types[:, None] + rng.normal(size=(120, 2))
    dice.tl.train_prior(reference, n_latent=3, preset="gmm", training=dice.Training(calibration_fraction=0.3))
    return reference


#: Calls that take an object of any kind, each with arguments that it may be given odd values for.
CALLS: dict[str, tuple[Call, str]] = {
    "denoise": (
        calling(dice.tl.denoise, reference=fixture("gmm")),
        "rho method n_samples likelihood df per_gene noise n_chains n_iterations burn_in schedule average "
        "fast shift strategy batch_key gene_key check min_gene_overlap layer prior_key key_added chunk_size "
        "random_state device",
    ),
    "train_prior": (
        calling(dice.tl.train_prior, n_latent=2, max_steps=2),
        "n_latent labels_key preset mixup mixup_points mixup_probability mixup_concentration layer mask_var "
        "training max_steps batch_size learning_rate validation_fraction checkpoint key_added random_state device",
    ),
    "neighbors": (
        lambda adata, **kwargs: dice.tl.neighbors(adata, **{"n_neighbors": 3, "n_samples": 2} | kwargs),
        "n_neighbors n_samples metric reference use_rep prior_key key_added random_state",
    ),
    "evaluate": (
        lambda adata, **kwargs: dice.tl.evaluate(adata, **{"labels_key": "label", "n_neighbors": 3} | kwargs),
        "labels_key use_rep protocol batch_key resolution n_neighbors random_state key label_map",
    ),
    "credible_region": (
        lambda adata, **kwargs: dice.tl.credible_region(adata, **{"cell": 0} | kwargs),
        "cell level use_rep",
    ),
    "transfer_labels": (
        lambda adata, **kwargs: calling(dice.tl.transfer_labels)(
            adata, **{"reference": labelled_reference(), "labels_key": "label"} | kwargs
        ),
        "reference labels_key alpha sets set_method min_probability classifier representation shift "
        "prior_key key_added random_state",
    ),
    "transfer_features": (
        lambda adata, **kwargs: calling(dice.tl.transfer_features)(
            adata, **{"reference": labelled_reference(), "features_key": "protein"} | kwargs
        ),
        "reference features_key alpha reference_batch_key shift layer gene_key min_gene_overlap prior_key key_added "
        "random_state",
    ),
    "cluster": (
        lambda adata, **kwargs: dice.tl.cluster(
            adata, **{"reference": labelled_reference(), "use_rep": "X_new", "n_neighbors": 2, "n_splits": 1} | kwargs
        ),
        "reference level n_neighbors n_splits flavor use_rep prior_key key_added random_state",
    ),
    "annotate": (
        lambda adata, **kwargs: calling(dice.tl.annotate)(adata, **{"reference": fixture("labels")} | kwargs),
        "reference labels_key alpha n_top_genes reference_batch_key shift layer gene_key min_gene_overlap prior_key "
        "random_state",
    ),
    "novelty": (
        lambda adata, **kwargs: calling(dice.tl.novelty)(adata, **{"reference": labelled_reference()} | kwargs),
        "reference alpha labels_key gene_key min_gene_overlap layer prior_key key_added",
    ),
    "tune_rho": (
        lambda adata, **kwargs: calling(dice.tl.tune_rho)(
            adata, **{"reference": labelled_reference(), "grid": [0.5, 2]} | kwargs
        ),
        "reference criterion grid gene_key min_gene_overlap layer prior_key key_added random_state",
    ),
    "prepare": (
        lambda adata, **kwargs: dice.pp.prepare(adata, copy=True, **{"min_genes": 1, "min_cells": 1} | kwargs),
        "batch_key n_top_genes min_genes min_cells max_pct_mt layer",
    ),
    "shared_genes": (lambda adata, **kwargs: dice.pp.shared_genes(adata, adata, **kwargs), "n_top_genes"),
    "correct_batches": (
        lambda adata, **kwargs: dice.pp.correct_batches(adata, **{"batch_key": "label", "n_comps": 2} | kwargs),
        "batch_key layer layer_added mask_var n_comps random_state",
    ),
}


def warm_up() -> None:
    """Compile what the first call of a process compiles, before its time is taken: ten seconds on an idle core."""
    dice.tl.cluster(labelled_reference().copy(), labelled_reference(), n_neighbors=5, n_splits=1)


#: Calls whose result is compared with that for the same values in the plainest form.
COMPARED = ("denoise", "train_prior")


def take(rng: Rng, items: list[Any]) -> Any:
    return items[rng.integers(len(items))]


def odd_object(rng: Rng) -> ad.AnnData:
    """Few cells with the prior's genes, and mostly something unusual about them."""
    n_cells, genes = int(take(rng, [0, 1, 2, 5, 12])), _gene_names(rng)
    x = np.log1p(rng.poisson(1.0, size=(n_cells, len(genes)))).astype(np.float32)
    if x.size and rng.random() < 0.2:
        x[rng.integers(n_cells), rng.integers(len(genes))] = take(rng, [np.nan, np.inf, -np.inf, 1e30, 1e-40, -5])
    adata = ad.AnnData(_matrix(x, rng), obs=pd.DataFrame(index=[f"cell{i}" for i in range(n_cells)]))
    adata.var_names = genes
    adata.obs["label"] = pd.Categorical([take(rng, ["a", "b", None]) for _ in range(n_cells)])
    adata.var["other"] = take(rng, [1, "x", None, GENES[: len(genes)] if len(genes) <= 20 else 0])
    adata.layers["other"] = np.zeros(x.shape)
    if rng.random() < 0.7:
        adata.obsm["X_dice"] = rng.normal(size=(n_cells, 3)).astype(np.float32)
        adata.obsm["X_dice_pca"] = adata.obsm["X_dice"] + 1
        adata.obsm["X_dice_samples"] = rng.normal(size=(n_cells, 4, 3)).astype(np.float32)
    if rng.random() < 0.1:
        adata.obs_names = ["same"] * n_cells
    if rng.random() < 0.1:
        adata.uns["dice"] = take(rng, ODD)
    return adata[rng.permutation(n_cells)] if rng.random() < 0.2 else adata


def _gene_names(rng: Rng) -> Any:
    names: list[Any] = list(rng.permutation(GENES))
    match rng.integers(8):
        case 0:
            names = names[: rng.integers(1, 20)]
        case 1:
            names[3] = names[4]
        case 2:
            names[0] = take(rng, ["", "nan", "\ud800", "x" * 5000])
        case 3:
            names += [f"EXTRA{index}" for index in range(rng.integers(1, 10))]
        case 4:
            names = [name.lower() for name in names]
    return pd.Index(names, dtype=object)


def _matrix(x: np.ndarray, rng: Rng) -> Any:
    """The same values in another form, or values of another type."""
    if rng.random() < 0.3:
        with np.errstate(invalid="ignore", over="ignore"):
            return x.astype(take(rng, [np.float16, np.float64, np.int8, np.uint64, bool, ">f4", np.longdouble]))
    forms = [np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, sparse.csc_array]
    matrix = take(rng, forms)(x)
    if sparse.issparse(matrix) and matrix.nnz and rng.random() < 0.3:
        # Entries in disorder, and one of them stored twice.
        rows, columns = (np.append(part, part[:1]) for part in matrix.tocoo().coords)
        values = np.append(matrix.tocoo().data, np.float32(0))
        matrix = type(matrix)((values[::-1], (rows[::-1], columns[::-1])), shape=x.shape)
    return matrix


def odd_arguments(rng: Rng, names: str) -> dict[str, Any]:
    chosen = rng.choice(names.split(), size=min(take(rng, [0, 0, 1, 2]), len(names.split())), replace=False)
    values = {str(name): take(rng, ODD) for name in chosen}
    # Who asks for a trillion steps gets them: that is odd, but no mistake.
    return {name: value for name, value in values.items() if name not in LONG or value is not ENDLESS}


def verdict(rng: Rng) -> str:
    """``"refused"`` with one sentence and nothing written, or ``"accepted"`` with a correct result."""
    adata = odd_object(rng)
    name = take(rng, [*COMPARED * 3, *CALLS])
    call, names = CALLS[name]
    arguments = odd_arguments(rng, names)
    before, values = slots(adata), _plain(adata)
    try:
        call(adata, **arguments)
    except dice.DiceError as error:
        assert_sentence(error)
        assert slots(adata) == before, f"{slots(adata) ^ before} was written"
        outcome = "refused"
    else:
        outcome = "accepted"
        if name in COMPARED:
            _assert_correct(adata, call, arguments)
    np.testing.assert_array_equal(_plain(adata), values)
    return outcome


def slots(adata: ad.AnnData) -> set[str]:
    places = ("obs", "var", "obsm", "varm", "obsp", "varp", "layers", "uns")
    return {f"{place}/{key}" for place in places for key in getattr(adata, place)}


def _plain(adata: ad.AnnData) -> np.ndarray:
    x = adata.X
    return np.asarray(x.todense() if sparse.issparse(x) else x).copy()


def _assert_correct(adata: ad.AnnData, call: Call, arguments: dict[str, Any]) -> None:
    """All that was written is finite, and equals the result for the same values in the plainest form."""
    plain = ad.AnnData(
        _plain(adata).astype(np.float32), obs=adata.obs[["label"]].copy(), var=adata.var[["other"]].copy()
    )
    plain.layers["other"] = np.zeros(adata.shape)
    call(plain, **arguments)
    for key in set(plain.obsm):
        assert np.isfinite(adata.obsm[key]).all(), key
        scale = np.abs(plain.obsm[key]).max(initial=1)
        np.testing.assert_allclose(adata.obsm[key], plain.obsm[key], atol=2e-3 * scale, err_msg=key)
