"""The interface between the service and an application. Everything but its name, settings and routes is optional.

Beside its module, the package of an application may have `migrations/NNN_name.sql` (its tables, migrated before it
starts), `templates/` (loaded as `name:file.html`) and `cli.py` (whose `command` is `solely <name>`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec

from ..client import AsyncClient
from ..names import reserved
from .dashboard.state import AppPage
from .figures import Figure
from .routes import Route
from .service import Job, Service

__all__ = ["AppPage", "Application", "Figure", "Job", "Route", "Service"]

S = TypeVar("S", bound=msgspec.Struct)


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

    async def demo(self) -> None:
        """Generates sample traffic until it is cancelled."""
