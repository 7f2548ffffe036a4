"""HTTP: a request of a stale holder gets 409 before the application sees it.

The holder sends `headers(lease)`. The ASGI middleware compares the fence with the highest one that its book holds for
the resource. It guards the door: a request that was let in and then outlived by a later holder's is not called back,
so where that matters the handler guards its own write with `scope["solely.fence"]`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InvalidInput, StoreError, StoreFailed, Unreadable
from ..formats import FENCE_DIGITS
from ..functions import asgi_application, plain_function
from ..model import Entry
from ..ops import Advance
from ..rules import stored_key
from ..stores import AsyncStore, Store, open_async_store
from .order import encoded, stale, valid_fence

if TYPE_CHECKING:
    from ..leases.lease import AsyncLease, Lease

HEADER = "Solely-Fence"
SCOPE_KEY = "solely.fence"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_NAME = HEADER.lower().encode()
_DIGITS = re.compile(rb"[0-9]{1,%d}" % FENCE_DIGITS)


def headers(lease: Lease | AsyncLease) -> dict[str, str]:
    """The header that a holder adds to its requests."""
    return {HEADER: str(lease.fence)}


class FenceBook(Protocol):
    """Stores the highest fence of each resource."""

    async def advance(self, resource: str, fence: int) -> int:
        """Stores the fence if it is the greatest so far, and returns the greatest. StoreError if that fails."""


class StoreFenceBook:
    """Stores fences in a store, under keys of the kind `fence`, for all processes that share it. For asyncio stores."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def advance(self, resource: str, fence: int) -> int:
        return _kept((await self._store.perform([_advance(resource, fence)]))[0])


class BlockingStoreFenceBook:
    """Stores fences in a blocking store, called in a thread, so that the event loop is not blocked."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def advance(self, resource: str, fence: int) -> int:
        return _kept((await asyncio.to_thread(self._store.perform, [_advance(resource, fence)]))[0])


class MemoryFenceBook(StoreFenceBook):
    """Stores fences in this process and evicts none; StoreFull for a new resource beyond `max_size`."""

    def __init__(self, max_size: int = 100_000) -> None:  # resources: about 55 MB
        super().__init__(open_async_store(f"memory://?max_size={max_size}"))


def path_of(scope: Scope) -> str:
    """The default resource: the path, for every method."""
    return str(scope["path"])


class FenceMiddleware:
    """Accepts a request with a `Solely-Fence` header only if no greater fence was seen for its resource.

    Refuses with problem+json: 409 if stale, 400 if malformed, 503 if the book is unavailable, and with `required` 428
    if the header is missing; otherwise such a request passes. `resource` names the resource; None skips the check.
    """

    def __init__(
        self,
        app: App,
        *,
        book: FenceBook,
        resource: Callable[[Scope], str | None] = path_of,
        required: bool = False,
    ) -> None:
        self._app = asgi_application("app", app)
        self._book = book
        self._resource = plain_function("resource", resource)
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        resource = self._resource(scope) if scope["type"] == "http" else None
        problem = None if resource is None else await self._problem(resource, scope)
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await _answer(send, problem)

    async def _problem(self, resource: str, scope: Scope) -> dict[str, Any] | None:
        """The refusal, or None; an accepted request has its fence in the scope."""
        given = [value for name, value in scope["headers"] if name.lower() == _NAME]
        if not given:
            detail = f"a request for this resource needs a {HEADER} header"
            return _problem(428, "Fence required", detail) if self._required else None
        try:
            fence = _parsed(given)
            kept = await self._book.advance(resource, fence)
        except InvalidInput as error:
            return _problem(400, "Malformed fence", str(error))
        except StoreError as error:
            return _problem(503, "Fences unavailable", f"whether this fence is stale is unknown: {error}")
        if kept > fence:
            facts = {"resource": resource, "offered": fence, "stored": kept}
            return _problem(409, "Stale fence", str(stale(resource, fence, kept)), **facts)
        scope[SCOPE_KEY] = fence
        return None


def _parsed(given: list[bytes]) -> int:
    if len(given) != 1 or not _DIGITS.fullmatch(given[0]):
        raise InvalidInput(f"{HEADER} must be given once, as 1 to {FENCE_DIGITS} decimal digits")
    return valid_fence(int(given[0]))


def _advance(resource: str, fence: int) -> Advance:
    return Advance(stored_key("fence", resource), encoded(fence))


def _kept(reply: Any) -> int:
    if isinstance(reply, StoreError):
        raise reply
    if not isinstance(reply, Entry) or reply.value is None:
        raise StoreFailed(f"the store answered an Advance with {reply!r:.80}")
    if not reply.value.isdigit():
        text = f"the fence of {reply.name!r} was kept by something else: {reply.value!r:.40}"
        raise Unreadable(text, key=reply.name)
    return int(reply.value)


def _problem(status: int, title: str, detail: str, **facts: Any) -> dict[str, Any]:
    """A problem document (RFC 9457)."""
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, **facts}


async def _answer(send: Send, problem: dict[str, Any]) -> None:
    body = json.dumps(problem).encode()
    kind = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": problem["status"], "headers": kind})
    await send({"type": "http.response.body", "body": body})
