"""Clusters, labels, features and all of them at once: no matter how the same cells are handed over, they are the same.

Few examples in every test run, many by `make fuzz` (``DICE_HYPOTHESIS=long``).
"""

from __future__ import annotations

import os
from functools import cache

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dice

LONG = os.environ.get("DICE_HYPOTHESIS") == "long"
N_CELLS, N_GENES, N_TYPES = 60, 50, 3
#: Twelve calibration cells for each type are few, and some queries differ from the reference by chance.
pytestmark = pytest.mark.filterwarnings("ignore::dice.DiceWarning")
few = settings(max_examples=40 if LONG else 2, deadline=None, derandomize=not LONG, database=None)
#: Seeds of queries. Their plain results are computed once.
QUERIES = st.integers(0, 20 if LONG else 1)
#: What a matrix may be in memory; one in a file and a lazy one are made by `handed_over`.
IN_MEMORY = {
    "fortran": np.asfortranarray,
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
}
KINDS = (*IN_MEMORY, "backed", "dask")


def cells(n: int, seed: int) -> ad.AnnData:
    """Log-normalised counts of three types, with two proteins."""
    profiles = 3 * np.random.default_rng(7).gamma(0.4, size=(N_TYPES, N_GENES))
    rng, codes = np.random.default_rng([seed, 1]), np.arange(n) % N_TYPES
    counts = rng.poisson(profiles[codes]).astype(np.float32)
    counts[:, 0] += 1
    adata = ad.AnnData(np.log1p(1e4 * counts / counts.sum(1, keepdims=True)))
    adata.var_names = [f"gene {i}" for i in range(N_GENES)]
    adata.obs_names = [f"{seed}-{i}" for i in range(n)]
    adata.obs["cell_type"] = pd.Categorical.from_codes(codes, ["a", "b", "c"])
    adata.obsm["protein"] = pd.DataFrame(profiles[codes, :2] + rng.normal(size=(n, 2)), adata.obs_names, ["CD3", "CD4"])
    return adata


@cache
def reference() -> ad.AnnData:
    """Cells with a prior that knows their labels."""
    known = cells(240, 1000)
    training = dice.Training(max_steps=10, calibration_fraction=0.3)
    dice.tl.train_prior(known, labels_key="cell_type", n_latent=4, training=training)
    return known


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("properties")


@pytest.fixture(scope="module")
def prior_file(folder):
    """The prior alone."""
    path = folder / "prior.h5ad"
    dice.Prior.from_anndata(reference()).save(path)
    return path


def prior() -> dice.Prior:
    return dice.Prior.from_anndata(reference())


VERBS = {
    "cluster": lambda query, **more: dice.tl.cluster(query, prior(), n_neighbors=8, n_splits=2, **more),
    "transfer_labels": lambda query, **more: dice.tl.transfer_labels(query, reference(), "cell_type", **more),
    "transfer_features": lambda query, **more: dice.tl.transfer_features(query, reference(), "protein", **more),
    "annotate": lambda query, **more: dice.tl.annotate(query, prior(), **more),
}
each_verb = pytest.mark.parametrize("verb", VERBS)


def query(seed: int) -> ad.AnnData:
    """Cells whose own labels and features nobody knows."""
    new = cells(N_CELLS, seed)
    return ad.AnnData(new.X, obs=new.obs[[]], var=new.var)


def found(adata: ad.AnnData) -> dict[str, object]:
    """All that a call has said of every cell, by name of the slot."""
    columns = {f"obs/{name}": adata.obs[name] for name in adata.obs}
    # A map is drawn for the eye: rounding turns it and moves its islands.
    arrays = {f"obsm/{name}": adata.obsm[name] for name in adata.obsm if not name.endswith("_umap")}
    tables = {name: arrays.pop(name) for name in list(arrays) if isinstance(arrays[name], pd.DataFrame)}
    columns |= {f"{name}/{column}": table[column] for name, table in tables.items() for column in table}
    graphs = {f"obsp/{name}": adata.obsp[name].toarray() for name in adata.obsp}
    return columns | arrays | graphs


