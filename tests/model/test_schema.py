"""The schema of stored priors: one field at a time is spoiled, with a checksum that fits."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from hazards import forgery

from dice._errors import PriorFormatError
from dice._model import schema
from dice._model.projection import is_orthonormal
from dice._model.schema import check_arrays, check_fields, checksum, validate


def changed(*path, to, kind="whole"):
    """A stored prior with one entry changed by a function of the old one, and the checksum made to fit."""
    raw = copy.deepcopy(forgery.stored(kind))
    holder = raw
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = to(holder.get(path[-1]))
    raw["sha256"] = checksum(raw)
    return raw


def spoiled(value):
    """An array with this as its first entry."""

    def change(array):
        array = array.copy()
        array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize("kind", forgery.KINDS)
def test_stored_priors_are_sound(kind):
    fields = validate(copy.deepcopy(forgery.stored(kind)))
    assert fields["format"] == schema.FORMAT
    assert fields["loadings"].shape == (len(fields["genes"]), fields["config"]["denoiser"]["n_latent"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("mean",), 2e12),
        (("mean",), -2e12),
        (("center",), -2e12),
        (("scale",), 0.0),
        (("scale",), -1.0),
        (("gene_noise",), -1e-6),
        (("singular_values",), -1.0),
        (("calibration", "residual"), -1e-6),
        (("calibration", "y"), 2e12),
        (("soft_clusters", "variances"), -1e-6),
        (("soft_clusters", "means"), -2e12),
        (("mean",), np.nan),
        (("scale",), np.inf),
        (("calibration", "residual"), np.nan),
        (("loadings",), 0.7),
        (("loadings",), 1e30),
    ],
)
def test_values_out_of_bounds_are_refused(path, value):
    with pytest.raises(PriorFormatError, match=rf"^The stored prior's '{path[0]}"):
        validate(changed(*path, to=spoiled(value)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("gene_noise",), 0.0),
        (("calibration", "residual"), 0.0),
        (("soft_clusters", "variances"), 0.0),
        (("mean",), -1e12),
        (("mean",), 1e12),
        (("scale",), 1.1e-12),
    ],
)
def test_the_bounds_themselves_are_fine(path, value):
    # 1e12 has no exact form in float32: the nearest one towards zero.
    bound = np.nextafter(np.float32(value), np.float32(0)) if abs(value) > 1 else np.float32(value)
    found = validate(changed(*path, to=spoiled(bound)))
    for name in path:
        found = found[name]
    assert found.flat[0] == bound


@pytest.mark.parametrize(
    ("name", "value", "sound"),
    [
        ("noise", 0.0, True),
        ("noise", -1e-9, False),
        ("noise", np.nan, False),
        ("noise", 1, False),
        ("latent_scale", 0.0, False),
        ("latent_scale", 1e-12, True),
        ("latent_scale", 1e12, True),
        ("latent_scale", 1.1e12, False),
    ],
)
def test_numbers(name, value, sound):
    raw = changed(name, to=lambda _: value)
    if sound:
        assert validate(raw)[name] == value
    else:
        with pytest.raises(PriorFormatError, match=f"'{name}'"):
            validate(raw)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("mean",), lambda x: x[:-1]),
        (("mean",), lambda x: x.astype(np.float64)),
        (("mean",), list),
        (("loadings",), lambda x: x[:, :-1]),
        (("singular_values",), lambda x: x[:1]),
        (("singular_values",), lambda x: 0 * x),
        (("singular_values",), lambda x: x[:, None]),
        (("genes",), lambda x: x[:0]),
        (("genes",), lambda x: x[:, None]),
        (("genes",), lambda x: np.array([x[0], *x[:-1]], dtype=object)),
        (("genes",), lambda x: np.array(["a\0b", *x[1:]], dtype=object)),
        (("genes",), lambda x: np.array(["x" * 1001, *x[1:]], dtype=object)),
        (("genes",), lambda x: np.arange(len(x))),
        (("calibration",), lambda x: {"y": x["y"]}),
        (("calibration",), lambda x: {name: array[:0] for name, array in x.items()}),
        (("calibration",), lambda x: {**x, "residual": x["residual"][:-1]}),
        (("soft_clusters",), lambda x: {**x, "more": x["means"]}),
        (("weights",), lambda _: [1.0]),
        (("weights",), lambda _: {f"w{i}": np.zeros(1, np.float32) for i in range(10_001)}),
        (("weights",), lambda x: {**x, "text": "x"}),
        (("weights",), lambda x: {**x, "whole": np.zeros(2, int)}),
        (("history",), lambda x: {**x, "wide": np.zeros((2, 2), np.float32)}),
        (("history",), lambda x: {**x, "double": np.zeros(2)}),
        (("statistics",), lambda x: {**x, "endless": np.inf}),
        (("statistics",), lambda x: {**x, "array": np.zeros(2)}),
        (("config",), lambda _: "{"),
        (("config",), lambda _: "[]"),
        (("params",), lambda _: "[" * 100_000),
        (("params",), lambda _: "x" * 1_000_001),
        (("params",), lambda _: "a\0b"),
    ],
)
def test_other_shapes_types_and_names_are_refused(path, value):
    with pytest.raises(PriorFormatError, match=rf"^The stored prior's '{path[0]}"):
        validate(changed(*path, to=value))


@pytest.mark.parametrize(
    "change",
    [
        {"cap": 0.0},
        {"cap": 1e13},
        {"cap": 10},
        {"preset": 1},
        {"kind": None},
        {"denoiser": {"n_latent": 0}},
        {"denoiser": {"n_latent": 1001}},
        {"denoiser": {"n_latent": 2.0}},
        {"denoiser": []},
        {"more": 1},
    ],
)
def test_configurations_out_of_bounds_are_refused(change):
    raw = changed("config", to=lambda text: json.dumps(json.loads(text) | change))
    with pytest.raises(PriorFormatError, match=r"^The stored prior's 'config'"):
        validate(raw)


@pytest.mark.parametrize(
    ("version", "match"),
    [(0, "reads 5: train it again"), (4, "reads 5: train it again"), (6, "reads 5: install a newer")],
)
def test_formats(version, match):
    with pytest.raises(PriorFormatError, match=match):
        validate(changed("format", to=lambda _: version))
    for odd in (True, 1.0, "1"):
        with pytest.raises(PriorFormatError, match="'format' is not a whole number"):
            validate(changed("format", to=lambda _, odd=odd: odd))
    for nothing in (None, {}, []):
        with pytest.raises(PriorFormatError, match="it has no 'format' number"):
            validate(nothing)


def test_fields_that_belong_together():
    plain = schema.FIELDS - schema.OPTIONAL
    check_fields(schema.FORMAT, plain)
    check_fields(schema.FORMAT, plain | {"labels", "card"})
    for names in (plain | {"labels"}, plain | {"card"}, plain - {"mean"}, plain | {"more"}):
        with pytest.raises(PriorFormatError):
            check_fields(schema.FORMAT, names)
    with pytest.raises(PriorFormatError):
        check_fields(schema.FORMAT - 1, plain)
    raw = copy.deepcopy(forgery.stored("labels"))
    del raw["card"]
    raw["sha256"] = checksum(raw)
    with pytest.raises(PriorFormatError, match="'labels' must be stored together with their 'card'"):
        validate(raw)


def test_a_checksum_that_does_not_fit_is_refused():
    raw = changed("mean", to=spoiled(0.5))
    raw["sha256"] = forgery.stored("whole")["sha256"]
    with pytest.raises(PriorFormatError, match="does not match its checksum"):
        validate(raw)


def test_columns_at_right_angles():
    assert is_orthonormal(np.eye(4)[:, :2])
    assert is_orthonormal(np.stack([np.eye(3)] * 2))
    assert not is_orthonormal(np.eye(4)[:, :2] * 1.005)
    assert not is_orthonormal(np.array([[1.0, 0.01], [0.0, 1.0]]))
    assert is_orthonormal(np.array([[1.0, 5e-4], [0.0, 1.0]]))
    assert not is_orthonormal(np.full((3, 1), 1e30))


def test_weights_are_exactly_those_of_the_network():
    shapes = {"a": (2, 3), "b": ()}
    weights = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((), np.float32)}
    check_arrays(weights, shapes, "weights")
    for odd in ({"a": weights["a"]}, weights | {"c": weights["b"]}):
        with pytest.raises(PriorFormatError, match="missing or unknown entries of 'weights': "):
            check_arrays(odd, shapes, "weights")
    with pytest.raises(PriorFormatError, match=r"'weights/a' is not float32 of shape \(2, 3\)"):
        check_arrays(weights | {"a": np.zeros((3, 2), np.float32)}, shapes, "weights")
