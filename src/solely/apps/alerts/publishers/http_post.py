"""Posting to a URL, with everything bounded that the other side decides: no redirect is followed, no cookie kept, no
proxy of the environment used, and of the answer no more than its beginning is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from .address_guard import Guard
from .failure import PublishFailed, said
from .settings import SlackSettings, WebhookSettings, trusted

MAX_ANSWER = 16 << 10  # bytes: an error page says in its first lines what is wrong
ANSWER = 0.25  # seconds for the body to follow its status: that alone says whether the receiver has it
IDLE = 30.0  # seconds that an idle connection is kept: most servers close theirs after 60 or more
LONGEST_RETRY_AFTER = 3_600.0  # seconds: who asks for longer is asked again after an hour, since people wait
MAY_PASS = frozenset({408, 425, 429})  # and all from 500: what a server answers when it cannot just now


class Poster:
    """Posts JSON to one URL. It works on the transport itself: the client above it logs URLs, which may be secret."""

    def __init__(self, settings: WebhookSettings | SlackSettings) -> None:
        self._name = settings.name
        self._url = httpx2.URL(settings.url)
        self._secrets = settings.secret_texts()
        self._guard = Guard(settings.name, settings.guard_allow) if settings.guard else None
        at_once = settings.at_once
        limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once, keepalive_expiry=IDLE)
        # Without TLS there is nothing to verify, and reading all certificates takes a tenth of a second.
        verify = trusted(settings.name, settings.ca_file) if settings.ca_file else self._url.scheme == "https"
        self._transport = httpx2.AsyncHTTPTransport(verify=verify, limits=limits)

    async def post(self, body: bytes, headers: Mapping[str, str], attempt: int) -> None:
        """Returns when the receiver answered 2xx; else raises PublishFailed."""
        request = await self._request(body, headers, attempt)
        try:
            response = await self._transport.handle_async_request(request)
        except httpx2.ConnectError as error:
            text = f"{self._name}: cannot connect to {self._url.host}: {said(str(error), self._secrets)}"
            raise PublishFailed(text) from None
        except (httpx2.TransportError, OSError) as error:  # of which the text may hold what we sent
            raise PublishFailed(f"{self._name}: {self._url.host} did not answer: {type(error).__name__}") from None
        try:
            text = await _beginning(response)
        finally:
            await response.aclose()
        if not response.is_success:
            raise self._refused(response, text)

    async def close(self) -> None:
        """Closes all connections; safe to call twice."""
        await self._transport.aclose()

    async def _request(self, body: bytes, headers: Mapping[str, str], attempt: int) -> httpx2.Request:
        """The request. Under the guard it goes to an address that was checked, another one at each attempt, while its
        Host and the name that the certificate must have stay those of the URL."""
        url, extensions = self._url, {}
        every = {
            **headers,
            "host": url.netloc.decode(),
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": "solely",
        }
        if self._guard is not None:
            port = url.port or (443 if url.scheme == "https" else 80)
            addresses = await self._guard.addresses(url.host, port)
            extensions = {"sni_hostname": url.host}
            url = url.copy_with(host=addresses[attempt % len(addresses)])
        return httpx2.Request("POST", url, headers=every, content=body, extensions=extensions)

    def _refused(self, response: httpx2.Response, text: str) -> PublishFailed:
        status = response.status_code
        heard = said(text, self._secrets)
        message = f"{self._name}: {self._url.host} answered {status}{f': {heard}' if heard else ''}"
        if response.has_redirect_location:
            return PublishFailed(
                f"{message}; redirects are not followed, give the URL that it leads to", permanent=True
            )
        if status in MAY_PASS or status >= 500:
            return PublishFailed(message, retry_after=retry_after(response.headers.get("retry-after", "")))
        return PublishFailed(message, permanent=True)


def retry_after(text: str) -> float | None:
    """The seconds of a Retry-After header, which may be a number or a date, within bounds; None if it has neither."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, (moment - datetime.now(UTC)).total_seconds()), LONGEST_RETRY_AFTER)


async def _beginning(response: httpx2.Response) -> str:
    """What came of the body at once, and no more than the bound of it."""
    kept = bytearray()
    with contextlib.suppress(TimeoutError, httpx2.TransportError):
        async with asyncio.timeout(ANSWER), contextlib.aclosing(response.aiter_raw()) as parts:
            async for part in parts:
                kept += part[: MAX_ANSWER - len(kept)]
                if len(kept) == MAX_ANSWER:
                    break
    return kept.decode(errors="replace")
