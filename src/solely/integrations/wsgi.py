"""WSGI: a request that comes again with its Idempotency-Key is processed once, and answered alike every time.

Pure WSGI: for Flask, Django, Bottle, Falcon, … on any server. A copy that waits occupies its thread; where threads are
few, `Rules(in_flight="conflict")` sends it away instead.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import Mismatch, SolelyError, StoreError
from .idempotency import (
    INCOMPLETE,
    TOO_LARGE,
    Answer,
    Guard,
    Let,
    ProblemKind,
    Record,
    Request,
    Rules,
    Step,
    Tape,
    Ticket,
    Unfinished,
)

if TYPE_CHECKING:
    from ..claims.handle import Claim
    from ..client import Client

__all__ = ["IdempotencyMiddleware", "Rules"]

ENVIRON_KEY = "solely.claim"

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

log = logging.getLogger("solely")


class IdempotencyMiddleware:
    """Processes a request with an Idempotency-Key once per principal, and answers every copy of it alike.

    What it cannot answer so, it refuses with a problem document; a store that is away is one reason (503), unless the
    client was made with `on_outage="proceed"`. The handler finds its claim in `environ["solely.claim"]`: its `fence`,
    its `attempt`, and `ensure()` to make certain that nobody else took over.
    """

    def __init__(self, app: App, *, once: Client, rules: Rules) -> None:
        self._app = app
        self._once = once
        self._guard = Guard(rules)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = request_of(environ)
        admission = self._guard.door(request)
        if admission is None:
            return self._app(environ, start_response)
        if isinstance(admission, Answer):
            return _answer(start_response, admission)
        return self._guarded(admission, request, start_response)

    def _guarded(self, ticket: Ticket, request: Request, start_response: StartResponse) -> Iterator[bytes]:
        """A generator, so that a server which drops it unread has claimed nothing."""
        guard = self._guard
        body = _read(request.native, guard.rules.max_request)
        if isinstance(body, ProblemKind):
            yield from _answer(start_response, guard.refuse(body, request))
            return
        request = replace(request, body=body)
        try:
            claim = self._once.claim(**guard.terms(ticket, request))
        except (Mismatch, StoreError) as error:
            yield from _answer(start_response, guard.failed(error, request))
            return
        answer = guard.verdict(claim, request)
        if answer is not None:
            yield from _answer(start_response, answer)
        else:
            yield from self._run(claim, request, start_response)

    def _run(self, claim: Claim, request: Request, start_response: StartResponse) -> Iterator[bytes]:
        tape = Tape(self._guard.rules)
        pieces: Iterable[bytes] = ()
        try:
            written: list[bytes] = []
            pieces = self._app(_environ(request, claim), _opener(tape, written))
            whole = isinstance(pieces, list | tuple) and len(pieces) == 1
            for piece in pieces:
                step = tape.feed(b"".join([*written, piece]), last=whole)
                written.clear()
                yield from self._perform(step, tape, claim, request, start_response)
            if not whole:
                step = tape.feed(b"".join(written), last=True)
                yield from self._perform(step, tape, claim, request, start_response)
        finally:
            self._settle(tape.broken(self._guard.policy(request)), claim, request)
            if hasattr(pieces, "close"):
                pieces.close()

    def _perform(
        self, step: Step, tape: Tape, claim: Claim, request: Request, start_response: StartResponse
    ) -> Iterator[bytes]:
        standing = self._settle(step.settle, claim, request)
        if step.body is None:
            return
        if standing is not None and step.opening:
            yield from _answer(start_response, standing)
            return
        if step.opening:
            _start(start_response, Answer(tape.status, tape.opening()), tape.phrase)
        if step.body:
            yield step.body

    def _settle(self, settle: Record | Let | None, claim: Claim, request: Request) -> Answer | None:
        """Publishes, or lets go. The answer that stands, if it is another's."""
        if settle is None:
            return None
        try:
            if isinstance(settle, Record):
                return self._guard.converged(claim.publish(settle.fitted()), request)
            claim.fail(Unfinished())
        except SolelyError as error:  # the work is done, and its response is true: it is sent all the same
            facts = {"key": claim.key, "error": str(error)}
            log.warning("idempotency_not_settled: the answer of %(key)r was not kept: %(error)s", facts, extra=facts)
            claim.hand_over()  # to nobody: it is not renewed any more, so that it does not stay in flight for ever
        return None


def request_of(environ: Environ) -> Request:
    """The request, still without its body."""
    root = environ.get("SCRIPT_NAME", "")
    path = quote((root + environ.get("PATH_INFO", "")).encode("latin-1"))
    query = environ.get("QUERY_STRING", "")
    target = f"{path}?{query}" if query else path
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in environ.items()
        if name.startswith("HTTP_") or (name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value)
    ]
    return Request(environ["REQUEST_METHOD"], target.encode("latin-1"), headers, environ, root)


def _read(environ: Environ, most: int) -> bytes | ProblemKind:
    """The whole body; a problem if it is too large or ends too early."""
    stream, declared = environ["wsgi.input"], environ.get("CONTENT_LENGTH")
    if not declared and not environ.get("wsgi.input_terminated"):
        return b""  # a server that does not end its input says how long it is
    wanted = int(declared) if declared else most + 1
    body = bytearray()
    while len(body) < wanted and (piece := stream.read(wanted - len(body))):
        body += piece
    if declared and len(body) < wanted:
        return INCOMPLETE
    return bytes(body) if len(body) <= most else TOO_LARGE


def _environ(request: Request, claim: Claim) -> Environ:
    """The environ with the body that was read."""
    environ: Environ = request.native
    environ["wsgi.input"] = io.BytesIO(request.body)
    environ["CONTENT_LENGTH"] = str(len(request.body))
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    environ[ENVIRON_KEY] = claim
    return environ


def _opener(tape: Tape, written: list[bytes]) -> StartResponse:
    """What the application calls with its status and headers."""

    def opened(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        if exc_info is not None and tape.sent:
            raise exc_info[1].with_traceback(exc_info[2])
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        tape.open(int(status[:3]), pairs, phrase=status[4:])
        return written.append

    return opened


def _start(start_response: StartResponse, answer: Answer, phrase: str = "") -> None:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers]
    start_response(f"{answer.status} {phrase or _phrase(answer.status)}", headers)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _answer(start_response: StartResponse, answer: Answer) -> list[bytes]:
    _start(start_response, answer)
    return [answer.body]
