"""Routes: the one declaration of an endpoint. What it says is what is checked, performed, documented and counted."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.responses import Response

from ..errors import InvalidInput
from .problems import Kind
from .security import LOCAL, Principal, Scope
from .watching import ClientGone, Watch

if TYPE_CHECKING:
    from .service import Service

T = TypeVar("T")
B = TypeVar("B")
Q = TypeVar("Q")

Receive = Callable[[], Awaitable[Any]]

# What our own connection adds to the scope of a request: whether it is at its end, and a way to answer in one step,
# with status, header lines and body; False if that cannot be done, and the answer must take the usual way. And, unless
# it has authenticated before, what to call with the principal: a Problem if there are too many connections.
CLOSING, WHOLE, AUTHENTICATE = "solely.closing", "solely.whole", "solely.authenticate"
Whole = Callable[[int, bytes, bytes], bool]

UNMATCHED = "unmatched"  # the path of requests without a route: not told apart, since anybody can invent more
KIB = 1024
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))  # methods that only look
SMALL = 64 * KIB  # bytes of a body: some hundred keys
_VERSION = re.compile(r"v\d+")

# The types of which bodies and queries are made. Bounds are part of the type, so they are checked, documented, and
# keep NaN and infinity out.
Key = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=512, pattern=r"^[^\u0000]*$", description="1 to 512 bytes, without NUL"),
]
Ttl = Annotated[float, msgspec.Meta(ge=0.01, le=366 * 86_400.0, description="seconds")]
Wait = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0, description="seconds")]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=2048, description="a secret: who has it can let go")]
Purpose = Annotated[str, msgspec.Meta(max_length=200, description="what for, for people who look")]
Reason = Annotated[str, msgspec.Meta(min_length=3, max_length=500, description="why; kept in the audit log")]
Prefix = Annotated[str, msgspec.Meta(max_length=512, description="of the names that are listed")]
PageSize = Annotated[int, msgspec.Meta(ge=1, le=1000, description="at most so many at once")]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is sent to us: fields that we do not know are refused, since they would be ignored.

    EITHER names fields of which exactly one must be given: they are UNSET by default.
    """

    EITHER: ClassVar[tuple[str, ...]] = ()


class Answer(msgspec.Struct, kw_only=True):
    """What we send."""


def one_or_many(name: str, one: T | msgspec.UnsetType, many: list[T] | msgspec.UnsetType) -> tuple[list[T], bool]:
    """What was given under `name` or `name`s, as a list, and whether it was one; InvalidInput unless it was one way."""
    if isinstance(one, msgspec.UnsetType):
        if isinstance(many, msgspec.UnsetType):
            raise InvalidInput(f"give {name} or {name}s")
        return many, False
    if not isinstance(many, msgspec.UnsetType):
        raise InvalidInput(f"give either {name} or {name}s, not both")
    return [one], True


# -- schemes


class Auth:
    """How a route knows who asks. A route without one cannot be mounted."""


@dataclass(frozen=True, slots=True)
class Public(Auth):
    """Anybody may ask; says nothing that is worth hiding."""


@dataclass(frozen=True, slots=True)
class Bearer(Auth):
    """A token of at least this scope in `Authorization`; or a session of the dashboard, which on writes needs the
    CSRF token too. With `page`, a browser without either is led to the login."""

    scope: Scope
    page: bool = False


@dataclass(frozen=True, slots=True)
class Webhook(Auth):
    """A check of the route's own, on headers, path and raw body: a shared token or a signature. Compare with `same`."""

    verify: Callable[[Call[Any, Any]], bool | Awaitable[bool]]
    how: str  # for the documents: which header carries what


PUBLIC = Public()
READ = Bearer(Scope.READ)
WRITE = Bearer(Scope.WRITE)
ADMIN = Bearer(Scope.ADMIN)


# -- the call


