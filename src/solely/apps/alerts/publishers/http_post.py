"""HTTP POST to a URL, with bounds on what the receiver controls: no redirects, no cookies, no proxy from the
environment, and only the beginning of the response is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from .address_guard import AddressGuard
from .failure import PublishFailed, sanitized
from .settings import SlackSettings, WebhookSettings, trusted

MAX_ANSWER = 16 << 10  # bytes: an error page says in its first lines what is wrong
ANSWER = 0.25  # seconds for the body to follow the status, which alone says whether the receiver has it
IDLE = 30.0  # seconds that an idle connection is kept: most servers close theirs after 60 or more
LONGEST_RETRY_AFTER = 3_600.0  # seconds: a receiver that asks for longer is retried after an hour, since people wait
TEMPORARY = frozenset({408, 425, 429})  # and all from 500: statuses after which a retry may succeed


class Poster:
    """Posts JSON to one URL. It uses the transport directly: httpx's client logs URLs, which may be secret."""

    def __init__(self, settings: WebhookSettings | SlackSettings) -> None:
        self._name = settings.name
        self._url = httpx2.URL(settings.url)
        self._secrets = settings.secret_texts()
        self._guard = AddressGuard(settings.name, settings.guard_allow) if settings.guard else None
        at_once = settings.at_once
        limits = httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once, keepalive_expiry=IDLE)
        # Without TLS there is nothing to verify, and loading the certificates takes a tenth of a second.
        verify = trusted(settings.name, settings.ca_file) if settings.ca_file else self._url.scheme == "https"
        self._transport = httpx2.AsyncHTTPTransport(verify=verify, limits=limits)

    async def post(self, body: bytes, headers: Mapping[str, str], attempt: int) -> None:
        """Returns when the receiver answered 2xx; else raises PublishFailed."""
        request = await self._request(body, headers, attempt)
        try:
            response = await self._transport.handle_async_request(request)
        except httpx2.ConnectError as error:
            text = f"{self._name}: cannot connect to {self._url.host}: {sanitized(str(error), self._secrets)}"
            raise PublishFailed(text) from None
        except (httpx2.TransportError, OSError) as error:  # its text may contain what was sent
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
        """The request. With the guard it goes to a checked address, a different one at each attempt, while the Host
        header and the name in the certificate stay those of the URL."""
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
        text = sanitized(text, self._secrets)
        message = f"{self._name}: {self._url.host} answered {status}{f': {text}' if text else ''}"
        if response.has_redirect_location:
            return PublishFailed(
                f"{message}; redirects are not followed, give the URL that it leads to", permanent=True
            )
        if status in TEMPORARY or status >= 500:
            return PublishFailed(message, retry_after=retry_after(response.headers.get("retry-after", "")))
        return PublishFailed(message, permanent=True)


def retry_after(text: str) -> float | None:
    """The seconds of a Retry-After header, a number or a date, within bounds; None if it is invalid."""
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
    """The beginning of the body, as far as it arrives in time."""
    kept = bytearray()
    with contextlib.suppress(TimeoutError, httpx2.TransportError):
        async with asyncio.timeout(ANSWER), contextlib.aclosing(response.aiter_raw()) as parts:
            async for part in parts:
                kept += part[: MAX_ANSWER - len(kept)]
                if len(kept) == MAX_ANSWER:
                    break
    return kept.decode(errors="replace")
