"""Check the built site: internal links lead somewhere, API pages document something, and nothing needs the network.

python docs/check.py docs/_build/html
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes by which a browser fetches something without being asked.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
#: What a link element may point to without its being fetched.
UNLOADED = {"canonical", "index", "search", "next", "prev", "author", "copyright", "top", "edit"}


class Page(HTMLParser):
    """Anchors, links and loaded addresses of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.documented = 'class="sig sig-object py"' in text
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in LOADED and found.get(LOADED[tag]) and not UNLOADED & set(found.get("rel", "").split()):
            self.loaded.append(found[LOADED[tag]])


def main(folder: Path) -> int:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    pages = {path: page for path, page in pages.items() if "_static" not in path.parts}
    problems = [problem for path in pages for problem in check(path, pages, folder)]
    print("\n".join(problems) or f"{len(pages)} pages: internal links lead somewhere, and nothing needs the network.")
    return len(problems)


def check(path: Path, pages: dict[Path, Page], folder: Path) -> list[str]:
    """Problems of one page, a sentence each."""
    page, name = pages[path], path.relative_to(folder)
    problems = [f"{name} loads {url}." for url in page.loaded if urlsplit(url).netloc]
    if "generated" in path.parts and not page.documented:
        problems.append(f"{name} documents nothing.")
    for link in {*page.links, *page.loaded}:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link == "#":
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            problems.append(f"{name} links to {link}, which does not exist.")
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            problems.append(f"{name} links to {link}, which has no such anchor.")
    return problems


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]).resolve())))
