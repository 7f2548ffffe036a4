"""The audit log in the store: who ended or changed what others hold, and why.

It is a queue of records, newest first. The service and the command line append to it; items are never taken from it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Any

from .model import Entry, item_key
from .ops import Clear, Op

QUEUE = "audit"
PREFIX = item_key(QUEUE, "")  # prefix of the stored keys of all records
KEPT = 1000  # records: at ten interventions a day, a quarter of a year
_END = 10**16  # µs: 2286. Ids count down from here, so that the newest comes first in key order


def new_record(who: str, action: str, key: str, reason: str) -> dict[str, Any]:
    """A record with the current time, as plain data; the queue stores it as JSON under its `id`."""
    now = time.time()
    id = f"{_END - int(now * 1e6):016d}-{secrets.token_hex(4)}"
    return {"id": id, "at": now, "who": who, "action": action, "key": key, "reason": reason}


def dropping(older: Iterable[Entry]) -> list[Op]:
    """The ops that remove these records, which are older than the newest KEPT."""
    return [Clear(each.key, each.fence, "older than the newest that are kept") for each in older]
