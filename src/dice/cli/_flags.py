"""Flags, made from the signatures and docstrings of the verbs.

Signatures are read from the source files: importing a verb would load torch before a help page can be shown.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

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
#: Fields whose flag is named after the parameter.
FIRST = {"shift": "strategy", "check": "values"}
HIERARCHY = "tree of the labels: a .csv file with the columns child and parent, or an .obo file of an ontology"
#: Parameters without a flag: input and output files, and `copy`.
NO_FLAGS = {"adata", "reference", "path", "label_map", "copy"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a verb, or a field of a settings object."""

    name: str
    annotation: str
    default: Any
    text: str

    @property
    def settings(self) -> dict[str, type]:
        """Settings objects that the parameter takes, by word: ``"student_t"``. Each of their fields is a flag."""
        found = {name: cls for name, cls in OBJECTS.items() if name in self.annotation and name != "Mixup"}
        return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): cls for name, cls in found.items()}

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add the flag to a parser, with the first sentence of its documentation as help."""
        flag, text = RENAMED.get(self.name, self.name).replace("_", "-"), first_sentence(self.text)
        if isinstance(self.default, bool):
            both = argparse.BooleanOptionalAction
            parser.add_argument(f"--{flag}", dest=self.name, default=self.default, action=both, help=text)
            return
        words = re.findall(r"'([^']*)'", self.annotation) if "Literal" in self.annotation else []
        if words:
            text = f"{', '.join(words)}{' or none' if 'False' in self.annotation else ''}: {text}"
        options: dict[str, Any] = {"nargs": "+"} if isinstance(self.default, tuple) else {}
        if "LabelsKey" in self.annotation:
            options["action"], text = "append", f"{text}; give it again for finer labels"
            parser.add_argument("--hierarchy", type=Path, metavar="FILE", help=HIERARCHY)
        if self.default not in (None, MISSING) and self.name != "device":
            shown = " ".join(self.default) if isinstance(self.default, tuple) else self.default
            text = f"{text} (default {shown})"
        parser.add_argument(
            f"--{flag}", dest=self.name, type=self.read, default=None if self.default is MISSING else self.default,
            required=self.default is MISSING, metavar=flag.upper().replace("-", "_"), help=text, **options,
        )  # fmt: skip

    def read(self, text: str) -> Any:
        """Parse the text of a flag: a number, several numbers with commas between them, a word, or None."""
        if text == "none" and "None" in self.annotation:
            return None
        if not re.search(r"\b(int|float|Rho|Noise|Seed)\b", self.annotation):
            return text
        if "," in text:
            return tuple(float(part) for part in text.split(","))
        try:
            return int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            return text


@cache
def parameters(verb: str) -> dict[str, Parameter]:
    """Return the parameters of a verb such as ``"tl.denoise"``, read from its source."""
    module, function = _source(verb)
    types = {
        ast.unparse(node.target): ast.unparse(node.value)
        for node in module.body
        if isinstance(node, ast.AnnAssign) and node.value is not None
    }
    arguments = function.args
    texts = _texts(ast.get_docstring(function) or "")
    defaults: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    found = {}
    pairs = zip(
        arguments.args + arguments.kwonlyargs, [*defaults, *arguments.defaults, *arguments.kw_defaults], strict=True
    )
    for argument, default in pairs:
        text = texts.get(argument.arg, "")
        annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)
        annotation = types.get(annotation, annotation)
        elsewhere = re.match(r"As in :func:`(?:dice\.tl\.)?(\w+)`", text)
        if elsewhere:
            same = parameters(f"tl.{elsewhere[1]}")[argument.arg]
            text, annotation = same.text, same.annotation
        found[argument.arg] = Parameter(argument.arg, annotation, _value(default), text)
    return found


def summary_of(verb: str) -> str:
    """Return the first line of the docstring of a verb."""
    return (ast.get_docstring(_source(verb)[1]) or "").partition("\n")[0]


def _source(verb: str) -> tuple[ast.Module, ast.FunctionDef]:
    package, name = verb.split(".")
    module = ast.parse((Path(__file__).parents[1] / package / f"_{name}.py").read_text(encoding="utf-8"))
    return module, next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name)


def _value(default: ast.expr | None) -> Any:
    """Return a literal default, or None for a settings object, whose fields have their own flags."""
    if default is None:
        return MISSING
    return None if isinstance(default, ast.Call) else ast.literal_eval(default)


def _fields(cls: type) -> list[Parameter]:
    texts = _texts(inspect.getdoc(cls) or "")
    return [Parameter(item.name, str(item.type), item.default, texts.get(item.name, "")) for item in fields(cls)]


def _texts(docstring: str) -> dict[str, str]:
    """Return the texts of the parameters in a numpydoc docstring."""
    section = docstring.partition("Parameters\n----------\n")[2].partition("\nReturns\n")[0]
    entries_found = re.findall(r"^(\S.*)\n((?:    .*(?:\n|$))+)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries_found for name in names.split(", ")}


def first_sentence(text: str) -> str:
    """Return the first sentence of a text as help: without markup, capital and full stop."""
    text = re.sub(r" \(:doc:`[^`]*`\)|``|`|adata\.", "", re.sub(r":\w+:`([^`]*)`(?!\))", r"\1", text))
    text = re.sub(r"dice\.(\w+\.\w+)", lambda m: f"dice {COMMAND_OF[m[1]]}" if m[1] in COMMAND_OF else m[0], text)
    text = text.replace("n AnnData object", " file").replace("AnnData object", "file")
    sentence = re.split(r"(?<=\w)\. |; ", text)[0].rstrip(".").replace("%", "%%")
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


def add_flags(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add one flag for every parameter of a verb, and for every field of its settings objects."""
    added = NO_FLAGS.copy()
    for name, parameter in parameters(verb).items():
        if name in added:
            continue
        classes = parameter.settings.values()
        # Of several objects, the flag names one.
        if name in FIRST or len(classes) != 1:
            parameter.add(parser)
        for item in (item for cls in classes for item in _fields(cls)):
            if item.name not in added and item.name != FIRST.get(name):
                item.add(parser)
                added.add(item.name)


