"""Who holds a key: a short text stored with a hold, for people, and details for programs. No decision of the library
depends on it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache, partial
from time import time
from typing import Any, NamedTuple

from .errors import InvalidInput
from .rules import MAX_INFO_BYTES

_PURPOSE_CHARS = 200  # a purpose is a phrase; with host and pid it stays well within MAX_INFO_BYTES even as \\u escapes


_HOST_CHARS = 64  # as many as Linux allows in the name of a host
_TIME_DIGITS = 10  # of the seconds since 1970, until the year 2286
_CALLERS = 1_000  # callers whose form is cached: some hundred processes call one service


Signer = Callable[[], str]  # writes the info of a hold that is requested now


class OnBehalf(NamedTuple):
    """Who a service acts for: the name of the caller's token, the host (or any name) and pid that the caller declares,
    and the address that it calls from; each may be empty. If `holds`, what is acquired belongs to the caller."""

    name: str
    host: str
    pid: int
    address: str
    holds: bool = True

    def __str__(self) -> str:
        return _who(self._asdict())


ON_BEHALF: ContextVar[OnBehalf | None] = ContextVar("solely_on_behalf", default=None)  # of the request in this task


@lru_cache(_CALLERS)
def _head(caller: OnBehalf) -> str:
    """The beginning of the info of a caller's holds."""
    facts = {"host": caller.host[:_HOST_CHARS], "pid": caller.pid, "name": caller.name, "address": caller.address}
    known = {name: value for name, value in facts.items() if value}
    return f'{json.dumps(known, separators=(",", ":"))[:-1]}{"," if known else ""}"since":'


def this_process() -> str:
    """Host and pid of this process, as people read them."""
    return _who({"host": socket.gethostname()[:_HOST_CHARS], "pid": os.getpid()})


class Signature:
    """Writes the info of this process's holds: host, pid, since, purpose and details; in a service, those of the caller
    that it acts for. Cheap, since every acquire writes one."""

    def __init__(self) -> None:
        self._second, self._plain = 0, ""  # cache: the info without a purpose changes once a second
        self._head = f'{{"host":{json.dumps(socket.gethostname()[:_HOST_CHARS])},"pid":{os.getpid()},"since":'

    def info(self, purpose: str = "", details: Mapping[str, str] | None = None) -> str:
        """The info of a hold requested now; see `signer`."""
        return self.signer(purpose, details)()

    def signer(self, purpose: str = "", details: Mapping[str, str] | None = None) -> Signer:
        """Returns what writes the info of a hold that is requested when it is called: a caller that waits calls it for
        each request, so that `since` is when the key was granted.

        A purpose that does not fit into MAX_INFO_BYTES is left out, as it is for people. Raises InvalidInput if the
        details do not fit, or if either has a wrong type.
        """
        caller = ON_BEHALF.get()
        if caller is not None and caller.holds:
            return partial(_signed, _head(caller), _tail(_head(caller), purpose, details))
        if purpose == "" and (details is None or details == {}):
            return self._unadorned
        return partial(_signed, self._head, _tail(self._head, purpose, details))

    def taking_over(self, info: str) -> str:
        """The info of a hold that is taken over now from the holder with this info: with its purpose and details."""
        try:
            return self.info(purpose_of(info), details_of(info))
        except InvalidInput:  # the name of this host is longer
            return self.info(purpose_of(info))

    def _unadorned(self) -> str:
        now = int(time())
        if now != self._second:
            self._plain = f"{self._head}{now}}}"
            self._second = now  # after _plain: another thread may read in between
        return self._plain


def _signed(head: str, tail: str) -> str:
    return f"{head}{int(time())}{tail}"


def _tail(head: str, purpose: str, details: Mapping[str, str] | None) -> str:
    """What follows the time in the info."""
    if purpose == "" and details is None:  # the usual case
        return "}"
    if not isinstance(purpose, str):
        raise InvalidInput(f"a purpose must be a str, not {type(purpose).__name__}: {purpose!r:.80}")
    encoded = _encoded_details(details)
    tail = f'{encoded},"purpose":{json.dumps(purpose[:_PURPOSE_CHARS])}}}' if purpose else f"{encoded}}}"
    size = len(head) + _TIME_DIGITS + len(tail)
    if size <= MAX_INFO_BYTES:
        return tail
    if not purpose:
        raise InvalidInput(f"the details take {size} bytes with host and pid; the maximum is {MAX_INFO_BYTES}")
    return _tail(head, "", details)


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
    since, named = _since(facts), who or _who(facts)
    if since is None or not named:
        return who or info
    purpose = f" ({facts['purpose']})" if facts.get("purpose") else ""
    return f"{named}{purpose} since {since.strftime('%H:%M:%S UTC')}"


def who_of(info: str) -> str:
    """Who wrote the info, without purpose and time, e.g. "web-3 pid 4711", or "deploy-bot, web-3 pid 4711 from
    10.0.0.7" for a caller of a service; "" if Solely did not write it."""
    facts = facts_of(info)
    return _who(facts) if _since(facts) is not None else ""


def _who(facts: Mapping[str, Any]) -> str:
    host, pid, name, address = (facts.get(field) or "" for field in ("host", "pid", "name", "address"))
    process = f"{host} pid {pid}" if host and pid else str(host)
    named = ", ".join(str(each) for each in (name, process) if each)
    return f"{named} from {address}" if named and address else named or str(address)


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
