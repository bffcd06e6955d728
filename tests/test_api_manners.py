"""Every public function behaves as scanpy users expect."""

from __future__ import annotations

import inspect
import re

import pytest

import dice

FUNCTIONS = {
    f"{module}.{name}": getattr(getattr(dice, module), name)
    for module in ("pp", "tl", "pl", "datasets", "metrics")
    for name in getattr(dice, module).__all__
    if inspect.isfunction(getattr(getattr(dice, module), name))
}
ON_ANNDATA = {name: f for name, f in FUNCTIONS.items() if name.split(".")[0] in {"pp", "tl", "pl"}}


@pytest.mark.parametrize("name", ON_ANNDATA)
def test_few_positional_parameters(name):
    parameters = inspect.signature(ON_ANNDATA[name]).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert len(positional) <= 3, positional


@pytest.mark.parametrize("name", ON_ANNDATA)
def test_copy_is_keyword_only_and_off(name):
    copy = inspect.signature(ON_ANNDATA[name]).parameters.get("copy")
    assert copy is None or (copy.kind is copy.KEYWORD_ONLY and copy.default is False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring_names_every_parameter(name):
    doc = inspect.getdoc(FUNCTIONS[name]) or ""
    for parameter in inspect.signature(FUNCTIONS[name]).parameters:
        # Several that other functions explain may share an entry: "layer, gene_key".
        assert re.search(rf"^(\w+, )*\*{{0,2}}{parameter}(, \w+)*$", doc, re.MULTILINE), parameter


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring_says_what_it_returns(name):
    doc = inspect.getdoc(FUNCTIONS[name]) or ""
    assert "Returns\n-------" in doc


def test_every_public_name_resolves():
    for name in dice.__all__:
        assert getattr(dice, name) is not None
    assert set(dice.__all__) <= set(dir(dice))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dice.nothing  # noqa: B018
