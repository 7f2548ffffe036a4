"""Finds a server among the addresses that a URL names: none of them, if it is silent, takes the time of the others.

libpq goes on to the next address by itself when one refuses; when one is silent it does so only in its blocking call,
which counts whole seconds and cannot be interrupted. So each address is one attempt of ours, with a share of the time.
"""

from __future__ import annotations

import random
import select
import socket
import time
from typing import Any

from psycopg import ConnectionInfo, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .faults import refused

Candidate = dict[str, Any]  # what libpq is given

# What decides on the attempts; libpq would look for them in the environment too.
_DECISIVE = ("host", "hostaddr", "port", "target_session_attrs", "load_balance_hosts", "connect_timeout")

# Seconds for an address after which there are others: on a bad line a login takes one, and who has a minute in all, to
# migrate, should not spend half of it on a dead host.
LONGEST_ATTEMPT = 5.0


class _Failed(Exception):
    """Why an attempt came to nothing."""


def connect_any(conninfo: str, address: str, timeout: float) -> Any:
    """A libpq connection to the first address that takes us; else a StoreError with the reason of each."""
    ends = time.monotonic() + timeout
    todo = candidates(conninfo)[::-1]
    reasons: list[str] = []
    while todo:
        place = todo.pop()
        try:
            if _is_name(place):
                todo += _resolved(place)[::-1]
                continue
            left = max(0.0, ends - time.monotonic())
            share = min(left / (len(todo) + 1), LONGEST_ATTEMPT) if todo else left
            return _attempt(place, min(share, _allowed(place)))
        except _Failed as why:
            reasons.append(str(why))
    raise refused(address, "; ".join(reasons))


def candidates(conninfo: str) -> list[Candidate]:
    """The hosts in the order in which they are tried. What names none, or is invalid, is left to libpq as it is."""
    given = conninfo_to_dict(conninfo)
    known = {**given, **{name: value for name, value in _defaults(given).items() if name in _DECISIVE}}
    lists = {name: str(known[name]).split(",") for name in ("host", "hostaddr", "port") if known.get(name)}
    count = max(len(lists.get("host", ())), len(lists.get("hostaddr", ())))
    if len(lists.get("port", ())) == 1:
        lists["port"] *= count
    if not count or any(len(items) != count for items in lists.values()):
        return [given]
    hosts = [{**known, **{name: items[at] for name, items in lists.items()}} for at in range(count)]
    _mix(hosts)
    if known.get("target_session_attrs") != "prefer-standby":
        return hosts
    return [{**place, "target_session_attrs": role} for role in ("standby", "any") for place in hosts]


def leads_to(conninfo: str, info: ConnectionInfo) -> bool:
    """True if a connection was made to a host, port and database that this names: then it is the same database.

    False also where that is not known, as for the Unix socket that libpq chooses by itself.
    """
    given = conninfo_to_dict(conninfo)
    known = {option.keyword.decode(): (option.val or b"").decode() for option in pq.Conninfo.get_defaults()} | given
    if "service" in given or info.dbname != (known.get("dbname") or known.get("user")):
        return False
    return any(
        (place.get("host") or place.get("hostaddr"), str(place.get("port"))) == (info.host, str(info.port))
        and place.get("hostaddr") in (None, info.hostaddr)
        for place in candidates(conninfo)
    )


def _defaults(given: Candidate) -> dict[str, str]:
    """What libpq would take from the environment; not for a URL that names a service, whose file comes before that."""
    if "service" in given:
        return {}
    found = {option.keyword.decode(): option.val for option in pq.Conninfo.get_defaults()}
    return {name: value.decode() for name, value in found.items() if value is not None and name not in given}


def _mix(same: list[Candidate]) -> None:
    if same[0].get("load_balance_hosts") == "random":
        random.shuffle(same)


def _is_name(place: Candidate) -> bool:
    """True if the host must be looked up; it is not if it is a Unix socket, or libpq's own choice."""
    return not place.get("hostaddr") and str(place.get("host", ""))[:1] not in ("", "/", "@")


def _resolved(place: Candidate) -> list[Candidate]:
    """The same for each address of the host, whose name is kept for TLS."""
    host = str(place["host"])
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _Failed(f'could not translate host name "{host}" to address: {error}') from None
    addresses = [{**place, "hostaddr": address} for address in dict.fromkeys(item[4][0] for item in found)]
    _mix(addresses)
    return addresses


def _allowed(place: Candidate) -> float:
    """The seconds that the URL allows for one attempt."""
    try:
        seconds = float(place.get("connect_timeout", 0))
    except ValueError:  # libpq too minds it only when it keeps the time
        seconds = 0.0
    return seconds if seconds > 0 else float("inf")


def _attempt(place: Candidate, seconds: float) -> Any:
    ends = time.monotonic() + seconds
    pgconn = pq.PGconn.connect_start(make_conninfo("", **place).encode())
    while True:
        step = pq.PollingStatus.FAILED if pgconn.status == pq.ConnStatus.BAD else pgconn.connect_poll()
        if step == pq.PollingStatus.OK:
            return pgconn
        if step == pq.PollingStatus.FAILED:
            why = pgconn.get_error_message()
            pgconn.finish()
            raise _Failed(why)
        watch = select.poll()
        watch.register(pgconn.socket, select.POLLIN if step == pq.PollingStatus.READING else select.POLLOUT)
        if not watch.poll(max(0.0, ends - time.monotonic()) * 1000):
            pgconn.finish()
            raise _Failed(f"{_where(place)}: no answer within {round(seconds, 2):g} s")


def _where(place: Candidate) -> str:
    return f"{place.get('host') or place.get('hostaddr') or 'localhost'}:{place.get('port', 5432)}"
