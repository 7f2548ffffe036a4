"""Typed requests to a service through one connection pool; refusals are raised as errors of the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol, Self, TypeVar

import httpx2
import msgspec

from ..errors import (
    InvalidInput,
    Limited,
    ReservationMismatch,
    SolelyError,
    StaleFence,
    StoreDenied,
    StoreFailed,
    StoreUnavailable,
    WorkFailed,
)
from ..holder import this_process
from ..service import problems
from ..service.feed import EventRecord
from ..service.problems import OF_ERRORS, ProblemDocument
from ..stores.http.settings import SILENCE, parse, unanswered

T = TypeVar("T")
P = TypeVar("P", bound="_Page")

_SPECIAL = (ReservationMismatch, WorkFailed, StaleFence)  # their constructors take fewer arguments
_RAISED: dict[str, type[SolelyError]] = {
    **{kind.name: error for error, kind in reversed(OF_ERRORS)},
    problems.NO_TOKEN.name: StoreDenied,
    problems.SCOPE.name: StoreDenied,
    problems.UNKNOWN_HOST.name: StoreDenied,
    problems.OTHER_ORIGIN.name: StoreDenied,
    problems.STOPPING.name: StoreUnavailable,
    problems.AWAY.name: StoreUnavailable,
    problems.TOO_MANY.name: Limited,
    problems.TOO_LARGE.name: InvalidInput,
}


class RunningVersion(msgspec.Struct):
    """What every service says of itself."""

    version: str


class _Page(Protocol):
    """A page of a list; the next page comes after `next`."""

    next: str | None


class ServiceConnection:
    """Requests to one service, for threads; close it, or use it in `with`."""

    def __init__(self, url: str, *, token: str = "", timeout: float = 10.0) -> None:
        self._address = parse(url)
        self._timeout = timeout
        options = self._address.options(timeout)
        if token:
            options["headers"]["authorization"] = f"Bearer {token}"
        self._http = httpx2.Client(**options)

    def post(self, path: str, body: object, answer: type[T], wait: float = 0.0) -> T:
        """The response of the route to this body; a refusal is raised as an error of the library."""
        headers = {"content-type": "application/json", "solely-holder": this_process()}  # not kept: we may have forked
        options: Any = {"content": _encoded(body), "headers": headers}
        return self._request("POST", path, answer, timeout=self._timeout + wait, **options)

    def get(self, path: str, answer: type[T], **query: Any) -> T:
        """The response of the route to this query."""
        return self._request("GET", path, answer, params=query)

    def pages(self, path: str, answer: type[P], **query: Any) -> Iterator[P]:
        """All pages of a list, each requested when the iteration reaches it."""
        after: str | None = ""
        while after is not None:
            page = self.get(path, answer, after=after, **query)
            yield page
            after = page.next

    def events(self, prefix: str = "", *, after: int | None = None) -> Iterator[EventRecord]:
        """Events of stored keys that begin with `prefix` as they happen, until the service stops."""
        query = {"prefix": prefix} | ({} if after is None else {"after": str(after)})
        timeout = httpx2.Timeout(self._timeout, read=SILENCE)
        try:
            with self._http.stream("GET", "/v1/events", params=query, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refusal(response)
                for event in httpx2.EventSource(response):
                    if event.data:
                        yield _decoded(response, event.data, EventRecord)
        except httpx2.HTTPError as error:
            raise unanswered(error, self._address) from error

    def version(self) -> str:
        """The version of the service; StoreFailed if something else answers at its address."""
        return self.get("/version", RunningVersion).version

    def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self.close()

    def _request(self, method: str, path: str, answer: type[T], **options: Any) -> T:
        try:
            response = self._http.request(method, path, **options)
        except httpx2.HTTPError as error:
            raise unanswered(error, self._address) from error
        if response.status_code != 200:
            raise _refusal(response)
        return _decoded(response, response.content, answer)


def _encoded(body: object) -> bytes:
    """The body as JSON; InvalidInput for what JSON cannot say, which msgspec would send as null: infinity and NaN."""
    try:
        plain = msgspec.to_builtins(body, str_keys=True)
        return json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise InvalidInput(f"the request cannot be sent as JSON: {why}") from None


def _decoded(response: httpx2.Response, text: bytes | str, answer: type[T]) -> T:
    """What the response says; StoreFailed if it is not that of such a service."""
    try:
        return msgspec.json.decode(text, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _foreign(response) from None


def _foreign(response: httpx2.Response) -> StoreFailed:
    return StoreFailed(f"{response.url.host} responded with {response.status_code}, and not as a Solely service does")


def _refusal(response: httpx2.Response) -> SolelyError:
    try:
        problem = msgspec.json.decode(response.content, type=ProblemDocument)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _foreign(response)
    kind = _RAISED.get(problem.type.rpartition("#")[2], StoreFailed)
    if issubclass(kind, _SPECIAL):
        return kind(problem.detail, key=problem.key)
    left = problem.left if problem.left is not None else problem.retry_after
    return kind(problem.detail, key=problem.key, holder=problem.holder, left=left)
