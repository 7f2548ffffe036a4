"""Forms to end windows, and to make and end silences, each with a reason that is audited."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

from starlette.responses import Response

from ....service.dashboard.rendering import ADMIN_PAGE, Page, View, acted, show
from ....service.problems import UNKNOWN, Problem
from ....service.routes import Answer, Call, Route
from ..api import windows
from ..api.admin import Anything, ExpireWindow
from ..api.silences import AddSilence, ExpireSilence, SilenceId, add_silence
from ..api.windows import Window
from ..model import Text
from ..runtime import AlertsRuntime, Handlers
from ..suppression.silences import Silence

EXPIRE = Page("End a window", "alerts:expire.html", "/alerts")
SILENCE = Page("Silence alerts", "alerts:overview.html", "/alerts")
END = Page("End a silence", "alerts:end.html", "/alerts")
Which = Literal["one", "all"]


class ExpireQuery(View):
    """The window of this fingerprint and severity (empty: that of the resolved notification), or all of them."""

    fingerprint: Text
    severity: Anything = ""
    which: Which = "one"


class Expire(ExpireWindow):
    """The API's request, for one window or for all of the fingerprint."""

    which: Which = "one"

    @property
    def key(self) -> str:
        """For the audit log."""
        one = self.which == "one"
        return windows.key_of(self.fingerprint, self.severity) if one else windows.prefix_of(self.fingerprint)


class Expiring(Answer):
    """The windows that are about to end."""

    fingerprint: str
    severity: str
    which: Which
    windows: list[Window]


class EndSilenceQuery(View):
    """The silence to end."""

    id: SilenceId


class EndingSilence(Answer):
    """The silence that is about to end."""

    silence: Silence


class AdminForms(Handlers):
    """The handlers."""

    async def expiring(self, call: Call[None, ExpireQuery]) -> object:
        """Shows the form to end windows."""
        asked = call.query

        async def look() -> Expiring:
            found = await windows.of_fingerprint(self._app.once, self._app.history, asked.fingerprint)
            meant = [window for window in found if asked.which == "all" or window.severity == asked.severity]
            if not meant:
                raise Problem(UNKNOWN, "There is no such window any more: the next alert sends a notification.")
            return Expiring(fingerprint=asked.fingerprint, severity=asked.severity, which=asked.which, windows=meant)

        return await show(call, EXPIRE, look)

    async def expire(self, call: Call[Expire, None]) -> Response:
        """Ends the windows."""
        wanted, once = call.body, self._app.once

        async def act() -> str:
            if wanted.which == "one":
                ended = int(await windows.expire(once, wanted.fingerprint, wanted.severity, wanted.reason))
            else:
                ended = await windows.clear(once, wanted.fingerprint, wanted.reason)
            self._app.receiver.forget(wanted.fingerprint)
            query = {"fingerprint": wanted.fingerprint, "note": "ended" if ended else "moved-on"}
            return f"/alerts/why?{urlencode(query)}"

        return await acted(call, EXPIRE, act)

    async def silence(self, call: Call[AddSilence, None]) -> Response:
        """Adds a silence."""

        async def act() -> str:
            await add_silence(self._app, call.body, by=call.principal.name)
            return "/alerts?note=ended#silences"

        return await acted(call, SILENCE, act)

    async def ending(self, call: Call[None, EndSilenceQuery]) -> object:
        """Shows the form to end a silence."""

        async def look() -> EndingSilence:
            found = [each for each in await self._app.silences.list(limit=1000) if each.id == call.query.id]
            if not found:
                raise Problem(UNKNOWN, "There is no such silence any more.")
            return EndingSilence(silence=found[0])

        return await show(call, END, look)

    async def end(self, call: Call[ExpireSilence, None]) -> Response:
        """Ends the silence."""

        async def act() -> str:
            ended = await self._app.silences.expire(call.body.id, by=call.principal.name, reason=call.body.reason)
            return f"/alerts?note={'ended' if ended else 'moved-on'}#silences"

        return await acted(call, END, act)


def routes(app: AlertsRuntime) -> list[Route]:
    """The routes of the forms."""
    forms = AdminForms(app)
    return [
        Route("GET", "/alerts/expire", ADMIN_PAGE, forms.expiring, EXPIRE.title, hidden=True),
        Route("POST", "/alerts/expire", ADMIN_PAGE, forms.expire, EXPIRE.title, form=True, hidden=True),
        Route("POST", "/alerts/silences", ADMIN_PAGE, forms.silence, SILENCE.title, form=True, hidden=True),
        Route("GET", "/alerts/silences/end", ADMIN_PAGE, forms.ending, END.title, hidden=True),
        Route("POST", "/alerts/silences/end", ADMIN_PAGE, forms.end, END.title, form=True, hidden=True),
    ]
