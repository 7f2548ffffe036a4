"""The other names of the kit, which need what the service needs; imported all at once."""

from __future__ import annotations

from ..outgoing import (
    HOST_NAME,
    MOST_REDIRECTS,
    AddressRefused,
    AtOnce,
    Attempts,
    Caller,
    CallFailed,
    GuardedConnector,
    NextPage,
    NotCalled,
    OutgoingSettings,
    PeerTls,
    Request,
    Response,
    Stream,
    Timeout,
    Timings,
    TooManyRedirects,
    by_header,
    by_link,
    by_offset,
    by_token,
    check_header,
    check_network,
    check_url,
    sanitized,
    watched,
    watching,
)
from ..outgoing.receivers import (
    MailReceiver,
    NamedReceiver,
    ProgramReceiver,
    Receiver,
    UrlReceiver,
    WebhookReceiver,
    check_bounds,
    check_names,
)
from ..outgoing.receivers import Name as ReceiverName
from ..outgoing.senders import MailSender, ProgramSender, RequestSender, Sender
from ..outgoing.signing import SECRET_PREFIX, sign, signing_key
from ..outgoing.smtp import ForeignSubject, Mailer, MailServer, Security
from ..programs import Ended, NotStarted, Program
from ..programs import run as run_program
from ..schedules.timetable import check_schedule
from ..service.acts import Affected, act_routes
from ..service.announce import Announcement
from ..service.api.reservations import Limit, Quiet
from ..service.application import Acts, Application, AppPage, Job, Service
from ..service.attention import Attention, listed
from ..service.background import Background
from ..service.body_tokens import BodyToken
from ..service.charts.lines import Chart, Line, added, total
from ..service.dashboard.formatting import at, span
from ..service.dashboard.rendering import ADMIN_PAGE, READ_PAGE, WRITE_PAGE, Page, View, acted, show, show_to_all
from ..service.figures import HOLD, LATENCY, Figure
from ..service.listings import Rows, list_page, list_route
from ..service.matchers import MAX_MATCHER, MOST_MATCHERS, Matcher, parse_matchers, selective_matchers
from ..service.metrics import Metrics
from ..service.notes import NOTES_PAGE, Notes
from ..service.openapi import inlined_schema
from ..service.patterns import Turns, check_pattern, search_pattern
from ..service.problems import AWAY, BUSY, INVALID, LIMITED, LOST, TOO_MANY, UNKNOWN, Problem, problem_of
from ..service.quotas import RequestLimit
from ..service.routes import (
    ADMIN,
    KIB,
    PUBLIC,
    READ,
    WRITE,
    Call,
    JsonResponse,
    Route,
    Webhook,
    timestamp,
)
from ..service.security import LOCAL, Principal, Scope, same
from ..service.times import AnyDuration, AnyMoment, Moment, duration_of, moment_of
from ..service.tracing import Tracing
from ..service.visibility import is_hidden_name
from ..service.why import Explained, Explainer

__all__ = [
    "ADMIN",
    "ADMIN_PAGE",
    "AWAY",
    "BUSY",
    "HOLD",
    "HOST_NAME",
    "INVALID",
    "KIB",
    "LATENCY",
    "LIMITED",
    "LOCAL",
    "LOST",
    "MAX_MATCHER",
    "MOST_MATCHERS",
    "MOST_REDIRECTS",
    "NOTES_PAGE",
    "PUBLIC",
    "READ",
    "READ_PAGE",
    "SECRET_PREFIX",
    "TOO_MANY",
    "UNKNOWN",
    "WRITE",
    "WRITE_PAGE",
    "Acts",
    "AddressRefused",
    "Affected",
    "Announcement",
    "AnyDuration",
    "AnyMoment",
    "AppPage",
    "Application",
    "AtOnce",
    "Attempts",
    "Attention",
    "Background",
    "BodyToken",
    "Call",
    "CallFailed",
    "Caller",
    "Chart",
    "Ended",
    "Explained",
    "Explainer",
    "Figure",
    "ForeignSubject",
    "GuardedConnector",
    "Job",
    "JsonResponse",
    "Limit",
    "Line",
    "MailReceiver",
    "MailSender",
    "MailServer",
    "Mailer",
    "Matcher",
    "Metrics",
    "Moment",
    "NamedReceiver",
    "NextPage",
    "NotCalled",
    "NotStarted",
    "Notes",
    "OutgoingSettings",
    "Page",
    "PeerTls",
    "Principal",
    "Problem",
    "Program",
    "ProgramReceiver",
    "ProgramSender",
    "Quiet",
    "Receiver",
    "ReceiverName",
    "Request",
    "RequestLimit",
    "RequestSender",
    "Response",
    "Route",
    "Rows",
    "Scope",
    "Security",
    "Sender",
    "Service",
    "Stream",
    "Timeout",
    "Timings",
    "TooManyRedirects",
    "Tracing",
    "Turns",
    "UrlReceiver",
    "View",
    "Webhook",
    "WebhookReceiver",
    "act_routes",
    "acted",
    "added",
    "at",
    "by_header",
    "by_link",
    "by_offset",
    "by_token",
    "check_bounds",
    "check_header",
    "check_names",
    "check_network",
    "check_pattern",
    "check_schedule",
    "check_url",
    "duration_of",
    "inlined_schema",
    "is_hidden_name",
    "list_page",
    "list_route",
    "listed",
    "moment_of",
    "parse_matchers",
    "problem_of",
    "run_program",
    "same",
    "sanitized",
    "search_pattern",
    "selective_matchers",
    "show",
    "show_to_all",
    "sign",
    "signing_key",
    "span",
    "timestamp",
    "total",
    "watched",
    "watching",
]
