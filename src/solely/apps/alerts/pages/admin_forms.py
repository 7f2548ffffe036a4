"""What an admin does on the pages: end windows, make and end silences, each for a reason that is audited."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from ....rules import duration
from ....service.dashboard.rendering import ADMIN_PAGE, Page, View, acted, show
from ....service.problems import UNKNOWN, Problem
from ....service.routes import Answer, Body, Call, Reason, Route
from ..api import windows
from ..api.admin import Anything, Fingerprint
from ..api.silences import SilenceId
from ..api.windows import Window
from ..suppression.matchers import MAX_MATCHER, MOST_MATCHERS
from ..suppression.silences import Silence

if TYPE_CHECKING:
    from ..app import App

EXPIRE = Page("End a window", "alerts:expire.html", "/alerts")
SILENCE = Page("Silence alerts", "alerts:overview.html", "/alerts")
END = Page("End a silence", "alerts:end.html", "/alerts")
Lines = Annotated[str, msgspec.Meta(min_length=2, max_length=(MAX_MATCHER + 2) * MOST_MATCHERS)]
Which = Literal["one", "all"]
Duration = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]


class ExpireQuery(View):
    """Of this fingerprint, this window (without a severity, the one of the message that it is over); or all of them."""

    fingerprint: Fingerprint
    severity: Anything = ""
    which: Which = "one"


class Expire(Body):
    """The same, and why."""

    fingerprint: Fingerprint
    reason: Reason
    severity: Anything = ""
    which: Which = "one"

    @property
    def key(self) -> str:
        """For the audit log."""
        one = self.which == "one"
        return windows.key_of(self.fingerprint, self.severity) if one else windows.prefix_of(self.fingerprint)


class Expiring(Answer):
    """What is about to end."""

    fingerprint: str
    severity: str
    which: Which
    windows: list[Window]


class AddSilence(Body):
    """Matchers, one per line; for how long, as 30m or 2h; and why."""

    matchers: Lines
    lasts: Duration
    reason: Reason

    @property
    def key(self) -> str:
        """For the audit log."""
        return ", ".join(self.lines())

    def lines(self) -> list[str]:
        """The matchers."""
        return [line.strip() for line in self.matchers.splitlines() if line.strip()]


class EndQuery(View):
    """Which silence."""

    id: SilenceId


class EndSilence(Body):
    """The same, and why."""

    id: SilenceId
    reason: Reason

    @property
    def key(self) -> str:
        """For the audit log."""
        return self.id


class Ending(Answer):
    """The silence that is about to end."""

    silence: Silence


class AdminForms:
    """The acts of one worker's application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def expiring(self, call: Call[None, ExpireQuery]) -> object:
        """Asks why a window is to end."""
        asked = call.query

        async def look() -> Expiring:
            found = await windows.of_fingerprint(self._app.once, self._app.history, asked.fingerprint)
            meant = [window for window in found if asked.which == "all" or window.severity == asked.severity]
            if not meant:
                raise Problem(UNKNOWN, "There is no such window any more: the next alert is told.")
            return Expiring(fingerprint=asked.fingerprint, severity=asked.severity, which=asked.which, windows=meant)

        return await show(call, EXPIRE, look)

    async def expire(self, call: Call[Expire, None]) -> Response:
        """Ends it."""
        wanted, once = call.body, self._app.once

        async def act() -> str:
            if wanted.which == "one":
                ended = int(await windows.expire(once, wanted.fingerprint, wanted.severity, wanted.reason))
            else:
                ended = await windows.clear(once, wanted.fingerprint, wanted.reason)
            self._app.receiver.forget(wanted.fingerprint)
            told = {"fingerprint": wanted.fingerprint, "note": "ended" if ended else "moved-on"}
            return f"/alerts/why?{urlencode(told)}"

        return await acted(call, EXPIRE, act)

    async def silence(self, call: Call[AddSilence, None]) -> Response:
        """Makes a silence."""
        wanted = call.body

        async def act() -> str:
            ends = time.time() + duration(wanted.lasts)
            await self._app.silences.add(wanted.lines(), ends=ends, by=call.principal.name, reason=wanted.reason)
            return "/alerts?note=ended#silences"

        return await acted(call, SILENCE, act)

    async def ending(self, call: Call[None, EndQuery]) -> object:
        """Asks why a silence is to end."""

        async def look() -> Ending:
            found = [each for each in await self._app.silences.list(limit=1000) if each.id == call.query.id]
            if not found:
                raise Problem(UNKNOWN, "There is no such silence any more.")
            return Ending(silence=found[0])

        return await show(call, END, look)

    async def end(self, call: Call[EndSilence, None]) -> Response:
        """Ends it."""

        async def act() -> str:
            ended = await self._app.silences.expire(call.body.id, by=call.principal.name, reason=call.body.reason)
            return f"/alerts?note={'ended' if ended else 'moved-on'}#silences"

        return await acted(call, END, act)


def routes(app: App) -> list[Route]:
    """All of them."""
    forms = AdminForms(app)
    return [
        Route("GET", "/alerts/expire", ADMIN_PAGE, forms.expiring, EXPIRE.title, query=ExpireQuery, hidden=True),
        Route("POST", "/alerts/expire", ADMIN_PAGE, forms.expire, EXPIRE.title, body=Expire, form=True, hidden=True),
        Route(
            "POST",
            "/alerts/silences",
            ADMIN_PAGE,
            forms.silence,
            SILENCE.title,
            body=AddSilence,
            form=True,
            hidden=True,
        ),
        Route("GET", "/alerts/silences/end", ADMIN_PAGE, forms.ending, END.title, query=EndQuery, hidden=True),
        Route(
            "POST", "/alerts/silences/end", ADMIN_PAGE, forms.end, END.title, body=EndSilence, form=True, hidden=True
        ),
    ]
