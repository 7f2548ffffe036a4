"""A notification as receivers get it: the JSON event of webhooks and programs, a message for chats, a mail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from ...kit import sanitized
from .model import RESOLVED, Notification

# -- webhooks and programs


def event(notification: Notification) -> bytes:
    """The JSON of a notification: its type, its time, and the alert; and, if not empty, its group and the members, the
    reminder number, and the flapping flag. The same bytes at every attempt."""
    at = datetime.fromtimestamp(notification.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    data: dict[str, Any] = msgspec.structs.asdict(notification.alert)
    more = {
        "group": data.pop("group"),
        "alerts": notification.members,
        "reminder": notification.reminder,
        "flapping": notification.flapping,
    }
    data |= {name: value for name, value in more.items() if value}
    return msgspec.json.encode({"type": f"alert.{notification.alert.status}", "timestamp": at, "data": data})


def variables(notification: Notification) -> dict[str, str]:
    """The environment variables of a notification: enough for a one-line program."""
    alert = notification.alert
    names = ("status", "name", "severity", "source", "fingerprint")
    fields = {"id": notification.id} | {name: str(getattr(alert, name)) for name in names}
    return {f"SOLELY_ALERT_{name.upper()}": value for name, value in fields.items()}


# -- chats

COLORS = {"critical": "#d32f2f", "error": "#f57c00", "warning": "#fbc02d", "info": "#1976d2"}
OTHER_COLOR = "#757575"
RESOLVED_COLOR = "#388e3c"
MAX_TITLE = 150  # characters before escaping: a line that a phone shows
MAX_VALUE = 500  # characters of a label or an annotation
MAX_FIELDS = 20  # labels and annotations each: more than people read, and Slack cuts the rest

_SPECIAL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# An underscore also ends the word: Mattermost strips it before it looks for mentions.
_TO_ALL = re.compile(r"@(?=(?:all|channel|everyone|here)(?![^\W_]))", re.IGNORECASE)
_APART = "@\u200b"  # with a zero-width space: reads the same, and mentions nobody


def slack_message(notification: Notification) -> dict[str, Any]:
    """The message in the form of Slack's incoming webhooks, which Mattermost, Rocket.Chat and Discord accept as well: a
    text and an attachment with a color. The form has no field for ids, so that the footer shows the id."""
    alert = notification.alert
    title = f"[{alert.status.upper()}] {_line(alert.severity)}: {_line(alert.name)}"
    if notification.remarks:
        title += f" ({_line(', '.join(notification.remarks))})"
    color = RESOLVED_COLOR if alert.status == RESOLVED else COLORS.get(alert.severity.lower(), OTHER_COLOR)
    names = ", ".join(each.name for each in notification.members)
    facts = {"source": alert.source, "alerts of the group": names}
    fields = [(name, _escaped(value)) for name, value in facts.items() if value]
    attachment = {
        "color": color,
        "fallback": title,
        "text": "\n".join(f"*{name}*: {value}" for name, value in _bounded(alert.annotations)),
        "fields": [
            {"title": name, "value": value, "short": True} for name, value in (*fields, *_bounded(alert.labels))
        ],
        "mrkdwn_in": ["text"],
        "footer": f"{_line(alert.fingerprint, MAX_VALUE)} · {notification.id}",
        "ts": int(notification.at),
    }
    return {"text": title, "attachments": [attachment]}


def _escaped(text: str, most: int = MAX_VALUE) -> str:
    """The text, cut to its bound, without links, commands and mentions."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return _TO_ALL.sub(_APART, cut).translate(_SPECIAL)


def _line(text: str, most: int = MAX_TITLE) -> str:
    """The same on one line: a second line could pass for a part of the message."""
    return _escaped(sanitized(text), most)


def _bounded(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(_line(name), _escaped(value)) for name, value in islice(labels.items(), MAX_FIELDS)]


# -- mails

MAX_LINES = 100  # labels and annotations each: beyond that nobody reads


def mail_subject(notification: Notification) -> str:
    """The subject of a mail."""
    alert, remarks = notification.alert, notification.remarks
    return f"[{alert.status.upper()}] {alert.severity}: {alert.name}" + (f" ({', '.join(remarks)})" if remarks else "")


def mail_text(notification: Notification) -> str:
    """The alert as lines of plain text."""
    alert = notification.alert
    facts = [(name, getattr(alert, name)) for name in ("name", "severity", "source", "fingerprint")]
    group = [("alert of the group", f"{each.severity}: {each.name}") for each in notification.members]
    parts = (facts, group, alert.annotations.items(), alert.labels.items())
    return "\n".join(_lines(part) for part in parts if part)


def _lines(facts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{sanitized(name)}: {sanitized(value)}\n" for name, value in islice(facts, MAX_LINES))
