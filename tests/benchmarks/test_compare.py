"""Ranks and paired differences on a table that is small enough to do by hand."""

from __future__ import annotations

import pandas as pd
import pytest

#: Method, data set, seed, ARI, stability. `graph` has no second set, and `peer` no stability.
ROWS = [
    ("ours", "one", 0, 0.8, 0.9),
    ("ours", "one", 1, 0.6, 0.9),
    ("ours", "two", 0, 0.3, 0.5),
    ("ours", "two", 1, 0.3, 0.5),
    ("plain", "one", 0, 0.5, 0.2),
    ("plain", "one", 1, 0.4, 0.2),
    ("plain", "two", 0, 0.4, 0.6),
    ("plain", "two", 1, 0.4, 0.6),
    ("peer", "one", 0, 0.6, None),
    ("peer", "one", 1, 0.6, None),
    ("peer", "two", 0, 0.5, None),
    ("peer", "two", 1, 0.5, None),
    ("graph", "one", 0, 0.9, 0.9),
]


@pytest.fixture
def rows():
    return pd.DataFrame(ROWS, columns=["method", "data", "seed", "ari", "stability"])


@pytest.fixture
def compare(script, monkeypatch):
    module = script("compare")
    monkeypatch.setattr(module, "COMPARISONS", {"page": (module.Comparison("ours", "plain", ("ari", "stability")),)})
    return module


def test_ranks_methods_that_have_everything(compare, rows):
    found = compare.ranks(rows, ["ari"]).set_index("method")
    # one: ours 0.7, peer 0.6, plain 0.45; two: peer 0.5, plain 0.4, ours 0.3.
    assert found["ari"].to_dict() == {"peer": "1.50", "ours": "2.00", "plain": "2.50"}
    assert list(found.index) == ["peer", "ours", "plain"]
    assert compare.ranks(rows, ["ari", "stability"])["method"].tolist() == ["ours", "plain"]


def test_differences_are_paired(compare, rows):
    found = compare.paired(rows, "ours", ["plain", "peer", "graph"], ["ari", "stability"]).set_index("to")
    # Means over sets: seed 0 (0.3 - 0.1) / 2, seed 1 (0.2 - 0.1) / 2; Student's t of one degree of freedom is 12.706.
    assert found.loc["plain", "ari"] == "0.075 ± 0.318"
    assert found.loc["peer", "ari"] == "-0.050 ± 0.635"
    assert found.loc["peer", "stability"] == "-"
    assert found.loc["graph", "ari"] == "-0.100"
    assert found[["sets", "ahead"]].to_numpy().tolist() == [[2, 1], [2, 1], [1, 0]]


def test_seeds_without_all_sets_do_not_count(compare, rows):
    rows = rows[(rows["data"] != "two") | (rows["seed"] != 1)]
    assert compare.paired(rows, "ours", ["plain"], ["ari"]).loc[0, "ari"] == "0.100"


def test_names_the_best_peer(compare, rows, tmp_path):
    tables = compare.tables("page", rows, tmp_path)
    assert list(tables) == ["Mean rank over ari, stability", "Mean rank over ari", "ours, paired differences"]
    roles = tables["ours, paired differences"].set_index("to")["which is"]
    assert roles.to_dict() == {"plain": "plain", "peer": "best peer", "graph": ""}
    assert compare.tables("another page", rows, tmp_path) == {}


def test_rows_beside_a_page_are_compared_too(compare, rows, tmp_path, monkeypatch):
    asked = compare.Comparison("ours", "plain", ("ari",), beside=("peers",))
    monkeypatch.setattr(compare, "COMPARISONS", {"page": (asked,)})
    rows[rows["method"] == "peer"].to_csv(tmp_path / "peers.csv", index=False)
    tables = compare.tables("page", rows[rows["method"] != "peer"], tmp_path)
    assert "peer" in set(tables["ours, paired differences"]["to"])


def test_a_page_drawn_again_keeps_its_origin(script, rows, tmp_path):
    report = script("report")
    report.publish("page", rows, by=["method"], title="A page")
    page = tmp_path / "page.md"
    page.write_text(page.read_text().replace("Made by `python", "Made by `python before"))
    report.publish("page", rows, by=["method"], title="Another title")
    assert "# Another title" in page.read_text()
    assert "Made by `python before" in page.read_text()
    report.publish("page", rows[1:], by=["method"], title="Another title")
    assert "Made by `python before" not in page.read_text()


def test_two_tasks_on_a_page(compare, rows, tmp_path, monkeypatch):
    other = pd.DataFrame({"method": ["labels", "LR"], "data": "one", "seed": 0, "accuracy": [0.9, 0.8]})
    asked = (compare.COMPARISONS["page"][0], compare.Comparison("labels", "LR", ("accuracy",)))
    monkeypatch.setattr(compare, "COMPARISONS", {"page": asked})
    tables = compare.tables("page", pd.concat([rows, other]), tmp_path)
    assert tables["labels, paired differences"]["to"].tolist() == ["LR"]
    assert tables["ours, paired differences"]["to"].tolist() == ["plain", "peer", "graph"]


def test_data_sets_that_we_lack_do_not_count(compare, rows):
    more = pd.DataFrame([("plain", "three", 0, 0.9, 0.9), ("peer", "three", 0, 0.9, 0.9)], columns=list(rows.columns))
    asked = compare.COMPARISONS["page"][0]
    found, expected = (compare._compared(some, asked) for some in (pd.concat([rows, more]), rows))
    assert list(found) == list(expected)
    for heading, table in found.items():
        pd.testing.assert_frame_equal(table, expected[heading])


def test_a_run_of_the_other_tools_file_counts(compare, rows, tmp_path, monkeypatch):
    asked = compare.Comparison("ours", "plain", ("ari",), beside=("peers",))
    monkeypatch.setattr(compare, "COMPARISONS", {"page": (asked,)})
    again = rows[rows["method"] == "plain"].assign(ari=0.1).rename(columns={"data": "pair"})
    again.to_csv(tmp_path / "peers.csv", index=False)
    found = compare.tables("page", rows, tmp_path)["ours, paired differences"].set_index("to")
    assert found.loc["plain", "ari"].startswith("0.400")
