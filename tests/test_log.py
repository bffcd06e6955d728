"""Warnings are raised in one place, and calls keep those that they caused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import anndata as ad
import numpy as np
import pytest

import dice
from dice import _log
from dice._errors import DiceWarning


def test_warnings_are_recorded_by_every_block_around_them():
    def block() -> tuple[list[str], list[str]]:
        with _log.recorded() as outer:
            _log.warn("one")
            with _log.recorded() as inner:
                _log.warn("two")
            _log.warn("three")
        return outer, inner

    with pytest.warns(DiceWarning):
        found = block()
    assert found == (["one", "two", "three"], ["two"])


def test_threads_record_their_own():
    def call(name: str) -> list[str]:
        with _log.recorded() as messages:
            for _ in range(50):
                _log.warn(name)
        return messages

    with pytest.warns(DiceWarning), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(call, "abcd"))
    assert found == [[name] * 50 for name in "abcd"]


def test_denoise_keeps_its_warnings(tmp_path):
    reference, query = dice.datasets.synthetic(1)
    dice.tl.train_prior(reference, n_latent=15, scale=False, preset="gmm")
    dice.tl.denoise(query, reference)
    assert query.uns["X_dice"]["warnings"].tolist() == []
    query.write_h5ad(tmp_path / "query.h5ad")
    assert ad.read_h5ad(tmp_path / "query.h5ad").uns["X_dice"]["warnings"].tolist() == []
    with pytest.warns(DiceWarning, match="1400/2000 genes") as caught:
        some = dice.tl.denoise(query[:, :1400].copy(), reference, copy=True)
    stored = some.uns["X_dice"]["warnings"]
    assert stored.tolist() == [str(warning.message) for warning in caught]
    some.write_zarr(tmp_path / "query.zarr")
    np.testing.assert_array_equal(ad.read_zarr(tmp_path / "query.zarr").uns["X_dice"]["warnings"], stored)
