"""ProblemKind documents (RFC 9457): every refusal, its status, and what to do about it. The policy page lists them."""

from __future__ import annotations

import json
from typing import NamedTuple

from .request import Headers
from .response import HttpResponse


class ProblemKind(NamedTuple):
    """A reason for a refusal; its name is the anchor on the policy page."""

    name: str
    status: int
    title: str
    advice: str


MISSING = ProblemKind(
    "key-missing",
    400,
    "Idempotency-Key is missing",
    "This operation needs an Idempotency-Key. Send a fresh UUID, in double quotes, and the same one with every retry.",
)
MALFORMED = ProblemKind(
    "key-malformed",
    400,
    "Idempotency-Key is malformed",
    "The field is one Structured Field String: printable ASCII in double quotes, sent once, of the form given below.",
)
REUSED = ProblemKind(
    "key-reused",
    422,
    "Idempotency-Key is already used",
    "The key was sent before with another payload, method or URI. A new request needs a new key.",
)
CONFLICT = ProblemKind(
    "in-flight",
    409,
    "A request is outstanding for this Idempotency-Key",
    "The first request with this key is still being processed. Send it again, unchanged, after Retry-After seconds.",
)
STILL_RUNNING = ProblemKind(
    "still-running",
    503,
    "A request is still outstanding for this Idempotency-Key",
    "The first request with this key was waited for, and is still being processed. Send it again, unchanged, after"
    " Retry-After seconds.",
)
NOT_KEPT = ProblemKind(
    "not-kept",
    410,
    "The response is no longer available",
    "The request was processed once and is not processed again. Its response was too large, or was cut off while it was"
    " sent, and was not kept. Look for the result by other means, for instance at Location, if that is given.",
)
FAILED = ProblemKind(
    "failed",
    500,
    "The request failed",
    "The first request with this key failed, and failures are kept. Find out what happened before using a new key.",
)
TOO_LARGE = ProblemKind(
    "body-too-large",
    413,
    "The request body is too large",
    "Requests with an Idempotency-Key are compared byte by byte, so their size is bounded as given below.",
)
INCOMPLETE = ProblemKind(
    "body-incomplete",
    400,
    "The request body is incomplete",
    "The body ended before its Content-Length, or that is no number. Nothing was processed. Send the request again.",
)
NO_SCOPE = ProblemKind(
    "no-scope",
    403,
    "The client is unknown",
    "Keys belong to the client that sent them, and the sender of this one is unknown. Authenticate first.",
)
UNAVAILABLE = ProblemKind(
    "unavailable",
    503,
    "Idempotency cannot be guaranteed now",
    "Whether this request was processed before is unknown at the moment, so it was not processed. Send it again,"
    " unchanged, after Retry-After seconds.",
)

PROBLEMS = (
    MISSING,
    MALFORMED,
    REUSED,
    CONFLICT,
    STILL_RUNNING,
    NOT_KEPT,
    FAILED,
    TOO_LARGE,
    INCOMPLETE,
    NO_SCOPE,
    UNAVAILABLE,
)


def refusal(
    problem: ProblemKind, policy: str, detail: str = "", *, more: Headers = (), **facts: object
) -> HttpResponse:
    """The problem as a response. `policy` is the address of the page that explains it."""
    kind = f"{policy}#{problem.name}"
    document = {"type": kind, "title": problem.title, "status": problem.status, "detail": detail or problem.advice}
    body = json.dumps({**document, **facts}).encode()
    headers = [
        (b"Content-Type", b"application/problem+json"),
        (b"Content-Language", b"en"),
        (b"Content-Length", b"%d" % len(body)),
        (b"Cache-Control", b"no-store"),
        (b"Link", f'<{kind}>; rel="describedby"; type="text/html"'.encode("latin-1", "replace")),
        *more,
    ]
    return HttpResponse(problem.status, headers, body)
