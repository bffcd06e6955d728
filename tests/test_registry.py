"""The registry entry and the citation say the same as pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: What the schema of scverse's registry asks for, as of August 2026, and contacts, without whom nobody answers. No
#: version: since scverse/ecosystem-packages#396 the registry finds it out itself.
REQUIRED = {
    *("name", "description", "project_home", "documentation_home", "install", "license", "tags", "primary_category"),
    *("language", "category", "contact"),
}
OPTIONAL = {"tutorials_home", "publications", "logo", "test_command"}
#: The words that the schema knows, since scverse/ecosystem-packages#392.
CATEGORIES = {"core-framework", "core-datastructure", "core-infrastructure", "ecosystem"}
LANGUAGES = {"Python", "R", "Julia", "Rust"}
PRIMARY_CATEGORIES = {
    *("Data structures", "scRNA-seq", "bulk RNA-seq", "Spatial", "Epigenomics", "Proteomics"),
    *("Adaptive immune cell receptor", "Multimodal", "Imaging", "Infrastructure"),
}
TAGS = {
    *("scRNA-seq", "bulk RNA-seq", "spatial transcriptomics", "spatial proteomics", "proteomics", "flow cytometry"),
    *("ATAC-seq", "epigenomics", "immune receptor", "imaging", "multimodal", "preprocessing", "quality control"),
    *("denoising", "data integration", "cell-type annotation", "differential expression", "compositional analysis"),
    *("functional analysis", "gene regulatory networks", "cell-cell communication", "deconvolution", "clustering"),
    *("dimensionality reduction", "trajectory inference", "pseudotime", "RNA velocity", "lineage tracing"),
    *("perturbation", "spatially variable genes", "segmentation", "copy number variation", "visualization"),
    *("benchmarking", "deep learning", "foundation model", "large language models", "probabilistic modeling"),
    *("optimal transport", "GPU acceleration", "pipeline", "data structures", "interoperability", "file formats"),
    "documentation",
}
MOST_TAGS = 10
#: Names that GitHub gives: letters, digits and single hyphens, at most 39.
GITHUB_ID = re.compile(r"(?=.{1,39}$)[A-Za-z0-9]+(-[A-Za-z0-9]+)*")


@pytest.fixture
def entry():
    return yaml.safe_load((ROOT / "docs" / "meta.yaml").read_text())


def test_entry_has_the_fields_of_the_schema(entry):
    assert set(entry) >= REQUIRED
    assert set(entry) <= REQUIRED | OPTIONAL
    assert all(entry[field] for field in entry)


def test_entry_speaks_the_vocabulary_of_the_schema(entry):
    assert len(TAGS) == 45
    assert set(entry["tags"]) <= TAGS
    assert len(set(entry["tags"])) == len(entry["tags"]) <= MOST_TAGS
    assert entry["primary_category"] in PRIMARY_CATEGORIES
    assert entry["language"] in LANGUAGES
    assert entry["category"] in CATEGORIES
    assert entry["category"] == "ecosystem"


def test_contacts_are_ids_of_github(entry):
    contacts = entry["contact"]
    assert isinstance(contacts, list)
    assert len(set(contacts)) == len(contacts) >= 1
    for contact in contacts:
        assert isinstance(contact, str)
        assert GITHUB_ID.fullmatch(contact), contact


def test_entry_agrees_with_the_project(entry):
    assert entry["install"] == {"pypi": PROJECT["name"]}
    assert entry["license"] == PROJECT["license"]
    assert entry["project_home"] == PROJECT["urls"]["Source"]
    assert entry["documentation_home"] == PROJECT["urls"]["Documentation"]
    for field in ("project_home", "documentation_home", "tutorials_home"):
        assert entry[field].startswith("https://")


def test_citation_agrees_with_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert citation["preferred-citation"]["authors"]
