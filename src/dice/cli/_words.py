"""Translate messages of Python to the command line, and format results as tables."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from typing import Any

from dice.cli._flags import COMMAND_OF, RENAMED

#: Flags of other commands that a sentence may name.
ELSEWHERE = {
    "protocol", "calibration_fraction", "validation_fraction", "max_steps", "min_gene_overlap", "labels_key",
    "n_samples",
}  # fmt: skip
_NUMBER = r"-?\d[\d.e+-]*(?<![.])|'[^']*'|\"[^\"]*\"|[A-Za-z_]\w*"
_PHRASES = (
    (
        r"call sc\.pp\.normalize_total\([^)]*\) and sc\.pp\.log1p\([^)]*\) first",
        "run dice prepare on the counts first, or dice annotate, which normalises them itself",
    ),
    (r"method=dice\.Gibbs\(", "--method gibbs dice.Gibbs("),
    # Fields of settings objects are flags.
    (r"(\w+=)?dice\.[A-Z]\w+\(([^()]*)\)", r"\2"),
    (r"\bcall adata = adata\.to_memory\(\) first", "leave --stream out"),
    # A plot of its own is for notebooks: in files, the page shows the clusters.
    (r"dice\.pl\.clusters\b", "dice report --color dice_cluster"),
    (r"\bcall (?=dice\.)", "run "),
)


def in_flags(sentence: str, args: argparse.Namespace) -> str:
    """Return a message with the flags of a command in place of Python's arguments."""
    for pattern, words in _PHRASES:
        sentence = re.sub(pattern, words, sentence)
    verbs = "|".join(map(re.escape, COMMAND_OF))
    sentence = re.sub(rf"dice\.({verbs})\b(\([^()]*\))?", lambda m: _command(COMMAND_OF[m[1]], m[2]), sentence)
    known = set(vars(args)) | ELSEWHERE
    # "gene_key='symbol'" with its value, "labels_key=" without one, and "n_top_genes" as a word of its own.
    sentence = re.sub(rf"(?<![\w.'\-])(\w+)=({_NUMBER})?", lambda m: _flag(m, known), sentence)
    sentence = re.sub(r"(--[\w-]+(?: [\w.]+)?), (?=--)", r"\1 ", sentence)
    sentence = re.sub(r"`(\w+)`", lambda m: _dashed(m[1]) if m[1] in known else m[1], sentence)
    longer = "|".join(sorted((name for name in known if "_" in name), key=len, reverse=True))
    sentence = re.sub(rf"(?<![\w.'\"\-\[])({longer})(?![\w'\"=\]])", lambda m: _dashed(m[1]), sentence)
    return re.sub(r"\badata\.(?=obs|var|uns|layers|X\b)", "", sentence)


def _command(name: str, arguments: str | None) -> str:
    """Return a call as a command, with its keyword arguments as flags."""
    named = re.findall(rf"\w+=(?:{_NUMBER})", arguments or "")
    return " ".join([f"dice {name}", *named])


def _flag(found: re.Match[str], known: set[str]) -> str:
    name, value = found[1], found[2]
    if name not in known:
        return found[0]
    if value in (None, "True"):
        return _dashed(name)
    if value == "False":
        return _dashed(f"no_{name}")
    return f"{_dashed(name)} {'none' if value == 'None' else shlex.quote(value.strip(chr(39)))}"


def _dashed(name: str) -> str:
    return f"--{RENAMED.get(name, name).replace('_', '-')}"


def table(summary: Mapping[str, Any], indent: str = "") -> str:
    """Return results as text, one line each. A result with several parts is a table of its own."""
    plain = {name: value for name, value in summary.items() if not isinstance(value, Mapping)}
    width = max((len(name) for name in plain), default=0)
    lines = [f"{indent}{name:<{width}}  {_short(value)}" for name, value in plain.items()]
    for name, parts in summary.items():
        if isinstance(parts, Mapping):
            lines += ["", name, table(parts, "  ") or "  none"]
    return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{float(value):.4g}" if isinstance(value, float) or hasattr(value, "dtype") else str(value)
