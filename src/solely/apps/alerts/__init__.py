"""Alerts: one notification per alert, under any concurrency.

An alert's way: `inputs/` read it, the `receiver` takes it, `deciding/` says what keeps it from people, and `telling/`
brings it to the `publishers/`. `records/` and `worker/` are what these stand on; `operating/` and `pages/` are for
people. From the ground up: model, publishers, settings, records, worker, deciding, telling, receiver, operating, inputs
and pages, app; none imports what comes after it.
"""

from .app import App

__all__ = ["App"]
