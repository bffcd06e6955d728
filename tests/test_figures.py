"""Figures that are printed where users look first are those of the committed tables."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "benchmarks"


def printed(page: str, row: str) -> list[float]:
    """Figures with three decimals in the row of a page that begins so."""
    lines = [line for line in (ROOT / page).read_text().splitlines() if line.startswith(f"| {row}")]
    assert len(lines) == 1, f"{page} has {len(lines)} rows that begin with {row!r}"
    return [float(figure) for figure in re.findall(r"\b\d\.\d{3}\b", lines[0])]


def means(tables: list[str], columns: list[str], methods: list[str], group: str) -> list[float]:
    """Means over seeds and data sets, method by method, rounded as they are printed."""
    rows = pd.concat([pd.read_csv(TABLES / f"{table}.csv") for table in tables])
    found = rows.groupby(["method", "seed", group])[columns].mean().groupby("method").mean()
    return [round(float(found.loc[method, column]), 3) for method in methods for column in columns]


CLUSTERED = ["DICE cluster", "Harmony, resolution 1", "PhenoGraph", "PCA, resolution 1"]
LABELLED = ["DICE", "celltypist 1.7.1", "LR on genes", "LR on PCA", "CellMapper 0.2.5", "symphonypy 0.2.4"]


@pytest.mark.parametrize(
    ("page", "row"),
    [
        ("README.md", "clusters at the tool's own"),
        ("docs/benchmark_details.md", "clusters of held-out cells at the tool's own"),
    ],
)
def test_clusters(page, row):
    assert printed(page, row) == means(["clusters"], ["ari"], CLUSTERED, "data")


def test_labels():
    found = printed("docs/benchmark_details.md", "labels on 22 pairs")
    assert found == means(["transfer", "transfer_peers"], ["accuracy", "macro_f1"], LABELLED, "pair")


#: Rows of the table at the top of the details: its beginning, a table, columns, methods, and which rows of the table.
GLANCE = {
    "... queries of other sites": (
        "clusters_others", ["ari"], ["DICE cluster", "PhenoGraph", "PCA, resolution 1", "Harmony, resolution 1"], {},
    ),
    "clusters of held-out cells at the best": (
        "real", ["ari"], ["DICE graph", "scVI-10, 100 epochs", "MAGIC", "Harmony", "PCA"], {},
    ),
    "... at Leiden's default": (
        "real", ["ari_1"], ["DICE graph", "scVI-25, 100 epochs", "Harmony", "PCA", "MAGIC"], {},
    ),
    "clusters of queries of other sites": ("real_pairs", ["ari", "ari_1"], ["DICE graph", "PCA"], {}),
    "labels of queries with a tenth": ("depth", ["macro_f1", "coverage"], ["DICE", "PCA"], {"counts": 0.1}),
    "seconds of the network": ("speed_peers", ["seconds"], ["DICE", "MAGIC"], {"task": "denoising of PCs"}),
    "labels across technologies": (
        "shift", ["macro_f1"], ["labels auto", "LR on genes", "labels measured"], {"composition": "all"},
    ),
    "proteins that were not measured": (
        "features", ["correlation", "held"], ["DICE", "ridge on PCA", "15-NN on PCA"], {"pair": "bmmc"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", GLANCE)
def test_the_table_at_the_top_of_the_details(row):
    name, columns, methods, only = GLANCE[row]
    rows = pd.read_csv(TABLES / f"{name}.csv").rename(columns={"strategy": "method", "tool": "method"})
    for column, value in only.items():
        rows = rows[rows[column] == value]
    sets = "data" if "data" in rows else "pair"
    found = rows.groupby(["method", "seed", sets])[columns].mean().groupby("method").mean()
    wanted = [found.loc[method, column] for method in methods for column in columns]
    assert printed("docs/benchmark_details.md", row) == [round(float(x), 3) for x in wanted if pd.notna(x)]


@pytest.mark.parametrize(
    ("row", "pair", "methods"),
    [
        ("... nuclei as reference", "nuclei -> Baron",
         ["DICE", "CellMapper 0.2.5", "celltypist 1.7.1", "scANVI of scvi-tools 1.4.2", "symphonypy 0.2.4"]),
        ("... atlas as reference", "atlas -> Baron", ["DICE", "celltypist 1.7.1", "symphonypy 0.2.4"]),
    ],
)  # fmt: skip
def test_labels_of_single_pairs(row, pair, methods):
    rows = pd.concat([pd.read_csv(TABLES / f"{table}.csv") for table in ("transfer", "transfer_peers")])
    found = rows[rows["pair"] == pair].groupby("method")[["accuracy", "macro_f1"]].mean().round(3)
    assert printed("docs/benchmark_details.md", row) == found.loc[methods].to_numpy().ravel().tolist()


def test_labels_of_all_30_sets():
    tables = [pd.read_csv(TABLES / f"{table}.csv") for table in ("transfer", "unseen")]
    rows = pd.concat([table.rename(columns={"data": "pair"}) for table in tables]).dropna(subset=["accuracy"])
    figures = ["accuracy", "macro_f1"]
    means = rows.groupby(["method", "pair"])[figures].mean().groupby("method")
    found = means.mean()[means.size() == 30].round(3)
    shown = found.loc[["DICE", "LR on genes", "LR on PCA"]].to_numpy().ravel().tolist()
    assert printed("docs/benchmark_details.md", "... with eight more sets") == shown
    assert printed("README.md", "labels of 30 queries") == shown
    assert found["accuracy"].idxmax() == found["macro_f1"].idxmax() == "DICE"


SHIFTED = {
    "`dice.tl.denoise`, no correction": "embedding none", '`shift="clusters"`': "embedding clusters",
    '`shift="offset"`': "embedding offset", '`shift="mean"`': "embedding mean",
    "logistic regression on genes": "LR on genes", "`dice.tl.transfer_labels(shift=False)`": "labels measured",
    "**`dice.tl.transfer_labels`**": "labels auto",
}  # fmt: skip


@pytest.mark.parametrize("row", SHIFTED)
def test_shifted_queries(row):
    rows = pd.read_csv(TABLES / "shift.csv")
    found = rows[rows["strategy"] == SHIFTED[row]].groupby("composition")["macro_f1"].mean()
    assert printed("docs/shift.md", row) == [round(float(x), 3) for x in (*found[["all", "third"]], found.mean())]


UNSEEN = {
    "DICE": "DICE", "logistic regression on PCA": "LR on PCA", "logistic regression on genes": "LR on genes",
    "CellTypist": "celltypist 1.7.1", "CellMapper": "CellMapper 0.2.5", "symphonypy": "symphonypy 0.2.4",
}  # fmt: skip


@pytest.mark.parametrize("row", UNSEEN)
def test_labels_of_unseen_sets(row):
    tables = [pd.read_csv(TABLES / f"{table}.csv") for table in ("unseen", "unseen_peers")]
    rows = pd.concat([table.rename(columns={"pair": "data"}) for table in tables]).dropna(subset=["accuracy"])
    found = rows[rows["method"] == UNSEEN[row]].groupby("data", sort=False)[["accuracy", "macro_f1"]].mean()
    if len(found) == rows["data"].nunique():  # A mean over fewer sets could not be compared.
        found = pd.concat([found, found.mean().to_frame().T])
    found = found.round(3)
    assert printed("docs/benchmark_details.md", f"{row} | 0.") == found.to_numpy().ravel().tolist()


INDEX = (ROOT / "docs" / "benchmarks.md").read_text()
DETAILS = (ROOT / "docs" / "benchmark_details.md").read_text()
#: Rows of the table of the index, one for every benchmark.
BENCHMARKS = [line for line in INDEX.splitlines() if line.startswith("| [")]


@pytest.mark.parametrize("page", sorted(TABLES.glob("*.md")), ids=lambda page: page.stem)
def test_every_page_has_a_commit_and_a_place_in_the_details(page):
    assert re.search(
        r"^Made by `python benchmarks/\w+\.py\b.*?` .*\bat commit [0-9a-f]{7}\b", page.read_text(), re.MULTILINE
    )
    assert f"(benchmarks/{page.name})" in DETAILS


def figures_of(pages: set[str]) -> set[str]:
    """What stands on pages, and single runs of their tables, with three decimals."""
    text = " ".join(path.read_text() for path in (TABLES / f"{page}.md" for page in pages) if path.exists())
    rows = [pd.read_csv(TABLES / f"{page}.csv").select_dtypes("number").to_numpy().ravel() for page in pages]
    return set(re.findall(r"\d+\.\d{3}\b", text)) | {f"{abs(value):.3f}" for values in rows for value in values}


def tables_named(text: str) -> set[str]:
    """Tables that a text links to, or whose script it names."""
    names = re.findall(r"benchmarks/(\w+)\.(?:md|py|csv)", text)
    return {name for name in names if (TABLES / f"{name}.csv").exists()}


def sections(page: str) -> list[tuple[str, str, set[str]]]:
    """Title, text and tables of every section that cites figures; the introduction names the tables of the others."""
    first, *others = re.split(r"^##+ ", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)
    parts = [(part.splitlines()[0], part, tables_named(part) or tables_named(first)) for part in others]
    return [part for part in parts if part[2] and re.search(r"\d\.\d{3}\b", part[1])]


EXPLAINED = (
    "measured_noise.md", "prior.md", "posterior.md", "rho.md", "differences.md", "clustering.md",
    "labels.md", "levels.md", "novelty.md", "features.md",
)  # fmt: skip


@pytest.mark.parametrize(
    ("page", "title"), [(page, title) for page in EXPLAINED for title, _, _ in sections(page)], ids=str
)
def test_every_figure_of_a_page_is_in_a_table_that_it_names(page, title):
    for text, tables in ((text, tables) for found, text, tables in sections(page) if found == title):
        cited = re.findall(r"(?<![\d.,])\d+\.\d{3}\b", text)
        assert [figure for figure in cited if figure not in figures_of(tables)] == []


def parts_with_figures() -> list[str]:
    """Rows of the index, and sections of the details; of the first section, single rows."""
    first, *others = re.split(r"^## ", DETAILS, flags=re.MULTILINE)[1:]
    assert first.startswith("At a glance")
    return BENCHMARKS + [line for line in first.splitlines() if re.search(r"\d\.\d{3}", line)] + others


@pytest.mark.parametrize("part", parts_with_figures(), ids=lambda part: part[:40].splitlines()[0])
def test_every_figure_is_on_a_page_that_its_part_names(part):
    known = figures_of(set(re.findall(r"\(benchmarks/(\w+)\.md\)", part)))
    printed = re.findall(r"(?<![\d.,])\d+\.\d{3}\b", part)
    assert [figure for figure in printed if figure not in known] == []


def test_every_interval_is_on_a_page():
    pages = " ".join(page.read_text() for page in TABLES.glob("*.md"))
    found = re.findall(r"-?\d\.\d{3}\s±\s\d\.\d{3}", INDEX + DETAILS)
    assert found
    assert [interval for interval in found if " ".join(interval.split()) not in pages] == []


@pytest.mark.parametrize("text", [INDEX, DETAILS], ids=["index", "details"])
def test_every_command_is_named(text):
    targets = re.findall(r"^(bench-[a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert [target for target in targets if f"make {target}" not in text] == []


def test_the_index_fits_on_a_screen():
    assert len(INDEX.splitlines()) <= 60
    assert len(re.findall(r"^\|---", INDEX, flags=re.MULTILINE)) == 1


def test_every_row_of_the_index_leads_to_a_section_and_has_a_command():
    titles = re.findall(r"^## (.+)$", DETAILS, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert len(BENCHMARKS) > 15
    assert set(re.findall(r"benchmark_details\.md#([\w-]+)", INDEX)) <= anchors
    for row in BENCHMARKS:
        question, *_, command = row.strip("| ").split(" | ")
        assert "benchmark_details.md#" in question
        assert re.match(r"`(make|python benchmarks/)", command), row


def test_every_section_has_a_question_an_answer_and_a_command():
    sections = [part for part in re.split(r"^## ", DETAILS, flags=re.MULTILINE) if "**Question.**" in part]
    assert len(sections) > 10
    for section in sections:
        assert "**Answer.**" in section
        assert re.search(r"`(make bench-|python benchmarks/)", section), section.splitlines()[0]


@pytest.mark.parametrize(
    ("row", "network"),
    [("default, to its end", "default"), ("the paper's, after", "paper"), ("none: PCA", "none (PCA)")],
)
def test_the_papers_own_network(row, network):
    rows = pd.read_csv(TABLES / "paper_settings.csv")
    last = rows[(rows["network"] == network) & rows["ari"].notna()].iloc[-1]
    figures = last[["ari", "nmi", "ari_half", "nmi_half"]].dropna().astype(float)
    assert printed("docs/benchmark_details.md", row) == figures.round(3).tolist()


def test_the_demonstration():
    """README and index print the figures of `make demo`, ours first."""
    table = pd.read_csv(TABLES / "demo.csv", index_col="method")
    labels = ["dice.tl.annotate", "CellTypist 1.7.1", "logistic regression on genes", "logistic regression on PCs"]
    ours, *others = table.loc[labels, ["label accuracy", "macro-F1"]].to_numpy().tolist()
    clusters = table["cluster ARI"].dropna()
    expected = [*ours, clusters.iloc[0], *(figure for row in others for figure in row), clusters.iloc[1]]
    assert printed("README.md", "the picture") == expected
    assert table["macro-F1"].idxmax() == table["cluster ARI"].idxmax() == "dice.tl.annotate"
    index = re.findall(r"\b\d\.\d{3}\b", (ROOT / "docs" / "index.md").read_text())
    named = [("label accuracy", labels[0]), ("label accuracy", labels[2]), ("cluster ARI", labels[0])]
    assert [float(figure) for figure in index] == [*(table.loc[row, column] for column, row in named), clusters.iloc[1]]
