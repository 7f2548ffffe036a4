"""Claims over HTTP: one wins the right to run and gets a token; with that it publishes, and all others get the result.

Nobody renews it for the winner: one that dies lets go when its ttl is over, and one who waits takes over.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...claims.handle import AsyncClaim
from ...claims.policy import DAY, Failing, Policy, Replay
from ...errors import NotKept, WorkFailed
from ...leases.token import read_token
from ..problems import LOST, MISMATCH, RUNNING, TOO_MANY, UNREADABLE
from ..routes import ADMIN, KIB, WRITE, Answer, Body, Call, Key, Purpose, Reason, Route, Token, Ttl, Wait

CAP = 512 * KIB  # bytes: the largest value that is kept, in base64, with room
Text = Annotated[str, msgspec.Meta(max_length=2000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]


class JsonResult(Body, tag_field="form", tag="json"):
    """A result that is JSON."""

    value: Any


class BytesResult(Body, tag_field="form", tag="bytes"):
    """A result that is bytes, in base64."""

    value: bytes


class Tombstone(Body, tag_field="form", tag="tombstone"):
    """It was done once and is not done again; its result was not kept."""

    why: Text = ""


class Failure(Body, tag_field="form", tag="failure"):
    """It failed for good and is not run again."""

    kind: Name
    text: Text


Result = JsonResult | BytesResult | Tombstone | Failure


class ClaimBody(Body):
    """`fingerprint` is the payload, or what of it matters, as any JSON: the same key with another one is refused."""

    key: Key
    ttl: Ttl = 30.0
    wait: Wait = 0.0
    fingerprint: Any = None
    purpose: Purpose = ""


class Publish(Body):
    """What became of it, for all who wait and who come within `keep` seconds. If another took over meanwhile, its
    result stands, and is waited for within `wait`."""

    token: Token
    result: Result
    keep: Ttl = DAY
    wait: Wait = 0.0


class RenewClaim(Body):
    """Without a ttl, the one that it was won with."""

    token: Token
    ttl: Ttl | None = None


class ReleaseClaim(Body):
    """Lets go without a result: the next one runs it."""

    token: Token


class ResetClaim(Body):
    """The claim is removed if its result is still the expected one."""

    key: Key
    expected: Result
    reason: Reason


class ClaimAnswer(Answer):
    """If `won`, run it, and publish with the token within `left` seconds, counted from before the request was sent.
    Else `result` is the winner's."""

    key: str
    won: bool
    fence: int
    attempt: int
    waited: float
    token: str = ""
    left: float = 0.0
    result: Result | None = None


class PublishedClaim(Answer):
    """`published`, or `superseded` by another `result`, which stands: a later holder's (`pending` if that is not there
    yet), or the one that was published with this token before."""

    published: bool
    superseded: bool
    pending: bool
    result: Result | None


class RenewedClaim(Answer):
    """Count `left` seconds from before the request was sent."""

    left: float


class ReleasedClaim(Answer):
    """released; expired or cleared if it had ended before; lost if the store no longer had it (it was flushed, or
    restarted without its data); unknown if that was too long ago to tell."""

    outcome: str


class ResetAnswer(Answer):
    """False if its result is another one, or there is none."""

    reset: bool


async def claim(call: Call[ClaimBody, None]) -> ClaimAnswer:
    """Wins the claim, or answers the winner's result, waited for within `wait`."""
    wanted, service = call.body, call.service
    ttl, wait = service.ttl(wanted.ttl), service.wait(wanted.wait)
    service.holds.check(call.principal.name)
    purpose = call.purpose(wanted.purpose)
    claiming = service.once.claim(
        wanted.key, ttl=ttl, wait=wait, fingerprint=wanted.fingerprint, purpose=purpose, renew=False
    )
    told = await (call.waiting(claiming, AsyncClaim.release) if wait else claiming)
    answer = ClaimAnswer(key=told.key, won=told.won, fence=told.fence, attempt=told.attempt, waited=told.waited)
    if told.won:
        answer.left, answer.token = told.remaining(), told.hand_over()
        service.holds.add(call.principal.name, answer.token, ttl)
    else:
        answer.result = _kept(told)
    return answer


