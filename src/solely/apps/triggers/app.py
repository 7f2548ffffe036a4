"""The task-trigger API as the service mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...kit import Figure, Route
from .api import runs, triggering
from .figures import FIGURES
from .runtime import TriggersRuntime


class TriggersApp(TriggersRuntime):
    """Same idempotency key, same run id, always."""

    name = "triggers"
    title = "Triggers"
    about = "Same idempotency key, same run id, always, through a burst buffer."
    figures: ClassVar[tuple[Figure, ...]] = FIGURES

    def routes(self) -> Sequence[Route]:
        """The endpoints of callers."""
        return [route for module in (triggering, runs) for route in module.routes(self)]
