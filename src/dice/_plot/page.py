"""One self-contained page: template, style, script and data in a single file that asks for nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from dice._data.colors import SEQUENTIAL, Colors
from dice._types import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Labels beyond this are names rather than groups: they are shown, but no colour can tell them apart.
MAX_LABELS = 256


@dataclass(frozen=True)
class Explorer:
    """What the interactive map shows."""

    names: Sequence[str]
    #: Titles and coordinates (n, 2) of the maps to switch between.
    maps: Mapping[str, Floats]
    columns: Sequence[Colors]
    #: Names of the columns that appear beside a cell that is pointed at, and of the one that colours it first.
    hover: Sequence[str]
    color: str | None

    def json(self) -> str:
        """All of it as JSON that can stand inside a script element."""
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        names = [column.name for column in self.columns]
        content = {
            "n": len(self.names),
            "names": [str(name) for name in self.names],
            "maps": [{"title": title, "xy": _pixels(where)} for title, where in self.maps.items()],
            "columns": [_column(column) for column in self.columns],
            "hover": [names.index(name) for name in self.hover],
            "color": names.index(self.color) if self.color in names else -1,
            "scale": [to_hex(color) for color in colormaps[SEQUENTIAL](np.linspace(0, 1, 256))],
        }
        # A label may hold "</script>": without "<" nothing can end the element or start another.
        return json.dumps(content, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")


def page(explorer: Explorer, **parts: str) -> str:
    """The page; `parts` are its title and summary as text, and its sections as HTML."""
    folder = files("dice._plot").joinpath("page_files")
    template, style, script = (folder.joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css", "js"))
    # The browser itself then refuses the network, and every script but this one.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    texts = {name: escape(parts.pop(name)) for name in ("title", "summary")}
    slots = {"policy": policy, "style": style, "script": script, "data": explorer.json(), **texts, **parts}
    # In one pass: what was put in is never looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: slots[found[1]], template)


def table(rows: Iterable[tuple[str, Any]]) -> str:
    """Names and values as an HTML table."""
    lines = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table>{lines}</table>"


def bullets(items: Iterable[str]) -> str:
    """Sentences as an HTML list."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def picture(png: bytes, caption: str) -> str:
    """A figure inside the page."""
    source = base64.b64encode(png).decode("ascii")
    image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{source}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>\n"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def _encode(values: NDArray[Any]) -> str:
    little = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def _pixels(where: Floats) -> str:
    """Coordinates in 1/65535 of the longer side: all x, then all y, centred."""
    if not len(where):
        return ""
    low, high = where.min(0), where.max(0)
    extent = float((high - low).max()) or 1.0
    centred = 0.5 + (where - (low + high) / 2) / extent
    return _encode(np.rint(centred.T * 65535).clip(0, 65535).astype(np.uint16))


def _column(column: Colors) -> dict[str, Any]:
    """A column as the script reads it: codes of labels, one beyond the last where missing; or numbers."""
    if column.labels is None:
        known = column.values[~column.missing].astype(np.float32)
        ends = [float(known.min()), float(known.max())] if len(known) else [0.0, 1.0]
        return {
            "name": column.name,
            "dtype": "float32",
            "values": _encode(column.values.astype(np.float32)),
            "range": ends,
        }
    codes = np.where(column.missing, len(column.labels), column.values)
    dtype = np.min_scalar_type(len(column.labels))
    return {
        "name": column.name,
        "dtype": dtype.name,
        "values": _encode(codes.astype(dtype)),
        "labels": list(column.labels),
        "colors": list(column.labels.values()) if len(column.labels) <= MAX_LABELS else None,
    }
