"""A query that was preprocessed otherwise is recognised, and no real pair of data sets raises a false alarm."""

from __future__ import annotations

import re
from types import SimpleNamespace

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

import dice
from dice._data.genes import GeneMatch
from dice._data.matrix import Matrix
from dice._data.value_checks import TRANSFORMED, _excess, _problem, check_query, is_counts, matrix_statistics

# Only AnnData's advice about index types and the like may be ignored here, never a warning of dice.
pytestmark = pytest.mark.filterwarnings("error::dice.DiceWarning")


def counts(n=200, d=400, seed=0):
    """Raw counts with depths and expression as uneven as in real cells; the genes are the same for all seeds."""
    rng = np.random.default_rng(seed)
    rates = np.exp(np.random.default_rng(9).normal(0, 2, size=d)) * np.exp(rng.normal(0, 0.5, size=(n, 1)))
    rates = rates * np.exp(rng.normal(0, 0.7, size=(n, d))) * 3000 / rates.sum(1, keepdims=True).mean()
    var = pd.DataFrame(index=[f"gene_{i}" for i in range(d)])
    return ad.AnnData(sparse.csr_matrix(rng.poisson(rates).astype(np.float32)), var=var)


def normalised(adata, target_sum=1e4):
    adata = adata.copy()
    sc.pp.normalize_total(adata, target_sum=target_sum)
    sc.pp.log1p(adata)
    return adata


def variable(adata, n=100):
    """Names of the most variable genes for their mean."""
    x = adata.X
    mean = np.asarray(x.mean(0)).ravel()
    dispersion = (np.asarray(x.multiply(x).mean(0)).ravel() - mean**2) / (mean + 0.1)
    return adata.var_names[np.sort(np.argsort(-dispersion)[:n])]


def learned(reference, genes, layer=None):
    """What check_query wants to know of a prior, without training one."""
    positions = reference.var_names.get_indexer(genes)
    x = reference.X if layer is None else reference.layers[layer]
    statistics = matrix_statistics(Matrix(reference, layer=layer).sample(), positions)
    mean = np.asarray(x[:, positions].mean(0)).ravel()
    return SimpleNamespace(statistics=statistics, projection=SimpleNamespace(mean=mean), genes=genes)


def check(query, prior, **kwargs):
    positions = query.var_names.get_indexer(prior.genes)
    found = np.flatnonzero(positions >= 0)
    match = GeneMatch(positions[found], found, query.var_names, pd.Index(prior.genes))
    return check_query(Matrix(query, **kwargs), match, prior.statistics, prior.projection.mean)


def alarm(query, prior, **kwargs):
    """What a query is refused or warned of; nothing for a good one."""
    try:
        check(query, prior, **kwargs)
    except (dice.DiceError, dice.DiceWarning) as problem:
        return str(problem)
    return ""


REFERENCE = normalised(counts(seed=1))
GENES = variable(REFERENCE)
#: A prior whose reference has all genes, so that its target sum is known, and one with variable genes only.
WHOLE = learned(REFERENCE, GENES)
PART = learned(REFERENCE[:, GENES].copy(), GENES)
QUERY = counts()


def with_x(adata, x):
    adata = adata.copy()
    adata.X = x
    return adata


def scaled():
    query = normalised(QUERY)
    query.X = query.X.toarray()
    sc.pp.scale(query, max_value=10)
    return query


def unlogged():
    query = QUERY.copy()
    sc.pp.normalize_total(query, target_sum=1e4)
    return query


def logged(function):
    query = normalised(QUERY)
    return with_x(query, function(query.X))


WRONG = {
    "counts": (
        QUERY.copy,
        r"raw counts.*call sc.pp.normalize_total\(adata, target_sum=10000\) and sc.pp.log1p\(adata\)",
    ),
    "binary": (lambda: with_x(QUERY, (QUERY.X > 0).astype(np.float32)), r"raw counts"),
    "scaled": (scaled, r"scaled or centred .*from before sc.pp.scale, for example adata = adata.raw.to_adata\(\)"),
    "centred": (lambda: logged(lambda x: np.asarray(x - x.mean(0))), r"scaled or centred"),
    "unlogged": (unlogged, r"(without logarithm|not hold logarithms).* sc.pp.log1p\(adata\)"),
    "twice": (
        lambda: logged(np.log1p),
        r"(logarithms of logarithms|once more).*call adata.X = np.expm1\(adata.X\) first",
    ),
}