def read_flags(args: argparse.Namespace, verb: str) -> dict[str, Any]:
    """Return the values of the flags as arguments of the verb."""
    known = parameters(verb)
    found = {name: value for name, value in vars(args).items() if name in known and name != "reference"}
    if "labels_key" in known and "LabelsKey" in known["labels_key"].annotation and args.labels_key:
        found["labels_key"] = Levels(args.labels_key[-1], args.hierarchy, args.labels_key[:-1])
    elif getattr(args, "hierarchy", None) is not None:
        raise InputError("A hierarchy needs the column of the labels: pass --labels as well.")
    for name, parameter in known.items():
        classes = parameter.settings
        if len(classes) > 1:
            found[name] = _chosen(args, name, classes)
        elif name == "shift" and args.shift == "none":
            found[name] = False
        elif classes:
            (cls,) = classes.values()
            found[name] = _read(args, cls, name)
    return found


def _read(args: argparse.Namespace, cls: type, name: str) -> Any:
    """Return the settings object of a parameter, with the values of the flags."""
    flags = {item.name: name if item.name == FIRST.get(name) else item.name for item in fields(cls)}
    return cls(**{field: getattr(args, flag) for field, flag in flags.items() if hasattr(args, flag)})


def _chosen(args: argparse.Namespace, name: str, classes: dict[str, type]) -> Any:
    """Return the settings object that a word names, or that fields given with ``auto`` belong to; else the word."""
    word = getattr(args, name)
    own = {key: {item.name for item in fields(cls)} for key, cls in classes.items()}
    items = [item for cls in classes.values() for item in fields(cls)]
    given, first = {item.name for item in items if getattr(args, item.name) != item.default}, next(iter(classes))
    if word == "auto" and given and given <= own[first]:
        word = first
    # Flags of another word would be ignored.
    stray = given - own.get(word, set())
    if stray:
        owner = max(own, key=lambda key: len(stray & own[key]))
        raise InputError(f"Some flags belong to --{name} {owner}: pass it as well, or leave them out.")
    return _read(args, classes[word], name) if word in classes else word
