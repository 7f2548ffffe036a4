"""Claims over HTTP: one caller wins the right to run and gets a token, with which it publishes the result; all others
get the result.

The service does not renew the claim: if the winner dies, the claim expires after its ttl, and a waiter takes over.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...claims.handle import AsyncClaim
from ...claims.policy import Failing, Policy, Replay
from ...errors import NotKept, WorkFailed
from ...leases.token import read_token
from ...model import State
from ...rules import DAY
from ..problems import BUSY, LOST, MISMATCH, RUNNING, TOO_MANY, UNREADABLE
from ..routes import (
    ADMIN,
    KIB,
    READ,
    WRITE,
    Answer,
    Body,
    Call,
    Key,
    PrefixQuery,
    Purpose,
    Reason,
    Route,
    Token,
    Ttl,
    Wait,
    timestamp,
)

CAP = 512 * KIB  # bytes: the largest result in base64, with room to spare
Text = Annotated[str, msgspec.Meta(max_length=2000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]


class JsonResult(Body, tag_field="form", tag="json"):
    """A JSON result."""

    value: Any


class BytesResult(Body, tag_field="form", tag="bytes"):
    """Bytes as result, in base64."""

    value: bytes


class Tombstone(Body, tag_field="form", tag="tombstone"):
    """The work was done once and is not done again; its result was not kept."""

    why: Text = ""


class FailureResult(Body, tag_field="form", tag="failure"):
    """The work failed permanently and is not run again."""

    kind: Name
    text: Text


Result = JsonResult | BytesResult | Tombstone | FailureResult


class ClaimBody(Body):
    """`fingerprint` is the payload, or the part that matters, as any JSON: the same key with another one is refused."""

    key: Key
    ttl: Ttl = 30.0
    wait: Wait = 0.0
    fingerprint: Any = None
    purpose: Purpose = ""


class PublishClaim(Body):
    """The result, for everybody who waits now or claims within `keep` seconds. If somebody else has taken over, that
    result is final, and the request waits for it within `wait`."""

    token: Token
    result: Result
    keep: Ttl = DAY
    wait: Wait = 0.0


class RenewClaim(Body):
    """Without `ttl`, the ttl of the claim is used again."""

    token: Token
    ttl: Ttl | None = None


class ResumeClaim(Body):
    """The token that the winner handed over. It is void from then on."""

    token: Token


class ReleaseClaim(Body):
    """Releases the claim without a result: the next caller runs the work."""

    token: Token


class ResetClaim(Body):
    """Removes the claim if its result is still the expected one."""

    key: Key
    expected: Result
    reason: Reason


class ClaimAnswer(Answer):
    """If `won`, run the work and publish with the token within `left` seconds, counted from before the request was
    sent. Else `result` is the winner's."""

    key: str
    won: bool
    fence: int
    attempt: int
    waited: float
    token: str = ""
    left: float = 0.0
    result: Result | None = None


class PublishedClaim(Answer):
    """`published`, or `superseded` by another `result`, which is final: that of a later holder (`pending` if there is
    none yet), or one published with this token before."""

    published: bool
    superseded: bool
    pending: bool
    result: Result | None


class RenewedClaim(Answer):
    """Count `left` seconds from before the request was sent."""

    left: float


class ReleasedClaim(Answer):
    """released; expired or cleared if it had ended before; resumed if another holder took it over; lost if the store
    no longer had it (it was flushed, or restarted without its data); unknown if it ended too long ago."""

    outcome: str


class ListedClaim(Answer):
    """A claim that is held (it runs), done (it has an outcome) or closed (it must not run yet), for `left` more
    seconds. `outcome` is empty unless it is done: published, not kept, "failed: …" or "unreadable: …"."""

    key: str
    state: State
    holder: str
    purpose: str
    since: float | None
    left: float
    fence: int
    attempts: int
    waiters: int
    outcome: str
    size: int


