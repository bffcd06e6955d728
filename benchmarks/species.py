"""Labels across species by the orthologs of the package: human pancreas cells label those of the mouse.

    python benchmarks/species.py [--seeds 2] [--data ...]

`symbols` are the mouse's own names, which ``dice.tl.annotate`` matches to the human ones by one-to-one orthologs;
`given` are the human symbols in the column ``human_symbol`` of the file. Scored are cells whose type the reference has.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pandas as pd
from data import load
from report import repeat, save, summary
from sklearn.metrics import f1_score

import dice

KEY, FIGURES = "cell_type", ["accuracy", "macro_f1", "n_genes"]
NAMES = {"symbols": None, "given": "human_symbol"}


def main() -> None:
    warnings.simplefilter("ignore")
    dice.settings.verbosity = 0
    show(repeat("species", NAMES, run, show))


def show(rows: pd.DataFrame) -> None:
    tables = {"Human to mouse pancreas": summary(rows, ["data"], FIGURES)}
    save("species", "Labels across species", rows, tables, "\n\n".join(__doc__.strip().split("\n\n")[2:]))


def run(name: str, seed: int) -> Iterator[dict[str, object]]:
    reference, query = load("pancreas_human_baron_came"), load("pancreas_mouse_baron")
    query = query[query.obs[KEY].isin(reference.obs[KEY].unique()).to_numpy()].copy()
    if NAMES[name] is not None:
        query = query[:, ~query.var[NAMES[name]].duplicated().to_numpy()].copy()
    dice.tl.annotate(query, reference, KEY, gene_key=NAMES[name], random_state=seed)
    truth, labels = (query.obs[key].astype(str) for key in (KEY, f"{KEY}_dice"))
    f1 = f1_score(truth, labels, labels=sorted(set(truth)), average="macro", zero_division=0)
    found = query.uns["dice_annotate"]["params"]["n_genes"]
    row = {"accuracy": float((truth == labels).mean()), "macro_f1": float(f1), "n_genes": int(found)}
    print(name, seed, row, flush=True)
    yield row


if __name__ == "__main__":
    main()
