"""Calls to other systems over HTTP, with bounds on what the receiver controls: addresses, redirects, time and size."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from typing import Self

import httpcore2
import httpx2

from ..client import AsyncClient
from .attempts import Attempts
from .checks import parsed, trusted, unverified
from .cookies import CookieJar
from .guard import AddressGuard
from .message import AddressRefused, CallFailed, Request, Response, Timings, TooManyRedirects
from .network import PEER, WATCH, Stopwatch, connection_pool, reason_of
from .pages import MAX_PAGES, NextPage
from .redirects import leads_elsewhere, origin, redirected
from .sanitizing import sanitized
from .settings import OutgoingSettings

TEMPORARY = frozenset({408, 425, 429})  # and all from 500: statuses after which a retry may succeed
_WITH_BODY = frozenset({"PATCH", "POST", "PUT"})  # methods whose receivers expect a length, also of no body
_BROKEN = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError)


class Caller:
    """Calls one system. All its calls share connections, bounds, and a breaker in the store `once`, if that is given.

    `name` begins the text of its errors; `breaker` is the name of the breaker, by default the same. An application
    reserves it: `reserved("repos", "jira")`. Names are resolved on the threads of `resolvers`, by default on those that
    all callers share.
    """

    def __init__(
        self,
        name: str,
        settings: OutgoingSettings | None = None,
        *,
        once: AsyncClient | None = None,
        breaker: str = "",
        resolvers: Executor | None = None,
    ) -> None:
        given = settings or OutgoingSettings()
        self.name = name
        self._settings = given
        self._attempts = Attempts(
            name, timeout=given.timeout, at_once=given.at_once, retries=given.retries, once=once, breaker=breaker
        )
        guard = AddressGuard(name, given.guard_allow, check=given.guard, resolvers=resolvers)
        tls = trusted(f"{name}:", given.ca_file) if given.verify else unverified()
        self._pool = connection_pool(guard, tls, given.at_once, given.at_once if given.reuse else 0)
        self._cookies: CookieJar | None = None

    def session(self) -> Caller:
        """The same caller with cookies of its own: what a response sets is sent by later calls of the session."""
        session = copy(self)
        session._cookies = CookieJar()
        return session

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies of this session by name; those of several paths or hosts as the last one that was set."""
        return {} if self._cookies is None else self._cookies.values()

    async def call(self, request: Request) -> Response:
        """The response, whatever its status; CallFailed if there is none.

        A temporary status (408, 425, 429, 5xx) is retried, and its last response returned.
        """
        try:
            return await self.call_ok(request)
        except CallFailed as failure:
            if failure.response is None:
                raise
            return failure.response

    async def call_ok(self, request: Request) -> Response:
        """The response, if its status is 2xx; else CallFailed, which says whether a retry may help, and when."""
        watch = Stopwatch()
        try:
            return await self._attempts.run(
                lambda: self._attempt(request, watch), lambda: request.may_repeat or watch.unsent
            )
        except CallFailed as failure:
            failure.phase = watch.phase
            raise

    async def pages(self, request: Request, next: NextPage, most: int = MAX_PAGES) -> AsyncIterator[Response]:
        """The pages that follow one another, each with status 2xx; else CallFailed, also for more than `most` pages,
        and for a page at another origin, which must not get our credentials."""
        for _ in range(most):
            response = await self.call_ok(request)
            yield response
            following = self._following(request, response, next)
            if following is None:
                return
            request = following
        raise CallFailed(f"{self.name}: {response.host} has more than {most} pages", permanent=True)

    async def close(self) -> None:
        """Closes all connections, also those of its sessions; safe to call twice."""
        await self._pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _attempt(self, request: Request, watch: Stopwatch) -> Response:
        """One try, redirects included: a response with status 2xx; else CallFailed."""
        limit = self._settings.try_timeout or self._settings.timeout
        until = asyncio.get_running_loop().time() + limit
        watch.start(until)
        WATCH.set(watch)
        try:
            async with asyncio.timeout_at(until if self._settings.try_timeout else None):
                response = await self._followed(request, watch)
        except TimeoutError:
            raise CallFailed(f"{self.name}: no answer within {limit:g} s") from None
        if not response.ok:
            raise self._refused(response)
        return response

    async def _followed(self, request: Request, watch: Stopwatch) -> Response:
        """The response at the end of the redirects."""
        most = self._settings.max_redirects if request.max_redirects is None else request.max_redirects
        response = await self._sent(request, watch)
        for number in range(1, most + 1):
            if not leads_elsewhere(response):
                return response
            request = redirected(self.name, request, response)
            watch.redirects = number
            try:
                response = replace(await self._sent(request, watch), redirects=number)
            except AddressRefused as refused:  # the receiver leads there, nobody else
                raise CallFailed(str(refused), permanent=True) from None
        if most and leads_elsewhere(response):
            raise TooManyRedirects(f"{self.name}: {response.host} redirects more than {most} times", response)
        return response

    async def _sent(self, request: Request, watch: Stopwatch) -> Response:
        """The response to this request alone."""
        url, headers = parsed(request.url), self._headers(request)
        secrets = request.hidden(headers)
        watch.enter("first_byte")
        watch.head, watch.received = None, 0
        try:
            answer = await self._pool.handle_async_request(_raw(request, headers))
            try:
                watch.enter("transfer")
                head = watch.head = _head(answer, request, secrets)
                body, complete = await self._body(answer, watch)
            finally:
                await answer.aclose()
        except httpcore2.ConnectError as error:
            text = f"{self.name}: cannot connect to {url.host}: {sanitized(reason_of(error), secrets)}"
            raise CallFailed(text) from None
        except _BROKEN as error:  # its text may contain what was sent
            raise CallFailed(f"{self.name}: {url.host} did not answer: {type(error).__name__}") from None
        if self._cookies is not None:
            self._cookies.keep(request, head.headers)
        watch.enter("")
        return replace(head, body=body, timings=watch.timings(), complete=complete, received=watch.received)

    def _headers(self, request: Request) -> dict[str, str]:
        """All headers of the request, with lower-case names."""
        headers = {"host": request.server_name or parsed(request.url).netloc.decode(), "user-agent": "solely"}
        fresh = request.checked_fresh_headers()
        headers |= {name.lower(): value for some in (request.headers, fresh) for name, value in some.items()}
        headers["accept-encoding"] = "identity"  # what is compressed could grow beyond all bounds
        if request.body or request.method in _WITH_BODY:
            headers["content-length"] = str(len(request.body))
        return headers if self._cookies is None else headers | self._cookies.header(request)

    async def _body(self, answer: httpcore2.Response, watch: Stopwatch) -> tuple[bytes, bool]:
        """The body, or its beginning and False, as the settings say. The stopwatch counts the bytes that arrived."""
        kept, most, patience = bytearray(), self._settings.max_response, self._settings.body_timeout
        counted = max(most, self._settings.max_counted)
        try:
            async with asyncio.timeout(patience), contextlib.aclosing(answer.aiter_stream()) as parts:
                async for part in parts:
                    watch.received += len(part)
                    kept += part[: most - len(kept)]
                    if watch.received > counted:
                        break
        except _BROKEN:  # of which TimeoutError is one
            if patience is None:
                raise
            return bytes(kept), False
        return bytes(kept), watch.received <= most

    def _refused(self, response: Response) -> CallFailed:
        status = response.status
        text = sanitized(response.text, response.secrets)
        message = f"{self.name}: {response.host} answered {status}{f': {text}' if text else ''}"
        if leads_elsewhere(response):
            message += "; redirects are not followed, give the URL that it leads to"
        temporary = status in TEMPORARY or status >= 500
        wait = response.retry_after if temporary else None
        return CallFailed(message, permanent=not temporary, retry_after=wait, response=response)

    def _following(self, request: Request, response: Response, next: NextPage) -> Request | None:
        """The request for the next page, None after the last."""
        try:
            following = next(request, response)
        except (httpx2.InvalidURL, ValueError, TypeError):  # of which InvalidInput is one
            raise CallFailed(f"{self.name}: {response.host} names an invalid next page", permanent=True) from None
        if following is not None and origin(following.url) != origin(request.url):
            text = f"{self.name}: {response.host} names a next page at another scheme, host or port: not called"
            raise CallFailed(text, permanent=True)
        if following == request:
            raise CallFailed(f"{self.name}: {response.host} names the same page as the next one", permanent=True)
        return following


def _head(answer: httpcore2.Response, request: Request, secrets: tuple[str, ...]) -> Response:
    """The response, of which the body is yet to come."""
    address, expires, tls = answer.extensions["network_stream"].get_extra_info(PEER)
    return Response(
        answer.status,
        httpx2.Headers(answer.headers),
        b"",
        request.url,
        Timings(),
        complete=False,
        address=address,
        certificate_expires=expires,
        secrets=secrets,
        tls=tls,
        version=answer.extensions.get("http_version", b"").decode().removeprefix("HTTP/"),
    )


def _raw(request: Request, headers: Mapping[str, str]) -> httpcore2.Request:
    """The request as the connection pool takes it."""
    url = parsed(request.url)
    place = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    more = {"sni_hostname": request.server_name} if request.server_name else {}
    return httpcore2.Request(request.method, place, headers=[*headers.items()], content=request.body, extensions=more)
