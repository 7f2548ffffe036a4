"""WSGI: a request that is repeated with its Idempotency-Key is processed once, with one response for all.

Pure WSGI: for Flask, Django, Bottle, Falcon, … on any server. A copy that waits occupies its thread; where threads are
few, `Rules(in_flight="conflict")` sends it away instead.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import InvalidInput, Mismatch, SolelyError, StoreError
from ..functions import wsgi_application
from ..logs import get_logger
from .idempotency import (
    INCOMPLETE,
    TOO_LARGE,
    HttpRequest,
    HttpResponse,
    KeyChecker,
    ProblemKind,
    RequestKey,
    ResponseRecorder,
    Rules,
    Settlement,
    Step,
    StoredResponse,
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

log = get_logger()


class IdempotencyMiddleware:
    """Processes a request with an Idempotency-Key once per principal, and gives every copy of it the same response.

    Otherwise it refuses with a problem document, for instance if the store is unreachable (503), unless the
    client was made with `on_outage="proceed"`. The handler finds its claim in `environ["solely.claim"]`: its `fence`,
    its `attempt`, and `ensure()` to make sure that nobody else took over.
    """

    def __init__(self, app: App, *, once: Client, rules: Rules) -> None:
        from ..client import Client  # here, as it takes long to import

        if not isinstance(once, Client):
            raise InvalidInput(f"once must be a Client, not {once!r:.80}")
        self._app = wsgi_application("app", app)
        self._once = once
        self._checker = KeyChecker(rules)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = request_of(environ)
        admitted = self._checker.admit(request)
        if admitted is None:
            return self._app(environ, start_response)
        if isinstance(admitted, HttpResponse):
            return _respond(start_response, admitted)
        return self._guarded(admitted, request, start_response)

    def _guarded(self, key: RequestKey, request: HttpRequest, start_response: StartResponse) -> Iterator[bytes]:
        """A generator, so that a server which drops it unread has claimed nothing."""
        checker = self._checker
        body = _read(request.native, checker.rules.max_request)
        if isinstance(body, ProblemKind):
            yield from _respond(start_response, checker.refuse(body, request))
            return
        request = replace(request, body=body)
        try:
            claim = self._once.claim(**checker.claim_arguments(key, request))
        except (Mismatch, StoreError) as error:
            yield from _respond(start_response, checker.refuse_claim(error, request))
            return
        response = checker.existing_response(claim, request)
        if response is not None:
            yield from _respond(start_response, response)
        else:
            yield from self._run(claim, request, start_response)

    def _run(self, claim: Claim, request: HttpRequest, start_response: StartResponse) -> Iterator[bytes]:
        recorder = ResponseRecorder(self._checker.rules)
        pieces: Iterable[bytes] = ()
        try:
            written: list[bytes] = []
            pieces = self._app(_environ(request, claim), _opener(recorder, written))
            whole = isinstance(pieces, list | tuple) and len(pieces) == 1
            for piece in pieces:
                step = recorder.feed(b"".join([*written, piece]), last=whole)
                written.clear()
                yield from self._perform(step, recorder, claim, request, start_response)
            if not whole:
                step = recorder.feed(b"".join(written), last=True)
                yield from self._perform(step, recorder, claim, request, start_response)
        finally:
            self._settle(recorder.broken(self._checker.policy(request)), claim, request)
            if hasattr(pieces, "close"):
                pieces.close()

    def _perform(
        self, step: Step, recorder: ResponseRecorder, claim: Claim, request: HttpRequest, start_response: StartResponse
    ) -> Iterator[bytes]:
        other = self._settle(step.settle, claim, request)
        if step.body is None:
            return
        if other is not None and step.opening:
            yield from _respond(start_response, other)
            return
        if step.opening:
            _start(start_response, HttpResponse(recorder.status, recorder.opening()), recorder.phrase)
        if step.body:
            yield step.body

    def _settle(self, settle: Settlement, claim: Claim, request: HttpRequest) -> HttpResponse | None:
        """Publishes the response, or releases the key. Returns the published response if it is another's."""
        if settle is None:
            return None
        try:
            if isinstance(settle, StoredResponse):
                return self._checker.superseding_response(claim.publish(settle.packed_to_fit()), request)
            claim.fail(Unfinished())
        except SolelyError as error:  # the work is done, so its response is sent all the same
            facts = {"key": claim.key, "error": str(error)}
            log.warning("idempotency_not_settled: the response of %(key)r was not kept: %(error)s", facts, extra=facts)
            claim.hand_over()  # stops the renewal, so that the claim expires
        return None


def request_of(environ: Environ) -> HttpRequest:
    """The request, without its body."""
    root = environ.get("SCRIPT_NAME", "")
    path = quote((root + environ.get("PATH_INFO", "")).encode("latin-1"))
    query = environ.get("QUERY_STRING", "")
    target = f"{path}?{query}" if query else path
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in environ.items()
        if name.startswith("HTTP_") or (name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value)
    ]
    return HttpRequest(environ["REQUEST_METHOD"], target.encode("latin-1"), headers, environ, root)


def _read(environ: Environ, most: int) -> bytes | ProblemKind:
    """The whole body; a problem if it is too large or ends too early."""
    stream, declared = environ["wsgi.input"], environ.get("CONTENT_LENGTH")
    if not declared and not environ.get("wsgi.input_terminated"):
        return b""  # a server that does not terminate its input sends Content-Length
    wanted = int(declared) if declared else most + 1
    body = bytearray()
    while len(body) < wanted and (piece := stream.read(wanted - len(body))):
        body += piece
    if declared and len(body) < wanted:
        return INCOMPLETE
    return bytes(body) if len(body) <= most else TOO_LARGE


def _environ(request: HttpRequest, claim: Claim) -> Environ:
    """The environ with the body that was read."""
    environ: Environ = request.native
    environ["wsgi.input"] = io.BytesIO(request.body)
    environ["CONTENT_LENGTH"] = str(len(request.body))
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    environ[ENVIRON_KEY] = claim
    return environ


def _opener(recorder: ResponseRecorder, written: list[bytes]) -> StartResponse:
    """What the application calls with its status and headers."""

    def opened(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        if exc_info is not None and recorder.sent:
            raise exc_info[1].with_traceback(exc_info[2])
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        recorder.open(int(status[:3]), pairs, phrase=status[4:])
        return written.append

    return opened


def _start(start_response: StartResponse, response: HttpResponse, phrase: str = "") -> None:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers]
    start_response(f"{response.status} {phrase or _phrase(response.status)}", headers)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _respond(start_response: StartResponse, response: HttpResponse) -> list[bytes]:
    _start(start_response, response)
    return [response.body]