class Call(Generic[B, Q]):
    """One request, as its handler gets it: checked, decoded, and with a known principal."""

    route: Route
    principal: Principal
    headers: dict[bytes, bytes]
    params: Mapping[str, str] = MappingProxyType({})
    path = UNMATCHED  # of the route, once it is found: for logs and metrics
    body: B = None  # type: ignore[assignment]
    query: Q = None  # type: ignore[assignment]
    raw = b""
    cookie = ""  # of the session, where that is how the caller is known
    whole: Whole | None = None  # where the answer goes straight to the connection

    def __init__(
        self, service: Service, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]]
    ) -> None:
        self.service = service
        self.scope = scope
        self.receive = receive

    @property
    def csrf(self) -> str:
        """The token that forms of this caller must bring along."""
        return self.service.sessions.csrf(self.cookie)

    @property
    def address(self) -> str:
        """From which address the request came: of a proxy, if there is one; "" if the server does not say."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    def purpose(self, given: str) -> str:
        """What the caller said it is for, and the caller's name where there is one; kept beside what is held."""
        name = self.principal.name
        return given if self.principal is LOCAL else f"{given}, for {name}" if given else f"for {name}"

    def header(self, name: str) -> str:
        """The header's value, or ""."""
        wanted = name.lower().encode()
        for each, value in self.scope["headers"]:
            if each == wanted:
                return str(value, "latin-1")
        return ""

    async def waiting(self, work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]] | None = None) -> T:
        """The result of what may take long: cancelled when the caller goes away, refused when the service stops.

        If the caller is gone when the work is just done, `undo` takes it back.
        """
        waiters, name = self.service.waiters, self.principal.name
        if waiters.full(name):
            work.close()  # it is never begun
        waiters.enter(name)
        try:
            with Watch(self) as watch:
                result = await work
        finally:
            waiters.leave(name)
        if watch.hung_up or self._is_gone():
            if undo is not None:
                await undo(result)
            raise ClientGone
        return result

    def _is_gone(self) -> bool:
        """True if it is known already that the caller is gone; waits for nothing."""
        closing: Callable[[], bool] | None = self.scope.get(CLOSING)
        if closing is not None:
            return closing()
        look = self.receive().__await__()  # another server: whose next message can only be that
        try:
            next(look)
        except StopIteration:
            return True
        look.close()
        return False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with another status or headers than the route's usual."""

    status: int
    body: object = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


_NOT_JSON = (Reply, Response, NoneType)
Handler = Callable[[Any], Awaitable[object]]  # returns an Answer, a Reply, a Starlette response, or None


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint: how it is reached, by whom, what it takes and what it gives. InvalidInput if it says too little.

    `body`, `query` and `answer` are read from the handler's annotations: `async def handler(call: Call[Body, Query]) ->
    Answer`, with None where there is none. The answer is sent with `status`; `others` are further statuses and their
    types; `refusals` are the problems of its own, beside those that every route has. `cap` bounds the body in bytes as
    it streams in. A route that `grants` is refused while the service stops. `again` says what a repeat of the request
    does: the policy page shows it. `keyed`: a repeat with the same Idempotency-Key gets the first one's answer, which
    must then still be true. A form is urlencoded, and needs the CSRF token in its field `csrf`. `tag` says under what
    the documents list it, where its path does not; those of an application are listed under its name.
    """

    method: str
    path: str
    auth: Auth
    handler: Handler
    summary: str
    status: int = 200
    others: Mapping[int, Any] = field(default_factory=dict)
    refusals: tuple[Kind, ...] = ()
    media: str = "application/json"
    form: bool = False
    cap: int = SMALL
    grants: bool = False
    again: str = ""
    keyed: bool = False
    hidden: bool = False  # a page for people: not part of the documented API
    tag: str = ""
    body: Any = field(init=False)
    query: Any = field(init=False)
    answer: Any = field(init=False)

    def __post_init__(self) -> None:
        try:
            for name, wanted in zip(("body", "query", "answer"), _types_of(self.handler), strict=True):
                object.__setattr__(self, name, wanted)
            _check(self)
        except InvalidInput as error:
            raise InvalidInput(f"route {self.method} {self.path}: {error}") from None

    @property
    def is_admin_action(self) -> bool:
        """True if it changes what others hold: then its body has a reason, which the audit log keeps."""
        return isinstance(self.auth, Bearer) and self.auth.scope is Scope.ADMIN and self.method not in SAFE

    @property
    def noun(self) -> str:
        """What the route is about: its tag, else the first part of its path that is neither `api` nor a version."""
        parts = [part for part in self.path.split("/") if part]
        named = (part for part in parts if part != "api" and not _VERSION.fullmatch(part))
        return self.tag or next(named, "dashboard")

    @property
    def name(self) -> str:
        """A word for logs, metrics and documents: `locks.acquire`."""
        parts = [part.strip("{}.-") for part in self.path.removeprefix("/v1").split("/")]
        return ".".join(part for part in parts if part) or "dashboard"


def _check(route: Route) -> None:
    if type(route.auth) not in (Public, Bearer, Webhook):
        raise InvalidInput("it declares no scheme; give it PUBLIC, READ, WRITE, ADMIN or a Webhook")
    fields = () if route.body is None else getattr(route.body, "__struct_fields__", ())
    if route.is_admin_action and "reason" not in fields:
        raise InvalidInput("it is an admin action: its body needs a `reason`, which the audit log keeps")


def _types_of(handler: Handler) -> tuple[Any, Any, Any]:
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
    """The part of the annotation that names JSON; None for responses of another kind, and for `object`: a page."""
    alternatives = get_args(answer) if isinstance(answer, UnionType) else (answer,)
    sent = [each for each in alternatives if get_origin(each) or not issubclass(each, _NOT_JSON)]
    return reduce(or_, sent) if sent and object not in sent else None
