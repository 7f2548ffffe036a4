"""Which queue an op has to do with: by what the keys of that queue's items begin with."""

from __future__ import annotations

from typing import Any

from ...model import item_key


def queue_of(op: Any) -> str:
    """What the keys of all items of this op's queue begin with; "" if it has to do with no queue."""
    if hasattr(op, "queue"):
        return item_key(op.queue, "")
    return "/".join(op.key.split("/", 2)[:2]) + "/" if op.key.startswith("item/") else ""


def key_of(op: Any) -> str:
    """The key of the one document that the op works on. A Take that names no item has none yet."""
    key: str = item_key(op.queue, op.id) if hasattr(op, "queue") else op.key
    return key
