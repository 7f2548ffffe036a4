"""Forms to acknowledge an alert and to undo that, for callers with the scope WRITE."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from ....service.dashboard.rendering import WRITE_PAGE, Page, View, acted, show
from ....service.routes import Answer, Call, Route
from ..api import windows
from ..api.acknowledgements import Acknowledge, Unacknowledge, acknowledge, unacknowledge
from ..model import Text
from ..runtime import AlertsRuntime, Handlers
from ..suppression.acknowledgements import Acknowledgement

PAGE = Page("Acknowledge an alert", "alerts:acknowledge.html", "/alerts")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


class AcknowledgeQuery(View):
    """The alert, or group, to acknowledge."""

    fingerprint: Text


class AboutToAcknowledge(Answer):
    """The current acknowledgement, the default duration of a new one, and the severities that have windows."""

    fingerprint: str
    acknowledged: Acknowledgement | None
    lasts: str
    severities: list[str]


class AcknowledgeForms(Handlers):
    """The handlers."""

    async def asking(self, call: Call[None, AcknowledgeQuery]) -> object:
        """Shows the form."""
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
        """Acknowledges the alert."""

        async def act() -> str:
            made = await acknowledge(self._app, call.body, by=call.principal.name)
            return _why(call.body.fingerprint, made is not None)

        return await acted(call, PAGE, act)

    async def unacknowledge(self, call: Call[Unacknowledge, None]) -> Response:
        """Removes the acknowledgement."""

        async def act() -> str:
            removed = await unacknowledge(self._app, call.body.fingerprint, by=call.principal.name)
            return _why(call.body.fingerprint, removed)

        return await acted(call, PAGE, act)


def _as_text(seconds: float) -> str:
    """The duration as text, such as 2h."""
    size, unit = next((each for each in _UNITS if seconds % each[0] == 0), (1, "s"))
    return f"{seconds / size:g}{unit}"


def _why(fingerprint: str, done: bool) -> str:
    """The page to show afterwards, which says whether it was done."""
    query = {"fingerprint": fingerprint} | ({} if done else {"note": "moved-on"})
    return f"/alerts/why?{urlencode(query)}"


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of the forms."""
    forms = AcknowledgeForms(app)
    return [
        Route("GET", "/alerts/acknowledge", WRITE_PAGE, forms.asking, PAGE.title, hidden=True),
        Route("POST", "/alerts/acknowledge", WRITE_PAGE, forms.acknowledge, PAGE.title, form=True, hidden=True),
        Route("POST", "/alerts/unacknowledge", WRITE_PAGE, forms.unacknowledge, PAGE.title, form=True, hidden=True),
    ]