@pytest.mark.parametrize("prior", [WHOLE, PART], ids=["whole", "part"])
@pytest.mark.parametrize("genes", ["all", "variable", "four in five"])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_preprocessing_is_an_error_with_the_fix(case, genes, prior):
    make, sentence = WRONG[case]
    query = make()
    if genes != "all":
        query = query[:, GENES if genes == "variable" else GENES[np.arange(100) % 5 > 0]]
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        check(query, prior)
    assert str(caught.value).endswith(", or pass check=False.")
    assert "\n" not in str(caught.value)


def test_the_fixes_are_fixes():
    twice, base2 = logged(np.log1p), logged(lambda x: x / np.log(2))
    assert not alarm(with_x(twice, np.expm1(twice.X)), WHOLE)
    assert not alarm(with_x(twice, np.expm1(twice.X)), PART)
    with pytest.raises(dice.DiceError, match=r"to base 2.*call adata.X = adata.X \* np.log\(2\) first"):
        check(base2, WHOLE)
    assert not alarm(with_x(base2, base2.X * np.log(2)), WHOLE)


def test_the_layer_is_named_in_the_fix():
    query = normalised(QUERY)
    query.layers["raw"] = QUERY.X.copy()
    query.layers["twice"] = np.log1p(query.X)
    with pytest.raises(dice.DiceError, match=r"target_sum=10000, layer='raw'\) and sc.pp.log1p\(adata, layer='raw'\)"):
        check(query, WHOLE, layer="raw")
    with pytest.raises(dice.DiceError, match=r"adata.layers\['twice'\] = np.expm1\(adata.layers\['twice'\]\)"):
        check(query, WHOLE, layer="twice")


def test_other_target_sums_are_rescaled(capsys):
    for target_sum in (3000, 9500, 1e6):
        assert check(normalised(QUERY, target_sum), WHOLE) == pytest.approx(1e4 / target_sum, rel=1e-5)
    assert check(normalised(QUERY), WHOLE) == 1
    median = QUERY.copy()
    sc.pp.normalize_total(median, target_sum=None)
    sc.pp.log1p(median)
    total = np.expm1(median.X).sum(1).mean()
    with dice.settings.using(verbosity=1):
        assert check(median, WHOLE) == pytest.approx(1e4 / total, rel=1e-5)
    assert "Cells of adata.X sum to" in capsys.readouterr().err


def test_target_sums_that_are_not_known():
    with pytest.warns(dice.DiceWarning, match=r"times as much in the query as in the reference: .*target_sum=10000"):
        check(normalised(QUERY, 1e6)[:, GENES], WHOLE)
    with pytest.warns(dice.DiceWarning, match="times as much in the query as in the reference"):
        check(normalised(QUERY, 1e6), PART)
    assert not alarm(normalised(QUERY, 9500), WHOLE)


@pytest.mark.parametrize("prior", [WHOLE, PART], ids=["whole", "part"])
@pytest.mark.parametrize("n_cells", [0, 1, 5, 200])
@pytest.mark.parametrize("n_genes", [100, 30])
def test_good_queries_pass(prior, n_cells, n_genes):
    query = normalised(QUERY)[:n_cells]
    assert not alarm(query, prior)
    assert not alarm(query[:, GENES[:n_genes]], prior)
    assert not alarm(query[:, GENES[-n_genes:]], prior)
    assert not alarm(with_x(query[:, GENES], query[:, GENES].X.toarray()), prior)


def test_empty_cells_and_values_that_are_not_finite_are_left_to_others():
    empty = with_x(QUERY, QUERY.X * 0)
    assert not alarm(empty, WHOLE)
    x = normalised(QUERY).X.toarray()
    x[3, QUERY.var_names.get_loc(GENES[0])] = np.nan
    assert not alarm(with_x(QUERY, x), WHOLE)
    assert matrix_statistics(x, QUERY.var_names.get_indexer(GENES)) == {}
    # A gene that is not used may be anything.
    x = normalised(QUERY).X.toarray()
    x[:, ~QUERY.var_names.isin(GENES)] = np.nan
    assert not alarm(with_x(QUERY, x), WHOLE)


