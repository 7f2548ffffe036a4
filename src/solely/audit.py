"""The audit log as it lies in the store: who did what to what others hold, and why.

It is a queue of records, the newest first, to which the service and the command line add; nobody takes from it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Any

from .model import Entry, item_key
from .ops import Clear, Op

QUEUE = "audit"
PREFIX = item_key(QUEUE, "")  # of the stored keys of all records
KEPT = 1000  # records: at ten interventions a day, a quarter of a year
_END = 10**16  # µs: 2286. Ids count down from here, so that the newest comes first in key order


def new_record(who: str, action: str, key: str, reason: str) -> dict[str, Any]:
    """A record of now, as plain data: JSON of it is what the queue keeps under its `id`."""
    now = time.time()
    id = f"{_END - int(now * 1e6):016d}-{secrets.token_hex(4)}"
    return {"id": id, "at": now, "who": who, "action": action, "key": key, "reason": reason}


def dropping(older: Iterable[Entry]) -> list[Op]:
    """What removes these records, which are older than the newest KEPT."""
    return [Clear(each.key, each.fence, "older than the newest that are kept") for each in older]
