"""Decides about a request before it is claimed, and about its claim afterwards. No I/O."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from ...errors import InvalidInput, Mismatch, SolelyError
from .key import FIELD, fitting_key, parse_key
from .policy_page import policy_page
from .problems import (
    CONFLICT,
    INCOMPLETE,
    MALFORMED,
    MISSING,
    NO_SCOPE,
    NOT_KEPT,
    REUSED,
    STILL_RUNNING,
    TOO_LARGE,
    UNAVAILABLE,
    ProblemKind,
    refusal,
)
from .request import HttpRequest, digest, fingerprint
from .response import HttpResponse, StoredResponse, unpacked
from .rules import Rules

MAX_DIGITS = 18  # of a Content-Length: no body is that large, and Python refuses to read thousands of digits


class RequestKey(NamedTuple):
    """The principal and the key of an admitted request."""

    principal: str
    key: str


class ClaimResult(Protocol):
    """What the checker reads of a claim, blocking or asyncio."""

    @property
    def won(self) -> bool: ...
    @property
    def timed_out(self) -> bool: ...
    @property
    def value(self) -> Any: ...


class PublishResult(Protocol):
    """What the checker reads of a publication."""

    @property
    def superseded(self) -> bool: ...
    @property
    def value(self) -> Any: ...


class KeyChecker:
    """Applies the rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._form = re.compile(rules.key_form)
        self._page = policy_page(rules)

    def admit(self, request: HttpRequest) -> HttpResponse | RequestKey | None:
        """The request's key; or the response that refuses it, before any store call; or None if it is not guarded."""
        rules = self.rules
        if request.method not in rules.methods:
            return self._page if self._is_policy_page(request) else None
        lines = request.lines(FIELD)
        if not lines:
            required = rules.required(request) if callable(rules.required) else rules.required
            return self.refuse(MISSING, request) if required else None
        try:
            key = fitting_key(parse_key(lines, bare=rules.bare_keys), self._form)
        except InvalidInput as error:
            return self.refuse(MALFORMED, request, str(error))
        principal = rules.scope(request)
        if not principal:
            return self.refuse(NO_SCOPE, request)
        length = request.header("content-length")
        if length is not None and not (length.isascii() and length.isdigit()):
            return self.refuse(INCOMPLETE, request)
        if length is not None and (len(length) > MAX_DIGITS or int(length) > rules.max_request):
            return self.refuse(TOO_LARGE, request)
        return RequestKey(principal, key)

    def claim_arguments(self, key: RequestKey, request: HttpRequest) -> dict[str, Any]:
        """The arguments of `once.claim`."""
        rules = self.rules
        owner = digest([key.principal.encode("utf-8", "surrogatepass")], rules.secret)
        return {
            "key": f"{rules.realm}/{owner}/{key.key}",
            "ttl": rules.ttl,
            "wait": rules.max_wait,
            "keep": rules.keep,
            "fingerprint": fingerprint(request, rules.payload(request), rules.secret),
            "purpose": request.method,  # not the URI, which may hold secrets
        }

    def refuse_claim(self, error: SolelyError, request: HttpRequest) -> HttpResponse:
        """The response to a request whose claim failed."""
        if isinstance(error, Mismatch):
            return self.refuse(REUSED, request)
        return self.refuse(UNAVAILABLE, request)

    def existing_response(self, claim: ClaimResult, request: HttpRequest) -> HttpResponse | None:
        """The response to a request that runs or ran elsewhere; None if this one must run."""
        if claim.won:
            return None
        if claim.timed_out:
            return self.refuse(CONFLICT if self.rules.in_flight == "conflict" else STILL_RUNNING, request)
        return self.replay(unpacked(claim.value), request)

    def superseding_response(self, publication: PublishResult, request: HttpRequest) -> HttpResponse | None:
        """The published response if another was published before this one; else None."""
        if not publication.superseded or publication.value is None:
            return None
        return self.replay(unpacked(publication.value), request)

    def replay(self, record: StoredResponse | None, request: HttpRequest) -> HttpResponse:
        """The stored response; or, for a tombstone, the refusal which says that the request was processed."""
        if record is not None and record.body is not None:
            return record.replay()
        if record is None:
            return self.refuse(NOT_KEPT, request)
        policy, more = self.policy(request), [*record.location(), record.expiry()]
        return refusal(NOT_KEPT, policy, more=more, original_status=record.status)

    def refuse(self, problem: ProblemKind, request: HttpRequest, detail: str = "") -> HttpResponse:
        """The problem as a response, with Retry-After where the same request may be sent again."""
        again = problem in (CONFLICT, STILL_RUNNING, UNAVAILABLE)
        more = [(b"Retry-After", b"%d" % self.rules.retry_after)] if again else []
        return refusal(problem, self.policy(request), detail, more=more)

    def policy(self, request: HttpRequest) -> str:
        """The address of the policy page."""
        return self.rules.policy_url or quote(request.root + self.rules.policy_path)

    def _is_policy_page(self, request: HttpRequest) -> bool:
        return (
            request.method == "GET"
            and not self.rules.policy_url
            and request.target.partition(b"?")[0].decode("latin-1") == self.policy(request)
        )
