"""Routes: the single declaration of an endpoint. Requests are checked against it, and documented and counted by it."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints

from ..errors import InvalidInput
from ..integrations.idempotency import ProblemKind
from .bodies import (
    Answer as Answer,
)
from .bodies import (
    Body as Body,
)
from .bodies import (
    Key as Key,
)
from .bodies import (
    PageSize as PageSize,
)
from .bodies import (
    Prefix as Prefix,
)
from .bodies import (
    Purpose as Purpose,
)
from .bodies import (
    Reason as Reason,
)
from .bodies import (
    Token as Token,
)
from .bodies import (
    Ttl as Ttl,
)
from .bodies import (
    Wait as Wait,
)
from .disconnects import ClientGone, DisconnectWatch
from .problems import Problem
from .security import NOBODY, Principal, Scope

if TYPE_CHECKING:  # a client of the API imports its types and not the service
    from .service import Service

T = TypeVar("T")
B = TypeVar("B")
Q = TypeVar("Q")

# What our own connection (`protocol`) adds to the ASGI scope: a function that returns whether it is closing; one that
# sends a complete response; and, until a caller has authenticated on it, one to call with the principal, which raises
# Problem if there are too many connections, and one that waits until a stranger may be served.
CLOSING, RESPOND, AUTHENTICATE, TURN = "solely.closing", "solely.respond", "solely.authenticate", "solely.turn"
Respond = Callable[[int, tuple[tuple[bytes, bytes], ...], bytes], bool]  # status, headers, body; False if not possible

UNMATCHED = "unmatched"  # the path of all requests without a route: anybody can invent more, and labels are bounded
KIB = 1024
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))  # methods that change nothing
SMALL = 64 * KIB  # bytes of a body: some hundred keys
_VERSION = re.compile(r"v\d+")


class Named(Protocol):
    """A row of a list."""

    @property
    def key(self) -> str: ...


class PrefixQuery(Body):
    """A page of what begins with `prefix` and comes after `after`, in key order."""

    prefix: Prefix = ""
    after: Prefix = ""
    limit: PageSize = 100

    def following(self, page: Sequence[Named]) -> str | None:
        """The key after which the next page begins; None if this one was the last."""
        return page[-1].key if len(page) == self.limit else None


def finite(seconds: float) -> float | None:
    """The seconds as JSON has them; None if they never end."""
    return seconds if math.isfinite(seconds) else None


def timestamp(at: datetime | None) -> float | None:
    """Seconds since 1970; None if the time is unknown."""
    return None if at is None else at.timestamp()


# -- schemes


class Auth:
    """How a route authenticates callers. A route without it cannot be declared."""


@dataclass(frozen=True, slots=True)
class Public(Auth):
    """Anybody may call; the response reveals nothing."""


@dataclass(frozen=True, slots=True)
class Bearer(Auth):
    """A token of at least this scope in `Authorization`; or a session of the dashboard, which on writes needs the
    CSRF token too. With `page`, a browser without either is redirected to the login."""

    scope: Scope
    page: bool = False


@dataclass(frozen=True, slots=True)
class Webhook(Auth):
    """A check of the route's own, on headers, path and raw body: a shared token or a signature. Compare with `same`.

    `plausible` looks at the headers alone, before the body is read: a route with a large `cap` refuses there who has no
    secret at all.
    """

    verify: Callable[[Call[Any, Any]], bool | Awaitable[bool]]
    how: str  # for the documents: which header carries which secret
    plausible: Callable[[Call[Any, Any]], bool] = lambda call: True


PUBLIC = Public()
READ = Bearer(Scope.READ)
WRITE = Bearer(Scope.WRITE)
ADMIN = Bearer(Scope.ADMIN)


# -- the call


class Call(Generic[B, Q]):
    """One request, as its handler gets it: checked, decoded, and authenticated."""

    route: Route
    routes: Sequence[Route]  # all that are mounted, for the documents
    page: Callable[[str], Awaitable[object]]  # what the page at an address returns to this caller; raises Problem
    principal: Principal = NOBODY
    headers: dict[bytes, bytes]
    params: Mapping[str, str] = MappingProxyType({})
    path = UNMATCHED  # of the route, for logs and metrics
    body: B = None  # type: ignore[assignment]
    query: Q = None  # type: ignore[assignment]
    raw = b""
    cookie = ""  # of the session, if the caller has authenticated by one
    respond: Respond | None = None

    def __init__(
        self, service: Service, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]]
    ) -> None:
        self.service = service
        self.scope = scope
        self.receive = receive

    @property
    def csrf(self) -> str:
        """The token that forms of this caller must send."""
        return self.service.sessions.csrf(self.cookie)

    @property
    def reason(self) -> str:
        """Why an admin does it, for the audit log; "" if the body has no reason."""
        return str(getattr(self.body, "reason", ""))

    @property
    def address(self) -> str:
        """The address that the request came from, or that of a proxy; "" if the server does not know."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    def header(self, name: str) -> str:
        """The header's value, or ""."""
        wanted = name.lower().encode()
        for each, value in self.scope["headers"]:
            if each == wanted:
                return str(value, "latin-1")
        return ""

    async def waiting(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Awaitable[object]] | None = None,
        keys: Sequence[str] = (),
    ) -> T:
        """The result of work that may take long. Cancels it when the caller disconnects or the service stops.

        If the caller has disconnected by the time the work is done, `undo` reverts it. `keys` are the stored keys that
        it waits for, for people who ask who waits.
        """
        waiters, name = self.service.waiters, self.principal.name
        try:
            waiters.enter(name)
        except Problem:
            work.close()  # it was never started
            raise
        listed = self.service.history.waiters
        number = listed.enter(keys)
        try:
            with DisconnectWatch(self.receive, self.service.stopping) as watch:
                result = await work
        finally:
            waiters.leave(name)
            listed.leave(number)
        if watch.disconnected or self._is_gone():
            if undo is not None:
                await undo(result)
            raise ClientGone
        return result

    async def stranger_turn(self) -> None:
        """Waits until this request may be served, if nobody has authenticated by it or before it on its connection;
        raises ClientGone if its sender has disconnected meanwhile."""
        if self.principal is NOBODY and (turn := self.scope.get(TURN)) is not None:
            await turn()
            if self.scope[CLOSING]():
                raise ClientGone

    def _is_gone(self) -> bool:
        """True if the caller is known to have disconnected; does not wait."""
        closing: Callable[[], bool] | None = self.scope.get(CLOSING)
        if closing is not None:
            return closing()
        received = self.receive().__await__()  # of another server
        try:
            next(received)
        except StopIteration as message:
            return bool(message.value["type"] == "http.disconnect")
        received.close()
        return False