def test_batch_correction_is_not_scaling():
    """It makes values negative too, on either side."""
    rng = np.random.default_rng(0)
    query = normalised(QUERY)
    corrected = with_x(query, (query.X.toarray() + rng.normal(0, 0.1, query.shape)).astype(np.float32))
    assert corrected.X.min() < 0
    for prior in (WHOLE, PART, learned(corrected, GENES)):
        assert not alarm(corrected, prior)
        assert not alarm(query, prior)


def test_a_scaled_reference_is_explained():
    reference = scaled()
    prior = learned(reference, GENES)
    assert not alarm(scaled(), prior)
    with pytest.raises(dice.DiceError, match=r"The reference was scaled, .* dice.tl.train_prior\(reference\)"):
        check(normalised(QUERY), prior)


def test_a_reference_of_counts_takes_counts():
    """train_prior(check=False) allows it."""
    prior = learned(counts(seed=1), GENES)
    assert not alarm(QUERY, prior)


def test_a_prior_without_statistics_refuses_raw_counts_only():
    for statistics in ({}, {"something": 1.0}):
        prior = SimpleNamespace(statistics=statistics, projection=WHOLE.projection, genes=GENES)
        assert not alarm(normalised(QUERY, 1e6), prior)
        with pytest.raises(dice.DiceError, match="raw counts"):
            check(QUERY, prior)


def test_statistics_are_finite_floats_and_independent_of_the_kind(cells, x):
    statistics = matrix_statistics(Matrix(cells).sample(), np.arange(10))
    plain = matrix_statistics(Matrix(ad.AnnData(x)).sample(), np.arange(10))
    assert all(type(value) is float and np.isfinite(value) for value in statistics.values())
    assert statistics["sum_log"] == pytest.approx(1e4, rel=1e-4)
    assert statistics == pytest.approx(plain, rel=1e-4)


@pytest.mark.parametrize("setup", [1, 2, 3, 4, "fewer", "more"])
def test_gaussian_data_with_negative_values_pass(setup):
    make = dice.datasets.synthetic if isinstance(setup, int) else dice.datasets.mismatch
    reference, query = make(setup)
    prior = learned(reference, reference.var_names)
    assert not alarm(query, prior)
    assert not alarm(query[:, ::3], prior)
    assert not alarm(query[:1], prior)
    with pytest.raises(dice.DiceError, match="raw counts"):
        check(with_x(query, np.abs(query.X).round()), prior)


def split(adata, by, value):
    return adata[(adata.obs[by] != value).to_numpy()], adata[(adata.obs[by] == value).to_numpy()]


def real_pairs(load):
    bmmc = load("bmmc_neurips_cite", 2)
    for site in ("site1", "site3"):
        yield f"bmmc -> {site}", *split(bmmc, "site", site)
    yield "bmmc -> reticulocytes", bmmc, split(bmmc, "cell_type", "Reticulocyte")[1]
    atlas, baron = load("pancreas_cellhint_atlas", 4), load("pancreas_baron_h1", 3)
    nuclei, cells = split(atlas, "suspension_type", "cell")
    yield from (("cells -> nuclei", cells, nuclei), ("nuclei -> cells", nuclei, cells))
    yield from (("Baron -> atlas", baron, atlas), ("atlas -> Baron", atlas, baron))
    yield "atlas -> gamma cells", atlas, split(baron, "cell_type", "gamma")[1]
    liu, tea = load("pbmc_liu_covid_citeseq", 15), load("pbmc_teaseq", 5)
    yield "Liu -> B3", *split(liu, "batch", "B3")
    yield "TEA-seq halves", tea[::2], tea[1::2]
    yield from (("TEA-seq -> Liu", tea, liu), ("Liu -> TEA-seq", liu, tea))


