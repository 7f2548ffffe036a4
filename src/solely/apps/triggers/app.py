"""The task-trigger API as the service mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...kit import Application, Figure, Route, Service
from .settings import TriggersSettings
from .work.api import WorkApi
from .work.figures import FIGURES as WORK_FIGURES


class TriggersApp(Application[TriggersSettings]):
    """Same idempotency key, same run id, always."""

    name = "triggers"
    title = "Triggers"
    about = "Same idempotency key, same run id, always, through a burst buffer."
    figures: ClassVar[tuple[Figure, ...]] = WORK_FIGURES

    def __init__(self, service: Service, settings: TriggersSettings) -> None:
        super().__init__(service, settings)
        self.work = WorkApi(self)

    def routes(self) -> Sequence[Route]:
        """The endpoints of workers."""
        return self.work.routes()
