"""Who holds a key: a short text stored with a hold, for people, and details for programs. No decision of the library
depends on it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time
from typing import Any

from .errors import InvalidInput
from .rules import MAX_INFO_BYTES

_PURPOSE_CHARS = 200  # a purpose is a phrase; with host and pid it stays well within MAX_INFO_BYTES even as \\u escapes


class Signature:
    """Writes the info of this process's holds: host, pid, since, purpose and details. Cheap, since every acquire writes
    one."""

    def __init__(self) -> None:
        self._second, self._plain = 0, ""  # cache: the info without a purpose changes once a second
        self._head = f'{{"host":{json.dumps(socket.gethostname()[:64])},"pid":{os.getpid()},"since":'

    def info(self, purpose: str = "", details: Mapping[str, str] | None = None) -> str:
        """The info of a hold requested now; a purpose that does not fit into MAX_INFO_BYTES is left out, as it is for
        people. Raises InvalidInput if the details do not fit, or if either has a wrong type."""
        if purpose == "" and (details is None or details == {}):
            now = int(time())
            if now != self._second:
                self._plain = f"{self._head}{now}}}"
                self._second = now  # after _plain: another thread may read in between
            return self._plain
        if not isinstance(purpose, str):
            raise InvalidInput(f"a purpose must be a str, not {type(purpose).__name__}: {purpose!r:.80}")
        head = f"{self._head}{int(time())}{_encoded_details(details)}"
        text = f'{head},"purpose":{json.dumps(purpose[:_PURPOSE_CHARS])}}}' if purpose else f"{head}}}"
        if len(text) <= MAX_INFO_BYTES:
            return text
        if not purpose:
            raise InvalidInput(f"the details take {len(text)} bytes with host and pid; the maximum is {MAX_INFO_BYTES}")
        return self.info("", details)


def _encoded_details(details: object) -> str:
    """The details as a field of the info; raises InvalidInput unless they are a mapping of str to str, or None."""
    if details is None or details == {}:
        return ""
    if not isinstance(details, Mapping) or not all(isinstance(text, str) for pair in details.items() for text in pair):
        raise InvalidInput(f"details must be a mapping of str to str, not {details!r:.80}")
    return f',"details":{json.dumps(dict(details), separators=(",", ":"))}'


def describe(info: str, who: str = "") -> str:
    """The info as a phrase, e.g. "web-3 pid 4711 (deploy) since 12:00:01 UTC"; unchanged if Solely did not write it.
    `who`, if it is known better, takes the place of host and pid."""
    facts = facts_of(info)
    since = _since(facts)
    if since is None or not {"host", "pid"} <= facts.keys():
        return who or info
    purpose = f" ({facts['purpose']})" if facts.get("purpose") else ""
    named = who or f"{facts['host']} pid {facts['pid']}"
    return f"{named}{purpose} since {since.strftime('%H:%M:%S UTC')}"


def facts_of(info: str) -> dict[str, Any]:
    """The fields of the info; empty if Solely did not write it."""
    try:
        facts = json.loads(info) if info else {}
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def since_of(info: str) -> datetime | None:
    """The start of the hold; None if Solely did not write the info."""
    return _since(facts_of(info))


def _since(facts: dict[str, Any]) -> datetime | None:
    try:
        return datetime.fromtimestamp(facts["since"], UTC)
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return None


def purpose_of(info: str) -> str:
    """The purpose that the holder gave; "" if none, or if Solely did not write the info."""
    return str(facts_of(info).get("purpose", ""))


def details_of(info: str) -> dict[str, str]:
    """The details that the holder gave; empty if none, or if Solely did not write the info."""
    details = facts_of(info).get("details")
    if not isinstance(details, dict) or not all(isinstance(text, str) for text in details.values()):
        return {}
    return details
