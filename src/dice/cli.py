"""The command ``dice``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dice import DiceError, __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error of ours is one sentence on standard error and exit code 1."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except DiceError as error:
        if args.debug:
            raise
        print(f"dice: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dice",
        description="Diffusion Induced Cell Embeddings: a clean reference cleans up a query.",
    )
    parser.add_argument("--version", action="version", version=f"dice {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="denoise held-out cells of scanpy's bundled pbmc68k_reduced and compare with PCA",
    )
    demo.add_argument("--output", type=Path, default=Path("dice_demo"), help="folder to write to")
    demo.add_argument("--seed", type=int, default=0, help="seed of the hold-out and the prior")
    demo.set_defaults(run=_demo)
    return parser


def _demo(args: argparse.Namespace) -> int:
    from dice import _demo

    table = _demo.run(args.output, random_state=args.seed)
    print(table.round(3).to_string(na_rep="-"))
    print(f"\nWritten: {args.output / 'query.h5ad'}, {args.output / 'umap.png'}")
    return 0
