"""The names of the kit, imported all at once."""

from __future__ import annotations

from ..data import (
    DAY,
    HOUR,
    Database,
    Journal,
    Position,
    Queries,
    Row,
    SqlStatement,
    Statements,
    begin_of,
    position_after,
    without_nul,
)
from ..names import part_of, reserved
from ..resilience import RETRY, Backoff
from ..rules import MAX_TTL, duration, seconds, ttl_seconds
from ..service.announce import Announcement
from ..service.api.reservations import Limit, Quiet
from ..service.application import Application, AppPage, Job, Service
from ..service.dashboard.formatting import at, span
from ..service.dashboard.history import total
from ..service.dashboard.rendering import ADMIN_PAGE, READ_PAGE, WRITE_PAGE, Page, View, acted, show
from ..service.figures import HOLD, LATENCY, Figure
from ..service.metrics import Metrics
from ..service.problems import AWAY, INVALID, LIMITED, TOO_MANY, UNKNOWN, Problem, problem_of
from ..service.quotas import RequestLimit
from ..service.records import from_row, json_texts
from ..service.routes import (
    ADMIN,
    KIB,
    PUBLIC,
    READ,
    WRITE,
    Answer,
    Body,
    Call,
    JsonResponse,
    Key,
    PageSize,
    Prefix,
    Reason,
    Route,
    Ttl,
    Wait,
    Webhook,
    timestamp,
)
from ..service.security import LOCAL, Principal, Scope
from ..service.tracing import Tracing
from ..service.why import Explained, Explainer

__all__ = [
    "ADMIN",
    "ADMIN_PAGE",
    "AWAY",
    "DAY",
    "HOLD",
    "HOUR",
    "INVALID",
    "KIB",
    "LATENCY",
    "LIMITED",
    "LOCAL",
    "MAX_TTL",
    "PUBLIC",
    "READ",
    "READ_PAGE",
    "RETRY",
    "TOO_MANY",
    "UNKNOWN",
    "WRITE",
    "WRITE_PAGE",
    "Announcement",
    "Answer",
    "AppPage",
    "Application",
    "Backoff",
    "Body",
    "Call",
    "Database",
    "Explained",
    "Explainer",
    "Figure",
    "Job",
    "Journal",
    "JsonResponse",
    "Key",
    "Limit",
    "Metrics",
    "Page",
    "PageSize",
    "Position",
    "Prefix",
    "Principal",
    "Problem",
    "Queries",
    "Quiet",
    "Reason",
    "RequestLimit",
    "Route",
    "Row",
    "Scope",
    "Service",
    "SqlStatement",
    "Statements",
    "Tracing",
    "Ttl",
    "View",
    "Wait",
    "Webhook",
    "acted",
    "at",
    "begin_of",
    "duration",
    "from_row",
    "json_texts",
    "part_of",
    "position_after",
    "problem_of",
    "reserved",
    "seconds",
    "show",
    "span",
    "timestamp",
    "total",
    "ttl_seconds",
    "without_nul",
]
