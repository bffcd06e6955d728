from __future__ import annotations

import argparse
from typing import Any

from dice.cli import _files

HELP = "filter, normalise and log raw counts and mark variable genes"
EXAMPLES = """\
  dice prepare raw.h5ad -o cells.h5ad
  dice prepare raw.zarr -o cells.h5ad --batch-key donor --n-top-genes 2000"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "cells", "raw counts")
    _files.add_output(parser, "prepared cells")
    parser.add_argument("--batch-key", help="column of obs with batches, within which genes are ranked")
    parser.add_argument("--n-top-genes", type=int, default=3000, help="variable genes to mark (default 3000)")
    parser.add_argument("--min-genes", type=int, default=200, help="fewest genes of a cell (default 200)")
    parser.add_argument("--min-cells", type=int, default=3, help="fewest cells of a gene (default 3)")
    parser.add_argument(
        "--max-pct-mt", type=float, default=15.0, help="most mitochondrial counts, in percent (default 15)"
    )
    parser.add_argument("--layer", help="layer with the counts, in place of X")


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    output = _files.check_output(args.output)
    adata = _files.read(args.cells)
    options = ("batch_key", "n_top_genes", "min_genes", "min_cells", "max_pct_mt", "layer")
    dice.pp.prepare(adata, **{name: getattr(args, name) for name in options})
    _files.write(adata, output)
    kept = adata.uns["dice_prepare"]
    return {"output": str(output), "n_cells": adata.n_obs, "n_genes": adata.n_vars, "kept": kept["n_cells"]}