@cache
def plain(verb: str, seed: int) -> dict[str, object]:
    """What a call says of a query that was handed over in the plainest way."""
    adata = query(seed)
    VERBS[verb](adata)
    return found(adata)


def assert_same(
    one: dict[str, object], other: dict[str, object], order=slice(None), *, rtol: float = 1e-3, atol: float = 1e-4
) -> None:
    """The second says of its cells what the first says of them in that order."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        if isinstance(values, pd.Series) and not pd.api.types.is_float_dtype(values):
            assert list(other[name].astype(str)) == list(values.astype(str).iloc[order]), name
            continue
        expected = np.asarray(values)[order]
        expected = expected[:, order] if name.startswith("obsp/") else expected
        np.testing.assert_allclose(other[name], expected, rtol=rtol, atol=atol, err_msg=name)


def handed_over(adata: ad.AnnData, kind: str, folder) -> ad.AnnData:
    """The same cells in another kind of matrix."""
    if kind == "backed":
        path = folder / "query.h5ad"
        ad.AnnData(sparse.csr_matrix(adata.X), obs=adata.obs, var=adata.var).write_h5ad(path)
        return ad.read_h5ad(path, backed="r")
    x = da.from_array(adata.X, chunks=(17, -1)) if kind == "dask" else IN_MEMORY[kind](adata.X)
    return ad.AnnData(x, obs=adata.obs, var=adata.var)


@each_verb
@few
@given(seed=QUERIES, random=st.randoms(use_true_random=False))
def test_permuted_cells_and_genes_permute_the_result(verb, seed, random):
    order, genes = list(range(N_CELLS)), list(range(N_GENES))
    random.shuffle(order)
    random.shuffle(genes)
    moved = query(seed)[order, genes].copy()
    VERBS[verb](moved)
    assert_same(plain(verb, seed), found(moved), order)


@each_verb
@few
@given(seed=QUERIES, size=st.integers(1, N_CELLS + 1))
def test_the_chunk_size_does_not_matter(verb, seed, size):
    adata = query(seed)
    with dice.settings.using(chunk_size=size):
        VERBS[verb](adata)
    assert_same(plain(verb, seed), found(adata))


@pytest.mark.parametrize(
    ("verb", "kind"),
    # The last verb is made of others: of matrices in memory, one will do.
    [(verb, kind) for verb in VERBS for kind in KINDS if verb != "annotate" or kind not in list(IN_MEMORY)[:-1]],
)
def test_the_kind_of_matrix_does_not_matter(verb, kind, folder):
    adata = handed_over(query(0), kind, folder)
    VERBS[verb](adata)
    assert_same(plain(verb, 0), found(adata))


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_matrix_changes_no_p_value(kind, folder):
    """Rounding moved copies of calibration cells by one rank: sums were in single precision, in another order."""
    copies = reference()[reference().obs["dice_split"] == "calibration"]
    adata = ad.AnnData(np.concatenate([query(0).X, copies.X]), var=copies.var[[]])
    other = handed_over(adata, kind, folder)
    for source in (reference(), prior()):
        for each in (adata, other):
            dice.tl.novelty(each, source)
        for key in ("dice_novelty", "dice_novelty_p"):
            np.testing.assert_array_equal(other.obs[key], adata.obs[key], err_msg=key)
        # Every copy has its own rank among the calibration cells, and counts beside the cell that it is a copy of.
        ranks = np.sort(adata.obs["dice_novelty_p"].to_numpy()[N_CELLS:]) * (copies.n_obs + 1)
        np.testing.assert_allclose(ranks, np.arange(2, copies.n_obs + 2), rtol=1e-5)


@each_verb
@few
@given(seed=QUERIES, random_state=st.integers(0, 2**32 - 1))
def test_a_seed_is_all_that_chance_depends_on(verb, seed, random_state):
    """Nobody else's random numbers are used, or used up."""
    one, other = query(seed), query(seed)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    VERBS[verb](one, random_state=random_state)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(seed + 1)  # noqa: NPY002
    VERBS[verb](other, random_state=random_state)
    for name, values in found(one).items():
        np.testing.assert_array_equal(np.asarray(found(other)[name]), np.asarray(values), err_msg=name)


