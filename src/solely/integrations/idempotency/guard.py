"""The guard: what is decided about a request before, and about its claim after, the store was asked. No I/O."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from ...errors import InvalidInput, Mismatch, SolelyError
from .key import FIELD, fitting_key, parse_key
from .page import policy_page
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
from .request import Request, digest, fingerprint
from .response import Answer, Record, unpacked
from .rules import Rules

MAX_DIGITS = 18  # of a Content-Length: no body is that large, and Python refuses to read thousands of digits


class Ticket(NamedTuple):
    """A request that may be asked about: whose, and under which key."""

    principal: str
    key: str


class Outcome(Protocol):
    """What is asked of a claim, blocking or awaited."""

    @property
    def won(self) -> bool: ...
    @property
    def timed_out(self) -> bool: ...
    @property
    def value(self) -> Any: ...


class Standing(Protocol):
    """What is asked of a publication."""

    @property
    def superseded(self) -> bool: ...
    @property
    def value(self) -> Any: ...


class Guard:
    """Decides by the rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._form = re.compile(rules.key_form)
        self._page = policy_page(rules)

    def door(self, request: Request) -> Answer | Ticket | None:
        """A ticket; or the answer that turns the request away, before any store call; or None: it is not guarded."""
        rules = self.rules
        if request.method not in rules.methods:
            return self._page if self._asks_for_the_page(request) else None
        lines = request.lines(FIELD)
        if not lines:
            required = rules.required(request) if callable(rules.required) else rules.required
            return self.refuse(MISSING, request) if required else None
        try:
            key = fitting_key(parse_key(lines), self._form)
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
        return Ticket(principal, key)

    def terms(self, ticket: Ticket, request: Request) -> dict[str, Any]:
        """What to claim, as the arguments of `once.claim`."""
        rules = self.rules
        owner = digest([ticket.principal.encode("utf-8", "surrogatepass")], rules.secret)
        return {
            "key": f"{rules.realm}/{owner}/{ticket.key}",
            "ttl": rules.ttl,
            "wait": rules.patience,
            "keep": rules.keep,
            "fingerprint": fingerprint(request, rules.payload(request), rules.secret),
            "purpose": request.method,  # of a URI nothing is told: it may hold secrets
        }

    def failed(self, error: SolelyError, request: Request) -> Answer:
        """The answer to a request whose claim could not be had."""
        if isinstance(error, Mismatch):
            return self.refuse(REUSED, request)
        return self.refuse(UNAVAILABLE, request)

    def verdict(self, claim: Outcome, request: Request) -> Answer | None:
        """The answer to a request that somebody else runs or ran; None if this one is to run."""
        if claim.won:
            return None
        if claim.timed_out:
            return self.refuse(CONFLICT if self.rules.in_flight == "conflict" else STILL_RUNNING, request)
        return self.replay(unpacked(claim.value), request)

    def converged(self, publication: Standing, request: Request) -> Answer | None:
        """The response that stands, if another's was published before this one; else None."""
        if not publication.superseded or publication.value is None:
            return None
        return self.replay(unpacked(publication.value), request)

    def replay(self, record: Record | None, request: Request) -> Answer:
        """The kept response; or, if only a tombstone was kept, that it was done."""
        if record is not None and record.body is not None:
            return record.replay()
        if record is None:
            return self.refuse(NOT_KEPT, request)
        policy, more = self.policy(request), [*record.location(), record.expiry()]
        return refusal(NOT_KEPT, policy, more=more, original_status=record.status)

    def refuse(self, problem: ProblemKind, request: Request, detail: str = "") -> Answer:
        """The problem as a response, with Retry-After where the same request may be sent again."""
        again = problem in (CONFLICT, STILL_RUNNING, UNAVAILABLE)
        more = [(b"Retry-After", b"%d" % self.rules.retry_after)] if again else []
        return refusal(problem, self.policy(request), detail, more=more)

    def policy(self, request: Request) -> str:
        """The address of the policy page."""
        return self.rules.policy_url or quote(request.root + self.rules.policy_path)

    def _asks_for_the_page(self, request: Request) -> bool:
        return (
            request.method == "GET"
            and not self.rules.policy_url
            and request.target.partition(b"?")[0].decode("latin-1") == self.policy(request)
        )
