"""Make flags from the signatures and docstrings of the verbs, and rewrite messages in terms of flags.

Signatures are read from the source files: importing a verb would load torch before a help page can be shown.
"""

import argparse
import ast
import inspect
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Self

from dice._errors import InputError
from dice.options import OBJECTS, Levels

#: Functions by command, in the order of a workflow.
VERBS = {
    "annotate": "tl.annotate", "prepare": "pp.prepare", "train": "tl.train_prior", "denoise": "tl.denoise",
    "cluster": "tl.cluster", "transfer": "tl.transfer_labels", "features": "tl.transfer_features",
    "novelty": "tl.novelty", "evaluate": "tl.evaluate", "report": "pl.report",
}  # fmt: skip
COMMAND_OF = {verb: command for command, verb in VERBS.items()} | {"tl.denoise_to_zarr": "denoise"}
#: Parameters whose flags have another name.
RENAMED = {"labels_key": "labels", "features_key": "features", "truth_key": "truth", "random_state": "seed"}
#: Parameters that are positional files, or the output file.
FILES = ("adata", "reference", "path")
#: Parameters that get no flag from the signature.
NO_FLAGS = ("label_map", "copy")
HIERARCHY = "tree of the labels: a .csv file with the columns child and parent, or an .obo file of an ontology"
_VALUE = r"-?\d[\d.e+-]*(?<![.])|'[^']*'|\"[^\"]*\"|[A-Za-z_]\w*"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a verb, or a field of a settings object."""

    name: str
    annotation: str
    default: Any
    text: str
    required: bool = False
    is_file: bool = False

    @property
    def settings(self) -> dict[str, type]:
        """Settings objects that the parameter accepts, by their names on the command line, such as ``"student_t"``."""
        found = {name: cls for name, cls in OBJECTS.items() if name in self.annotation and name != "Mixup"}
        return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): cls for name, cls in found.items()}

    @property
    def has_flag(self) -> bool:
        """Whether the parameter has a flag. Files, and parameters that take only a settings object, have none."""
        return not self.is_file and self.name not in NO_FLAGS and self.annotation not in OBJECTS

    @property
    def fields(self) -> dict[str, Self]:
        """Fields of the settings objects that have their own flags.

        The first field is left out if the parameter has a flag that sets this field.
        """
        found: dict[str, Self] = {}
        first = int(self.has_flag and len(self.settings) == 1)
        for cls in self.settings.values():
            texts = _texts(inspect.getdoc(cls) or "")
            for item in fields(cls)[first:]:
                own = type(self)(item.name, inspect.formatannotation(item.type), item.default, texts.get(item.name, ""))
                found.setdefault(item.name, own)
        return found

    def add(self, parser: argparse.ArgumentParser, **options: Any) -> None:
        """Add the flag to a parser, with the first sentence of its documentation as help."""
        flag, text = _dashed(self.name), first_sentence(self.text)
        options = {"dest": self.name, "default": self.default, "required": self.required} | options
        if isinstance(self.default, bool):
            text = f"{text} (default {'yes' if self.default else 'no'})"
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=text, **options)
            return
        words = re.findall(r"'([^']*)'", self.annotation) if "Literal" in self.annotation else []
        if words:
            text = f"{', '.join(words)}{' or none' if 'False' in self.annotation else ''}: {text}"
        if "LabelsKey" in self.annotation:
            options["action"], text = "append", f"{text}; give it again for finer labels"
            parser.add_argument("--hierarchy", type=Path, metavar="FILE", help=HIERARCHY)
        shown = self.default
        if isinstance(shown, tuple):
            options["nargs"], shown = "+", " ".join(shown)
        if shown is not None:
            text = f"{text} (default {shown})"
        parser.add_argument(
            flag, type=self.read, metavar=RENAMED.get(self.name, self.name).upper(), help=text, **options
        )

    def read(self, text: str) -> Any:
        """Parse the text of a flag: a number, several numbers with commas between them, a word, or none."""
        if text == "none" and (nothing := re.search("None|False", self.annotation)):
            return ast.literal_eval(nothing[0])
        if not re.search(r"\b(int|float|Rho|Noise|Level|Seed)\b", self.annotation):
            return text
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    def value(self, args: argparse.Namespace) -> Any:
        """Return the value of the flags: a settings object if a field is given, and Ellipsis if no flag is given."""
        word = getattr(args, self.name, ...) if self.has_flag else ...
        given = {name: getattr(args, name) for name in self.fields if hasattr(args, name)}
        if not given:
            return word
        if len(self.settings) == 1:
            (cls,) = self.settings.values()
            return cls(**given) if word is ... else cls(word, **given)
        for name, cls in self.settings.items():
            if word in ("auto", name) and given.keys() <= {item.name for item in fields(cls)}:
                return cls(**given)
        others = " and ".join(map(_dashed, given))
        raise InputError(f"{_dashed(self.name)} {word} cannot be combined with {others}: leave one of them out.")


@cache
def parameters(verb: str) -> dict[str, Parameter]:
    """Return the parameters of a verb such as ``"tl.denoise"``, read from its source."""
    package, name = verb.split(".")
    module = ast.parse((Path(__file__).parents[1] / package / f"_{name}.py").read_text(encoding="utf-8"))
    function = next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name)
    types = {ast.unparse(node.target): node.value for node in module.body if isinstance(node, ast.AnnAssign)}
    texts, positional = _texts(ast.get_docstring(function) or ""), function.args.args
    no_default = [None] * (len(positional) - len(function.args.defaults))
    defaults = [*no_default, *function.args.defaults, *function.args.kw_defaults]
    found = {}
    for argument, default in zip(positional + function.args.kwonlyargs, defaults, strict=True):
        own = argument.annotation or ast.Constant(None)
        annotation, text = ast.unparse(types.get(ast.unparse(own)) or own), texts.get(argument.arg, "")
        if elsewhere := re.match(r"As in :func:`(?:dice\.tl\.)?(\w+)`", text):
            same = parameters(f"tl.{elsewhere[1]}")[argument.arg]
            annotation, text = same.annotation, same.text
        # Fields of settings objects have their own defaults.
        value = None if default is None or isinstance(default, ast.Call) else ast.literal_eval(default)
        is_file = argument.arg in FILES and argument in positional
        found[argument.arg] = Parameter(argument.arg, annotation, value, text, default is None, is_file)
    return found


def _texts(docstring: str) -> dict[str, str]:
    """Return the texts of the parameters in a numpydoc docstring."""
    section = docstring.partition("Parameters\n----------\n")[2].partition("\nReturns\n")[0]
    entries = re.findall(r"^(\S.*)\n((?:    .*(?:\n|$))+)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def first_sentence(text: str) -> str:
    """Return the first sentence of a text as help: without markup, capital and full stop."""
    text = in_flags(re.sub(r" \(:doc:`[^`]*`\)", "", re.sub(r":\w+:`([^`]*)`(?!\))", r"\1", text))).replace("`", "")
    text = text.replace("n AnnData object", " file").replace("AnnData object", "file")
    sentence = re.split(r"(?<=\w)\. |; ", text)[0].rstrip(".").replace("%", "%%")
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the file arguments of a verb, and flags for its other parameters and the fields of its settings."""
    known = parameters(verb)
    shown = "query" if "reference" in known and known["reference"].is_file else "cells"
    for name, parameter in known.items():
        if parameter.is_file and name != "path":
            nargs = "+" if verb == "tl.annotate" else None if parameter.required else "?"
            parser.add_argument(
                name, metavar=shown if name == "adata" else None, nargs=None if name == "adata" else nargs,
                # Path would drop the ./ that tells a file from the name of a prior.
                type=str if name == "reference" else Path, help=f"{first_sentence(parameter.text)} (.h5ad or .zarr)",
            )  # fmt: skip
        elif parameter.has_flag:
            parameter.add(parser)
        for item in parameter.fields.values():
            item.add(parser, default=argparse.SUPPRESS)