@each_verb
@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_files_keep_the_result_and_lead_to_it(verb, ending, folder):
    """What is saved comes back, and a query that comes from a file is the same query."""
    path, adata = folder / f"{verb}.{ending}", query(0)
    getattr(adata, f"write_{ending}")(path)
    again = getattr(ad, f"read_{ending}")(path)
    VERBS[verb](again)
    assert_same(plain(verb, 0), found(again))
    getattr(again, f"write_{ending}")(path)
    assert_same(found(again), found(getattr(ad, f"read_{ending}")(path)))


@few
@given(seed=QUERIES, n_genes=st.integers(30, N_GENES))
def test_a_prior_alone_labels_as_its_reference_does(prior_file, seed, n_genes):
    """Whichever genes the query has."""
    with_cells, alone = query(seed)[:, :n_genes].copy(), query(seed)[:, :n_genes].copy()
    dice.tl.transfer_labels(with_cells, reference(), "cell_type")
    dice.tl.transfer_labels(alone, prior_file)
    for name, values in found(with_cells).items():
        np.testing.assert_array_equal(np.asarray(found(alone)[name]), np.asarray(values), err_msg=name)


def large_pair() -> tuple[ad.AnnData, ad.AnnData]:
    """Raw counts of a reference of 400 cells and of a query of 500, with 2,000 genes and five types."""
    rng, codes = np.random.default_rng(0), np.arange(900) % 5
    counts = rng.poisson(1.5 * rng.gamma(0.3, size=(5, 2000))[codes]).astype(np.float32)
    both = ad.AnnData(sparse.csr_matrix(counts), obs={"type": [f"t{c}" for c in codes]})
    both.var_names = [f"g{i}" for i in range(2000)]
    return both[:400].copy(), both[400:].copy()


def annotated(query: ad.AnnData, reference: ad.AnnData) -> ad.AnnData:
    training = dice.Training(max_steps=30, calibration_fraction=0.3)
    dice.tl.annotate(query, reference, "type", n_top_genes=600, training=training)
    return query


def test_order_and_chunks_of_many_cells_and_genes_do_not_matter():
    """Rounding in the order of the file moved `X_dice` by 2e-5, and 3 of 15 clusters with it."""
    reference, query = large_pair()
    rng, expected = np.random.default_rng(1), annotated(query.copy(), known := reference.copy())
    genes, others, cells_ = rng.permutation(2000), rng.permutation(2000), rng.permutation(500)
    # The order of the genes changes no bit, on either side.
    turned = annotated(query[:, genes].copy(), new := reference[:, others].copy())
    assert new.uns["dice"]["sha256"] == known.uns["dice"]["sha256"]
    pd.testing.assert_frame_equal(turned.obs, expected.obs, check_exact=True)
    for key in expected.obsm:
        np.testing.assert_array_equal(np.asarray(turned.obsm[key]), np.asarray(expected.obsm[key]), err_msg=key)
    # The order of the cells, and the chunks, may change the last digit of a number, and nothing else.
    with dice.settings.using(chunk_size=97):
        moved = annotated(query[cells_].copy(), reference.copy())
    assert_same(found(expected), found(moved), cells_)


def test_many_cells_in_any_order_kind_and_chunks_with_a_stored_prior():
    """Sums in single precision had moved latents, and what follows from them."""
    reference, query = large_pair()
    annotated(query.copy(), reference)
    prior, order = dice.Prior.from_anndata(reference), np.random.default_rng(1).permutation(500)
    dice.tl.annotate(expected := query.copy(), prior)
    for rows, matrix, size in ((order, query.X[order], None), (slice(None), query.X.toarray(), None),
                               (slice(None), query.X, 97)):  # fmt: skip
        moved = query[rows].copy()
        moved.X = matrix
        with dice.settings.using(chunk_size=size):
            dice.tl.annotate(moved, prior)
        assert_same(found(expected), found(moved), rows, rtol=1e-5, atol=1e-6)