@pytest.mark.data
def test_no_false_alarm_on_real_pairs(shared_data):
    """And raw counts, unlogged and twice logged values are recognised in each of them."""

    def load(name, step):
        adata = ad.read_h5ad(shared_data(name))[::step].copy()
        adata.layers["raw"] = adata.X.copy()
        sc.pp.normalize_total(adata, target_sum=1e4)
        adata.layers["unlogged"] = adata.X.copy()
        sc.pp.log1p(adata)
        adata.layers["twice"] = np.log1p(adata.X)
        return adata

    for name, reference, query in real_pairs(load):
        genes = variable(reference, min(2000, reference.n_vars))
        priors = learned(reference, genes), learned(reference[:, genes].copy(), genes)
        measured = query[:, query.var_names.isin(genes)].copy()
        for prior in priors:
            for good in (query, measured):
                assert not alarm(good, prior), name
            for wrong in ("raw", "unlogged", "twice"):
                with pytest.raises(dice.DiceError, match="pass check=False"):
                    check(measured, prior, layer=wrong)


@pytest.mark.data
def test_no_false_alarm_across_chemistries(shared_data):
    """A file with log-normalised values of variable genes only."""
    adata = ad.read_h5ad(shared_data("pbmc_symphony_3chem"))
    for tech in adata.obs["tech"].unique():
        reference, query = split(adata, "tech", tech)
        prior = learned(reference.copy(), adata.var_names)
        assert not alarm(query, prior)
        assert not alarm(query.copy()[:, ::2], prior)


def test_statistics_at_their_bounds():
    """Totals need ten cells, counts twenty values, and exponentials values up to a hundred."""
    ones = np.eye(30, dtype=np.float32)
    assert is_counts(ones[:20], least=20)
    assert not is_counts(ones[:19], least=20)
    assert matrix_statistics(ones[:10])["sum_none"] == 1
    assert matrix_statistics(ones[:9])["sum_none"] == 0
    assert matrix_statistics(np.vstack([ones[:10], 0 * ones[:3]]))["sum_none"] == 1
    assert matrix_statistics(100 * ones)["cell_total"] == pytest.approx(np.expm1(100))
    assert matrix_statistics(101 * ones)["cell_total"] == 0
    assert matrix_statistics(-ones)["cell_total"] == 0


def excess(ours, theirs, means, prior):
    """The factor between cell totals of a query with some of the prior's genes, relative to what these should have."""
    known, found = {"sum_log": 0.0}, np.array(prior)
    genes = pd.RangeIndex(len(means))
    match = GeneMatch(found, found, genes, genes)
    return _excess({**known, "cell_total": ours}, {**known, "cell_total": theirs}, match, means)


def test_totals_are_compared_by_the_genes_at_hand():
    """Four alike genes, of which the query has two: half of the total is expected, and ten times that is odd."""
    alike = np.full(4, np.log(2.0))
    assert excess(5.0, 1.0, alike, [0, 1]) == pytest.approx(10)
    assert excess(11.0, 1.0, np.array([np.log(2.0), -5.0, -5.0, -5.0]), [0]) == pytest.approx(11)
    # With a quarter of the total, without any, and without totals, nobody can tell.
    assert excess(100.0, 1.0, alike, [0]) == 1
    assert excess(1e6, 1.0, np.zeros(4), [0]) == 1
    assert excess(0.0, 1.0, alike, [0, 1]) == 1


@pytest.mark.parametrize(
    ("mine", "other", "fix"),
    [
        ("log", "log", ""),
        ("none", "none", ""),
        ("none", "log", r"normalised values without logarithm, but the reference holds natural.*: call sc.pp.log1p"),
        ("twice", "log", r"logarithms of logarithms.*: call adata.X = np.expm1\(adata.X\) first"),
        ("log2", "log", r"logarithms to base 2.*: call adata.X = adata.X \* np.log\(2\) first"),
        (
            "log",
            "none",
            r"holds natural logarithms, but the reference holds normalised.*: call sc.pp.log1p",
        ),
        ("none", "log2", r"but the reference holds logarithms to base 2: call sc.pp.log1p"),
    ],
)
def test_logarithms_where_totals_tell(mine, other, fix):
    def known(name):
        none = {"minimum": 0.0, "maximum": 1.0, "counts": 0.0, "centred": 0.0, "nonzero": 200.0}
        return none | {f"sum_{n}": 1e4 * (n == name) for n in TRANSFORMED}

    said = _problem(known(mine), known(other)).format(x="adata.X", log1p="sc.pp.log1p(adata)")
    assert re.search(fix, said) if fix else said == ""
    assert _problem(known(mine) | {"nonzero": 199.0}, known(other)) == ""
