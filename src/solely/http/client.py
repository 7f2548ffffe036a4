"""The client: one connection pool, requests and answers by their types, refusals as the library's errors."""

from __future__ import annotations

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
from ..service import problems
from ..service.feed import Told
from ..service.problems import OF_ERRORS, ProblemDocument
from ..stores.http.settings import SILENCE, parse, unanswered
from .nouns import Claims, DeadLetters, Entries, Limits, Locks, Marks, Reservations, Watermarks

T = TypeVar("T")
P = TypeVar("P", bound="_Page")

_SPECIAL = (ReservationMismatch, WorkFailed, StaleFence)  # whose constructors do not take what others do
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


class _Page(Protocol):
    """A part of a list; `next` is after what to ask for more."""

    next: str | None


class Client:
    """A client of one service, for threads; close it, or use it in `with`. Without a token, SOLELY_TOKEN is sent.

    `timeout` is for an answer to come, beyond what the caller is ready to wait. Raises StoreUnavailable if none came.
    """

    def __init__(self, url: str, *, token: str = "", timeout: float = 10.0) -> None:
        self._address = parse(url)
        self._timeout = timeout
        options = self._address.options(timeout)
        if token:
            options["headers"]["authorization"] = f"Bearer {token}"
        self._http = httpx2.Client(**options)
        self.locks = Locks(self)
        self.marks = Marks(self)
        self.claims = Claims(self)
        self.reservations = Reservations(self)
        self.limits = Limits(self)
        self.watermarks = Watermarks(self)
        self.dead_letters = DeadLetters(self)
        self.entries = Entries(self)

    def post(self, path: str, body: msgspec.Struct, answer: type[T], wait: float = 0.0) -> T:
        """What the route answers to this body; the library's error that the refusal stands for, if it refuses."""
        what: Any = {"content": msgspec.json.encode(body), "headers": {"content-type": "application/json"}}
        return self._ask("POST", path, answer, timeout=self._timeout + wait, **what)

    def get(self, path: str, answer: type[T], **query: Any) -> T:
        """What the route answers to this query."""
        return self._ask("GET", path, answer, params=query)

    def pages(self, path: str, answer: type[P], **query: Any) -> Iterator[P]:
        """All pages of a list, each asked for when it is wanted."""
        after: str | None = ""
        while after is not None:
            page = self.get(path, answer, after=after, **query)
            yield page
            after = page.next

    def events(self, prefix: str = "", *, after: int | None = None) -> Iterator[Told]:
        """Events of stored keys that begin with `prefix` as they happen, until the service stops."""
        query = {"prefix": prefix} | ({} if after is None else {"after": str(after)})
        patience = httpx2.Timeout(self._timeout, read=SILENCE)
        try:
            with self._http.stream("GET", "/v1/events", params=query, timeout=patience) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refusal(response)
                for event in httpx2.EventSource(response):
                    if event.data:
                        yield msgspec.json.decode(event.data, type=Told)
        except httpx2.HTTPError as error:
            raise unanswered(error, self._address) from error

    def close(self) -> None:
        """Lets go of all connections; safe to call twice."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, answer: type[T], **what: Any) -> T:
        try:
            response = self._http.request(method, path, **what)
        except httpx2.HTTPError as error:
            raise unanswered(error, self._address) from error
        if response.status_code != 200:
            raise _refusal(response)
        return msgspec.json.decode(response.content, type=answer)


def _refusal(response: httpx2.Response) -> SolelyError:
    try:
        told = msgspec.json.decode(response.content, type=ProblemDocument)
    except msgspec.DecodeError:
        return StoreFailed(f"{response.url.host} answered {response.status_code}, and not as a Solely service does")
    kind = _RAISED.get(told.type.rpartition("#")[2], StoreFailed)
    if issubclass(kind, _SPECIAL):
        return kind(told.detail, key=told.key)
    left = told.left if told.left is not None else told.retry_after
    return kind(told.detail, key=told.key, holder=told.holder, left=left)
