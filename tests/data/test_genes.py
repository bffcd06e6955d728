"""Matching genes by name: what does not matter, what is reported, and what is refused with which advice."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dice
from dice._data.gene_names import names_of
from dice._data.genes import GeneMatch, check_unique, genes_in_both, match_genes
from dice.options import Options

GENES = np.array([f"GENE{i}" for i in range(50)], dtype=object)
ENSEMBL = np.array([f"ENSG{i:011}" for i in range(50)], dtype=object)
names_of("human"), names_of("mouse")  # Read once, so that no example of a property is slow by it.


def query(names, **var):
    """An object with these gene names, and columns in var."""
    return ad.AnnData(np.zeros((3, len(names)), np.float32), var=pd.DataFrame(var, index=pd.Index(names)))


@given(st.permutations(range(60)))
def test_order_and_extra_genes_do_not_matter(order):
    names = np.concatenate([GENES, [f"extra_{i}" for i in range(10)]])[order]
    match = match_genes(query(names), GENES)
    assert match.fraction == 1
    np.testing.assert_array_equal(names[match.query], GENES)
    np.testing.assert_array_equal(match.prior, np.arange(50))


@given(st.sets(st.integers(0, 49), min_size=40), st.randoms(use_true_random=False))
def test_missing_genes_are_unobserved(found, random):
    names = [GENES[i] for i in found]
    random.shuffle(names)
    match = match_genes(query(names), GENES)
    np.testing.assert_array_equal(match.prior, sorted(found))
    np.testing.assert_array_equal(np.array(names)[match.query], GENES[match.prior])
    np.testing.assert_array_equal(match.missing, np.delete(GENES, sorted(found)))


def test_report_survives_files(tmp_path):
    for n in (50, 45):
        match = match_genes(query(GENES[:n]), GENES)
        adata = query(GENES)
        adata.uns["genes"] = match.report()
        adata.write_h5ad(tmp_path / "a.h5ad")
        adata.write_zarr(tmp_path / f"{n}.zarr")
        for stored in (ad.read_h5ad(tmp_path / "a.h5ad"), ad.read_zarr(tmp_path / f"{n}.zarr")):
            report = stored.uns["genes"]
            assert report["text"] == str(match) == f"{n}/50 genes found"
            assert (report["n_found"], report["n_prior"], report["fraction"]) == (n, 50, n / 50)
            assert list(report["missing"]) == list(GENES[n:])
    assert len(match_genes(query(GENES[:40]), GENES).report()["missing"]) == 10


def test_a_match_can_be_made_by_hand():
    match = GeneMatch(np.array([1, 0]), np.array([0, 1]), pd.Index(["b", "a"]), pd.Index(["a", "b"]))
    assert match.fraction == 1
    assert list(match.report()["missing"]) == []


@pytest.mark.parametrize(
    "names",
    [
        pd.CategoricalIndex(GENES),
        [np.nan, *GENES, None, np.nan],
        ["", *GENES, ""],
        [f" {name} " for name in GENES],
        pd.Index(GENES, dtype="string"),
    ],
    ids=["categorical", "missing", "empty", "padded", "string dtype"],
)
@pytest.mark.filterwarnings("ignore:Variable names are not unique:UserWarning")  # AnnData, about missing names
def test_odd_names(names):
    adata = query(names)
    match = match_genes(adata, GENES)
    assert match.fraction == 1
    column = query([f"x{i}" for i in range(len(names))], name=pd.Series(names).to_numpy(dtype=object))
    np.testing.assert_array_equal(match_genes(column, GENES, gene_key="name").query, match.query)


def test_names_that_are_numbers():
    adata = query([f"x{i}" for i in range(50)], entrez=np.arange(50), rank=np.arange(50) / 2)
    assert match_genes(adata, np.arange(50).astype(str).astype(object), gene_key="entrez").fraction == 1
    adata.var["entrez"] = pd.Categorical(adata.var["entrez"])
    assert match_genes(adata, np.arange(50).astype(str).astype(object), gene_key="entrez").fraction == 1


def test_versions_of_ensembl_ids_are_ignored_on_both_sides():
    versions = np.array([f"{name}.{i % 7}" for i, name in enumerate(ENSEMBL)], dtype=object)
    others = np.array([f"{name}.{i % 5}" for i, name in enumerate(ENSEMBL)], dtype=object)
    for names, wanted in ((versions, ENSEMBL), (ENSEMBL, versions), (versions, others), (versions, versions)):
        assert match_genes(query(names[::-1]), wanted).fraction == 1
    mouse = np.array(["ENSMUSG00000064351.1", "ENSMUSG00000064370.1"], dtype=object)
    assert match_genes(query(["ENSMUSG00000064370.2", "ENSMUSG00000064351"]), mouse).query.tolist() == [1, 0]


def test_only_versions_are_stripped():
    """Clone-based symbols have dots of their own, and pseudoautosomal genes come twice."""
    names = ["AC012345.1", "AC012345.2", "ENSG00000182378.15", "ENSG00000182378.15_PAR_Y", "ENSG00000000003.4"]
    wanted = np.array(["AC012345.2", "AC012345.1", "ENSG00000182378", "ENSG00000000003"], dtype=object)
    match = match_genes(query(names), wanted)
    assert match.query.tolist() == [1, 0, 2, 4]


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_an_ambiguous_version_is_not_guessed():
    names = [*ENSEMBL[:40], "ENSG00000000041.1", "ENSG00000000041.2", "ENSG00000000042.1"]
    match = match_genes(query(names), ENSEMBL, min_overlap=0)
    assert ENSEMBL[41] in match.missing
    assert ENSEMBL[42] not in match.missing


def test_gene_key():
    adata = query(ENSEMBL, symbol=pd.Categorical(GENES[::-1]))
    match = match_genes(adata, GENES, gene_key="symbol")
    np.testing.assert_array_equal(match.query, np.arange(50)[::-1])
    with pytest.raises(dice.DiceError, match=r"no column 'symbols' in adata.var; available: \['symbol'\]"):
        match_genes(adata, GENES, gene_key="symbols")


def transposed():
    return ad.AnnData(np.zeros((50, 4), np.float32), obs=pd.DataFrame(index=GENES))


REFUSED = {
    "ensembl for symbols": (
        query(ENSEMBL),
        {},
        "No genes are shared.*set adata.var_names to the same kind of identifier",
    ),
    "another column": (
        query(ENSEMBL, gene_ids=GENES),
        {},
        r"var\['gene_ids'\] matches 100% .*pass gene_key='gene_ids'",
    ),
    "wrong column": (query(GENES, n=ENSEMBL), {"gene_key": "n"}, r"adata.var_names matches 100% .*leave gene_key out"),
    "transposed": (transposed(), {}, r"transposed, with genes as observations: pass adata\.T"),
    "nothing": (query(["a", "b"]), {}, r"names like \['GENE0', .* names like \['a', 'b'\]; set adata.var_names to"),
    "nothing at all": (query(["a", "b"]), {"min_overlap": 0}, "No genes are shared"),
    "few": (
        query(GENES[:9]),
        {},
        r"Only 9/50 genes found \(18%\); .*'GENE9'.* pass check=dice.Checks\(min_gene_overlap=0.18\) to go on",
    ),
    "fewer than asked": (
        query(GENES[:45]),
        {"min_overlap": 0.95},
        r"Only 45/50 .* pass check=dice.Checks\(min_gene_overlap=0.9\) to go on",
    ),
    "few, one column better": (
        query([*GENES[:5], *ENSEMBL[5:]], name=GENES),
        {},
        "Only 5/50.*pass gene_key='name', or pass",
    ),
    "no share": (query(GENES), {"min_overlap": 20}, "`min_gene_overlap` must be a number from 0 to 1, got 20"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_fix(case):
    adata, arguments, sentence = REFUSED[case]
    with pytest.raises(dice.DiceError, match=sentence) as caught:
        match_genes(adata, GENES, **arguments)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_few_genes_are_a_warning_unless_they_were_expected():
    with pytest.warns(
        dice.DiceWarning, match=r"39/50 genes found \(78%\): all others are treated as unobserved, .*GENE39"
    ):
        match_genes(query(GENES[:39]), GENES)
    with pytest.warns(dice.DiceWarning, match=r"30/50 .*var\['name'\] matches 100% .*: pass gene_key='name'\."):
        match_genes(query([*GENES[:30], *ENSEMBL[30:]], name=GENES), GENES)
    with pytest.warns(dice.DiceWarning, match="5/50"):
        match_genes(query(GENES[:5]), GENES, min_overlap=0.1)
    match_genes(query(GENES[:40]), GENES)


@pytest.mark.filterwarnings("ignore:Variable names are not unique:UserWarning")  # AnnData
def test_duplicates_are_an_early_error_that_names_five():
    names = [*GENES, *GENES[:4], "x", "x", "y", "y"]
    with pytest.raises(
        dice.DiceError, match=r"\['GENE0', 'GENE1', 'GENE2', 'GENE3', 'x'\]: call adata.var_names_make_unique\(\) first"
    ):
        match_genes(query(names), GENES)
    adata = query([f"n{i}" for i in range(50)], symbol=["GENE1", *GENES[1:]])
    sentence = (
        r"var\['symbol'\] holds .*\['GENE1'\]: call adata = adata\[:, ~adata.var\['symbol'\].duplicated\(\)\] first"
    )
    with pytest.raises(dice.DiceError, match=sentence):
        match_genes(adata, GENES, gene_key="symbol")
    adata = adata[:, ~adata.var["symbol"].duplicated()]
    assert str(match_genes(adata, GENES, gene_key="symbol")) == "49/50 genes found"
    check_unique(pd.Index(["a", "b"]), "adata.var_names")


def test_names_that_are_equal_without_their_version_belong_to_nobody():
    """Two of the prior's genes, or two of the query's, that only their versions tell apart cannot be matched by id."""
    others = [f"ENSG{i:011}" for i in range(1, 10)]
    twice = np.array([f"{ENSEMBL[0]}.1", f"{ENSEMBL[0]}.2", *(f"{name}.5" for name in others)], dtype=object)
    match = match_genes(query([f"{ENSEMBL[0]}.3", *others]), twice)
    np.testing.assert_array_equal(match.prior, np.arange(2, 11))
    np.testing.assert_array_equal(match.query, np.arange(1, 10))
    match = match_genes(query(twice), np.array([ENSEMBL[0], *others], dtype=object))
    np.testing.assert_array_equal(match.prior, np.arange(1, 10))
    np.testing.assert_array_equal(match.query, np.arange(2, 11))


def test_the_overlap_that_is_suggested_lets_the_query_pass():
    names = [*GENES[:8], *(f"extra_{i}" for i in range(50))]
    prior = GENES[:48]
    with pytest.raises(dice.DiceError, match=r"^Only 8/48 genes found \(17%\).*min_gene_overlap=0\.16\) to go on\.$"):
        match_genes(query(names), prior)
    with pytest.warns(UserWarning, match=r"^8/48 genes found \(17%\)"):
        assert len(match_genes(query(names), prior, min_overlap=0.16).prior) == 8


def test_bounds_of_the_overlap_themselves_pass():
    """Exactly 80 % are found without a word, and exactly what is asked for is enough."""
    assert match_genes(query(GENES[:40]), GENES).fraction == 0.8
    with pytest.warns(UserWarning, match="10/50 genes found"):
        match_genes(query(GENES[:10]), GENES)
    three = r"like \['GENE0', 'GENE1', 'GENE2'\], but adata.var_names has names like \['x0', 'x1', 'x2'\]; set"
    with pytest.raises(dice.DiceError, match=three):
        match_genes(query([f"x{i}" for i in range(9)]), GENES, min_overlap=0)


# Human genes: symbol, Ensembl id, former symbol, mouse ortholog.
KNOWN = [
    ("INS", "ENSG00000254647", None, None),  # Mouse has two.
    ("GCG", "ENSG00000115263", None, "Gcg"),
    ("MARCHF1", "ENSG00000145416", "MARCH1", "Marchf1"),
    ("SEPTIN7", "ENSG00000122545", "SEPT7", "Septin7"),
    ("ACTB", "ENSG00000075624", None, "Actb"),
    ("PECAM1", "ENSG00000261371", None, "Pecam1"),
    ("KRT19", "ENSG00000171345", None, "Krt19"),
]
SYMBOLS, IDS, FORMER, MOUSE = (np.array(column, dtype=object) for column in zip(*KNOWN, strict=True))


@pytest.mark.parametrize("versions", [False, True])
def test_ids_and_symbols_are_found_by_the_table(versions):
    ids = np.array([f"{name}.{i}" for i, name in enumerate(IDS)], dtype=object) if versions else IDS
    for names, wanted in ((ids, SYMBOLS), (SYMBOLS, ids)):
        match = match_genes(query(names[::-1]), wanted)
        assert match.query.tolist() == [6, 5, 4, 3, 2, 1, 0]
        assert match.report()["ways"] == {"Ensembl id": 7}


def test_former_symbols_and_case(capsys):
    names = np.where(FORMER == None, SYMBOLS, FORMER)  # noqa: E711 - elementwise
    names[4:] = ["actb", "Pecam1", "KRT19"]
    with dice.settings.using(verbosity=1):
        match = match_genes(query(names), SYMBOLS)
    assert match.query.tolist() == list(range(7))
    assert match.ways == {"name": 3, "former symbol": 2, "case or version": 2}
    said = capsys.readouterr().err.strip()
    assert said == "7/7 genes found: 3 by name, 2 by former symbol, 2 by case or version."
    assert match_genes(query(SYMBOLS), names).ways == match.ways


def test_orthologs_in_both_directions():
    mouse = np.append(MOUSE[1:], ["Ins1", "Ins2"]).astype(object)
    match = match_genes(query(mouse), SYMBOLS)
    assert match.prior.tolist() == [1, 2, 3, 4, 5, 6]
    assert match.query.tolist() == [0, 1, 2, 3, 4, 5]
    assert match.missing.tolist() == ["INS"]  # Two genes of the mouse may be it, so that neither is.
    assert match.ways == {"ortholog": 6}
    with pytest.warns(dice.DiceWarning, match=r"^6/8 genes found \(75%\): .*'Ins1', 'Ins2'\]\.$"):
        assert match_genes(query(IDS), mouse).ways == {"ortholog": 6}
    shared = genes_in_both(query(mouse), query(SYMBOLS), Options())
    assert shared.tolist() == [False, *[True] * 6]


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_a_species_can_be_named():
    """Mouse genes in capitals look like human ones, of which only some have one ortholog in the mouse."""
    names = np.array(["INS1", "INS2", "ACTB", "GCG"], dtype=object)
    wanted = np.array(["Ins1", "Ins2", "Actb", "Gcg"], dtype=object)
    assert match_genes(query(names), wanted, species="mouse").ways == {"case or version": 4}
    assert match_genes(query(names), wanted).ways == {"ortholog": 2}
    with pytest.raises(dice.DiceError, match=r"`species` must be one of .'auto', 'human', 'mouse'., got 'rat'"):
        dice.Checks(species="rat")


@pytest.mark.filterwarnings("ignore::dice.DiceWarning")
def test_nothing_is_guessed():
    """Two names of one gene, on either side, and names that differ by case alone."""
    assert match_genes(query(["SEPT7", "sept7", *SYMBOLS[:3]]), SYMBOLS, min_overlap=0).query.tolist() == [2, 3, 4]
    both = match_genes(query(["SEPT7", "SEPTIN7"]), SYMBOLS, min_overlap=0)
    assert both.query.tolist() == [1]  # By name: the former symbol is not counted beside it.
    wanted = np.array(["SEPT7", "septin7", *SYMBOLS[:3]], dtype=object)
    assert match_genes(query(SYMBOLS), wanted).prior.tolist() == [2, 3, 4]
    assert match_genes(query([SYMBOLS[0], *IDS[:3]]), SYMBOLS).query.tolist() == [0, 2, 3]


def test_the_table_is_consistent():
    human, mouse = names_of("human"), names_of("mouse")
    for names, most in ((human, 40_000), (mouse, 50_000)):
        symbols = {name for name, (_, way) in names.known.items() if way == "name"}
        assert len(symbols) > most
        assert {symbol for symbol, _ in names.known.values()} == symbols
        assert names.orthologs.keys() <= symbols
    assert len(human.orthologs) == len(mouse.orthologs) > 14_000
    assert all(mouse.orthologs[other] == symbol for symbol, other in human.orthologs.items())
