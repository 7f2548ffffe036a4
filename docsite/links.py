"""Checks the built site: every link and anchor leads somewhere within it, and no page loads anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}
_NAMES = ("canonical", "prev", "next")  # links that a browser does not load


class _Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors, self.links, self.loads = set[str](), list[str](), list[str]()
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif given.get(_LOADED.get(tag, "")) and given.get("rel") not in _NAMES:
            self.loads.append(given[_LOADED[tag]])


@cache
def _page(file: Path) -> _Page:
    return _Page(file)


def broken(site: Path) -> Iterator[str]:
    """A sentence for each link that leads nowhere, and for each file that is loaded from another host."""
    _page.cache_clear()
    for file in sorted(site.rglob("*.html")):
        page, name = _page(file), file.relative_to(site)
        for link in page.links:
            if file.name != "404.html" and (wrong := _wrong(link, file, site)):
                yield f"{name}: {link} {wrong}"
        yield from (f"{name} loads {load} from another host" for load in page.loads if urlsplit(load).netloc)


def _wrong(link: str, file: Path, site: Path) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site.resolve()):
        return "leads out of the site"
    if not target.exists():
        return "leads to no file"
    if parts.fragment and target.suffix == ".html" and not parts.fragment.startswith("__"):
        anchors = _page(target if target != file else file).anchors
        if unquote(parts.fragment) not in anchors:
            return "names an anchor that does not exist"
    return ""
