from __future__ import annotations

import doctest
import importlib
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as skm
from scipy import sparse

from dice import metrics
from dice._clusters.partition import communities
from dice._data.graph import neighbor_graph
from dice._errors import InputError

MODULES = ["_clustering", "_embedding"]


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Three groups in five dimensions that overlap a little, 150 cells."""
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=150)
    centres = rng.normal(size=(3, 5)) * 1.5
    return centres[codes] + rng.normal(size=(150, 5)), np.array(["B", "NK", "T"])[codes]


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"dice.metrics.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_import_is_light() -> None:
    code = "import dice.metrics, sys; print([m for m in ('scanpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- agreement -------------------------------------------------------------------------------


def test_agreement_by_hand() -> None:
    labels, clusters = ["a", "a", "b", "b"], [0, 0, 1, 2]
    # One pair agrees; of 6 pairs labels join 2 and clusters 1, so 1/3 is expected and 3/2 the most.
    assert metrics.ari(labels, clusters) == pytest.approx((1 - 1 / 3) / (3 / 2 - 1 / 3))
    # In bits: I = 1, H(labels) = 1, H(clusters) = 1.5.
    assert metrics.nmi(labels, clusters) == pytest.approx(2 / 2.5)
    assert metrics.nmi(labels, clusters, average="max") == pytest.approx(1 / 1.5)


def test_agreement_matches_sklearn() -> None:
    rng = np.random.default_rng(1)
    labels, clusters = rng.integers(4, size=200), rng.integers(6, size=200)
    named = pd.Categorical.from_codes(labels, list("wxyz"))
    assert metrics.ari(named, clusters) == pytest.approx(skm.adjusted_rand_score(labels, clusters))
    assert metrics.nmi(named, clusters) == pytest.approx(skm.v_measure_score(labels, clusters))
    assert metrics.v_measure(named, clusters) == metrics.nmi(named, clusters)
    assert metrics.nmi(named, clusters, average="max") == pytest.approx(
        skm.normalized_mutual_info_score(labels, clusters, average_method="max")
    )


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_cells_without_label_are_left_out(missing: object) -> None:
    labels = ["a", missing, "a", "b", "b"]
    assert metrics.ari(labels, [0, 1, 0, 1, 2]) == metrics.ari(list("aabb"), [0, 0, 1, 2])


# ---- silhouette and neighbours -----------------------------------------------------------------


def test_silhouette_matches_sklearn(blobs) -> None:
    values, labels = blobs
    expected = skm.silhouette_score(values, labels, metric="cosine")
    assert metrics.silhouette(values, labels) == pytest.approx(expected, abs=1e-12)


def test_silhouette_of_odd_cells_matches_sklearn(blobs) -> None:
    values, labels = blobs[0].copy(), blobs[1].astype(object)
    values[:3] = 0  # no direction
    values[3] = values[4]
    labels[5] = "lonely"
    expected = skm.silhouette_score(values, labels, metric="cosine")
    assert metrics.silhouette(values, labels) == pytest.approx(expected, abs=1e-12)


def test_silhouette_of_identical_cells_is_zero() -> None:
    assert metrics.silhouette(np.ones((4, 2)), list("aabb")) == pytest.approx(0, abs=1e-6)


def test_silhouette_reads_any_array_kind(blobs) -> None:
    values, labels = blobs
    expected = metrics.silhouette(values, labels)
    for kind in (pd.DataFrame(values), sparse.csr_matrix(values), values.tolist()):
        assert metrics.silhouette(kind, labels) == pytest.approx(expected, abs=1e-12)


def test_missing_labels_equal_dropped_cells(blobs) -> None:
    values, labels = blobs
    holes = labels.astype(object)
    holes[::7] = None
    kept = np.arange(len(labels)) % 7 != 0
    for score in (metrics.silhouette, metrics.clisi, metrics.lisi_neighbors, metrics.knn_macro_f1):
        assert score(values, holes) == score(values[kept], labels[kept])


def test_knn_macro_f1(blobs) -> None:
    values, labels = blobs
    first = metrics.knn_macro_f1(values, labels)
    assert 0.7 < first < 1
    assert metrics.knn_macro_f1(values, labels) == first
    shuffled = np.random.default_rng(0).permutation(labels)
    assert metrics.knn_macro_f1(values, shuffled) < 0.5
    rare = labels.astype(object)
    rare[0] = "only one"
    # A label that no fold can learn scores 0 and weighs as much as the others.
    assert metrics.knn_macro_f1(values, rare) == pytest.approx(first * 3 / 4, abs=0.03)
    # More neighbours than a fold has cells are all that it has.
    assert 0 <= metrics.knn_macro_f1(values[:6], labels[:6], n_neighbors=50) <= 1


# ---- LISI --------------------------------------------------------------------------------------


def test_lisi_neighbors_by_hand() -> None:
    line = np.array([[0.0], [1.0], [2.1], [3.3]])
    # Two nearest of each: {1, 2}, {0, 2}, {1, 3}, {2, 1}; labels a a b b.
    assert metrics.lisi_neighbors(line, list("aabb"), n_neighbors=2) == pytest.approx(2.0)
    # Three nearest: the others, one of the own label and two of the other one.
    assert metrics.lisi_neighbors(line, list("aabb")) == pytest.approx(1 / (1 / 9 + 4 / 9))
    # One nearest neighbour holds one label, always.
    assert metrics.lisi_neighbors(line, list("abab"), n_neighbors=1) == 1.0


def test_lisi_neighbors_matches_brute_force(blobs) -> None:
    values, labels = blobs
    distances = np.linalg.norm(values[:, None] - values, axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = labels[np.argsort(distances, axis=1)[:, :9]]
    simpson = [(pd.Series(row).value_counts(normalize=True) ** 2).sum() for row in nearest]
    assert metrics.lisi_neighbors(values, labels) == pytest.approx(np.mean(1 / np.array(simpson)))


def test_lisi_is_harmonys(blobs) -> None:
    import harmonypy

    values, labels = blobs
    table = pd.DataFrame({"label": labels})
    expected = harmonypy.compute_lisi(values, table, ["label"], 30).mean()
    assert metrics.clisi(values, labels) == pytest.approx(expected)
    assert metrics.ilisi(values, labels) == pytest.approx(expected)
    assert metrics.clisi(values, labels, perplexity=10) < expected


@pytest.mark.parametrize("n_cells", [2, 3, 5, 8, 40, 89])
def test_lisi_of_few_cells_stays_local(n_cells: int) -> None:
    rng = np.random.default_rng(n_cells)
    labels = np.arange(n_cells) % 2
    apart = rng.normal(size=(n_cells, 3)) + 50 * labels[:, None]
    mixed = rng.normal(size=(n_cells, 3))
    assert 1 <= metrics.clisi(mixed, labels) <= 2
    if n_cells >= 8:
        assert metrics.clisi(apart, labels) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("n_cells", "asked", "used"),
    [(2, 30, 2), (7, 30, 2), (10, 30, 3), (90, 30, 29), (91, 30, 30), (200, 30, 30), (200, 9, 9)],
)
def test_lisi_of_few_cells_has_a_smaller_perplexity(monkeypatch, n_cells: int, asked: float, used: float) -> None:
    """A third of the other cells at most, and two at least; no cell has less than one label around it."""
    import harmonypy

    seen = []

    def compute(values, table, columns, perplexity):
        seen.append(perplexity)
        return np.array([[0.0], *[[1.5]] * (n_cells - 1)])

    monkeypatch.setattr(harmonypy, "compute_lisi", compute)
    values, labels = np.random.default_rng(0).normal(size=(n_cells, 2)), np.arange(n_cells) % 2
    assert metrics.clisi(values, labels, perplexity=asked) == pytest.approx(1.5 - 0.5 / n_cells)
    assert seen == [used]


def test_lisi_neighbors_looks_at_all_others_at_most() -> None:
    assert metrics.lisi_neighbors([[0.0], [1.0], [2.0]], list("aab"), n_neighbors=99) == pytest.approx((2 + 2 + 1) / 3)
    assert metrics.lisi_neighbors([[0.0], [1.0]], list("ab"), n_neighbors=1) == 1


# ---- clustering --------------------------------------------------------------------------------


def test_paper_resolutions() -> None:
    found = metrics.PAPER_RESOLUTIONS
    assert len(found) == 39
    assert found[:20] == pytest.approx(np.arange(1, 21) / 100)
    assert found[20:] == pytest.approx(np.arange(2, 21) / 10)


def leiden(values: object, *, resolution: float = 1.0, random_state: int = 0) -> np.ndarray:
    return communities(neighbor_graph(values, 15), resolution, random_state=random_state)


def louvain(values: np.ndarray, *, resolution: float = 1.0) -> np.ndarray:
    return communities(neighbor_graph(values, 15), resolution, method="louvain")


@pytest.mark.parametrize("cluster", [leiden, louvain])
def test_communities_find_separated_groups(cluster) -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], 40)
    values = rng.normal(size=(120, 4)) + 20 * codes[:, None]
    found = cluster(values, resolution=0.1)
    assert found.shape == (120,)
    assert metrics.ari(codes, found) == 1.0
    assert np.array_equal(found, cluster(values, resolution=0.1))
    finer = cluster(values, resolution=2.0)
    assert len(np.unique(finer)) > 3


def test_leiden_agrees_with_scanpy(blobs) -> None:
    import anndata as ad
    import scanpy as sc

    values, _ = blobs
    cells = ad.AnnData(shape=(len(values), 0), obsm={"X": values})
    sc.pp.neighbors(cells, use_rep="X")
    sc.tl.leiden(cells, resolution=0.3, flavor="igraph", n_iterations=2, directed=False)
    assert metrics.ari(cells.obs["leiden"], leiden(values, resolution=0.3)) > 0.9


def test_a_graph_is_clustered_as_it_is(blobs) -> None:
    import anndata as ad
    import scanpy as sc

    values, labels = blobs
    cells = ad.AnnData(shape=(len(values), 0), obsm={"X": values})
    sc.pp.neighbors(cells, use_rep="X", transformer="sklearn")
    graph = cells.obsp["connectivities"]
    assert np.array_equal(leiden(graph), leiden(values))
    pd.testing.assert_frame_equal(metrics.leiden_sweep(graph, labels), metrics.leiden_sweep(values, labels))
    with pytest.raises(InputError, match="pass connectivities, not distances"):
        leiden(cells.obsp["distances"])
    with pytest.raises(InputError, match="labels"):
        metrics.leiden_sweep(graph, labels[:-1])


def test_sweep_is_the_single_runs(blobs) -> None:
    values, labels = blobs
    sweep = metrics.leiden_sweep(values, labels, resolutions=[0.2, 1.0, 0.2])
    columns = ["resolution", "n_clusters", "ari", "nmi", "nmi_max", "v_measure"]
    assert list(sweep.columns) == columns
    assert sweep["resolution"].tolist() == [0.2, 1.0, 0.2]
    assert sweep.iloc[0].equals(sweep.iloc[2])
    clusters = leiden(values, resolution=1.0)
    assert sweep["n_clusters"].tolist()[1] == len(np.unique(clusters))
    assert sweep["ari"][1] == metrics.ari(labels, clusters)
    assert sweep["nmi_max"][1] == metrics.nmi(labels, clusters, average="max")
    plain = metrics.leiden_sweep(values, resolutions=[1.0], method="louvain")
    assert list(plain.columns) == columns[:2]


def test_sweep_clusters_unlabelled_cells_too(blobs) -> None:
    values, labels = blobs
    holes = labels.astype(object)
    holes[::5] = np.nan
    sweep = metrics.leiden_sweep(values, holes, resolutions=[0.3])
    assert sweep["ari"][0] == metrics.ari(holes, leiden(values, resolution=0.3))


def test_coinciding_cells_can_be_clustered() -> None:
    values = np.repeat([[0.0, 0.0], [5.0, 5.0]], 30, axis=0)
    assert leiden(values).shape == (60,)


def test_global_random_state_is_untouched(blobs) -> None:
    values, labels = blobs
    before, python_before = np.random.get_state(), random.getstate()  # noqa: NPY002
    leiden(values)
    louvain(values)
    metrics.knn_macro_f1(values, labels)
    metrics.clisi(values, labels)
    metrics.leiden_sweep(values, labels, resolutions=[1.0], random_state=np.random.default_rng(0))
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(b, a) for b, a in zip(before, after, strict=True))
    assert random.getstate() == python_before


def test_threads_do_not_mix_seeds(blobs) -> None:
    values, _ = blobs
    expected = [leiden(values, random_state=seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: leiden(values, random_state=seed), range(4)))
    assert all(np.array_equal(e, f) for e, f in zip(expected, found, strict=True))


# ---- bad input ---------------------------------------------------------------------------------

TWO = [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    "odd", [[], [0.0], [-1.0], [1.0, 0.0], [np.nan], [np.inf], ["a"], [None], [[1.0]], 1.0, [True]]
)
def test_resolutions_are_positive_numbers(odd) -> None:
    with pytest.raises(InputError, match="Resolutions must be positive numbers"):
        metrics.leiden_sweep(TWO, resolutions=odd)


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda: metrics.silhouette([1.0, 2.0], ["a", "b"]), "pass a 2-D array"),
        (lambda: metrics.silhouette(np.ones((2, 3, 4)), ["a", "b"]), "mean over axis 1"),
        (lambda: metrics.silhouette([["x", "y"]], ["a"]), r"adata\.obsm\['X_dice'\]"),
        (lambda: metrics.clisi([[np.nan, 1], [0, 1]], ["a", "b"]), "in rows .0.: remove"),
        (lambda: metrics.clisi(TWO, ["a"]), "1 labels but 2 cells.*one entry per cell"),
        (lambda: metrics.clisi(TWO, [["a", "b"]]), r"adata\.obs\['cell_type'\]"),
        (lambda: metrics.clisi(TWO, ["a", "b"], perplexity=1), "above 1"),
        (lambda: metrics.ilisi(TWO, ["a", None]), "pass more cells"),
        (lambda: metrics.ilisi(TWO, [None, None]), "needs 1 or more batches, got 0: pass a column"),
        (lambda: metrics.lisi_neighbors(TWO, ["a", "b"], n_neighbors=0), "must be at least 1"),
        (lambda: metrics.lisi_neighbors(TWO, ["a", None]), "pass more cells"),
        (lambda: metrics.silhouette(TWO, ["a", "a"]), "pass a column with more labels"),
        (lambda: metrics.silhouette(TWO, ["a", "b"]), "labels that several cells share"),
        (lambda: metrics.silhouette(TWO * 2, list("abcd")), "labels that several cells share"),
        (lambda: metrics.knn_macro_f1(TWO, ["a", "b"], n_splits=1), "`n_splits` must be at least 2"),
        (lambda: metrics.ari(["a"], [1, 2]), "1 labels but 2 clusters"),
        (lambda: metrics.ari(["a", None], [None, 1]), "pass columns with fewer missing values"),
        (lambda: metrics.nmi(["a"], [1], average="min"), r"must be one of \['arithmetic', 'max'\]"),
        (lambda: leiden([[0.0]]), "needs two cells"),
        (lambda: metrics.leiden_sweep(TWO, ["a"]), "one entry per cell"),
        (lambda: metrics.leiden_sweep(TWO, method="lpa"), r"must be one of \['leiden', 'louvain'\]"),
    ],
)
def test_bad_input_names_the_fix(call, fix: str) -> None:
    with pytest.raises(InputError, match=fix):
        call()


def test_one_pair_of_cells_with_one_label_is_enough_for_a_silhouette() -> None:
    values = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]
    expected = skm.silhouette_score(values, [0, 0, 1], metric="cosine")
    assert metrics.silhouette(values, list("aab")) == pytest.approx(expected)
