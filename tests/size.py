"""Files and lines of code of a folder, without blanks, comments and docstrings.

    python tests/size.py [FOLDER]

FOLDER is src/dice by default.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "dice"
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(text: str) -> int:
    """Lines that hold a token other than a comment, docstrings left out."""
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED)]
    docstrings = {
        line
        for node in documented
        if ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return len({token.start[0] for token in tokens if token.type not in NO_CODE} - docstrings)


def sizes(folder: Path = SOURCE) -> dict[Path, int]:
    """Lines of code of every Python file below a folder."""
    return {path: lines_of_code(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE
    found = sizes(folder)
    for parent in sorted({path.parent for path in found}):
        own = [lines for path, lines in found.items() if path.parent == parent]
        print(f"{parent.relative_to(folder.parent)!s:<24} {len(own):>4} files {sum(own):>7,} lines")
    print(f"{'all':<24} {len(found):>4} files {sum(found.values()):>7,} lines")


if __name__ == "__main__":
    main()
