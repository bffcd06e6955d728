from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dice.cli import _files
from dice.cli._options import add_device, add_seed

HELP = "find the finest clusters that two measurements of the same cells agree on"
EXAMPLES = """\
  dice cluster denoised.h5ad trained.h5ad -o clustered.h5ad
  dice cluster trained.h5ad -o clustered.h5ad     a data set with its own prior"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "cells", "cells after dice denoise, or with a prior of their own")
    parser.add_argument("reference", type=Path, nargs="?", help="file with the prior, where the cells hold none")
    _files.add_output(parser, "the cells with their clusters")
    parser.add_argument("--n-neighbors", type=int, default=15, help="neighbours of each cell (default 15)")
    parser.add_argument("--n-splits", type=int, default=4, help="how often counts are split in halves (default 4)")
    parser.add_argument("--min-agreement", type=float, default=0.8, help="agreement to ask for (default 0.8)")
    parser.add_argument("--key", default="X_dice", help="key of the embedding (default X_dice)")
    parser.add_argument("--prior-key", default="dice", help="key of the prior in the reference (default dice)")
    parser.add_argument("--key-added", default="dice_cluster", help="key of the clusters (default dice_cluster)")
    add_device(parser)
    add_seed(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    output, adata = _files.check_output(args.output), _files.read(args.cells)
    names = ("n_neighbors", "n_splits", "min_agreement", "key", "prior_key", "key_added")
    options = {name: getattr(args, name) for name in names}
    dice.tl.cluster(adata, args.reference, random_state=args.seed, **options)
    _files.write(adata, output)
    choice = adata.uns[args.key_added]["choice"]
    sizes = {str(name): int(n) for name, n in adata.obs[args.key_added].value_counts().items()}
    return {"output": str(output), "n_cells": adata.n_obs, "why": choice["why"], "clusters": sizes}
