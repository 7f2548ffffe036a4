"""What publishers share: a name, the alerts that they want, and bounded attempts to send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .... import AsyncClient
from ....kit import Attempts, Caller, CallFailed, Request
from ..model import Alert, Notification, own
from .settings import CommandSettings, EmailSettings, PublisherSettings, SlackSettings, WebhookSettings

S = TypeVar("S", bound=PublisherSettings)
P = TypeVar("P", bound=WebhookSettings | SlackSettings)

PublishFailed = CallFailed  # the receiver does not have the notification, as far as is known


class MatchingPublisher(Generic[S]):
    """A publisher that wants the alerts that its settings match."""

    def __init__(self, settings: S) -> None:
        self.name = settings.name
        self._settings = settings

    def wants(self, alert: Alert) -> bool:
        """True if its `match` selects this alert."""
        return self._settings.match.fits(alert)

    async def close(self) -> None:
        """Closes its connections; safe to call twice."""


class PostPublisher(MatchingPublisher[P]):
    """Posts each notification as the request that `request` makes of it."""

    def __init__(self, settings: P, once: AsyncClient, request: Callable[[Notification, P], Request]) -> None:
        super().__init__(settings)
        self._request = request
        self._caller = Caller(self.name, settings.outgoing(), once=once, breaker=_breaker(self.name))

    async def publish(self, notification: Notification) -> None:
        """Returns when the receiver has it; else raises PublishFailed."""
        await self._caller.call_ok(self._request(notification, self._settings))

    async def close(self) -> None:
        """Closes its connections; safe to call twice."""
        await self._caller.close()


def attempts_of(settings: CommandSettings | EmailSettings, once: AsyncClient) -> Attempts:
    """Attempts to send, within the bounds of the settings."""
    name, timeout, at_once = settings.name, settings.timeout, settings.at_once
    return Attempts(name, timeout=timeout, at_once=at_once, once=once, breaker=_breaker(name))


def _breaker(publisher: str) -> str:
    return own(f"publishers/{publisher}")
