"""Alerts: one notification per alert, under any concurrency.

`inputs/` decode what senders post, the `receiver` decides, `suppression/` holds the reasons not to notify, and
`notifications/` delivers to the `publishers/`. `records/` and `worker` are the layers below; `api/` and `pages/` serve
operators. From the bottom up: model, publishers, settings, records, worker, suppression, notifications, receiver,
runtime, api, inputs and pages, app; none imports a later one.
"""

from .app import AlertsApp

__all__ = ["AlertsApp"]
