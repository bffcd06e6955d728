"""The report as a file: whole, self-contained, and nothing of the data becomes markup."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from dice import pl
from dice._errors import InputError, SlotError
from dice._plot import explorer

TYPES = ["B", "NK", "T"]
NASTY = "</script><script>alert('x')</script> & \"q\" {{data}}"


class Outline(HTMLParser):
    """Elements, attributes that could load something, and text outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.sources: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href", "action", "data")]

    def handle_data(self, data):
        self.text += data


def json_of(html):
    """The data of a page."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def read(path):
    """Parsed page and its data."""
    text = path.read_text(encoding="utf-8")
    return Outline(text), json_of(text)


def decode(column):
    return np.frombuffer(base64.b64decode(column["values"]), column["dtype"])


@pytest.fixture
def run(query):
    """A query as several calls leave it."""
    query.uns["X_dice"] = {
        "params": {"rho": 1.25, "method": "direct"},
        "call": {"rho": np.array([5.0, 0.5])},
        "genes": {"text": "3/4 genes found", "missing": np.array(["gene<7>"])},
        "warnings": np.array(["One <b>thing</b>.", "Another."]),
    }
    query.obs["dice_novelty"] = query.obs["dice_uncertainty"]
    query.obs["dice_novel"] = False
    return query


def test_the_page_holds_everything(run, reference, tmp_path):
    pl.report(run, tmp_path / "report.html", reference=reference, title="mine")
    outline, data = read(tmp_path / "report.html")
    assert "mine" in outline.text
    assert outline.sources == []
    record = data["records"]["X_dice"]
    assert record["warnings"] == ["One <b>thing</b>.", "Another."]
    assert record["genes"] == {"text": "3/4 genes found", "missing": ["gene<7>"]}
    assert (record["params"]["rho"], record["call"]["rho"]) == ("1.25", ["5", "0.5"])
    captions = [figure["caption"].split()[0] for figure in data["figures"]]
    assert captions == ["The", "Uncertainty:", "Novelty:", "Spectrum"]
    assert all(base64.b64decode(figure["png"]).startswith(b"\x89PNG") for figure in data["figures"])
    assert data["n"] == 45
    assert data["names"] == list(run.obs_names)
    assert [m["title"] for m in data["maps"]] == ["PCA projection", "DICE"]


def test_columns_arrive_as_they_are(run, tmp_path):
    run.obs.loc[run.obs_names[:5], "cell_type"] = np.nan
    run.obs.loc[run.obs_names[2], "dice_uncertainty"] = np.nan
    run.obs["flag"] = np.arange(45) % 2 == 0
    run.obs["id"] = pd.Categorical([f"id {i}" for i in range(45)])
    pl.report(run, tmp_path / "report.html", color="cell_type")
    _, data = read(tmp_path / "report.html")
    columns = {column["name"]: column for column in data["columns"]}
    assert list(columns) == list(run.obs)
    assert columns["cell_type"]["labels"] == ["B", "NK", "T"]
    codes = run.obs["cell_type"].cat.codes.to_numpy()
    np.testing.assert_array_equal(decode(columns["cell_type"]), np.where(codes < 0, 3, codes))
    np.testing.assert_array_equal(decode(columns["dice_uncertainty"]), run.obs["dice_uncertainty"])
    assert columns["flag"]["labels"] == ["False", "True"]
    assert [data["columns"][at]["name"] for at in data["hover"]] == ["dice_uncertainty", "dice_novelty"]
    assert data["columns"][data["color"]]["name"] == "cell_type"


def test_calls_with_settings_objects_or_without_parameters(run, tmp_path):
    run.uns["X_dice"] = {"call": {"method": {"n_chains": 10, "schedule": "linear"}}}
    pl.report(run, tmp_path / "report.html", use_rep="X_dice")
    record = read(tmp_path / "report.html")[1]["records"]["X_dice"]
    assert record == {"call": {"method": {"n_chains": "10", "schedule": "linear"}}}


def test_coordinates_fill_the_map_and_keep_their_shape(run, tmp_path):
    pl.report(run, tmp_path / "report.html")
    _, data = read(tmp_path / "report.html")
    x, y = np.frombuffer(base64.b64decode(data["maps"][1]["xy"]), np.uint16).reshape(2, 45).astype(float)
    where = run.obsm["X_dice_umap"].astype(float)
    extent = np.ptp(where, axis=0).max()
    for drawn, true in zip((x, y), where.T, strict=True):
        np.testing.assert_allclose((drawn - drawn.min()) / 65535, (true - true.min()) / extent, atol=1e-4)
    assert max(np.ptp(x), np.ptp(y)) == 65535


def test_labels_never_become_markup(run, tmp_path):
    run.obs["cell_type"] = run.obs["cell_type"].cat.rename_categories({"B": NASTY})
    run.obs[NASTY] = 1.0
    run.obs_names = [NASTY, *run.obs_names[1:]]
    run.uns[NASTY] = {"params": {NASTY: NASTY}, "warnings": np.array([NASTY]), "genes": {"text": NASTY}}
    pl.report(run, tmp_path / "report.html", title=NASTY, color="cell_type")
    outline, data = read(tmp_path / "report.html")
    assert outline.elements.count("script") == 2
    assert NASTY in data["columns"][0]["labels"]
    assert data["names"][0] == NASTY
    # The title twice; all else is data.
    assert outline.text.count(NASTY) == 2
    assert data["records"][NASTY]["params"] == {NASTY: NASTY}


def test_labels_are_hovered_over_and_judged(labelled, tmp_path):
    pl.report(labelled, tmp_path / "report.html", truth_key="cell_type")
    _, data = read(tmp_path / "report.html")
    # Comparison, uncertainty, transfer and reliability.
    assert len(data["figures"]) == 4
    hover = [data["columns"][at]["name"] for at in data["hover"]]
    ends = ("", "_prob", "_set", "_status")
    assert hover == ["dice_uncertainty", *(f"cell_type_dice{end}" for end in ends)]
    # What can be used comes first.
    first = data["columns"][data["color"]]
    assert first["name"] == "cell_type_dice_status"
    assert first["colors"] == [explorer.STATUS_COLORS[name] for name in first["labels"]]


def test_probabilities_and_trees_of_labels(labelled, reference):
    labels = pl.explore(labelled).content["labels"][0]
    assert (labels["key"], labels["names"], labels["alpha"], labels["views"]) == ("cell_type_dice", TYPES, 0.1, None)
    codes, given = (
        np.frombuffer(base64.b64decode(labels[name]), np.uint16).reshape(45, 3) for name in ("codes", "probabilities")
    )
    stored = labelled.obsm["cell_type_dice_prob"].to_numpy()
    np.testing.assert_array_equal(codes[:, 0], stored.argmax(1))
    np.testing.assert_allclose(given / 65535, np.take_along_axis(stored, codes.astype(int), 1), atol=1e-5)
    # Every cell with a doubt thinks of all others alike, so that the tree joins the first two labels.
    assert labels["tree"]["names"][:3] == TYPES
    assert labels["tree"]["parents"][-1] == len(labels["tree"]["names"]) - 1
    nodes = ["B", "NK", "T", "NK or T", "unresolved"]
    labelled.uns["cell_type_dice_safe"] = {
        "node": nodes,
        "parent": ["unresolved", *["NK or T"] * 2, *["unresolved"] * 2],
    }
    assert pl.explore(labelled).content["labels"][0]["tree"] == {"names": nodes, "parents": [4, 3, 3, 4, 4]}
    # Genes need the reference that gave the labels; without it, the page has none.
    assert pl.explore(labelled, reference).content["labels"][0]["genes"] == {}


def test_a_notebook_shows_it_in_a_sandbox(labelled):
    page = pl.explore(labelled)
    assert repr(page) == "Page of 45 cells: show it in a notebook, or write it with .save('report.html')."
    frame = Outline(page._repr_html_())
    assert frame.elements == ["iframe"]
    assert 'sandbox="allow-scripts allow-downloads" style="width:100%;height:900px' in page._repr_html_()


def test_only_the_pages_own_script_may_run(run, tmp_path):
    pl.report(run, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_many_cells_are_drawn_by_a_random_choice(run, tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "MOST_ON_MAP", 20)
    pl.report(run, tmp_path / "report.html")
    _, data = read(tmp_path / "report.html")
    assert data["n"] == len(data["names"]) == len(decode(data["columns"][0])) == 45
    drawn = np.frombuffer(base64.b64decode(data["drawn"]), np.uint32)
    assert len(set(drawn)) == 20
    assert max(drawn) < 45


@pytest.mark.parametrize("n", [0, 1, 3])
def test_few_cells_and_views(query, n, tmp_path):
    pl.report(query[:n], tmp_path / "report.html")
    assert read(tmp_path / "report.html")[1]["n"] == n
    assert "X_dice_umap" not in query.obsm


def test_a_failure_leaves_the_old_file(query, tmp_path):
    (tmp_path / "report.html").write_text("old")
    with pytest.raises(SlotError, match="set color to one of"):
        pl.report(query, tmp_path / "report.html", color="nothing")
    with pytest.raises(InputError, match="use_rep is empty"):
        pl.report(query, tmp_path / "report.html", use_rep=[])
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "old"
