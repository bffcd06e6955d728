"""The command ``dice``: the verbs of the package for files."""

import argparse
import inspect
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from textwrap import indent
from typing import Any

import dice
from dice import DiceError, DiceWarning, _log, settings
from dice._errors import InputError
from dice._files import check_target, same_file
from dice.cli import _verbs
from dice.cli._flags import VERBS, add_arguments, first_sentence, in_flags

FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
OUTPUT = "file to write (.h5ad or .zarr); an existing file is replaced when the new file is complete"
MAPPED = 'names of known labels in the reference (.json), {"lymphocyte": ["T cell", "B cell"]}'
STREAM = {"--stream": {"action": "store_true", "help": "read expression chunk by chunk instead of all at once"}}
#: Arguments of commands that verbs do not have.
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "annotate": {"--trained": FILE | {"help": "write the reference with its prior"}},
    "train": {"--prior-only": {"action": "store_true", "help": "write the prior without its cells, as .h5ad"}} | STREAM,
    "denoise": STREAM,
    "transfer": STREAM,
    "features": STREAM,
    "evaluate": {"--label-map": FILE | {"help": MAPPED}, "--table": FILE | {"help": "write the scores as .csv"}},
    "info": {
        "prior": {"nargs": "?", "help": "name of a prior, or a file with one (.h5ad or .zarr); none lists all names"},
        "--prior-key": {"default": "dice", "help": "key of the prior in a file (default dice)"},
    },
}
SUFFIXES = (".h5ad", ".zarr")
#: Names of the arguments that are files.
INPUTS = ("adata", "reference", "label_map", "hierarchy")
OUTPUTS = ("output", "trained", "report", "table", "checkpoint")
#: Exit codes: an error with a message, and Ctrl-C (as in a shell). argparse exits with 2 for wrong usage.
FAILED, INTERRUPTED = 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error is one sentence on standard error and exit code 1."""
    defaults = {"device": settings.device, "overwrite_input": False, "json": False, "quiet": False, "debug": False}
    args = _parser().parse_args(argv, argparse.Namespace(**defaults))
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
            print(f"dice: {_shown(_sentence(error))}", file=sys.stderr)
            return FAILED
    if args.json:
        summary = {"command": args.command, **summary, "seconds": time.perf_counter() - start, "warnings": warned}
        print(json.dumps(summary, default=_plain))
    else:
        print(_visible(summary.get("text") or _table(summary)))
    return 0


def _parser() -> argparse.ArgumentParser:
    # Without defaults, the parser of a command keeps the options that were given before its name.
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = common.add_argument_group("options of every command")
    group.add_argument("--device", help="auto, cpu, cuda or any torch device (default auto)")
    group.add_argument("--overwrite-input", action="store_true", help="let an output replace an input file")
    group.add_argument("--json", action="store_true", help="print a summary as one line of JSON")
    group.add_argument("--quiet", action="store_true", help="no progress bars, no warnings")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = argparse.ArgumentParser(
        prog="dice",
        parents=[common],
        description="Diffusion Induced Cell Embeddings: a clean reference cleans up a query.",
        epilog="Each command has its own help with examples: dice denoise --help",
    )
    parser.add_argument("--version", action="version", version=f"dice {dice.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name in ("info", *VERBS):
        run = getattr(_verbs, name)
        summary, _, examples = (inspect.getdoc(run) or "").partition("\n\n")
        command = commands.add_parser(
            name,
            parents=[common],
            help=first_sentence(summary),
            description=summary,
            epilog=f"examples:\n{indent(examples, '  ')}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=run)
        if name in VERBS:
            add_arguments(command, VERBS[name])
        if name not in ("info", "evaluate"):
            text = "page to write (.html)" if name == "report" else OUTPUT
            command.add_argument("-o", "--output", required=True, help=text, **FILE)
        for flag, options in OWN.get(name, {}).items():
            command.add_argument(flag, **options)
    return parser


@contextmanager
def _manners(args: argparse.Namespace) -> Iterator[list[str]]:
    """Apply the settings of a command, and print warnings of dice as one line each to standard error."""
    warned: list[str] = []

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if issubclass(category, DiceWarning):
            warned.append(_shown(str(message)))
            if not args.quiet:
                print(f"dice: warning: {warned[-1]}", file=sys.stderr)

    chosen = {"device": args.device} | ({"verbosity": 0} if args.quiet else {})
    worded = _log.worded(lambda message: f"dice: {_shown(message)}")
    with settings.using(**chosen), warnings.catch_warnings(), worded:
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        yield warned


def _check_paths(args: argparse.Namespace) -> None:
    """Check early that outputs can be written, are different files, and are not inputs."""
    inputs = [] if args.overwrite_input else [dice.priors.file_of(path) for _, path in _given(args, INPUTS)]
    outputs = [(flag, Path(path)) for flag, path in _given(args, OUTPUTS)]
    for (flag, path), (other, second) in combinations(outputs, 2):
        if same_file(path, second):
            raise InputError(f"The outputs --{flag} and --{other} are the same file {str(path)!r}: name another file.")
    for flag, path in outputs:
        is_cells = flag in ("output", "trained") and args.command != "report"
        if is_cells and path.suffix not in SUFFIXES:
            raise InputError(f"The output {str(path)!r} is neither .h5ad nor .zarr: give it one of these endings.")
        check_target(path, store=is_cells and path.suffix == ".zarr", argument=f"The output --{flag} ", inputs=inputs)


def _given(args: argparse.Namespace, names: Sequence[str]) -> list[tuple[str, str | Path]]:
    """Return the files of a command with their flags. A flag may have several files."""
    values = [(name, getattr(args, name, None) or []) for name in names]
    return [(name, path) for name, value in values for path in (value if isinstance(value, list) else [value])]


def _shown(message: str) -> str:
    """Return a message in terms of flags, as a terminal should show it."""
    return _visible(in_flags(message))


def _visible(text: str) -> str:
    """Return text with control characters written out, because a terminal would obey control characters in names."""
    return "".join(sign if sign.isprintable() or sign == "\n" else repr(sign)[1:-1] for sign in text)


def _sentence(error: Exception) -> str:
    if isinstance(error, DiceError):
        return str(error)
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text} (--debug shows where)"


def _plain(value: Any) -> Any:
    """Convert numbers and arrays of numpy, and paths, to types of JSON."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _table(summary: Mapping[str, Any], indent: str = "") -> str:
    """Return results as text, one line each. A result with several parts is a table of its own."""
    plain = {name: value for name, value in summary.items() if not isinstance(value, Mapping)}
    width = max((len(name) for name in plain), default=0)
    lines = [f"{indent}{name:<{width}}  {_short(value)}" for name, value in plain.items()]
    for name, parts in summary.items():
        if isinstance(parts, Mapping):
            lines += ["", name, _table(parts, "  ") or "  none"]
    return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{float(value):.4g}" if isinstance(value, float) or hasattr(value, "dtype") else str(value)
