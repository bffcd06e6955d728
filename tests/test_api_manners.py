"""Every public function behaves as scanpy users expect."""

from __future__ import annotations

import inspect
import re

import pytest

import dice
import dice.options

MODULES = ("pp", "tl", "pl", "datasets", "metrics")
FUNCTIONS = {
    f"{module}.{name}": getattr(getattr(dice, module), name)
    for module in MODULES
    for name in getattr(dice, module).__all__
    if inspect.isfunction(getattr(getattr(dice, module), name))
}
ON_ANNDATA = {name: f for name, f in FUNCTIONS.items() if name.split(".")[0] in {"pp", "tl", "pl"}}
#: Words that mean one thing, with what their documentation must speak of.
WORDS = {
    "key": r"[Kk]ey of the (transferred labels|clusters|predicted features|result)",
    "use_rep": r"obsm|embedding|PCA",
    "batch_key": r"(``|adata\.)obs",
    "reference_batch_key": r"reference\.obs",
}


def test_few_positional_parameters():
    for name, function in ON_ANNDATA.items():
        parameters = inspect.signature(function).parameters.values()
        positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert len(positional) <= 3, (name, positional)


def test_copy_is_keyword_only_and_off():
    for name, function in ON_ANNDATA.items():
        copy = inspect.signature(function).parameters.get("copy")
        assert copy is None or (copy.kind is copy.KEYWORD_ONLY and copy.default is False), name


def test_docstrings_name_every_parameter_and_what_is_returned():
    for name, function in FUNCTIONS.items():
        doc = inspect.getdoc(function) or ""
        assert "Returns\n-------" in doc, name
        for parameter in inspect.signature(function).parameters:
            # Several that other functions explain may share an entry: "layer, gene_key".
            entry = rf"^(\w+, )*\*{{0,2}}{parameter}(, \w+)*$"
            assert re.search(entry, doc, re.MULTILINE), (name, parameter)


def test_one_word_means_one_thing():
    for name, function in ON_ANNDATA.items():
        doc = inspect.getdoc(function) or ""
        for word, meaning in WORDS.items():
            if word in inspect.signature(function).parameters:
                text = re.search(rf"^{word}\n((?:    .*\n)+)", doc, re.MULTILINE)
                assert text, (name, word)
                assert re.search(meaning, text[1]), (name, word, text[1])


def test_a_shared_parameter_has_one_type_one_default_and_one_place():
    """The parameters that most verbs share. Their order is that of this table."""
    shared = {
        "layer": ("str | None", None), "gene_key": ("str | None", None), "prior_key": ("str", "dice"),
        "random_state": ("int | numpy.random._generator.Generator | numpy.random.mtrand.RandomState | None", 0),
        "copy": ("bool", False),
    }  # fmt: skip
    for name, function in FUNCTIONS.items():
        parameters = inspect.signature(function).parameters
        found = [word for word in parameters if word in shared]
        assert found == [word for word in shared if word in parameters], name
        for word in found:
            own = parameters[word]
            assert (inspect.formatannotation(own.annotation), own.default) == shared[word], (name, word)
        assert "alpha" not in parameters or parameters["alpha"].default == 0.1, name
        last = [word for word in ("key_added", "random_state", "copy") if word in parameters]
        assert last == list(parameters)[len(parameters) - len(last) :] or name in {"tl.denoise_to_zarr"}, name


def test_every_public_name_resolves():
    for name in dice.__all__:
        assert getattr(dice, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dice.nothing  # noqa: B018


def test_tab_completion_shows_public_names_alone():
    assert set(dir(dice)) == {*dice.__all__, "__version__"}
    for module in (*MODULES, "priors", "settings"):
        found = getattr(dice, module)
        # Shells hide names that begin with an underscore.
        assert sorted(name for name in dir(found) if not name.startswith("_")) == sorted(found.__all__), module
    assert set(dir(dice.options)) == {name for name in dice.__all__ if name in dice.options.OBJECTS} | {"Levels"}
