"""The registry entry and the citation say the same as pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: What the schema of scverse's registry asks for.
REQUIRED = {
    *("name", "description", "project_home", "documentation_home", "install", "license", "tags", "version"),
    *("category", "contact"),
}


@pytest.fixture
def entry():
    return yaml.safe_load((ROOT / "docs" / "meta.yaml").read_text())


def test_entry_is_complete(entry):
    assert set(entry) >= REQUIRED
    assert all(entry[field] for field in entry)
    assert entry["category"] == "ecosystem"
    assert len(set(entry["tags"])) == len(entry["tags"])


def test_entry_agrees_with_the_project(entry):
    assert entry["install"] == {"pypi": PROJECT["name"]}
    assert entry["version"] == PROJECT["version"]
    assert entry["license"] == PROJECT["license"]
    assert entry["project_home"] == PROJECT["urls"]["Source"]
    assert entry["documentation_home"] == PROJECT["urls"]["Documentation"]


def test_citation_agrees_with_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert citation["preferred-citation"]["authors"]
