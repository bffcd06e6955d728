from __future__ import annotations

import numpy as np
import pytest

from dice.pl._posterior import highest_density_region


def area(region):
    x, y, density, threshold = region
    return (density >= threshold).sum() * (x[1] - x[0]) * (y[1] - y[0])


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_region_of_a_gaussian_is_its_disc(level):
    sample = np.random.default_rng(0).normal(size=(1500, 2)).astype(np.float32)
    # The disc that holds a share p of a standard Gaussian has the area -2 pi log(1 - p).
    expected = -2 * np.pi * np.log(1 - level)
    assert area(highest_density_region(sample, level, min_width=1e-3)) == pytest.approx(expected, rel=0.15)


def test_two_modes_stay_two():
    from scipy import ndimage

    rng = np.random.default_rng(0)
    sample = rng.normal(size=(200, 2)) * 0.3 + np.where(np.arange(200) < 80, 0, 10)[:, None]
    region = highest_density_region(sample.astype(np.float32), 0.9, min_width=1e-3)
    assert ndimage.label(region[2] >= region[3])[1] == 2
    assert area(region) < 6


def test_points_that_coincide_give_a_small_region():
    region = highest_density_region(np.ones((20, 2), np.float32), 0.9, min_width=0.1)
    assert np.isfinite(region[2]).all()
    assert area(region) < 0.1
