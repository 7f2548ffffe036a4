"""Any receiver of Standard Webhooks: every attempt has the same id, and its own signature."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from ....kit import Request, sign
from ..model import Notification
from .settings import WebhookSettings

_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # a traceparent, which came from outside


def request(notification: Notification, settings: WebhookSettings) -> Request:
    """The notification as a signed event."""
    body, keys = event(notification), settings.keys()
    headers = {**settings.headers, "content-type": "application/json"}
    if _TRACE.fullmatch(notification.trace):
        headers["traceparent"] = notification.trace
    return Request(
        "POST",
        settings.url,
        headers,
        body,
        settings.secret_texts(),
        fresh_headers=lambda: sign(notification.id, int(time.time()), body, keys),
        repeatable=True,  # receivers remember the id
    )


def event(notification: Notification) -> bytes:
    """The JSON of a notification: its type, its time, and the alert with its remarks; the same bytes at every
    attempt."""
    alert = notification.alert
    at = datetime.fromtimestamp(notification.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return msgspec.json.encode({"type": f"alert.{alert.status}", "timestamp": at, "data": _data(notification)})


def _data(notification: Notification) -> dict[str, Any]:
    """The alert; and, if not empty, its group and the members, the reminder number, and the flapping flag."""
    data: dict[str, Any] = msgspec.structs.asdict(notification.alert)
    more = {
        "group": data.pop("group"),
        "alerts": notification.members,
        "reminder": notification.reminder,
        "flapping": notification.flapping,
    }
    return data | {name: value for name, value in more.items() if value}
