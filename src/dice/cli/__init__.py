"""The command ``dice``: the verbs of the package for files."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

from dice import DiceError, DiceWarning, __version__, _log, priors, settings
from dice._errors import InputError
from dice._files import check_target, same_file
from dice.cli import _verbs
from dice.cli._flags import VERBS, add_flags, first_sentence, parameters, summary_of
from dice.cli._words import in_flags, table

OUTPUT = "file to write (.h5ad or .zarr); an existing one is replaced once the new one is complete"
MAPPED = 'names of known labels in the reference (.json), {"lymphocyte": ["T cell", "B cell"]}'
#: Flags that verbs do not have.
STREAM = {"action": "store_true", "help": "read expression chunk by chunk instead of all at once"}
FLAGS: dict[str, dict[str, dict[str, Any]]] = {
    "annotate": {"--trained": {"type": Path, "metavar": "FILE", "help": "write the reference with its prior"}},
    "train": {
        "--prior-only": {"action": "store_true", "help": "write the prior without its cells, as .h5ad"},
        "--stream": STREAM,
    },
    "denoise": {"--stream": STREAM},
    "transfer": {"--stream": STREAM},
    "features": {"--stream": STREAM},
    "evaluate": {
        "--label-map": {"type": Path, "metavar": "FILE", "help": MAPPED},
        "--table": {"type": Path, "metavar": "FILE", "help": "write the scores as .csv"},
    },
    "report": {"--reference": {"type": Path, "help": "file with the prior, for the genes behind labels and figures"}},
}
#: `annotate` takes several references, and `cluster` none if the cells have a prior of their own.
NARGS = {"annotate": "+", "cluster": "?"}
INFO = "Show what a prior was learned from, or list the priors that have a name."
SUFFIXES = (".h5ad", ".zarr")
#: Arguments of commands that are files.
INPUTS = ("query", "reference", "cells", "label_map")
OUTPUTS = ("output", "trained", "report", "table", "checkpoint")
#: Exit codes: an error with a message, and Ctrl-C (as in a shell). argparse exits with 2 for wrong usage.
FAILED, INTERRUPTED = 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error is one sentence on standard error and exit code 1."""
    args = _parser().parse_args(argv)
    start = time.perf_counter()
    with _manners(args) as warned:
        try:
            _check_paths(args)
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
    info = _add_command(commands, "info", INFO)
    info.add_argument(
        "prior", nargs="?", help="name of a prior, or a file with one (.h5ad or .zarr); none lists all names"
    )
    info.add_argument("--prior-key", default="dice", help="key of the prior in a file (default dice)")
    for name, verb in VERBS.items():
        _add_arguments(_add_command(commands, name, summary_of(verb)), name)
    return parser


def _add_command(commands: Any, name: str, summary: str) -> argparse.ArgumentParser:
    run = getattr(_verbs, name)
    examples = [line for line in (inspect.getdoc(run) or "").splitlines() if line.startswith("dice ")]
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=first_sentence(summary),
        description=summary,
        epilog="\n  ".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # These flags may stand before or after the verb. The second parser has no default, which would undo the first.
    _add_common(command, default=argparse.SUPPRESS)
    command.set_defaults(run=run)
    return command


def _add_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """Add input files, the output and flags."""
    verb = VERBS[name]
    inputs = [parameter for parameter in parameters(verb).values() if parameter.name in ("adata", "reference")]
    if name == "report":  # its reference is a flag
        inputs = inputs[:1]
    for file, parameter in zip(("query", "reference") if len(inputs) > 1 else ("cells",), inputs, strict=True):
        nargs = NARGS.get(name) if file == "reference" else None
        parser.add_argument(file, type=Path, nargs=nargs, help=f"{first_sentence(parameter.text)} (.h5ad or .zarr)")
    if name != "evaluate":
        text = "page to write (.html)" if name == "report" else OUTPUT
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=text)
        text = "let an output replace an input file"
        parser.add_argument("--overwrite-input", action="store_true", help=text)
    add_flags(parser, verb)
    for flag, options in FLAGS.get(name, {}).items():
        parser.add_argument(flag, **options)
    if name not in ("prepare", "evaluate", "report"):
        text = "auto, cpu, cuda or any torch device (default auto)"
        parser.add_argument("--device", default=settings.device, help=text)


def _add_common(parser: argparse.ArgumentParser, default: Any) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", default=default, help="print a summary as one line of JSON")
    group.add_argument("--quiet", action="store_true", default=default, help="no progress bars, no warnings")
    group.add_argument("--debug", action="store_true", default=default, help="show the traceback of an error")


@contextmanager
def _manners(args: argparse.Namespace) -> Iterator[list[str]]:
    """Apply the settings of a command, and print warnings of dice as one line each to standard error."""
    warned: list[str] = []
    chosen = {"device": getattr(args, "device", settings.device)} | ({"verbosity": 0} if args.quiet else {})

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if issubclass(category, DiceWarning):
            warned.append(in_flags(str(message), args))
            if not args.quiet:
                print(f"dice: warning: {warned[-1]}", file=sys.stderr)

    worded = _log.worded(lambda message: f"dice: {in_flags(message, args)}")
    with settings.using(**chosen), warnings.catch_warnings(), worded:
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        yield warned


def _check_paths(args: argparse.Namespace) -> None:
    """Check before the work that outputs can be written, are different files, and are not inputs."""
    inputs, outputs = _given(args, INPUTS), _given(args, OUTPUTS)
    for (flag, path), (other, second) in combinations(outputs, 2):
        if same_file(path, second):
            raise InputError(f"Two outputs, --{flag} and --{other}, are the file {str(path)!r}: rename one.")
    for flag, path in outputs:
        is_input = any(same_file(priors.file_of(source), path) for _, source in inputs)
        if is_input and not getattr(args, "overwrite_input", False):
            raise InputError(
                f"The output --{flag} {str(path)!r} is an input of the command and would be lost: name another file, "
                "or pass --overwrite-input."
            )
        is_store, is_cells = path.suffix == ".zarr", flag in ("output", "trained") and args.command != "report"
        if is_cells and path.suffix not in SUFFIXES:
            raise InputError(f"The output {str(path)!r} is neither .h5ad nor .zarr: give it one of these endings.")
        if flag != "checkpoint":
            check_target(path, store=is_store and is_cells)


def _given(args: argparse.Namespace, flags: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the files of a command with their flags. A flag may have several."""
    found: list[tuple[str, Path]] = []
    for flag in flags:
        value = getattr(args, flag, None) or []
        found += [(flag, Path(path)) for path in (value if isinstance(value, list) else [value])]
    return found


def _sentence(error: Exception) -> str:
    if isinstance(error, DiceError):
        return str(error)
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text} (--debug shows where)"


def _plain(value: Any) -> Any:
    """Convert numbers and arrays of numpy, and paths, to types of JSON."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
