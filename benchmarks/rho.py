"""Which rho do held-out genes and split counts ask for?

    python benchmarks/rho.py [--seeds 5]

Random splits (a fifth of at most 4,000 cells is the query), 2,000 genes, prior without labels; and Setups 1-4 of the
paper. Noise is measured on cells; on those called "moved", whose values are off by up to 0.2 per cent and therefore
no counts, and on the setups, it is assumed. "best" is the rho of least loss in units of the latent scale. "default" and
"tuned" are the losses of the default (0 where noise is measured, else half a latent scale) and of dice.tl.tune_rho
above the best of the grid, by the same criterion on other cells and other halves: as a share of the best loss for
genes, of the loss's range over the grid for counts.
"""

from __future__ import annotations

import time

import anndata as ad
import numpy as np
import pandas as pd
from data import FILES, hold_out, load, variable_genes
from report import repeat, save, summary

import dice

CRITERIA = ("genes", "counts")
SETUPS = ("Setup 1", "Setup 2", "Setup 3", "Setup 4")
MOVED = {f"{name}, moved": name for name in FILES}
MAX_CELLS = 4000


def main() -> None:
    show(repeat("rho", (*FILES, *MOVED, *SETUPS), run, show))


def show(rows: pd.DataFrame) -> None:
    single = rows.drop_duplicates(["data", "criterion", "seed"])
    measures = ["best", "default", "tuned", "tune_seconds", "train_seconds"]
    tables = {"Best rho, in latent scales, and what others lose": summary(single, ["data", "criterion"], measures)}
    relative = summary(rows, ["data", "criterion", "rho"], ["excess"])
    wide = relative.set_index(["data", "criterion", "rho"])["excess"].unstack().reset_index()  # noqa: PD010
    tables["Loss above the best of the grid, relative, by rho in latent scales"] = wide
    note, gone = __doc__.split("\n\n")[2].strip(), [name for name in rows["criterion"].unique() if name not in CRITERIA]
    if gone:
        note += f"\n\nThe criteria {' and '.join(gone)} were removed from dice after this table was made (docs/rho.md)."
    save("rho", "Choosing rho", rows, tables, note)


def run(name: str, seed: int) -> list[dict[str, object]]:
    reference, query = pair(name, seed)
    start = time.perf_counter()
    settings = {"n_latent": 15, "scale": False} if name in SETUPS else {}
    dice.tl.train_prior(reference, random_state=seed, **settings)
    train_seconds = time.perf_counter() - start
    scale = dice.Prior.from_anndata(reference).latent_scale
    first, second = query[::2].copy(), query[1::2].copy()
    rows = []
    for criterion in CRITERIA:
        if criterion == "counts" and name in SETUPS:
            continue
        options = {"criterion": criterion}
        start = time.perf_counter()
        dice.tl.tune_rho(first, reference, random_state=seed, **options)
        seconds = time.perf_counter() - start
        dice.tl.tune_rho(second, reference, random_state=seed + 100, **options)
        grid, loss = (np.asarray(second.uns["dice_rho"][key]) for key in ("grid", "loss"))
        # The Poisson loss has no natural zero; its range over the grid is the unit.
        unit = loss.min() if criterion == "genes" else np.ptp(loss)
        excess = (loss - loss.min()) / unit
        chosen = int(np.argmin(abs(grid - first.uns["dice_rho"]["rho"])))
        row = {"criterion": criterion, "best": grid[loss.argmin()] / scale}
        default = 0.0 if name in FILES else 0.5
        row |= {"default": excess[np.argmin(abs(grid / scale - default))], "tuned": excess[chosen]}
        row |= {"tune_seconds": seconds, "train_seconds": train_seconds}
        rows += [row | {"rho": round(rho / scale, 3), "excess": x} for rho, x in zip(grid, excess, strict=True)]
    return rows


def pair(name: str, seed: int) -> tuple[ad.AnnData, ad.AnnData]:
    if name in SETUPS:
        return dice.datasets.synthetic(int(name[-1]), random_state=seed)
    adata = load(FILES[MOVED.get(name, name)])
    adata = hold_out(adata, min(adata.n_obs, MAX_CELLS), seed)[1]
    reference, query = hold_out(adata, adata.n_obs // 5, seed)
    reference = variable_genes(reference, 2000)
    cells = reference, query[:, reference.var_names].copy()
    if name in MOVED:
        rng = np.random.default_rng([seed, 6])
        for part in cells:
            part.X.data *= rng.uniform(0.998, 1.002, part.X.nnz).astype(part.X.dtype)
    return cells


if __name__ == "__main__":
    main()
