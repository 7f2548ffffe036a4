"""Rules: how one service treats idempotency keys. They are what its policy page publishes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from ...errors import InvalidInput
from ...functions import plain_function
from ...rules import MAX_VALUE_BYTES, MIN_TTL, Seconds, seconds, ttl_seconds, wait_seconds
from .request import HttpRequest, whole_body

DAY = 86_400.0  # seconds that a response is kept: no client retries after more than a day
LEASE = 30.0  # seconds after which another may run the request of a process that died; renewed while it lives
WAIT = 5.0  # seconds that a copy waits for the first to end: half of what impatient clients give a request
RETRY_AFTER = 1  # seconds, for refused requests: most requests take less, and it is the smallest value of the header
HEADERS = 8 * 1024  # bytes left for headers beside a kept body: what most servers allow a header block
_TRANSIENT = frozenset(
    {401, 408, 425, 429}
)  # refusals that ask to retry or to authenticate: the same key can be used again


def is_transient(status: int) -> bool:
    """True for responses that mean that the work was not done and may be tried again: 5xx, 401, 408, 425, 429."""
    return status >= 500 or status in _TRANSIENT


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Which requests are guarded, and how. Raises InvalidInput for invalid rules.

    `scope` names the principal that sent a request (from the request's `native`, where authentication stored it, or
    from a header): keys of two principals never conflict. None refuses the request, so return a constant if there is
    only one client. All other fields have defaults.
    """

    scope: Callable[[HttpRequest], str | None]
    methods: Collection[str] = ("POST", "PATCH")  # the methods that are not idempotent by definition
    required: bool | Callable[[HttpRequest], bool] = (
        True  # whether a request without a key is refused, or passed on unguarded
    )
    in_flight: Literal["wait", "conflict"] = "wait"  # a copy of a request that still runs waits for it, or gets 409
    wait: Seconds = WAIT
    ttl: Seconds = LEASE
    keep: Seconds = DAY
    retry_after: int = RETRY_AFTER
    bare_keys: bool = False  # whether a key without its double quotes is accepted, as Stripe's clients send it
    key_form: str = "[!-~]{1,255}"  # visible ASCII, as long as a file name: UUIDs, ULIDs, hashes, order numbers
    max_request: int = 1024 * 1024  # bytes, since the body is held in memory to be compared
    max_response: int = MAX_VALUE_BYTES - HEADERS  # bytes; a larger one is sent, and leaves a tombstone
    releases: Callable[[int], bool] = is_transient  # statuses (an exception is 500) after which a retry runs again
    unsafe_headers: Collection[str] = ()  # not replayed, beside those that never are
    payload: Callable[[HttpRequest], bytes] = (
        whole_body  # the part of a request that must be the same when its key is used again
    )
    policy_path: str = "/idempotency-policy"
    policy_url: str = ""  # where the policy is published, if not by the middleware at `policy_path`
    secret: bytes = b""  # keys the digests of principals and payloads in the store
    realm: str = "http"  # separates services that share a store

    def __post_init__(self) -> None:
        if not callable(self.scope):
            raise InvalidInput("scope must be a function of the request that names its principal")
        for what in ("scope", "required", "releases", "payload"):
            if not isinstance(getattr(self, what), bool):
                plain_function(what, getattr(self, what))
        if self.in_flight not in ("wait", "conflict"):
            raise InvalidInput(f"in_flight must be 'wait' or 'conflict', not {self.in_flight!r}")
        wait_seconds(self.wait)
        ttl_seconds(self.ttl)
        seconds("keep", self.keep, least=MIN_TTL, most=366 * DAY)
        _between("retry_after", self.retry_after, 1, 3600)
        _between("max_request", self.max_request, 0, 1 << 30)
        _between("max_response", self.max_response, 0, MAX_VALUE_BYTES - HEADERS)
        try:
            re.compile(self.key_form)
        except re.error as error:
            raise InvalidInput(f"key_form {self.key_form!r} is no regular expression: {error}") from None
        if isinstance(self.methods, str):
            raise InvalidInput(f"give several methods as a list, not as one text: {self.methods!r}")
        if not self.policy_path.startswith("/"):
            raise InvalidInput(f"policy_path must begin with a slash: {self.policy_path!r}")
        if len(self.secret) > 64:
            raise InvalidInput(f"secret has {len(self.secret)} bytes; the most is 64")
        if not re.fullmatch("[!-~]{1,64}", self.realm):
            raise InvalidInput(f"realm {self.realm!r:.80} must be 1 to 64 visible ASCII characters")

    @property
    def max_wait(self) -> float:
        """Seconds that a copy of a running request waits for it."""
        return wait_seconds(self.wait) if self.in_flight == "wait" else 0.0

    @property
    def keep_seconds(self) -> float:
        """`keep` in float seconds."""
        return seconds("keep", self.keep, least=MIN_TTL, most=366 * DAY)


def _between(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from {least} to {most}, not {value!r}")
