from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dice._files import check_target
from dice.cli import _files
from dice.cli._options import add_seed

HELP = "write one self-contained page about a denoised query"
EXAMPLES = """\
  dice report denoised.h5ad -o report.html
  dice report denoised.h5ad -o report.html --reference trained.h5ad --color cell_type"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "cells", "query after dice denoise")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="page to write (.html)")
    parser.add_argument("--color", metavar="COLUMN", help="column of obs that colours the map first")
    parser.add_argument("--use-rep", nargs="+", default=["X_dice_pca", "X_dice"], metavar="KEY", help="keys of obsm")
    parser.add_argument("--reference", type=Path, help="file with the prior, for the figures of its training")
    parser.add_argument("--truth", metavar="COLUMN", help="column of obs with known labels, to judge transferred ones")
    parser.add_argument("--title", default="dice report", help="title of the page")
    parser.add_argument("--max-cells", type=int, default=100_000, help="most cells on the map (default 100000)")
    parser.add_argument("--prior-key", default="dice", help="key of the prior in the reference (default dice)")
    parser.add_argument("--n-neighbors", type=int, default=15, help="neighbours that UMAP looks at (default 15)")
    add_seed(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    check_target(args.output)
    adata = _files.read(args.cells)
    dice.pl.report(
        adata,
        args.output,
        color=args.color,
        use_rep=args.use_rep,
        reference=args.reference,
        truth_key=args.truth,
        title=args.title,
        max_cells=args.max_cells,
        prior_key=args.prior_key,
        n_neighbors=args.n_neighbors,
        random_state=args.seed,
    )
    return {"output": str(args.output), "n_cells": adata.n_obs}
