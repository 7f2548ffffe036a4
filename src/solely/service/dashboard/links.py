"""Addresses of pages: where each kind of key is in the navigation, and the page of one key."""

from __future__ import annotations

from urllib.parse import quote, urlencode

# kind → its page in the navigation
PLACES = {
    "lock": "/locks", "claim": "/claims", "reservation": "/reservations", "mark": "/dedup", "limit": "/limits",
    "item": "/queues", "schedule": "/schedules", "watermark": "/watermarks", "breaker": "/",
}  # fmt: skip
KINDS = {"tick": "schedule", "limited": "limit"}  # kind in the store → as people know it


def key_link(key: str, kind: str = "") -> str:
    """The address of the page of this key; without a kind, of all that is stored under the name. Browsers drop the
    parts `.` and `..` from a path, and proxies empty ones."""
    kind = KINDS.get(kind, kind)
    if kind == "queue":
        return f"/queues?{urlencode({'queue': key}, errors='replace')}"
    if kind not in PLACES:
        return f"/dedup?{urlencode({'key': key}, errors='replace')}"
    if any(part in ("", ".", "..") for part in key.split("/")):
        return f"/keys/{kind}?{urlencode({'key': key}, errors='replace')}"
    return f"/keys/{kind}/{quote(key, safe='/:@', errors='replace')}"