def _kept(told: AsyncClaim) -> Result:
    """The winner's result; raises TimedOut if it is not there yet."""
    try:
        return _result(told.result())
    except WorkFailed as failure:
        return Failure(kind=failure.kind, text=failure.text)
    except NotKept as missing:
        return Tombstone(why=str(missing))


def _result(value: Any) -> Result:
    return BytesResult(value=value) if isinstance(value, bytes) else JsonResult(value=value)


async def publish(call: Call[Publish, None]) -> PublishedClaim:
    """Publishes the result, or tells which one stands."""
    wanted, result, once = call.body, call.body.result, call.service.once
    wait = call.service.wait(wanted.wait)
    if isinstance(result, Failure):
        policy = Policy(default=Replay(wanted.keep))
        done = await once.resume_claim(wanted.token, policy=policy).fail(_failure(result))
        call.service.holds.remove(call.principal.name, wanted.token)
        stands = done is Failing.REPLAYED
        return PublishedClaim(published=stands, superseded=not stands, pending=False, result=result if stands else None)
    mine = once.resume_claim(wanted.token, keep=wanted.keep, wait=wait)
    publishing = mine.publish_tombstone(result.why) if isinstance(result, Tombstone) else mine.publish(result.value)
    told = await (call.waiting(publishing) if wait else publishing)
    call.service.holds.remove(call.principal.name, wanted.token)
    found = Tombstone() if told.tombstone else None if told.value is None and told.superseded else _result(told.value)
    return PublishedClaim(published=told.published, superseded=told.superseded, pending=told.pending, result=found)


def _failure(told: Failure) -> Exception:
    """The failure as an error of the class that was named, since its name is what is kept."""
    kind: type[Exception] = type(told.kind, (Exception,), {})
    return kind(told.text)


async def renew(call: Call[RenewClaim, None]) -> RenewedClaim:
    """Extends the claim."""
    wanted, service = call.body, call.service
    ttl = service.ttl(read_token(wanted.token).ttl if wanted.ttl is None else wanted.ttl)
    left = await service.once.renew(wanted.token, ttl=ttl)
    service.holds.add(call.principal.name, wanted.token, left)
    return RenewedClaim(left=left)


async def release(call: Call[ReleaseClaim, None]) -> ReleasedClaim:
    """Lets go of the claim."""
    outcome = await call.service.once.release(call.body.token)
    call.service.holds.remove(call.principal.name, call.body.token)
    return ReleasedClaim(outcome=outcome)


async def reset(call: Call[ResetClaim, None]) -> ResetAnswer:
    """Removes a finished claim, so that it runs again."""
    expected = call.body.expected
    if isinstance(expected, Failure):
        outcome: Any = WorkFailed("", kind=expected.kind, text=expected.text)
    else:
        outcome = NotKept("") if isinstance(expected, Tombstone) else expected.value
    return ResetAnswer(reset=await call.service.clearing.reset(call.body.key, expected=outcome))


ROUTES = [
    Route(
        "POST",
        "/v1/claims/claim",
        WRITE,
        claim,
        "Win the right to run something once, or get the winner's result",
        refusals=(RUNNING, MISMATCH, TOO_MANY, UNREADABLE),
        cap=CAP,
        grants=True,
        again="Safe: if the first won and its answer was lost, the repeat waits until that ends, and then wins.",
    ),
    Route(
        "POST",
        "/v1/claims/publish",
        WRITE,
        publish,
        "Publish the result of a claim that was won",
        refusals=(MISMATCH, RUNNING),
        cap=CAP,
        again="Safe: answered as the first time. Another result is superseded by the first.",
    ),
    Route(
        "POST",
        "/v1/claims/renew",
        WRITE,
        renew,
        "Extend a claim that was won",
        refusals=(LOST,),
        again="Safe: extends again, never shortens.",
    ),
    Route(
        "POST",
        "/v1/claims/release",
        WRITE,
        release,
        "Let go of a claim that was won, without a result",
        again="Safe: answered as the first time, for a minute.",
    ),
    Route(
        "POST",
        "/v1/claims/reset",
        ADMIN,
        reset,
        "Remove a finished claim, so that it runs again",
        refusals=(UNREADABLE,),
        cap=CAP,
        again="Tells that it is no longer there, unless it was run again with the same result.",
    ),
]
