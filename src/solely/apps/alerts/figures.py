"""The metrics of the alert receiver. Label values are bounded: a fixed set of reasons, and the configured publishers.

The share of duplicates is suppressed / received; the rates of expiry, collision and failure also divide by received.
"""

from __future__ import annotations

from ...kit import HOLD, LATENCY, Figure

RECEIVED = Figure("solely_alerts_received", "Alerts that came in")
PUBLISHED = Figure("solely_alerts_published", "Alerts that at least one publisher has sent")
QUEUED = Figure("solely_alerts_queued", "Alerts that were durably queued to be published later")
SUPPRESSED = Figure("solely_alerts_suppressed", "Alerts that sent no notification, by reason", ("reason",))
COLLISIONS = Figure("solely_alerts_collisions", "Alerts refused since another was being published under the same key")
EXPIRED = Figure("solely_alerts_reservations_expired", "Reservations that ran out and were taken over by another")
LOCK_FAILURES = Figure("solely_alerts_lock_failures", "Reservations that the store could not decide on")
RESERVE_SECONDS = Figure("solely_alerts_reserve_seconds", "Time to reserve a key in the store", (), LATENCY)
WAIT_SECONDS = Figure(
    "solely_alerts_wait_seconds", "From an alert to the decision on its key, with the wait for others", (), LATENCY
)
HOLD_SECONDS = Figure("solely_alerts_hold_seconds", "From reserving a key to recording or releasing it", (), HOLD)
PUBLISH_SECONDS = Figure(
    "solely_alerts_publish_seconds", "One publish, with its quick retries", ("publisher",), LATENCY
)
PUBLISHER_FAILURES = Figure("solely_alerts_publisher_failures", "Publishes that failed", ("publisher",))
DEAD_LETTERED = Figure("solely_alerts_dead_lettered", "Notifications parked as dead letters", ("publisher",))
ACTIVE = Figure("solely_alerts_active_reservations", "Reservations that are requested or held now", kind="gauge")

FIGURES = tuple(each for each in globals().values() if isinstance(each, Figure))
