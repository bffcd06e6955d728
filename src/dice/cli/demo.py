from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dice.cli._options import add_seed

HELP = "denoise held-out cells of scanpy's bundled pbmc68k_reduced and compare with PCA"
EXAMPLES = "  dice demo\n  dice demo --output here --seed 1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, default=Path("dice_demo"), help="folder to write to")
    add_seed(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    from dice import _demo

    table = _demo.run(args.output, random_state=args.seed)
    files = [args.output / "query.h5ad", args.output / "umap.png"]
    text = f"{table.round(3).to_string(na_rep='-')}\n\nWritten: {files[0]}, {files[1]}"
    rows = {name: row.dropna().to_dict() for name, row in table.iterrows()}
    return {"text": text, "table": rows, "output": [str(file) for file in files]}
