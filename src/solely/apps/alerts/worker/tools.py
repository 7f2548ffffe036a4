"""What all parts of the alert receiver stand on, in one hand."""

from __future__ import annotations

from typing import NamedTuple

from .... import AsyncClient
from ....service.metrics import Metrics
from ..records.history import History
from ..settings import AlertsSettings
from ..tracing import Tracing
from .capacity import Capacity
from .recent import Recent


class Tools(NamedTuple):
    """The store, the settings, what this worker knows and has under way, and who is told of what happens."""

    once: AsyncClient
    settings: AlertsSettings
    recent: Recent
    capacity: Capacity
    history: History
    metrics: Metrics
    tracing: Tracing
