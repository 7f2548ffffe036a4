"""Who holds a key: a short text stored with a hold, for people. No decision depends on it."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from time import time
from typing import Any

from .errors import InvalidInput
from .rules import MAX_INFO_BYTES

_PURPOSE_CHARS = 200  # a purpose is a phrase; with host and pid it stays well within MAX_INFO_BYTES even as \\u escapes


class Signature:
    """Writes the info of this process's holds: host, pid, purpose, since. Cheap, since every acquire writes one."""

    def __init__(self) -> None:
        self._second, self._plain = 0, ""  # cache: the info without a purpose changes once a second
        self._head = f'{{"host":{json.dumps(socket.gethostname()[:64])},"pid":{os.getpid()},"since":'

    def info(self, purpose: str = "") -> str:
        """The info of a hold requested now; raises InvalidInput if the purpose is not a str."""
        if purpose == "":
            now = int(time())
            if now != self._second:
                self._plain = f"{self._head}{now}}}"
                self._second = now  # after _plain: another thread may read in between
            return self._plain
        if not isinstance(purpose, str):
            raise InvalidInput(f"a purpose must be a str, not {type(purpose).__name__}: {purpose!r:.80}")
        text = f'{self._head}{int(time())},"purpose":{json.dumps(purpose[:_PURPOSE_CHARS])}}}'
        return text if len(text) <= MAX_INFO_BYTES else self.info()


def describe(info: str) -> str:
    """The info as a phrase, e.g. "web-3 pid 4711 (deploy) since 12:00:01 UTC"; unchanged if Solely did not write it."""
    facts = facts_of(info)
    since = _since(facts)
    if since is None or not {"host", "pid"} <= facts.keys():
        return info
    purpose = f" ({facts['purpose']})" if facts.get("purpose") else ""
    return f"{facts['host']} pid {facts['pid']}{purpose} since {since.strftime('%H:%M:%S UTC')}"


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
