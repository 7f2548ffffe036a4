"""Alerts: one notification per alert, under any concurrency.

`inputs/` decode what senders post, the `receiver` asks `decision` whether it is sent, `suppression/` holds the reasons
not to notify and what fires now, and `notifications/` delivers to the `publishers/`. `records/` and `worker` are the
layers below; `api/` and `pages/` serve operators. From the bottom up: model and decision, publishers, settings,
records, worker, suppression, notifications, receiver, runtime, api, inputs and pages, app; none imports a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import AlertsApp

__all__ = ["AlertsApp"]


def __getattr__(name: str) -> Any:
    """Imports the application at its first use, so that its commands start without the service."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .app import AlertsApp

    return AlertsApp
