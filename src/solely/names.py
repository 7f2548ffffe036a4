"""Reserved names: a name that starts with `~` belongs to the application of the service that follows the tilde.

`~alerts/outbox` belongs to `alerts`. The library itself refuses no name: a client of the store has access to all of it.
The service permits only the application to write its names, under any kind of key.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote, unquote

from . import audit
from .ops import Op

AUDIT = audit.QUEUE  # the owner of the audit log
LONGEST_PART = 200  # bytes of an encoded part of a key: two parts and the prefix fit into the 512 of a key
RESERVED = "~"  # unchanged when a queue's name is quoted for the keys of its items, so that they stay readable


def reserved(application: str, name: str) -> str:
    """The name, reserved for this application."""
    return f"{RESERVED}{application}/{name}"


def part_of(text: str) -> str:
    """The text as a part of a key: percent-encoded, without slashes, so that no two lists of parts share a key. A text
    that is too long becomes `~` and its digest."""
    encoded = quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
    if len(encoded) <= LONGEST_PART:
        return encoded
    return f"~{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def owner_of(key: str) -> str:
    """The application that owns the stored key, of any kind; "" if it is not reserved."""
    return owner_of_name(reserved_name_of(key))


def reserved_name_of(key: str) -> str:
    """The reserved name in the stored key, of any kind; "" if it has none."""
    kind, _, name = key.partition("/")
    if kind == "replay":  # followed by the key of a dead letter
        return reserved_name_of(name)
    if kind in ("item", "line", "letter"):
        return _reserved_queue(unquote(name.partition("/")[0]))
    return name if name.startswith(RESERVED) else ""


def owner_of_name(name: str) -> str:
    """The application that owns the reserved name; "" if it is empty."""
    if name == AUDIT:
        return AUDIT
    return name[1:].partition("/")[0] or RESERVED if name else ""


def owner_of_queue(queue: str) -> str:
    """The application that owns this stored queue name; "" if it is not reserved."""
    return owner_of_name(_reserved_queue(queue))


def _reserved_queue(queue: str) -> str:
    """The reserved name of this stored queue; "" if it has none."""
    name = queue if queue.startswith(RESERVED) else queue.partition(":")[2]  # after `queue:` or `dead:`
    return AUDIT if queue == AUDIT else name if name.startswith(RESERVED) else ""


def owner_of_op(op: Op) -> str:
    """The application that owns the op's key or queue; "" if it is not reserved."""
    return owner_of_name(reserved_name_of_op(op))


def reserved_name_of_op(op: Op) -> str:
    """The reserved name in the op's key or queue; "" if it has none."""
    queue: str | None = getattr(op, "queue", None)
    return reserved_name_of(op.key) if queue is None else _reserved_queue(queue)  # type: ignore[union-attr]
