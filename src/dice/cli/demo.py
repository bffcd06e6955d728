from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dice.cli._options import add_seed

HELP = "annotate the cells of one study by an atlas of others, and compare with PCA"
EXAMPLES = "  dice demo\n  dice demo --output here --seed 1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, default=Path("dice_demo"), help="folder to write to")
    add_seed(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    from dice import _demo

    found = _demo.run(args.output, random_state=args.seed)
    files = [str(file) for file in found.files]
    shown = found.table.round(3).to_string(na_rep="-", float_format=lambda x: f"{x:.3f}".removesuffix(".000"))
    rows = {name: row.dropna().to_dict() for name, row in found.table.iterrows()}
    return {"text": f"{found.cells}\n\n{shown}\n\nWritten: {', '.join(files)}", "table": rows, "output": files}