class ListedClaims(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    claims: list[ListedClaim]
    next: str | None


class ResetAnswer(Answer):
    """False if the claim has another result, or none."""

    reset: bool


async def claim_key(call: Call[ClaimBody, None]) -> ClaimAnswer:
    """Wins the right to run something once, or returns the winner's result, for which it waits up to `wait`."""
    wanted, service = call.body, call.service
    ttl, wait = service.ttl(wanted.ttl), service.wait(wanted.wait)
    service.holds.check(call.principal.name)
    claiming = service.once.claim(
        wanted.key, ttl=ttl, wait=wait, fingerprint=wanted.fingerprint, purpose=wanted.purpose, renew=False
    )
    claim = await (call.waiting(claiming, AsyncClaim.release, [f"claim/{wanted.key}"]) if wait else claiming)
    answer = ClaimAnswer(key=claim.key, won=claim.won, fence=claim.fence, attempt=claim.attempt, waited=claim.waited)
    if claim.won:
        answer.left, answer.token = claim.remaining(), claim.hand_over()
        service.holds.add(call.principal.name, answer.token, ttl)
    else:
        answer.result = _result_of(claim)
    return answer


async def resume(call: Call[ResumeClaim, None]) -> ClaimAnswer:
    """Takes over the claim of a token, under a new fence and token; a second resume of it is refused."""
    service, token, who = call.service, call.body.token, call.principal.name
    ttl = service.ttl(read_token(token).ttl)
    with service.holds.requesting(who, service.holds.wanted_to_resume(who, token)):
        claim = await service.once.resume_claim(token, renew=False)
    left, mine = claim.remaining(), claim.hand_over()
    service.holds.pass_on(token, who, mine, ttl)
    return ClaimAnswer(
        key=claim.key, won=True, fence=claim.fence, attempt=claim.attempt, waited=0.0, token=mine, left=left
    )


def _result_of(claim: AsyncClaim) -> Result:
    """The winner's result; raises TimedOut if there is none yet."""
    try:
        return _result(claim.result())
    except WorkFailed as failure:
        return FailureResult(kind=failure.kind, text=failure.text)
    except NotKept as missing:
        return Tombstone(why=str(missing))


def _result(value: Any) -> Result:
    return BytesResult(value=value) if isinstance(value, bytes) else JsonResult(value=value)


async def publish(call: Call[PublishClaim, None]) -> PublishedClaim:
    """Publishes the result of a claim that was won, or returns the one that was published before."""
    wanted, result, once = call.body, call.body.result, call.service.once
    wait = call.service.wait(wanted.wait)
    if isinstance(result, FailureResult):
        policy = Policy(default=Replay(wanted.keep))
        failing = await once.claim_of(wanted.token, policy=policy).fail(_error(result))
        call.service.holds.remove(call.principal.name, wanted.token)
        published = failing is Failing.REPLAYED
        kept = result if published else None
        return PublishedClaim(published=published, superseded=not published, pending=False, result=kept)
    mine = once.claim_of(wanted.token, keep=wanted.keep, wait=wait)
    publishing = mine.publish_tombstone(result.why) if isinstance(result, Tombstone) else mine.publish(result.value)
    done = await (call.waiting(publishing) if wait else publishing)
    call.service.holds.remove(call.principal.name, wanted.token)
    found = Tombstone() if done.tombstone else None if done.value is None and done.superseded else _result(done.value)
    return PublishedClaim(published=done.published, superseded=done.superseded, pending=done.pending, result=found)


def _error(result: FailureResult) -> Exception:
    """An error whose class has the given name, since that name is stored."""
    kind: type[Exception] = type(result.kind, (Exception,), {})
    return kind(result.text)


async def renew(call: Call[RenewClaim, None]) -> RenewedClaim:
    """Extends a claim that was won."""
    wanted, service = call.body, call.service
    ttl = service.ttl(read_token(wanted.token).ttl if wanted.ttl is None else wanted.ttl)
    left = await service.once.renew(wanted.token, ttl=ttl)
    service.holds.add(call.principal.name, wanted.token, left)
    return RenewedClaim(left=left)


async def release(call: Call[ReleaseClaim, None]) -> ReleasedClaim:
    """Releases a claim that was won, without a result."""
    outcome = await call.service.once.release(call.body.token)
    call.service.holds.remove(call.principal.name, call.body.token)
    return ReleasedClaim(outcome=outcome)


async def reset(call: Call[ResetClaim, None]) -> ResetAnswer:
    """Removes a finished claim, so that the work runs again."""
    expected = call.body.expected
    if isinstance(expected, FailureResult):
        outcome: Any = WorkFailed("", kind=expected.kind, text=expected.text)
    else:
        outcome = NotKept("") if isinstance(expected, Tombstone) else expected.value
    return ResetAnswer(reset=await call.service.clearing.reset(call.body.key, expected=outcome))


async def list_claims(call: Call[None, PrefixQuery]) -> ListedClaims:
    """Lists claims in key order, without their results."""
    query = call.query
    found = await call.service.once.claims(query.prefix, after=query.after, limit=query.limit)
    rows = [ListedClaim(**info._asdict() | {"since": timestamp(info.since)}) for info in found]
    return ListedClaims(claims=rows, next=query.following(found))


ROUTES = [
    Route("GET", "/v1/claims", READ, list_claims),
    Route(
        "POST",
        "/v1/claims/claim",
        WRITE,
        claim_key,
        refusals=(RUNNING, MISMATCH, TOO_MANY, UNREADABLE),
        cap=CAP,
        grants=True,
        again="Safe: if the first won and its response was lost, the repeat wins after that claim has expired.",
    ),
    Route(
        "POST",
        "/v1/claims/publish",
        WRITE,
        publish,
        refusals=(MISMATCH, RUNNING),
        cap=CAP,
        again="Safe: the same response as the first time. Another result is superseded by the first.",
    ),
    Route(
        "POST",
        "/v1/claims/resume",
        WRITE,
        resume,
        refusals=(BUSY, TOO_MANY),
        cap=CAP,
        grants=True,
        again="Refused: a token is resumed once. If the first response was lost, the claim ends after its ttl.",
    ),
    Route("POST", "/v1/claims/renew", WRITE, renew, refusals=(LOST,), again="Safe: extends again, never shortens."),
    Route(
        "POST", "/v1/claims/release", WRITE, release, again="Safe: the same response as the first time, for a minute."
    ),
    Route(
        "POST",
        "/v1/claims/reset",
        ADMIN,
        reset,
        refusals=(UNREADABLE,),
        cap=CAP,
        changed="reset",
        again="Returns false, unless the work was run again with the same result.",
    ),
]
