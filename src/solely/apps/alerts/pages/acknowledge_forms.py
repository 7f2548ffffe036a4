"""Acknowledging on the pages: who may send alerts may say that somebody is at it, and take that back."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.responses import Response

from ....rules import duration
from ....service.dashboard.rendering import WRITE_PAGE, Page, View, acted, show
from ....service.routes import Answer, Body, Call, Route
from ..api import windows
from ..api.acknowledgements import Comment, Severity, acknowledge, unacknowledge
from ..api.admin import Fingerprint
from ..suppression.acknowledgements import Acknowledgement
from .admin_forms import Duration

if TYPE_CHECKING:
    from ..app import App

PAGE = Page("Acknowledge an alert", "alerts:acknowledge.html", "/alerts")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


class AcknowledgeQuery(View):
    """Which alert, or group."""

    fingerprint: Fingerprint


class Acknowledge(Body):
    """For how long, as 30m or 2h; of one severity, or of all if it is empty; and what for."""

    fingerprint: Fingerprint
    lasts: Duration
    severity: Severity = ""
    comment: Comment = ""


class Unacknowledge(Body):
    """It is to be told again."""

    fingerprint: Fingerprint


class AboutToAcknowledge(Answer):
    """What is acknowledged already, for how long it would be from now on (as a duration), and the severities known."""

    fingerprint: str
    acknowledged: Acknowledgement | None
    lasts: str
    severities: list[str]


class AcknowledgeForms:
    """The acts of one worker's application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def asking(self, call: Call[None, AcknowledgeQuery]) -> object:
        """Asks for how long somebody is at it."""
        fingerprint = call.query.fingerprint

        async def look() -> AboutToAcknowledge:
            found = await windows.of_fingerprint(self._app.once, self._app.history, fingerprint)
            return AboutToAcknowledge(
                fingerprint=fingerprint,
                acknowledged=await self._app.parts.acknowledgements.of_fingerprint(fingerprint),
                lasts=_as_text(self._app.settings.ack_for),
                severities=sorted({window.severity for window in found if window.severity}),
            )

        return await show(call, PAGE, look)

    async def acknowledge(self, call: Call[Acknowledge, None]) -> Response:
        """Nobody is told again."""
        wanted = call.body

        async def act() -> str:
            made = await acknowledge(
                self._app,
                wanted.fingerprint,
                by=call.principal.name,
                severity=wanted.severity,
                lasts=duration(wanted.lasts),
                comment=wanted.comment,
            )
            return _why(wanted.fingerprint, made is not None)

        return await acted(call, PAGE, act)

    async def unacknowledge(self, call: Call[Unacknowledge, None]) -> Response:
        """People are told again."""

        async def act() -> str:
            removed = await unacknowledge(self._app, call.body.fingerprint, by=call.principal.name)
            return _why(call.body.fingerprint, removed)

        return await acted(call, PAGE, act)


def _as_text(seconds: float) -> str:
    """The duration as people write it."""
    size, unit = next((each for each in _UNITS if seconds % each[0] == 0), (1, "s"))
    return f"{seconds / size:g}{unit}"


def _why(fingerprint: str, done: bool) -> str:
    """Where it can be seen that it was done, or that it could not be."""
    told = {"fingerprint": fingerprint} | ({} if done else {"note": "moved-on"})
    return f"/alerts/why?{urlencode(told)}"


def routes(app: App) -> list[Route]:
    """All of them."""
    forms = AcknowledgeForms(app)
    return [
        Route(
            "GET",
            "/alerts/acknowledge",
            WRITE_PAGE,
            forms.asking,
            PAGE.title,
            query=AcknowledgeQuery,
            hidden=True,
        ),
        Route(
            "POST",
            "/alerts/acknowledge",
            WRITE_PAGE,
            forms.acknowledge,
            PAGE.title,
            body=Acknowledge,
            form=True,
            hidden=True,
        ),
        Route(
            "POST",
            "/alerts/unacknowledge",
            WRITE_PAGE,
            forms.unacknowledge,
            PAGE.title,
            body=Unacknowledge,
            form=True,
            hidden=True,
        ),
    ]
