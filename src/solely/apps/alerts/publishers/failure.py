"""How a publish fails, said so that people can act on it and without what must stay secret."""

from __future__ import annotations

from collections.abc import Iterable

MAX_TEXT = 400  # characters that strangers may add to an error: what a person reads of it, and no log is flooded
_SHORT = 4  # characters: replacing what is shorter would hide half of every text, and protects nothing


class PublishFailed(Exception):
    """The receiver does not have the notification, as far as we know.

    `permanent` if trying again cannot help; `retry_after` says in how many seconds it may, where that is known.
    """

    def __init__(self, message: str, *, permanent: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.retry_after = retry_after


def said(text: str, secrets: Iterable[str] = (), *, end: bool = False) -> str:
    """What a stranger said, on one line and with none of the secrets in it: its beginning, or its end."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORT:
            text = text.replace(secret, "…")
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if len(line) <= MAX_TEXT:
        return line
    return f"…{line[-MAX_TEXT:]}" if end else f"{line[:MAX_TEXT]}…"
