"""Foreign text in errors and messages: on one line, without secrets."""

from __future__ import annotations

from collections.abc import Iterable

MAX_TEXT = 400  # characters of foreign text in an error: enough to read, too little to flood a log
_SHORT = 4  # characters: replacing a shorter secret would garble every text, and protects nothing


def sanitized(text: str, secrets: Iterable[str] = (), *, end: bool = False) -> str:
    """Foreign text on one line, without secrets and non-printable characters, cut to its beginning or its `end`."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORT:
            text = text.replace(secret, "…")
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if len(line) <= MAX_TEXT:
        return line
    return f"…{line[-MAX_TEXT:]}" if end else f"{line[:MAX_TEXT]}…"
