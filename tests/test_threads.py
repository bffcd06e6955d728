"""One prior, many threads: the same answers as one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import dice


def test_threads_share_a_prior():
    reference, query = dice.datasets.synthetic(1, n_reference=300, n_query=60)
    dice.tl.train_prior(reference, n_latent=5, scale=False, max_steps=20)
    prior = dice.Prior.from_anndata(reference)
    jobs = [{"rho": rho, "n_samples": 3, "random_state": seed} for rho in (10, 30) for seed in range(4)]

    def run(arguments):
        return dice.tl.denoise(query, prior, copy=True, **arguments)

    serial = [run(job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        parallel = list(pool.map(run, jobs))
    for one, other in zip(serial, parallel, strict=True):
        for key in ("X_dice", "X_dice_samples"):
            np.testing.assert_allclose(other.obsm[key], one.obsm[key], atol=1e-3)
        np.testing.assert_allclose(other.obs["dice_uncertainty"], one.obs["dice_uncertainty"], rtol=1e-4)
