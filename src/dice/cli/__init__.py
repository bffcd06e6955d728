"""The command ``dice``: the verbs of the package for files."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

from dice import DiceError, DiceWarning, __version__, _log, settings
from dice.cli._words import in_flags, table

#: Verbs in the order of a work flow; each is a module that says what it does, takes and returns.
VERBS = (
    "demo", "annotate", "prepare", "train", "denoise", "cluster", "transfer", "novelty", "evaluate", "report"
)  # fmt: skip
#: Exit codes beside 0: an error that was told, wrong usage (argparse's), Ctrl-C (a shell's own).
FAILED, INTERRUPTED = 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error is one sentence on standard error and exit code 1."""
    args = _parser().parse_args(argv)
    start = time.perf_counter()
    with _manners(args) as warned:
        try:
            with _cluster(args):
                summary = args.run(args)
        except KeyboardInterrupt:
            print("dice: interrupted.", file=sys.stderr)
            return INTERRUPTED
        except Exception as error:
            if args.debug:
                raise
            print(f"dice: {in_flags(_sentence(error), args)}", file=sys.stderr)
            return FAILED
    if args.json:
        summary = {"command": args.command, **summary, "seconds": time.perf_counter() - start, "warnings": warned}
        print(json.dumps(summary, default=_plain))
    else:
        print(summary.get("text") or table(summary))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dice",
        description="Diffusion Induced Cell Embeddings: a clean reference cleans up a query.",
        epilog="Each command has its own help with examples: dice denoise --help",
    )
    parser.add_argument("--version", action="version", version=f"dice {__version__}")
    _add_common(parser, default=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name in VERBS:
        verb = import_module(f"dice.cli.{name}")
        command = commands.add_parser(
            name,
            help=verb.HELP,
            description=f"{verb.HELP[0].upper()}{verb.HELP[1:]}.",
            epilog=f"examples:\n{verb.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.add_arguments(command)
        # Before or after the verb: without a default of its own, the second place does not undo the first.
        _add_common(command, default=argparse.SUPPRESS)
        command.set_defaults(run=verb.run)
    return parser


def _add_common(parser: argparse.ArgumentParser, default: Any) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", default=default, help="print a summary as one line of JSON")
    group.add_argument("--quiet", action="store_true", default=default, help="no progress bars, no warnings")
    group.add_argument("--debug", action="store_true", default=default, help="show the traceback of an error")


@contextmanager
def _manners(args: argparse.Namespace) -> Iterator[list[str]]:
    """Bars as asked for, and warnings of ours as one line each; both go to standard error."""
    warned: list[str] = []
    before = settings.verbosity, settings.device, settings.chunk_size
    settings.verbosity = 0 if args.quiet else settings.verbosity
    settings.device = getattr(args, "device", settings.device)
    settings.chunk_size = getattr(args, "chunk_size", settings.chunk_size)

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if issubclass(category, DiceWarning):
            warned.append(in_flags(str(message), args))
            if not args.quiet:
                print(f"dice: warning: {warned[-1]}", file=sys.stderr)

    with warnings.catch_warnings(), _log.worded(lambda message: f"dice: {in_flags(message, args)}"):
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        try:
            yield warned
        finally:
            settings.verbosity, settings.device, settings.chunk_size = before


def _cluster(args: argparse.Namespace) -> Any:
    """The user's dask cluster, where one is named."""
    if getattr(args, "scheduler", None) is None:
        return nullcontext()
    from dask.distributed import Client

    return Client(args.scheduler)


def _sentence(error: Exception) -> str:
    if isinstance(error, DiceError):
        return str(error)
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text} (--debug shows where)"


def _plain(value: Any) -> Any:
    """numpy's numbers and arrays, and paths, as JSON knows them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
