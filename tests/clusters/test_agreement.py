"""The share of company that two groupings leave a cell, by hand."""

from __future__ import annotations

import numpy as np

from dice._clusters.agreement import shared_company


def test_company_by_hand():
    groups, clusters = np.array([0, 0, 0, 1, 1, 2, -1]), np.array([0, 0, 1, 1, 1, 0, 0])
    np.testing.assert_allclose(shared_company(groups, clusters), [0.5, 0.5, 0, 1, 1, np.nan, np.nan])