def read_flags(args: argparse.Namespace, verb: str) -> dict[str, Any]:
    """Return the values of the flags as arguments of the verb."""
    found = {name: parameter.value(args) for name, parameter in parameters(verb).items()}
    labels, hierarchy = found.get("labels_key"), getattr(args, "hierarchy", None)
    if isinstance(labels, list):
        found["labels_key"] = Levels(labels[-1], hierarchy, labels[:-1])
    elif hierarchy is not None:
        raise InputError("A hierarchy needs the column of the labels: pass --labels as well.")
    return {name: value for name, value in found.items() if value is not ...}


def in_flags(sentence: str) -> str:
    """Return a message with commands and flags in place of calls and arguments of Python."""
    for pattern, words in _phrases():
        sentence = re.sub(pattern, words, sentence)
    return sentence


@cache
def _phrases() -> tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]:
    """Return patterns in messages and their replacements on the command line, in the order of their use."""
    known = [parameter for verb in VERBS.values() for parameter in parameters(verb).values()]
    flags = {item.name for parameter in known for item in (parameter, *parameter.fields.values()) if item.has_flag}
    names, verbs = "|".join(sorted(flags | {"label_map", "hierarchy"})), "|".join(map(re.escape, COMMAND_OF))
    return (
        (
            r"call sc\.pp\.normalize_total\([^)]*\) and sc\.pp\.log1p\([^)]*\) first",
            "run dice prepare on the counts first, or dice annotate, which normalises them itself",
        ),
        (r"(an input of )this call (.*: name another file)", r"\1the command \2, or pass --overwrite-input"),
        # Fields of settings objects are flags.
        (r"(\w+=)?dice\.[A-Z]\w+\(([^()]*)\)", r"\2"),
        (r"\bcall adata = adata\.to_memory\(\) first", "leave --stream out"),
        # No command draws a single plot: the report shows the clusters.
        (r"dice\.pl\.clusters\b", "dice report --color dice_cluster"),
        (r"\bcall (?=dice\.)", "run "),
        (rf"dice\.({verbs})\b(\([^()]*\))?", _command),
        # "gene_key='symbol'" with its value, and "labels_key=" without one.
        (rf"(?<![\w.'\-])({names})=({_VALUE})?", _flag),
        (r"(--[\w-]+(?: [\w.]+)?), (?=--)", r"\1 "),
        # "`alpha`" in backticks, and "n_top_genes" as a word of its own.
        (
            rf"`({names})`|(?<![\w.'\"\-\[<])(?=[a-z]+_)({names})(?![\w'\"=\]])",
            lambda match: _dashed(match[1] or match[2]),
        ),
        (r"`(\w+)`|\badata\.(?=obs|var|uns|layers|X\b)", r"\1"),
    )


def _command(call: re.Match[str]) -> str:
    """Return the command that corresponds to a call. Keyword arguments of the call stay as they are."""
    return " ".join([f"dice {COMMAND_OF[call[1]]}", *re.findall(rf"\w+=(?:{_VALUE})", call[2] or "")])


def _flag(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if value in (None, "True"):
        return _dashed(name)
    if value == "False":
        return _dashed(f"no_{name}")
    return f"{_dashed(name)} {'none' if value == 'None' else shlex.quote(value.strip(chr(39)))}"


def _dashed(name: str) -> str:
    return f"--{RENAMED.get(name, name).replace('_', '-')}"
