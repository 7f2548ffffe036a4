"""What the alert receiver counts. Labels are bounded: reasons are ours, names of publishers are those of the settings.

The share of duplicates is suppressed over received; the rates of expiry, collision and failure are over received too.
"""

from __future__ import annotations

from ...service.figures import HOLD, LATENCY, Figure

RECEIVED = Figure("solely_alerts_received", "Alerts that came in")
PUBLISHED = Figure("solely_alerts_published", "Alerts of which people were told")
QUEUED = Figure("solely_alerts_queued", "Alerts that were durably queued to be published later")
SUPPRESSED = Figure("solely_alerts_suppressed", "Alerts of which nobody was told, by reason", ("reason",))
COLLISIONS = Figure("solely_alerts_collisions", "Alerts refused since another was being published under the same key")
EXPIRED = Figure("solely_alerts_reservations_expired", "Reservations that ran out and were taken over by another")
LOCK_FAILURES = Figure("solely_alerts_lock_failures", "Reservations that the store could not decide on")
RESERVE_SECONDS = Figure("solely_alerts_reserve_seconds", "From asking for a reservation to its answer", (), LATENCY)
HOLD_SECONDS = Figure("solely_alerts_hold_seconds", "From having a reservation to recording or releasing it", (), HOLD)
PUBLISH_SECONDS = Figure(
    "solely_alerts_publish_seconds", "One publish, with its quick retries", ("publisher",), LATENCY
)
PUBLISHER_FAILURES = Figure("solely_alerts_publisher_failures", "Publishes that failed", ("publisher",))
DEAD_LETTERED = Figure("solely_alerts_dead_lettered", "Notifications parked as dead letters", ("publisher",))
ACTIVE = Figure("solely_alerts_active_reservations", "Reservations that are asked for or held now", kind="gauge")

FIGURES = tuple(each for each in globals().values() if isinstance(each, Figure))
