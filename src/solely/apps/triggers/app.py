"""The task-trigger API as the service mounts it."""

from __future__ import annotations

from ...kit import Application
from .settings import TriggersSettings


class TriggersApp(Application[TriggersSettings]):
    """Same idempotency key, same run id, always."""

    name = "triggers"
    title = "Triggers"
    about = "Same idempotency key, same run id, always, through a burst buffer."
