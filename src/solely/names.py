"""Reserved names: those that begin with `~` belong to an application of the service, which is named behind that.

`~alerts/outbox` belongs to `alerts`. The library itself refuses no name: who has the store has all of it. The service
lets nobody but the application write its names, by whatever kind of key they are part of.
"""

from __future__ import annotations

from urllib.parse import unquote

from . import audit
from .ops import Op

AUDIT = audit.QUEUE  # whose names are the audit log's
RESERVED = "~"  # stays as it is when a queue's name is quoted for the keys of its items, so that these can be read


def reserved(application: str, name: str) -> str:
    """The name as the application keeps it."""
    return f"{RESERVED}{application}/{name}"


def owner_of(key: str) -> str:
    """The application that the stored key belongs to, whatever its kind; "" if it is anybody's."""
    kind, _, name = key.partition("/")
    if kind == "replay":  # of a dead letter, whose key stands behind it
        return owner_of(name)
    if kind in ("item", "letter"):
        return owner_of_queue(unquote(name.partition("/")[0]))
    return _owner(name)


def owner_of_queue(queue: str) -> str:
    """The application that this queue belongs to, as stores know it; "" if it is anybody's."""
    return AUDIT if queue == AUDIT else _owner(queue) or _owner(queue.partition(":")[2])  # behind `queue:` or `dead:`


def owner_of_op(op: Op) -> str:
    """The application whose name the op is about; "" if it is anybody's."""
    queue: str | None = getattr(op, "queue", None)
    return owner_of(op.key) if queue is None else owner_of_queue(queue)  # type: ignore[union-attr]


def _owner(name: str) -> str:
    return name[1:].partition("/")[0] or RESERVED if name.startswith(RESERVED) else ""
