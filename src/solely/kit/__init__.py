"""The kit: all that an application imports beside the library (`solely`); its `cli.py` imports `solely.kit.commands`.

- the application: Application, AppPage, Job, Service. Its methods open and make what the service then runs and closes:
  `caller`, `journal`, `queries`, `queue`, `worker`, `every`, `announce`, `tracing`, `own`
- endpoints: Route, Call, Answer, Body, JsonResponse, KIB; READ, WRITE, ADMIN, PUBLIC, Webhook, BodyToken, same; the
  types of their fields (Key, Limit, PageSize, Prefix, Quiet, Reason, Ttl, Wait; AnyDuration, AnyMoment and Moment, read
  by duration_of and moment_of); timestamp, inlined_schema
- refusals: Problem, problem_of; AWAY, BUSY, INVALID, LIMITED, LOST, TOO_MANY, UNKNOWN
- callers: LOCAL, Principal, Scope; RequestLimit
- acts of people, and lists (declared with `Act` and `Listing` of `solely.kit.commands`): Acts, act_routes,
  Affected, NOTHING (the outcome of an act that changed nothing); list_route, list_page, Rows
- pages: Page, View, show, acted; READ_PAGE, WRITE_PAGE, ADMIN_PAGE; at, span
- charts: Chart, Line, total, added
- explanations: Explainer, Explained
- metrics and traces: Figure, Metrics, HOLD, LATENCY; Tracing
- calls to others: Caller, OutgoingSettings, Request, Response, Timings, CallFailed, NotCalled; by_link, by_header,
  by_token, by_offset, NextPage; GuardedConnector, Stream; Attempts; sign, signing_key, SECRET_PREFIX; Mailer,
  MailServer, Security, ForeignSubject; sanitized; the checks and types of their settings (AtOnce, Timeout,
  check_header, check_network, check_url)
- receivers that settings name: NamedReceiver, Receiver, ReceiverName, UrlReceiver, WebhookReceiver, ProgramReceiver,
  MailReceiver, check_names, check_bounds; what sends to them (Sender, RequestSender, ProgramSender, MailSender)
- selections by labels, as Alertmanager writes them: Matcher, parse_matchers, selective_matchers, check_pattern,
  MAX_MATCHER, MOST_MATCHERS
- programs: Program, run_program, Ended, NotStarted
- alerts of its own: `self.announce(…)`, Announcement
- its tables: Database, Row; Statements, SqlStatement, Queries; Journal, begin_of, HOUR, DAY; Position, position_after;
  from_row, json_texts, without_nul
- small values in the store that all workers share: Notes, NOTES_PAGE
- its keys: reserved, part_of
- events that a hook of a client gets: Lost, Retried
- durations and retries: MAX_TTL, duration, duration_text, seconds, ttl_seconds; Backoff, RETRY
- work that goes on after its request: Background

Names are imported at their first use, so that a command starts without the service.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exports import *  # noqa: F403 - type checkers see every name of its __all__


def __getattr__(name: str) -> Any:
    exports = import_module(f"{__name__}.exports")
    if name not in exports.__all__:
        raise AttributeError(f"solely.kit has no {name!r}; it has {', '.join(exports.__all__)}")
    return getattr(exports, name)
