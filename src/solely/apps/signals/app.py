"""The service half of signals as the service mounts it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from ...kit import AppPage, Attention, Chart, Figure, Job, Route
from . import api, pages
from .charts import CHARTS
from .demo import demo
from .figures import FIGURES
from .runtime import FLAG, SignalsRuntime

_FLAG = 1.0  # seconds until a flag that another worker switched applies here
_REPORT = 60.0  # seconds between the lines with the metrics, as the document says
_RETENTION = 3600.0  # seconds between deletions of acknowledged signals, which are kept for weeks


class SignalsApp(SignalsRuntime):
    """Writes each signal that producers post once per credential and window."""

    name = "signals"
    title = "Signals"
    about = "Each signal once, however many producers post it."
    figures: ClassVar[tuple[Figure, ...]] = FIGURES
    charts: ClassVar[tuple[Chart, ...]] = CHARTS
    pages: ClassVar[tuple[AppPage, ...]] = (AppPage("Signals", "/signals", about),)

    async def attention(self) -> Sequence[Attention]:
        """That idempotent signals are switched off, until somebody switches them on again; and contention. Signals that
        failed are dead letters, and an open breaker means that the store is unreachable."""
        off, contended = await asyncio.gather(self.flag.read(FLAG), self._is_contended())
        switched_off = "idempotent signals are switched off: everything that is posted is written"
        texts = [switched_off] if off is not None else []
        if contended:
            texts.append("more than half of the attempts at groups of signals found another producer, in 5 minutes")
        return [Attention(level="warning", text=text, link="/signals") for text in texts]

    def routes(self) -> Sequence[Route]:
        """The endpoints of producers, consumers and operators, and the page."""
        return [*api.routes(self), *pages.routes(self)]

    def jobs(self) -> Sequence[Job]:
        """Reads the flag, reports, and deletes what is too old."""
        return (
            Job("flag", _FLAG, self.read_flag),
            Job("report", _REPORT, self.report),
            Job("retention", _RETENTION, self._delete_old),
        )

    async def demo(self) -> None:
        """Posts sample signals and consumes them."""
        await demo(self)

    async def _delete_old(self) -> None:
        await self.table.sweep(self.settings.retention)
