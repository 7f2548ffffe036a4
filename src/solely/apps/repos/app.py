"""The application as the service mounts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...kit import AppPage, Attention, Chart, Figure, Route, Service, listed
from . import api
from . import pages as repos_pages
from .charts import CHARTS
from .demo import demo
from .figures import FIGURES
from .model import UNREAD
from .runtime import ReposRuntime
from .settings import ReposSettings
from .webhooks import endpoints, routes


class ReposApp(ReposRuntime):
    """Each job of GitLab, GitHub and Jira once, one at a time in each repository."""

    name = "repos"
    title = "Repositories"
    about = "Each review, command and issue is performed once, and one at a time in each repository."
    figures: ClassVar[tuple[Figure, ...]] = FIGURES
    charts: ClassVar[tuple[Chart, ...]] = CHARTS
    pages: ClassVar[tuple[AppPage, ...]] = (AppPage("Repositories", "/repos", about),)
    secrets: ClassVar[tuple[str, ...]] = ("gitlab", "github", "jira", "jobs")

    def __init__(self, service: Service, settings: ReposSettings) -> None:
        super().__init__(service, settings)
        self.webhooks = endpoints(self)

    def routes(self) -> Sequence[Route]:
        """The endpoints of webhooks, lists and acts, and the pages."""
        return [*routes(self.webhooks), *api.routes(self), *repos_pages.routes(self)]

    async def attention(self) -> Sequence[Attention]:
        """Sources that have not been polled for too long. A job that failed for good is a dead letter."""
        names = [each.name for each in self.pollers.overdue()]
        text = f"{len(names)} {'source is' if len(names) == 1 else 'sources are'} not polled: {listed(names)}"
        return [Attention(level="error", text=text, link="/repos")] if names else []

    async def start(self) -> None:
        """Starts the parts; what could not be read can be replayed."""
        await super().start()
        self.service.dashboard.replays[self.own(UNREAD)] = self._read_again

    async def _read_again(self, payload: Mapping[str, Any]) -> None:
        """Reads a webhook's request again. A listed item is replayed by the poller, once its watermark is rewound."""
        if "forge" not in payload:
            raise ValueError(
                f"rewind the watermark of {payload.get('source')} instead (solely repos rewind), so that it is listed"
            )
        await self.webhooks[str(payload["forge"])].replay(payload)

    async def demo(self) -> None:
        """Performs made-up jobs if no forge and no command is set: nothing real gets them."""
        if not self.callers and not self.settings.jobs.any:
            await demo(self)
