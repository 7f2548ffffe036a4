"""The interface between the service and an application. Everything but its name, settings and routes is optional.

Beside its module, the package of an application may have `migrations/NNN_name.sql` (its tables, migrated before it
starts), `templates/` (loaded as `name:file.html`) and `cli.py` (whose `command` is `solely <name>`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Generic, Literal, TypeVar

import msgspec

from ..client import AsyncClient
from ..data import Journal, SqlStatement
from ..data.journal import MOST
from ..names import reserved
from .announce import Announcement
from .dashboard.state import AppPage
from .figures import Figure
from .routes import Route
from .service import Job, Service
from .tracing import Tracing

__all__ = ["AppPage", "Application", "Figure", "Job", "Route", "Service"]

S = TypeVar("S", bound=msgspec.Struct)

JOURNAL_DROPPED = Figure("solely_journal_dropped", "Rows that an application's full journal did not keep", ("app",))


class Application(Generic[S]):
    """What `solely serve` mounts. Each worker has one instance, created before its service opens."""

    name: ClassVar[str]  # as in APPS: also its section of the settings, its noun, and the prefix of its templates
    title: ClassVar[str]  # for people
    about: ClassVar[str] = ""  # in one sentence
    Settings: ClassVar[type[msgspec.Struct]]  # all fields have defaults; invalid combinations raise ValueError
    figures: ClassVar[tuple[Figure, ...]] = ()  # its metrics, for count, observe and gauge of service.metrics
    pages: ClassVar[tuple[AppPage, ...]] = ()  # shown in the navigation of the dashboard
    secrets: ClassVar[tuple[str, ...]] = ()  # fields of Settings whose values are never shown
    once: AsyncClient  # its own client, from `start` on: it writes only names that `own` returned, and nobody else does

    def __init__(self, service: Service, settings: S) -> None:
        self.service = service  # not open yet
        self.settings = settings

    @classmethod
    def own(cls, name: str) -> str:
        """The name (of a key, a queue, …) in the application's own namespace of the store."""
        return reserved(cls.name, name)

    def routes(self) -> Sequence[Route]:
        """Its endpoints, whose handlers are its methods."""
        return ()

    def jobs(self) -> Sequence[Job]:
        """Its background work."""
        return ()

    async def start(self) -> None:
        """Called once before the first request: `once` is open, and service.data if there are migrations."""

    async def stop(self) -> None:
        """Called once after the last request and job, if it was started: `once` and service.data are still open."""

    async def announce(
        self,
        name: str,
        *,
        fingerprint: str,
        severity: str = "warning",
        summary: str = "",
        labels: Mapping[str, str] | None = None,
        status: Literal["firing", "resolved"] = "firing",
    ) -> None:
        """Raises or resolves an alert of this application, see `announce.Announcement`. Never raises: a failed delivery
        is logged. The application's name is the source and the beginning of the fingerprint, so that two applications
        never announce the same alert."""
        mine = f"{self.name}/{fingerprint}"
        await self.service.announce(Announcement(name, severity, self.name, mine, summary, dict(labels or {}), status))

    def journal(self, record: SqlStatement, *, order: Sequence[str], most: int = MOST) -> Journal:
        """A journal in service.data, from `start` on; see `data.Journal`. What it drops is counted in the metrics."""
        return Journal(self.service.data, record, order=order, most=most, on_drop=self.count_dropped)

    def count_dropped(self) -> None:
        """Counts a row that a journal of this application dropped."""
        self.service.metrics.count(JOURNAL_DROPPED, self.name)

    @cached_property
    def tracing(self) -> Tracing:
        """Creates spans of this application, from `start` on; none without telemetry."""
        return Tracing.on(f"solely.{self.name}") if self.service.telemetry is not None else Tracing()

    async def demo(self) -> None:
        """Generates sample traffic until it is cancelled."""
