"""Where locks and dead letters are: in MongoDB in the collections that the document names, elsewhere together."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

LOCK_COLLECTION, LETTER_COLLECTION = "L0CK", "D34DL3TT3R"


def locks_url(url: str | None) -> str | None:
    """The URL of the store of locks and marks; in MongoDB the collection L0CK, unless the URL names a namespace."""
    return _in_collection(url, LOCK_COLLECTION)


def letters_url(url: str | None) -> str | None:
    """The URL of the store of dead letters; in MongoDB the collection D34DL3TT3R, unless the URL names a namespace."""
    return _in_collection(url, LETTER_COLLECTION)


def _in_collection(url: str | None, name: str) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if not parts.scheme.startswith("mongodb") or "namespace" in parse_qs(parts.query):
        return url
    path = url if "/" in url.partition("://")[2] else f"{url}/"
    return f"{path}{'&' if parts.query else '?'}namespace={name}"
