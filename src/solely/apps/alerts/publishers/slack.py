"""Slack's incoming webhooks, in the form that Mattermost, Rocket.Chat and Discord accept as well: a text and an
attachment with a color."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ....kit import Request, sanitized
from ..model import RESOLVED, Notification
from .settings import SlackSettings

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


def request(notification: Notification, settings: SlackSettings) -> Request:
    """The notification as a message."""
    url, secrets = settings.url, settings.secret_texts()
    return Request.json("POST", url, message(notification), secrets=secrets, repeatable=True)


def message(notification: Notification) -> dict[str, Any]:
    """The message of a notification. The form has no field for ids, so that the footer shows the id."""
    alert = notification.alert
    resolved = alert.status == RESOLVED
    title = f"[{alert.status.upper()}] {_line(alert.severity)}: {_line(alert.name)}"
    if notification.remarks:
        title += f" ({_line(', '.join(notification.remarks))})"
    return {
        "text": title,
        "attachments": [
            {
                "color": RESOLVED_COLOR if resolved else COLORS.get(alert.severity.lower(), OTHER_COLOR),
                "fallback": title,
                "text": "\n".join(f"*{name}*: {value}" for name, value in _bounded(alert.annotations)),
                "fields": [
                    {"title": name, "value": value, "short": True}
                    for name, value in (*_facts(notification), *_bounded(alert.labels))
                ],
                "mrkdwn_in": ["text"],
                "footer": f"{_line(alert.fingerprint, MAX_VALUE)} · {notification.id}",
                "ts": int(notification.at),
            }
        ],
    }


def escaped(text: str, most: int) -> str:
    """The text, cut to its bound, without links, commands and mentions."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return _TO_ALL.sub(_APART, cut).translate(_SPECIAL)


def _line(text: str, most: int = MAX_TITLE) -> str:
    """The same on one line: a second line could pass for a part of the message."""
    return escaped(sanitized(text), most)


def _facts(notification: Notification) -> list[tuple[str, str]]:
    names = ", ".join(each.name for each in notification.members)
    facts = (("source", notification.alert.source), ("alerts of the group", names))
    return [(name, escaped(value, MAX_VALUE)) for name, value in facts if value]


def _bounded(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    kept = list(labels.items())[:MAX_FIELDS]
    return [(_line(name), escaped(value, MAX_VALUE)) for name, value in kept]
