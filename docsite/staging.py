"""Copies what the site shows to build/docs, so that each link of a page leads somewhere within the site."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
PAGES, SITE, CONFIG = BUILD / "docs", BUILD / "site", BUILD / "zensical.toml"
FILES = "files"  # where files of the repository are, to which pages link

# Pages of the top folder, and their names in the site.
TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "examples/README.md": "examples.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^(```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
_OTHER = "More"  # the part for pages that `nav` does not name


def stage(generated: dict[str, str]) -> list[str]:
    """Writes all pages and the configuration to build/; returns what the navigation lacks or names in vain."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    for page in sorted(PAGES.rglob("*.md")):
        _adjust(page, ROOT / "docs" / page.relative_to(PAGES))
    for name, staged in TOP.items():
        shutil.copy(ROOT / name, PAGES / staged)
        _adjust(PAGES / staged, ROOT / name)
    for name, text in generated.items():
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / name).write_text(text)
    return _configure()


def _adjust(page: Path, source: Path) -> None:
    """Rewrites the links of a page that was copied from `source`, outside of code."""
    parts = _FENCED.split(page.read_text())
    parts[::2] = [_LINK.sub(lambda link: _rewritten(link, page, source), part) for part in parts[::2]]
    page.write_text("".join(parts))


def _rewritten(link: re.Match[str], page: Path, source: Path) -> str:
    image, text, target = link.groups()
    if ":" in target or target.startswith("#"):
        return link[0]
    path, mark, anchor = target.partition("#")
    wanted = (source.parent / path).resolve()
    if wanted.is_dir():
        return f"{image}{text}"
    return f"{image}[{text}]({_relative(_place(wanted), page)}{mark}{anchor})"


def _place(wanted: Path) -> Path:
    """Where the site has this file: a page, or a copy of a file that is no page."""
    if wanted.is_relative_to(ROOT / "docs"):
        return PAGES / wanted.relative_to(ROOT / "docs")
    inside = wanted.relative_to(ROOT)
    if str(inside) in TOP:
        return PAGES / TOP[str(inside)]
    copied = PAGES / FILES / inside.with_name(f"{inside.name}.txt")
    if wanted.exists():
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, copied)
    return copied


def _relative(place: Path, page: Path) -> str:
    return os.path.relpath(place, page.parent)


# -- the configuration


def _configure() -> list[str]:
    """Writes the configuration with a navigation that has every page, and no page that does not exist."""
    config = tomllib.loads((ROOT / "zensical.toml").read_text())
    project = config["project"]
    notes = list[str]()
    project["nav"] = [each for each in (_existing(each, notes) for each in project["nav"]) if each]
    named = set(_targets(project["nav"]))
    if others := sorted(page for page in _all_pages() if page not in named):
        notes += [f"zensical.toml does not name {page}; it is under {_OTHER}" for page in others]
        project["nav"].append({_OTHER: others})
    project["docs_dir"], project["site_dir"] = PAGES.name, SITE.name
    CONFIG.write_text("".join(_toml(project, "project")))
    return notes


def _all_pages() -> Iterator[str]:
    return (str(page.relative_to(PAGES)) for page in PAGES.rglob("*.md"))


def _existing(entry: Any, notes: list[str]) -> Any:
    """The part of the navigation without pages that do not exist; None if nothing is left."""
    if isinstance(entry, str):
        if (PAGES / entry).exists():
            return entry
        notes.append(f"zensical.toml names {entry}, which does not exist")
        return None
    if isinstance(entry, list):
        return [each for each in (_existing(each, notes) for each in entry) if each]
    kept = {title: _existing(each, notes) for title, each in entry.items()}
    return {title: each for title, each in kept.items() if each}


def _targets(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from _targets(each)


def _toml(table: dict[str, Any], name: str) -> Iterator[str]:
    """The table as TOML: what a configuration of zensical needs."""
    yield f"[{name}]\n"
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    lists = {key: value for key, value in table.items() if isinstance(value, list) and key != "nav" and _tables(value)}
    for key, value in table.items():
        if key not in inner and key not in lists:
            yield f"{key} = {_value(value)}\n"
    for key, value in inner.items():
        yield from _toml(value, f"{name}.{key}")
    for key, value in lists.items():
        for each in value:
            yield f"[[{name}.{key}]]\n"
            yield from (f"{inner_key} = {_value(inner_value)}\n" for inner_key, inner_value in each.items())


def _tables(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], dict)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_text(key)} = {_value(each)}" for key, each in value.items()) + " }"
    return _text(str(value))


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
