"""Text of stored priors."""

from __future__ import annotations

import copy
import json

import pytest
from hazards import forgery

from dice._arguments import is_text
from dice._errors import PriorFormatError
from dice._model.schema import checksum, has_plain_text, validate


def test_text_that_files_can_hold():
    assert is_text("abc", 3)
    for odd in ("abcd", "a\0b", "\ud800", "\udfff", None, b"abc", 1):
        assert not is_text(odd, 3)
    assert is_text("\ud7ff\ue000", 3)


def test_text_within_tables_and_lists():
    assert has_plain_text({"a": [1, None, {"b": "abc"}]}, 3)
    for odd in ({"a": [{"b": "\ud800"}]}, {"a\0": 1}, [["abcd"]], "\udfff"):
        assert not has_plain_text(odd, 3)


@pytest.mark.parametrize("field", ["card", "params"])
@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_text_that_json_spells_is_refused_as_well(field, text):
    """A label of half a character would be found when the query is saved, long after."""
    raw = copy.deepcopy(forgery.stored("labels"))
    raw[field] = json.dumps(json.loads(raw[field]) | {"labels": ["a", text, "c"]})
    raw["sha256"] = checksum(raw)
    with pytest.raises(PriorFormatError, match=f"'{field}' is not a table of text that files can hold"):
        validate(raw)
