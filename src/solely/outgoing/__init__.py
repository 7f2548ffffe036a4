"""Outgoing calls: HTTP requests to other systems, bounded in time and size, guarded against internal addresses, with
retries and a breaker that all workers of a host share.

    caller = Caller("jira", OutgoingSettings(timeout=5.0), once=once, breaker="~repos/jira")
    response = await caller.call(Request("GET", "https://jira.example.org/rest/api/2/myself"))
"""

from .attempts import Attempts
from .caller import Caller
from .certificates import PeerTls
from .checks import check_header, check_network, check_url, trusted
from .connector import GuardedConnector, Stream
from .message import (
    HOST_NAME,
    MOST_REDIRECTS,
    AddressRefused,
    CallFailed,
    NotCalled,
    Request,
    Response,
    Timings,
    TooManyRedirects,
)
from .network import Stopwatch, watched, watching
from .pages import NextPage, by_header, by_link, by_offset, by_token
from .sanitizing import sanitized
from .settings import AtOnce, OutgoingSettings, Timeout

__all__ = [
    "HOST_NAME",
    "MOST_REDIRECTS",
    "AddressRefused",
    "AtOnce",
    "Attempts",
    "CallFailed",
    "Caller",
    "GuardedConnector",
    "NextPage",
    "NotCalled",
    "OutgoingSettings",
    "PeerTls",
    "Request",
    "Response",
    "Stopwatch",
    "Stream",
    "Timeout",
    "Timings",
    "TooManyRedirects",
    "by_header",
    "by_link",
    "by_offset",
    "by_token",
    "check_header",
    "check_network",
    "check_url",
    "sanitized",
    "trusted",
    "watched",
    "watching",
]
