"""Any receiver of Standard Webhooks: every attempt has the same id, and its own signature."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from ....kit import Request
from ..model import Notification
from .settings import WebhookSettings


def request(notification: Notification, settings: WebhookSettings) -> Request:
    """The notification as a signed event."""
    return settings.request(notification.id, event(notification), notification.trace)


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
