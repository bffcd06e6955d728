from __future__ import annotations

import numpy as np

from dice._model.completion import Completion
from dice._model.standardize import Standardized


def test_the_readout_gives_the_completed_latents():
    rng = np.random.default_rng(0)
    loadings = np.linalg.qr(rng.normal(size=(30, 4)))[0].astype(np.float32)[:20]
    completion = Completion.of(loadings, np.array([9.0, 4.0, 2.0, 1.0]), 0.5)
    x = rng.normal(size=(6, 20)).astype(np.float32)
    np.testing.assert_allclose(x @ completion.readout, completion.read(Standardized(x, None))[0], atol=1e-5)
