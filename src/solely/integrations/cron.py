"""Cron: all hosts have the same schedule, and one of them runs the job."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..client import AsyncClient, Client
from ..errors import Busy
from ..functions import coroutine_function, finished, plain_function
from ..leases.hold import longest_hold
from ..logs import get_logger
from ..rules import Seconds, seconds, stored_key, ttl_seconds

log = get_logger()
F = TypeVar("F", bound=Callable[..., Any])


def one_host(
    once: Client | AsyncClient,
    key: str,
    *,
    at_most_for: Seconds,
    at_least_for: Seconds = 0.0,
    max_hold: Seconds | None = None,
    on_lost: Callable[[], None] | None = None,
) -> Callable[[F], F]:
    """A decorator: one host runs the job; on the others the call returns None at once, which is logged.

    The key is renewed while the job runs, for at most `max_hold` seconds, so a job may take longer than `at_most_for`:
    that is how long the key stays held after its host died. If the lease is lost while the job runs, that is logged,
    a coroutine is canceled, and the call ends with LeaseLost; with `on_lost`, that function is called instead of the
    cancellation. The key stays closed for at least `at_least_for` seconds, even if the job is shorter: choose more than
    the difference between the hosts' clocks, so that a late host does not run the job again. Coroutines need an
    AsyncClient, functions a Client; generators are refused.
    """
    stored_key("lock", key)
    most = ttl_seconds(at_most_for, "at_most_for")
    least = seconds("at_least_for", at_least_for, least=0.0, most=most)
    longest_hold(max_hold)
    terms: dict[str, Any] = {"ttl": most, "wait": 0.0, "max_hold": max_hold, "purpose": "scheduled job"}
    if on_lost is not None:
        terms["on_lost"] = on_lost

    def decorate(job: Any) -> Any:
        what = f"the job of {type(once).__name__}"
        if isinstance(once, AsyncClient):
            return _awaited(once, coroutine_function(what, job, "it and the client do not fit: use a Client"))
        return _blocking(once, plain_function(what, job, "it and the client do not fit: use an AsyncClient"))

    def _blocking(once: Client, job: Any) -> Any:
        @wraps(job)
        def run(*args: Any, **options: Any) -> Any:
            try:
                lease = once.lock(key, **terms)
            except Busy as refusal:
                return _skipped(refusal)
            lease.keep_closed(least)
            with lease:
                return finished("the job", job(*args, **options))

        return run

    def _awaited(once: AsyncClient, job: Any) -> Any:
        @wraps(job)
        async def run(*args: Any, **options: Any) -> Any:
            try:
                lease = await once.lock(key, **terms)
            except Busy as refusal:
                return _skipped(refusal)
            lease.keep_closed(least)
            async with lease:
                return await job(*args, **options)

        return run

    return decorate


def _skipped(refusal: Busy) -> None:
    facts = {"key": refusal.key, "error": str(refusal)}
    log.info("job_skipped: the job %(key)r runs elsewhere: %(error)s", facts, extra=facts)
