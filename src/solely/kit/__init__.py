"""The kit: all that an application imports beside the library (`solely`); its `cli.py` imports `solely.kit.commands`.

- the application: Application, AppPage, Attention, listed, Job, Service. Its methods open and make what the service
  then runs and closes:
  `caller`, `journal`, `queries`, `queue`, `worker`, `every`, `announce`, `tracing`, `own`
- endpoints: Route, Call, Answer, Body, JsonResponse, KIB; READ, WRITE, ADMIN, PUBLIC, Webhook, BodyToken, same; the
  types of their fields (Key, Limit, PageSize, Prefix, Quiet, Reason, Ttl, Wait; AnyDuration, AnyMoment and Moment, read
  by duration_of and moment_of); timestamp, inlined_schema
- refusals: Problem, problem_of; AWAY, BUSY, INVALID, LIMITED, LOST, TOO_MANY, UNKNOWN
- callers: LOCAL, Principal, Scope; is_hidden_name; RequestLimit
- acts of people, and lists (declared with `Act` and `Listing` of `solely.kit.commands`): Acts, act_routes,
  Affected, NOTHING (the outcome of an act that changed nothing); list_route, list_page, Rows
- pages: Page, View, show, show_to_all, acted; READ_PAGE, WRITE_PAGE, ADMIN_PAGE; at, span
- charts: Chart, Line, total, added
- explanations: Explainer, Explained
- metrics and traces: Figure, Metrics, HOLD, LATENCY; Tracing
- calls to others: Caller, OutgoingSettings, Request, Response, Timings, CallFailed, NotCalled, AddressRefused,
  TooManyRedirects, MOST_REDIRECTS, HOST_NAME, PeerTls, watching, watched; by_link, by_header,
  by_token, by_offset, NextPage; GuardedConnector, Stream; Attempts; sign, signing_key, SECRET_PREFIX; Mailer,
  MailServer, Security, ForeignSubject; sanitized; the checks and types of their settings (AtOnce, Timeout,
  check_header, check_network, check_url)
- receivers that settings name: NamedReceiver, Receiver, ReceiverName, UrlReceiver, WebhookReceiver, ProgramReceiver,
  MailReceiver, check_names, check_bounds; what sends to them (Sender, RequestSender, ProgramSender, MailSender)
- selections by labels, as Alertmanager writes them: Matcher, parse_matchers, selective_matchers, MAX_MATCHER,
  MOST_MATCHERS; patterns of users that meet foreign text: check_pattern, search_pattern, Turns
- programs: Program, run_program, Ended, NotStarted
- alerts of its own: `self.announce(…)`, Announcement
- its tables: Database, Row; Statements, SqlStatement, Queries; Journal, begin_of, HOUR, DAY; Position, position_after;
  from_row, json_texts, without_nul
- small values in the store that all workers share: Notes, NOTES_PAGE
- its keys: reserved, part_of
- events that a hook of a client gets: Lost, Retried
- durations, schedules and retries: MAX_TTL, duration, duration_text, seconds, ttl_seconds; check_schedule; Backoff,
  RETRY
- work that goes on after its request: Background
- functions that users give: plain_function, work_function, items_function (checks of their kind),
  finished (of what they returned), called_by

- the log: get_logger, printable

Names are imported at their first use, so that a command starts without the service, and what applications offer to
users of the library (`plain`) and to clients (`records`) needs no package of the service.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers see every name of their __all__
    from .exports import *  # noqa: F403
    from .plain import *  # noqa: F403
    from .records import *  # noqa: F403

MODULES = ("plain", "records", "exports")  # those that need least first


def __getattr__(name: str) -> Any:
    for module in MODULES:
        exported = import_module(f"{__name__}.{module}")
        if name in exported.__all__:
            return getattr(exported, name)
    raise AttributeError(f"solely.kit has no {name!r}; its docstring lists what it has")
