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
from ..outgoing import (
    AtOnce,
    Attempts,
    Caller,
    CallFailed,
    NextPage,
    OutgoingSettings,
    Request,
    Response,
    Timeout,
    Timings,
    by_header,
    by_link,
    by_offset,
    by_token,
    check_header,
    check_network,
    check_url,
    sanitized,
)
from ..outgoing.receivers import MailReceiver, NamedReceiver, ProgramReceiver, Receiver, UrlReceiver, WebhookReceiver
from ..outgoing.receivers import Name as ReceiverName
from ..outgoing.signing import SECRET_PREFIX, sign, signing_key
from ..outgoing.smtp import ForeignSubject, Mailer, MailServer, Security
from ..programs import Ended, NotStarted, Program
from ..programs import run as run_program
from ..resilience import RETRY, Backoff
from ..rules import MAX_TTL, duration, seconds, ttl_seconds
from ..service.acts import Affected, act_routes
from ..service.announce import Announcement
from ..service.api.reservations import Limit, Quiet
from ..service.application import Application, AppPage, Job, Service
from ..service.body_tokens import BodyToken
from ..service.dashboard.formatting import at, span
from ..service.dashboard.history import total
from ..service.dashboard.rendering import ADMIN_PAGE, READ_PAGE, WRITE_PAGE, Page, View, acted, show
from ..service.figures import HOLD, LATENCY, Figure
from ..service.listings import Rows, list_route
from ..service.metrics import Metrics
from ..service.notes import NOTES_PAGE, Notes
from ..service.openapi import inlined_schema
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
    "NOTES_PAGE",
    "PUBLIC",
    "READ",
    "READ_PAGE",
    "RETRY",
    "SECRET_PREFIX",
    "TOO_MANY",
    "UNKNOWN",
    "WRITE",
    "WRITE_PAGE",
    "Affected",
    "Announcement",
    "Answer",
    "AppPage",
    "Application",
    "AtOnce",
    "Attempts",
    "Backoff",
    "Body",
    "BodyToken",
    "Call",
    "CallFailed",
    "Caller",
    "Database",
    "Ended",
    "Explained",
    "Explainer",
    "Figure",
    "ForeignSubject",
    "Job",
    "Journal",
    "JsonResponse",
    "Key",
    "Limit",
    "MailReceiver",
    "MailServer",
    "Mailer",
    "Metrics",
    "NamedReceiver",
    "NextPage",
    "NotStarted",
    "Notes",
    "OutgoingSettings",
    "Page",
    "PageSize",
    "Position",
    "Prefix",
    "Principal",
    "Problem",
    "Program",
    "ProgramReceiver",
    "Queries",
    "Quiet",
    "Reason",
    "Receiver",
    "ReceiverName",
    "Request",
    "RequestLimit",
    "Response",
    "Route",
    "Row",
    "Rows",
    "Scope",
    "Security",
    "Service",
    "SqlStatement",
    "Statements",
    "Timeout",
    "Timings",
    "Tracing",
    "Ttl",
    "UrlReceiver",
    "View",
    "Wait",
    "Webhook",
    "WebhookReceiver",
    "act_routes",
    "acted",
    "at",
    "begin_of",
    "by_header",
    "by_link",
    "by_offset",
    "by_token",
    "check_header",
    "check_network",
    "check_url",
    "duration",
    "from_row",
    "inlined_schema",
    "json_texts",
    "list_route",
    "part_of",
    "position_after",
    "problem_of",
    "reserved",
    "run_program",
    "sanitized",
    "seconds",
    "show",
    "sign",
    "signing_key",
    "span",
    "timestamp",
    "total",
    "ttl_seconds",
    "without_nul",
]
