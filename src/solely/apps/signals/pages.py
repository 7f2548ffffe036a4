"""The page of signals: the flag, rates, groups, dead letters and the signals that wait."""

from __future__ import annotations

from ...kit import READ_PAGE, Answer, Call, Figure, Page, Route, View, show, total
from . import figures
from .api import SignalHandlers
from .bodies import DeadSignal, DeadSignalsQuery, SignalGroupRow
from .charts import CHARTS
from .model import LETTERS
from .runtime import FLAG, LATELY, SignalsRuntime
from .table import StoredSignal

OVERVIEW = Page("Signals", "signals:overview.html", "/signals", CHARTS)
FRESH = 1.0  # seconds that the page's data are shared by all viewers
GROUPS = 50  # on the page; the command lists more
NEXT = 10  # signals on the page: what consumers get soon
LETTERS_SHOWN = 20  # dead letters on the page; the rest is behind a link


class SignalsOverview(Answer):
    """The data of the page. Figures are those of the last five minutes of this service; `by` and `why` are set if
    somebody switched idempotent signals off. `latency` has P50 and P99 of this worker in ms."""

    on: bool
    by: str
    why: str
    generated: int
    deduplicated: int
    contention: float
    breaker: str
    latency: tuple[float, float]
    groups: list[SignalGroupRow]
    dead_letters: list[DeadSignal]
    more_letters: bool
    next: list[StoredSignal]
    letters: str


class SignalPages:
    """The handler of the page."""

    def __init__(self, app: SignalsRuntime) -> None:
        self._app, self._api = app, SignalHandlers(app)

    async def overview(self, call: Call[None, View]) -> object:
        """The page."""
        views = call.service.dashboard.views
        return await show(call, OVERVIEW, lambda: views.share("signals", FRESH, self._overview))

    async def _overview(self) -> SignalsOverview:
        app, metrics = self._app, self._app.generator.metrics.snapshot()
        off = await app.flag.read(FLAG)
        letters = await self._api.dead_letters(DeadSignalsQuery(limit=LETTERS_SHOWN))
        acquired, contended = self._count(figures.LOCK_ACQUIRED), self._count(figures.LOCK_CONTENTION)
        return SignalsOverview(
            on=app.generator.use_idempotent_signals,
            by=off.by if off else "",
            why=off.reason if off else "",
            generated=self._count(figures.GENERATED),
            deduplicated=self._count(figures.DEDUPLICATED),
            contention=contended / (acquired + contended) if acquired + contended else 0.0,
            breaker=app.generator.breaker.state().value,
            latency=(metrics["signals.latency_ms.p50"], metrics["signals.latency_ms.p99"]),
            groups=await self._api.groups_since(LATELY, GROUPS),
            dead_letters=letters.rows,
            more_letters=letters.next is not None,
            next=await app.table.waiting(limit=NEXT),
            letters=app.own(LETTERS),
        )

    def _count(self, figure: Figure) -> int:
        return self._app.service.dashboard.history.count(total(figure))


def routes(app: SignalsRuntime) -> list[Route]:
    """The route of the page."""
    return [Route("GET", "/signals", READ_PAGE, SignalPages(app).overview, OVERVIEW.title, hidden=True)]
