"""Copies entries from one store to another. What is held at the source stays there.

    report = copy("sqlite:///solely.sqlite3", "redis://localhost", progress=lambda seen: ...)

It copies marks, results, watermarks and queue items, and replaces nothing at the target by something older, so a copy
that was killed can be run again. Leases are left behind and listed in the report. Raises InvalidInput for an invalid
URL, StoreError if a store is unreachable; errors of single entries are in the report. `python -m solely.copying SOURCE
TARGET` does the same from a shell. See `docs/copy.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from urllib.parse import parse_qsl, unquote

from ..errors import InvalidInput
from ..stores import capabilities, open_store
from ..urls import split_url
from .copier import OnProgress, copy_stores
from .report import CopyFailure, CopyReport, LeftBehind, Progress

__all__ = ["CopyFailure", "CopyReport", "LeftBehind", "Progress", "copy", "copy_stores"]

TIMEOUT = 10.0  # seconds for one response: a page of 8 MiB over a slow line; no lease depends on it


def copy(
    source_url: str,
    target_url: str,
    *,
    progress: OnProgress | None = None,
    prefixes: Iterable[str] = ("",),
    dry_run: bool = False,
) -> CopyReport:
    """Copies every entry whose stored key (`mark/…`, `claim/…`, …) begins with one of `prefixes`.

    `dry_run` writes nothing and reports what would be done. `progress` is called after every batch.
    """
    _check_urls(source_url, target_url)
    with (
        closing(open_store(source_url, timeout=TIMEOUT)) as source,
        closing(open_store(target_url, timeout=TIMEOUT)) as target,
    ):
        return copy_stores(source, target, progress=progress, prefixes=prefixes, dry_run=dry_run)


def _check_urls(source_url: str, target_url: str) -> None:
    for url in (source_url, target_url):
        if not isinstance(url, str):
            raise InvalidInput(f"a store URL must be a str, not {type(url).__name__}")
        if not capabilities(url).shared and not split_url(url).netloc:
            raise InvalidInput("memory:// without a name is a new, empty store each time; name one: memory://name")
    if _place(source_url) == _place(target_url):
        raise InvalidInput("source and target are the same store; give two")
    if capabilities(source_url).embedded_file and not os.path.exists(_file(source_url)):
        raise InvalidInput(f"there is no file {_file(source_url)} to copy from")  # opening it would make an empty one


def _place(url: str) -> tuple[object, ...]:
    """Equal for two spellings of one URL. If a store is copied onto itself undetected, nothing changes."""
    parts = split_url(url)
    module = capabilities(url).module or parts.scheme
    if capabilities(url).embedded_file:
        return module, _file(url)
    return module, parts.netloc.lower(), parts.path.rstrip("/"), sorted(parse_qsl(parts.query, keep_blank_values=True))


def _file(url: str) -> str:
    return os.path.realpath(unquote(split_url(url).path[1:]))
