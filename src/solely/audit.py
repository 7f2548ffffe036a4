"""The audit log in the store: who ended or changed what others hold, and why.

It is a queue of records, newest first. The service and the command line append a record before they act, with the
outcome `started`, and amend it afterwards. If the process dies in between, the record stays so. Items are never taken.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

from .model import Entry, item_key
from .ops import Amend, Clear, Op, Push

QUEUE = "audit"
PREFIX = item_key(QUEUE, "")  # prefix of the stored keys of all records
KEPT = 1000  # records: at ten interventions a day, a quarter of a year
STARTED, DONE, NOTHING = "started", "done", "nothing"  # outcomes; others begin with REFUSED or FAILED
REFUSED, FAILED = "refused: ", "failed: "
LONGEST = 500  # characters of an outcome: as many as of a reason
_END = 10**16  # µs: 2286. Ids count down from here, so that the newest comes first in key order


def new_record(who: str, action: str, key: str, reason: str) -> dict[str, Any]:
    """A record with the current time and the outcome `started`, as plain data."""
    now = time.time()
    id = f"{_END - int(now * 1e6):016d}-{secrets.token_hex(4)}"
    return {"id": id, "at": now, "who": who, "action": action, "key": key, "reason": reason, "outcome": STARTED}


def appending(record: Mapping[str, Any]) -> Op:
    """The op that appends this record."""
    return Push(QUEUE, record["id"], _encode(record))


def completing(record: Mapping[str, Any], outcome: str) -> Op:
    """The op that gives the record its outcome, unless somebody has changed it since it was appended."""
    return Amend(QUEUE, record["id"], _encode({**record, "outcome": outcome[:LONGEST]}), _encode(record))


def _encode(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode()


def dropping(older: Iterable[Entry]) -> list[Op]:
    """The ops that remove these records, which are older than the newest KEPT."""
    return [Clear(each.key, each.fence, "older than the newest that are kept") for each in older]
