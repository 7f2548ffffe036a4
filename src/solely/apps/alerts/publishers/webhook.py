"""Any receiver of Standard Webhooks: every attempt has the same id, and its own signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..model import Notification
from .http_post import Poster
from .settings import WebhookSettings, secret_bytes

_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # a traceparent, which came from outside


class WebhookSender(Poster):
    """Posts the notification as a signed event."""

    def __init__(self, settings: WebhookSettings) -> None:
        super().__init__(settings)
        self._keys = [secret_bytes(settings.name, secret) for secret in settings.secrets]
        self._headers = settings.headers

    async def send(self, notification: Notification, attempt: int) -> None:
        """Returns when the receiver has it; else raises PublishFailed."""
        body = event(notification)
        headers = {**self._headers, **signed(notification.id, int(time.time()), body, self._keys)}
        if _TRACE.fullmatch(notification.trace):
            headers["traceparent"] = notification.trace
        await self.post(body, headers, attempt)


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


def signed(identity: str, moment: int, body: bytes, keys: list[bytes]) -> dict[str, str]:
    """The headers of the specification; without keys there is no signature."""
    content = f"{identity}.{moment}.".encode() + body
    signatures = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in keys]
    headers = {"webhook-id": identity, "webhook-timestamp": str(moment)}
    if signatures:
        headers["webhook-signature"] = " ".join(f"v1,{signature}" for signature in signatures)
    return headers