@dataclass(frozen=True, slots=True)
class JsonResponse:
    """A response with a status or headers of its own."""

    status: int
    body: object = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


Handler = Callable[[Any], Awaitable[object]]  # returns an Answer, a JsonResponse, a Starlette response, or None


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint: its method and path, who may call it, what it takes and what it returns. Raises InvalidInput if the
    declaration is incomplete.

    `body`, `query` and `answer` are read from the handler's annotations: `async def handler(call: Call[Body, Query]) ->
    Answer`, with None where there is none. `summary` is by default the handler's docstring. `status` is that of a
    success, `others` are further statuses and their types, `refusals` the problems beside those that every route has.
    `cap` bounds the body in bytes as it streams in; so does the service's max_body, unless `over_max_body`. A route
    that `grants` is refused while the service stops. `again` says what a repeat of the request does, for the policy
    page. With `keyed`, a repeat with the same Idempotency-Key gets the first response, which must still be true. A form
    is urlencoded, and needs the CSRF token in its field `csrf`. The audit log has every admin action: `changed` names
    the field of the answer that is false or 0 if there was nothing to do; a handler that `audits` writes the record
    itself. With `text_errors`, an error is a JSON string instead of a problem document, as clients of another program's
    API expect it; with `error_field`, the document has its `detail` as `error` too. With `lines`, the body is a list in
    NDJSON, an item per line. `tag` is the heading in the documents: by default part of the path, or the name of the
    application.
    """

    method: str
    path: str
    auth: Auth
    handler: Handler
    summary: str = ""
    status: int = 200
    others: Mapping[int, Any] = field(default_factory=dict)
    refusals: tuple[ProblemKind, ...] = ()
    media: str = "application/json"
    form: bool = False
    cap: int = SMALL
    over_max_body: bool = False  # its own cap may exceed max_body
    grants: bool = False
    again: str = ""
    keyed: bool = False
    changed: str = ""
    audits: bool = False
    text_errors: bool = False
    error_field: bool = False
    lines: bool = False
    waits: bool = False  # for another system: its handler bounds the time
    hidden: bool = False  # a page for people: not part of the documented API
    tag: str = ""
    body: Any = field(init=False)
    query: Any = field(init=False)
    answer: Any = field(init=False)

    def __post_init__(self) -> None:
        try:
            for name, wanted in zip(("body", "query", "answer"), types_of(self.handler), strict=True):
                object.__setattr__(self, name, wanted)
            object.__setattr__(self, "summary", self.summary or _docstring(self.handler))
            _check(self)
        except InvalidInput as error:
            raise InvalidInput(f"route {self.method} {self.path}: {error}") from None

    def cap_within(self, max_body: int) -> int:
        """The most bytes of a body, where the service accepts `max_body` in general."""
        return self.cap if self.over_max_body else min(self.cap, max_body)

    @property
    def is_admin_action(self) -> bool:
        """True if it overrides what others hold: its body must have a reason, which the audit log keeps."""
        return isinstance(self.auth, Bearer) and self.auth.scope is Scope.ADMIN and self.method not in SAFE

    @property
    def shown_path(self) -> str:
        """The path as documents have it: a parameter that may contain slashes is like all others."""
        return self.path.replace("...}", "}")

    @property
    def noun(self) -> str:
        """The tag, else the first part of the path that is neither `api` nor a version."""
        parts = [part for part in self.path.split("/") if part]
        named = (part for part in parts if part != "api" and not _VERSION.fullmatch(part))
        return self.tag or next(named, "dashboard")

    @property
    def name(self) -> str:
        """The name in logs, metrics and documents: `locks.acquire`."""
        parts = [part.strip("{}.-") for part in self.path.removeprefix("/v1").split("/")]
        return ".".join(part for part in parts if part) or "dashboard"


def _check(route: Route) -> None:
    if type(route.auth) not in (Public, Bearer, Webhook):
        raise InvalidInput("it declares no scheme; give it PUBLIC, READ, WRITE, ADMIN or a Webhook")
    if not route.summary and not route.hidden:
        raise InvalidInput("it has no summary; give it one, or its handler a docstring")
    fields = () if route.body is None else getattr(route.body, "__struct_fields__", ())
    if route.is_admin_action and not route.audits and "reason" not in fields:
        raise InvalidInput("an admin action needs a `reason` in its body, which the audit log keeps")


def _docstring(handler: Handler) -> str:
    first = (inspect.getdoc(handler) or "").split("\n\n")[0]
    return " ".join(first.split()).removesuffix(".")


def types_of(handler: Handler) -> tuple[Any, Any, Any]:
    """The types of the body, the query and the answer; None where there is none."""
    if not inspect.iscoroutinefunction(handler):
        raise InvalidInput("its handler must be a coroutine function")
    try:
        hints = get_type_hints(handler, include_extras=True)
    except NameError as error:  # a name that is imported for the type checker only
        raise InvalidInput(f"an annotation of its handler cannot be resolved: {error}") from None
    answer = hints.pop("return", Any)
    takes = [each for call in hints.values() if get_origin(call) is Call for each in get_args(call)]
    if len(hints) != 1 or len(takes) != 2 or Any in (*takes, answer):
        raise InvalidInput("annotate its handler: async def handler(call: Call[Body, Query]) -> Answer")
    body, query = (None if each is NoneType else each for each in takes)
    return body, query, _sent_as_json(answer)


def _sent_as_json(answer: Any) -> Any:
    """The annotation without what is not JSON; None if nothing is left, and for `object`, which pages return."""
    alternatives = get_args(answer) if isinstance(answer, UnionType) else (answer,)
    sent = [each for each in alternatives if get_origin(each) or not _is_no_json(each)]
    return reduce(or_, sent) if sent and object not in sent else None


def _is_no_json(kind: type) -> bool:
    """True for None and for whole responses. Those of Starlette are not imported for that: a client of the API, which
    imports our types, needs no server, and who returns one has imported it."""
    starlette = sys.modules.get("starlette.responses")
    return issubclass(kind, (JsonResponse, NoneType)) or (
        starlette is not None and issubclass(kind, starlette.Response)
    )
