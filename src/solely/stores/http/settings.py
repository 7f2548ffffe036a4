"""Where the service is, what is sent to it, and what its refusals mean: shared by threads and asyncio."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec

from ...errors import (
    InvalidInput,
    NameReserved,
    StoreDenied,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    Unanswered,
)
from ...model import Finding
from ...ops import MAX_BATCH, MAX_BATCH_BYTES, Acquire, Op, Take
from ...urls import split_url
from .. import Clock
from . import codec

TOKEN = "SOLELY_TOKEN"
PAGE = 1000  # entries at once: as many as the service gives
KEPT_ALIVE = 30.0  # seconds that an idle connection is used again: half of what the service keeps it for
CONNECTIONS = 200  # at once: more threads than that wait for one another
SILENCE = 20.0  # seconds of silence after which a stream of hints is dead: twice what the service pauses, and some
TRY_AGAIN = 5.0  # seconds between tries to open a stream of hints; meanwhile waiters poll

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_DENIED = (401, 403, 421)


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A service: its URL without the token, and the token, which is never shown."""

    url: str
    token: str = field(repr=False)
    clock: Clock | None = None

    def __str__(self) -> str:
        return self.url

    def options(self, timeout: float) -> dict[str, Any]:
        """How connections to it are made. The proxies of the environment are not for this machine's own services."""
        known = {"accept-encoding": "identity"} | ({"authorization": f"Bearer {self.token}"} if self.token else {})
        return {
            "base_url": self.url,
            "headers": known,
            "timeout": timeout,
            "limits": httpx2.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEPT_ALIVE),
            "verify": self.url.startswith("https:"),  # else there is nothing to verify: spares reading certificates
            "trust_env": not _is_here(urlsplit(self.url).hostname or ""),
        }


def parse(url: str, clock: Clock | None = None) -> ServiceAddress:
    """The service that the URL names; an invalid one raises InvalidInput, which never shows the token."""
    parts = split_url(url)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if "namespace=" in parts.query:
        raise InvalidInput(
            f"{parts.scheme}://{host}: the URL of the service's own store names the namespace, not this one"
        )
    if not host or parts.query or parts.fragment:
        raise InvalidInput(f"{parts.scheme}://… takes a host, and may have a token, a port and a path; and no options")
    named = unquote(parts.password or parts.username or "") or os.environ.get(TOKEN, "")
    if not (named.isascii() and named.isprintable()):
        raise InvalidInput(f"the token of {parts.scheme}://{host} is none: tokens are plain ASCII text")
    place = f"[{host}]" if ":" in host else host
    address = f"{parts.scheme}://{place}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    try:
        httpx2.URL(address)
        host.encode("idna")  # as the resolver does, whose error would come at the first call
    except (httpx2.InvalidURL, UnicodeError):
        raise InvalidInput(f"{parts.scheme}://{host:.80} is no address: check the host and the path") from None
    return ServiceAddress(address, named, clock)


def headers(address: ServiceAddress, what: dict[str, Any]) -> dict[str, str]:
    """The headers: the type of the body, if there is one, and the time on an injected clock."""
    about_body = {"content-type": "application/json"} if "content" in what else {}
    return about_body if address.clock is None else about_body | {"solely-now": repr(address.clock())}


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# -- ops


def portions(ops: Sequence[Op], client: str, listens_as: str) -> list[codec.EncodedOps]:
    """The ops as bodies that the service takes. What `client` waits for, it waits for under the name that it is
    hinted by, if it has one."""
    found: list[codec.EncodedOps] = []
    batch: list[Op] = []
    size = 0
    for op in ops:
        if isinstance(op, Acquire | Take) and listens_as and op.client == client:
            op = op._replace(client=listens_as)
        more = _weight(op)
        if batch and (len(batch) == MAX_BATCH or size + more > MAX_BATCH_BYTES):
            found.append(codec.encode(batch))
            batch, size = [], 0
        batch.append(op)
        size += more
    return [*found, codec.encode(batch)] if batch else found


def _weight(op: Op) -> int:
    """About how many bytes the op takes; the service takes four times of what a batch may have."""
    return sum(len(field) for field in op if type(field) is bytes)


# -- answers


def unanswered(error: httpx2.HTTPError, address: ServiceAddress) -> StoreError:
    """The error that a failed request is raised as."""
    text = f"{address}: {str(error) or type(error).__name__}"
    if isinstance(error, _NOT_SENT):
        return StoreUnavailable(text)
    return Unanswered(text) if isinstance(error, httpx2.TransportError) else StoreFailed(text)


class _Problem(msgspec.Struct):
    type: str = ""
    detail: str = ""


def body_of(response: httpx2.Response, address: ServiceAddress) -> bytes:
    """The body of a good answer; else the StoreError that the refusal means."""
    if response.status_code == 200:
        return response.content
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem()
    raise refusal(response.status_code, problem.type.rpartition("#")[2], f"{address}: {_said(response, problem)}")


def refusal(status: int, kind: str, text: str) -> StoreError:
    """The error for a refusal of the service; one without a problem type of ours comes from a proxy in between."""
    if kind == "stopping":
        return StoreUnavailable(text)
    if status == 503 or (status in (502, 504) and not kind):
        return Unanswered(text)
    if kind == "reserved-name":
        return NameReserved(text)
    if status in _DENIED:
        return StoreDenied(text)
    if status == 404:
        return StoreMisconfigured(f"{text}; is this the address of a Solely service?")
    return StoreFull(text) if status == 507 else StoreFailed(text)


def _said(response: httpx2.Response, problem: _Problem) -> str:
    return problem.detail or f"answered {response.status_code} {response.reason_phrase}".strip()


class _Version(msgspec.Struct):
    version: str


class _Ready(msgspec.Struct):
    checks: dict[str, str]


def findings(address: ServiceAddress, version: bytes, ready: bytes, took: float) -> list[Finding]:
    """What the service says of itself."""
    try:
        runs = msgspec.json.decode(version, type=_Version).version
        checks = msgspec.json.decode(ready, type=_Ready).checks
    except msgspec.DecodeError:
        raise StoreMisconfigured(f"{address} answers, and is no Solely service") from None
    found = [Finding("ok", "http", f"{address} runs Solely {runs} and answered in {took * 1000:.1f} ms")]
    for name, level in checks.items():
        advice = "" if level == "ok" else "; `solely doctor`, or the log, on its side says why"
        found.append(Finding(level, f"http {name}", f"the service says of its {name}: {level}{advice}"))
    return found
