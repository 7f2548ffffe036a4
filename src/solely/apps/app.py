"""App: what an application is to the service that mounts it. All but its name, settings and routes may be left out.

Beside its module, the package of an application may have `migrations/NNN_name.sql` (its tables, which are brought up
to date before it starts), `templates/` (found as `name:file.html`) and `cli.py` (whose `command` is `solely <name>`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from ..client import AsyncClient
from ..names import reserved
from ..service.dashboard.state import AppPage
from ..service.figures import Figure
from ..service.routes import Route
from ..service.service import Service

__all__ = ["App", "AppPage", "Figure", "Job", "Route", "Service"]

S = TypeVar("S", bound=msgspec.Struct)


class Job(NamedTuple):
    """Work that each worker does again and again, about every so many seconds; should it fail, it is done again."""

    name: str
    every: float
    work: Callable[[], Awaitable[object]]


class App(Generic[S]):
    """What `solely serve` mounts. Each worker has one, from before its service opens until that is closed."""

    name: ClassVar[str]  # as in APPS: also its section of the settings, its noun, and the prefix of its templates
    title: ClassVar[str]  # for people
    about: ClassVar[str] = ""  # in one sentence
    Settings: ClassVar[type[msgspec.Struct]]  # all fields have defaults; those that are wrong together: ValueError
    figures: ClassVar[tuple[Figure, ...]] = ()  # its metrics, for count, observe and gauge of service.metrics
    pages: ClassVar[tuple[AppPage, ...]] = ()  # shown in the navigation of the dashboard
    secrets: ClassVar[tuple[str, ...]] = ()  # fields of Settings whose values nobody is shown
    once: AsyncClient  # its own, from `start` on: writes only names that `own` made, which nobody else may write

    def __init__(self, service: Service, settings: S) -> None:
        self.service = service  # not open yet
        self.settings = settings

    @classmethod
    def own(cls, name: str) -> str:
        """The name, of a key, a queue or whatever else it keeps in the store, as one of its own."""
        return reserved(cls.name, name)

    def routes(self) -> Sequence[Route]:
        """Its endpoints, whose handlers are its methods."""
        return ()

    def jobs(self) -> Sequence[Job]:
        """What is done beside the requests."""
        return ()

    async def start(self) -> None:
        """Called once before the first request: `once` is open, and service.data where there are migrations."""

    async def stop(self) -> None:
        """Called once after the last request and job, if it was started: both are open still."""

    async def demo(self) -> None:
        """Believable traffic, beside the service's own, until it is cancelled."""
