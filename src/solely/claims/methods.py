"""Client methods of claims (idempotency): one caller wins the right to run, every other one gets its outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..functions import finished
from ..leases.context import AsyncMethods, Methods, keys_of
from ..rules import DAY, Seconds, stored_key
from .flights import Flights

# What does the work is imported by the methods that use it, so that a program pays only for the nouns that it uses.
if TYPE_CHECKING:
    from .arguments import Key
    from .claim import ClaimOptions
    from .flow import Result
    from .handle import AsyncClaim, Claim
    from .listing import ClaimInfo
    from .policy import Policy

P = ParamSpec("P")
T = TypeVar("T")


class Claims(Methods):
    """Claims, for threads."""

    _flights: Flights

    def claim(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 5.0,
        keep: Seconds = DAY,
        fingerprint: Any = None,
        purpose: str = "",
        renew: bool = True,
        max_hold: Seconds | None = None,
        policy: Policy | None = None,
    ) -> Claim:
        """The claim: `won` (run the work, then publish), `cached` (the winner's outcome) or `timed_out` after `wait`.

        A won claim is renewed at half its ttl until it is published or released, for at most `max_hold`. If its holder
        fails or dies, a waiter takes over. `fingerprint` is the payload; the same key with another one raises Mismatch.
        """
        from .calls import claim_options

        options = claim_options(self._context, ttl, wait, keep, policy, purpose, renew, max_hold)
        return self._claim(key, fingerprint, options)

    def claim_many(
        self,
        keys: Iterable[str],
        *,
        ttl: Seconds = 30.0,
        keep: Seconds = DAY,
        fingerprints: Sequence[Any] | None = None,
        purpose: str = "",
        renew: bool = True,
        max_hold: Seconds | None = None,
        policy: Policy | None = None,
    ) -> list[Claim]:
        """A claim per key, in order, in one round trip and without a wait; raises Mismatch, with none won, if one
        differs in its payload."""
        from .calls import claim_options, claiming_many

        stored = keys_of("claim", keys)
        options = claim_options(self._context, ttl, 0.0, keep, policy, purpose, renew, max_hold)
        return self._run(claiming_many(self._context, stored, fingerprints, options, self._claimed))

    def idempotent(
        self,
        *,
        key: Key,
        ttl: Seconds = 30.0,
        wait: Seconds = 5.0,
        keep: Seconds = DAY,
        fingerprint: Callable[..., Any] | None = None,
        purpose: str = "",
        max_hold: Seconds | None = None,
        policy: Policy | None = None,
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Runs the function once per key; all calls get the same result (bytes, or JSON-serializable).

        `key`: a function of the arguments, or text such as "charge:{order.id}". A call raises TimedOut if it still runs
        after `wait`, NotKept if the result was not kept, WorkFailed if the policy replays a failure. After `max_hold`
        the claim is no longer renewed, and another caller may run it.
        """
        from .arguments import CallArguments
        from .calls import claim_options

        options = claim_options(self._context, ttl, wait, keep, policy, purpose, True, max_hold)

        def guard(work: Callable[P, T]) -> Callable[P, T]:
            arguments = CallArguments(work, key, fingerprint, awaited=False)

            @wraps(work)
            def once(*args: P.args, **kwargs: P.kwargs) -> T:
                claim = self._claim(
                    arguments.key(args, kwargs), arguments.fingerprint(args, kwargs), options.now(self._context)
                )
                if not claim.won:
                    return claim.result()  # type: ignore[no-any-return]
                if policy is not None:  # it may park the claim
                    claim.payload = arguments.payload(args, kwargs)
                try:
                    value = finished("the work", work(*args, **kwargs))
                except BaseException as error:
                    claim.__exit__(type(error), error, None)
                    raise
                return self._run(claim._concluding(value))

            return once

        return guard

    def resume_claim(
        self,
        token: str,
        *,
        wait: Seconds = 5.0,
        keep: Seconds = DAY,
        renew: bool = True,
        max_hold: Seconds | None = None,
        policy: Policy | None = None,
    ) -> Claim:
        """Takes over a claim that another process won and handed over, under a new fence and with its ttl from now;
        raises Busy, which names the holder, if it was resumed before or is no longer held.

        The token is void from then on. A holder that handed it out and did not let go loses the claim (`resumed`).
        """
        from .calls import claim_options, claim_token, resuming

        given = claim_token(token)
        options = claim_options(self._context, given.ttl, wait, keep, policy, "", renew, max_hold)
        return self._run(resuming(self._context, given, options, self._claimed))

    def claim_of(self, token: str, *, keep: Seconds = DAY, wait: Seconds = 5.0, policy: Policy | None = None) -> Claim:
        """The claim of this token, to publish, fail or release it in the name of its holder; sends nothing yet, and
        does not renew it.

        Every process that has the token can do that, without being told apart: to run the work, `resume_claim`. If
        another caller has the claim by then, `publish` returns that it was superseded.
        """
        from .calls import claim_options, claim_token, of_token

        given = claim_token(token)
        return of_token(given, claim_options(self._context, 30.0, wait, keep, policy, "", False), self._claimed)

    def claims(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[ClaimInfo]:
        """The claims, held, done or closed, whose key starts with `prefix` and follows `after`, in key order."""
        from .listing import claims as listed

        return self._run(listed(prefix, after, limit))

    def reset(self, key: str, *, expected: Any) -> bool:
        """Removes a finished claim, so that it runs again, if its outcome is the expected one; else returns False.

        `expected`: the value, or the WorkFailed or NotKept that `claim.result()` raises in its place.
        """
        from .calls import resetting

        return self._run(resetting(self._flights, stored_key("claim", key), expected))

    def _claim(self, key: str, payload: Any, options: ClaimOptions) -> Claim:
        from .calls import claiming, digest_of, recalled

        stored = stored_key("claim", key)
        digest = digest_of(payload, stored)
        known = recalled(self._flights, stored, digest, options, self._claimed)
        return known or self._run(claiming(self._flights, stored, digest, options, self._claimed))

    def _claimed(self, key: str, result: Result, waited: float, options: ClaimOptions) -> Claim:
        from .handle import Claim

        return Claim(self._flights, self._run, key, result, waited, options)


class AsyncClaims(AsyncMethods):
    """Claims, for asyncio."""

    _flights: Flights

    async def claim(
        self,
        key: str,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds = 5.0,
        keep: Seconds = DAY,
        fingerprint: Any = None,
        purpose: str = "",
        renew: bool = True,
        max_hold: Seconds | None = None,
        policy: Policy | None = None,
    ) -> AsyncClaim:
        """The claim: `won` (run the work, then publish), `cached` (the winner's outcome) or `timed_out` after `wait`.

        A won claim is renewed at half its ttl until it is published or released, for at most `max_hold`. If its holder
        fails or dies, a waiter takes over. `fingerprint` is the payload; the same key with another one raises Mismatch.
        """
        from .calls import claim_options

        options = claim_options(self._context, ttl, wait, keep, policy, purpose, renew, max_hold)
        return await self._claim(key, fingerprint, options)

    async def claim_many(
        self,
        keys: Iterable[str],
        *,
        ttl: Seconds = 30.0,
        keep: Seconds = DAY,
        fingerprints: Sequence[Any] | None = None,
        purpose: str = "",
        renew: bool = True,
        max_hold: Seconds | None = None,
        policy: Policy | None = None,
    ) -> list[AsyncClaim]:
        """A claim per key, in order, in one round trip and without a wait; raises Mismatch, with none won, if one
        differs in its payload."""
        from .calls import claim_options, claiming_many

        stored = keys_of("claim", keys)
        options = claim_options(self._context, ttl, 0.0, keep, policy, purpose, renew, max_hold)
        return await self._run(claiming_many(self._context, stored, fingerprints, options, self._claimed))

    def idempotent(
        self,
        *,
        key: Key,
        ttl: Seconds = 30.0,
        wait: Seconds = 5.0,
        keep: Seconds = DAY,
        fingerprint: Callable[..., Any] | None = None,
        purpose: str = "",
        max_hold: Seconds | None = None,
        policy: Policy | None = None,
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """Runs the coroutine function once per key; all calls get the same result (bytes, or JSON-serializable).

        `key`: a function of the arguments, or text such as "charge:{order.id}". A call raises TimedOut if it still runs
        after `wait`, NotKept if the result was not kept, WorkFailed if the policy replays a failure. After `max_hold`
        the claim is no longer renewed, and another caller may run it.
        """
        from .arguments import CallArguments
        from .calls import claim_options

        options = claim_options(self._context, ttl, wait, keep, policy, purpose, True, max_hold)

        def guard(work: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            arguments = CallArguments(work, key, fingerprint, awaited=True)

            @wraps(work)
            async def once(*args: P.args, **kwargs: P.kwargs) -> T:
                payload = arguments.fingerprint(args, kwargs)
                claim = await self._claim(arguments.key(args, kwargs), payload, options.now(self._context))
                if not claim.won:
                    return claim.result()  # type: ignore[no-any-return]
                if policy is not None:  # it may park the claim
                    claim.payload = arguments.payload(args, kwargs)
                try:
                    value = await work(*args, **kwargs)
                except BaseException as error:
                    await claim.__aexit__(type(error), error, None)
                    raise
                return await self._run(claim._concluding(value))

            return once

        return guard

    async def resume_claim(
        self,
        token: str,
        *,
        wait: Seconds = 5.0,
        keep: Seconds = DAY,
        renew: bool = True,
        max_hold: Seconds | None = None,
        policy: Policy | None = None,
    ) -> AsyncClaim:
        """Takes over a claim that another process won and handed over, under a new fence and with its ttl from now;
        raises Busy, which names the holder, if it was resumed before or is no longer held.

        The token is void from then on. A holder that handed it out and did not let go loses the claim (`resumed`).
        """
        from .calls import claim_options, claim_token, resuming

        given = claim_token(token)
        options = claim_options(self._context, given.ttl, wait, keep, policy, "", renew, max_hold)
        return await self._run(resuming(self._context, given, options, self._claimed))

    def claim_of(
        self, token: str, *, keep: Seconds = DAY, wait: Seconds = 5.0, policy: Policy | None = None
    ) -> AsyncClaim:
        """The claim of this token, to publish, fail or release it in the name of its holder; sends nothing yet, and
        does not renew it.

        Every process that has the token can do that, without being told apart: to run the work, `resume_claim`. If
        another caller has the claim by then, `publish` returns that it was superseded.
        """
        from .calls import claim_options, claim_token, of_token

        given = claim_token(token)
        return of_token(given, claim_options(self._context, 30.0, wait, keep, policy, "", False), self._claimed)

    async def claims(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[ClaimInfo]:
        """The claims, held, done or closed, whose key starts with `prefix` and follows `after`, in key order."""
        from .listing import claims as listed

        return await self._run(listed(prefix, after, limit))

    async def reset(self, key: str, *, expected: Any) -> bool:
        """Removes a finished claim, so that it runs again, if its outcome is the expected one; else returns False.

        `expected`: the value, or the WorkFailed or NotKept that `claim.result()` raises in its place.
        """
        from .calls import resetting

        return await self._run(resetting(self._flights, stored_key("claim", key), expected))

    async def _claim(self, key: str, payload: Any, options: ClaimOptions) -> AsyncClaim:
        from .calls import claiming, digest_of, recalled

        stored = stored_key("claim", key)
        digest = digest_of(payload, stored)
        known = recalled(self._flights, stored, digest, options, self._claimed)
        if known is not None:
            return known
        return await self._run(claiming(self._flights, stored, digest, options, self._claimed))

    def _claimed(self, key: str, result: Result, waited: float, options: ClaimOptions) -> AsyncClaim:
        from .handle import AsyncClaim

        return AsyncClaim(self._flights, self._run, key, result, waited, options)
