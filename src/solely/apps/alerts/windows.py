"""Windows: how long a notification is held and then quiet, and how many fit into a time. The store keeps them as
reservations, of which these are the terms."""

from __future__ import annotations

from typing import Any

from ... import AsyncAdmission, AsyncClient, AsyncReservation
from .model import FIRING, MAX_OPEN, Alert, Notification, key_of, own, part_of, subject_of
from .settings import DEFAULT, USUAL, AlertsSettings, table


class Windows:
    """The windows of all notifications."""

    def __init__(self, once: AsyncClient, settings: AlertsSettings) -> None:
        self._once = once
        self.policies = table(settings)
        self._reminders = {name.casefold(): policy.remind for name, policy in settings.policies.items()}
        self.shared_limits = {name.casefold(): limit for name, limit in settings.severity_limits.items()}
        self._flap_limit, self._flap_per = settings.flap_limit, settings.flap_per

    async def reserve(self, notification: Notification, *, limited: bool) -> AsyncReservation:
        """Requests the window of this notification; `limited` counts it towards the limits as well."""
        alert, terms = notification.alert, self.terms(notification)
        details = {"id": notification.id, "trace": notification.trace}
        limits = self._limited(alert) if limited else {}
        return await self._once.reserve(key_of(alert), **terms, **limits, purpose=alert.name, details=details)

    def terms(self, notification: Notification) -> dict[str, Any]:
        """How long a notification like this is held, and then quiet."""
        alert = notification.alert
        policy = self.policies[alert.severity]
        if alert.status != FIRING:
            return {"hold": policy.hold, "quiet": MAX_OPEN}
        interval = self.remind(alert.severity) if notification.reminder else None
        return {"hold": policy.hold, "quiet": policy.quiet if interval is None else interval}

    def remind(self, severity: str) -> float | None:
        """Seconds between reminders of this severity, regardless of case; None: no reminders. A policy that leaves it
        out inherits the default, unless its severity has a built-in policy."""
        name = severity.casefold()
        return self._reminders.get(name) or (None if name in USUAL else self._reminders.get(DEFAULT))

    @property
    def counts_openings(self) -> bool:
        """True if alerts that open too often are suppressed."""
        return self._flap_limit > 0

    async def opening(self, alert: Alert) -> AsyncAdmission:
        """Counts an opening of this alert; refused if there were too many."""
        key = own(f"openings/{part_of(subject_of(alert))}")
        return await self._once.limit(key, limit=self._flap_limit, per=self._flap_per)

    def is_last(self, opening: AsyncAdmission) -> bool:
        """True if the next openings are refused."""
        return opening.hits >= self._flap_limit

    def _limited(self, alert: Alert) -> dict[str, Any]:
        """The limit of this alert, and the one that all alerts of its severity share; a resolved one has none."""
        if alert.status != FIRING:
            return {}
        policy, shared = self.policies[alert.severity], self.shared_limits.get(alert.severity.casefold())
        key = own(f"severity/{part_of(alert.severity.casefold())}")
        group = (key, shared.limit, shared.per) if shared is not None else None
        return {"limit": policy.limit, "per": policy.per, "group": group}
