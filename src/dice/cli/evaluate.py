from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dice._errors import InputError
from dice._files import atomic, check_target
from dice.cli import _files
from dice.cli._options import add_seed

HELP = "score embeddings, or transferred labels, against known labels"
EXAMPLES = """\
  dice evaluate denoised.h5ad --labels cell_type
  dice evaluate denoised.h5ad --labels cell_type --use-rep X_pca X_dice --table scores.csv
  dice evaluate labelled.h5ad --labels cell_type --protocol labels
  dice evaluate labelled.h5ad --labels study --key cell_type_dice --protocol labels --label-map names.json
  dice evaluate denoised.zarr --labels cell_type --json | jq '.table.X_dice.ari'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _files.add_input(parser, "cells", "cells with embeddings")
    parser.add_argument("--labels", required=True, metavar="COLUMN", help="column of obs with the known labels")
    parser.add_argument("--use-rep", nargs="+", default=["X_dice_pca", "X_dice"], metavar="KEY", help="keys of obsm")
    parser.add_argument("--protocol", default="embedding", help="embedding or paper, or labels for transferred ones")
    parser.add_argument("--key", metavar="KEY", help="key of the transferred labels (default: COLUMN_dice)")
    parser.add_argument(
        "--label-map", type=Path, metavar="FILE",
        help='.json: what known labels are called in the reference, {"lymphocyte": ["T cell", "B cell"]}',
    )  # fmt: skip
    parser.add_argument("--batch-key", metavar="COLUMN", help="column of obs with batches, for iLISI")
    parser.add_argument("--resolution", type=float, default=1.0, help="resolution of the fixed clustering (default 1)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the scores as .csv")
    add_seed(parser)


def label_map(path: Path | None) -> dict[str, Any] | None:
    """The mapping of a file of JSON."""
    try:
        found = None if path is None else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = ()
    if found is not None and not isinstance(found, dict):
        raise InputError(
            f"{str(path)!r} is no JSON that tells what known labels are called in the reference: write it as "
            '{"lymphocyte": ["T cell", "B cell"]}.'
        )
    return found


def run(args: argparse.Namespace) -> dict[str, Any]:
    import dice

    names = label_map(args.label_map)
    if args.table is not None:
        check_target(args.table)
    table = dice.tl.evaluate(
        _files.read(args.cells),
        args.labels,
        use_rep=args.use_rep,
        protocol=args.protocol,
        batch_key=args.batch_key,
        resolution=args.resolution,
        random_state=args.seed,
        key=args.key,
        label_map=names,
    )
    if args.table is not None:
        with atomic(args.table) as draft:
            table.to_csv(draft)
    rows = {str(name): row.to_dict() for name, row in table.iterrows()}
    return {"text": table.round(3).T.to_string(), "table": rows}
