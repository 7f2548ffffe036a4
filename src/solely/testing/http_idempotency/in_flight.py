"""Sections 2.6 and 2.7: copies of a request in flight, and first requests that fail or are too large."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from .checking import Checklist, expect, expect_repeat, first, repeats
from .target import Target, TargetResponse, fresh

CHECKS = Checklist()

BURST = 10  # copies at once: enough to reveal a race between check and insert


@contextmanager
def _running(target: Target, key: str) -> Iterator[Future[TargetResponse]]:
    """Starts a first request; the body runs while the service processes it."""
    url = target.given("slow_url")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(target.send, key, url=url)
        time.sleep(target.slow / 3)  # long enough for it to arrive, too short for it to end
        yield running


@CHECKS.check("2.6", "a copy of a running request is not processed: it gets 409, or waits for the same response")
def copy_in_flight_does_not_run(target: Target) -> None:
    key = fresh()
    with _running(target, key) as running:
        copy = target.send(key, url=target.slow_url)
        one = first(running.result())
    rejected = copy.status in (409, 503)
    expect(rejected or repeats(one, copy), f"409, 503, or the same response: {one}", copy)


@CHECKS.check("safety", "a rejected copy says when to retry (Retry-After)")
def copy_in_flight_gets_retry_after(target: Target) -> None:
    key = fresh()
    with _running(target, key) as running:
        copy = target.send(key, url=target.slow_url)
        one = first(running.result())
    retry_after = copy.headers.get("Retry-After", "").isdigit()
    expect(retry_after or repeats(one, copy), "Retry-After in seconds, or the same response", copy)


@CHECKS.check("2.7", "another payload under the key of a running request → 422, at once")
def other_payload_in_flight_is_refused(target: Target) -> None:
    key = fresh()
    with _running(target, key) as running:
        reply = target.send(key, url=target.slow_url, body=target.other_body)
        early = not running.done()
        first(running.result())
    expect(reply.status == 422, "422", reply)
    expect(early, "a response before the first request ended", "one after it")


@CHECKS.check("2.6", "when the running request has ended, its copy is replayed")
def copy_after_flight_is_replayed(target: Target) -> None:
    key = fresh()
    with _running(target, key) as running:
        target.send(key, url=target.slow_url)
        one = first(running.result())
    expect_repeat(one, target.send(key, url=target.slow_url))


@CHECKS.check("2.6", f"of {BURST} copies at once exactly one is processed")
def burst_runs_once(target: Target) -> None:
    key = fresh()
    with ThreadPoolExecutor(BURST) as threads:
        replies = list(threads.map(lambda _: target.send(key), range(BURST)))
    done = [reply for reply in replies if reply.done]
    others = {reply.status for reply in replies if not reply.done}
    different = [reply for reply in done if not repeats(done[0], reply)]
    expect(bool(done) and not different, "one response", f"{len(different)} others" if done else "none")
    expect(others <= {409, 503}, "409 or 503 for the others, if not the response", str(sorted(others)))


def _recovers(target: Target, url: str) -> None:
    key, body = fresh(), b'{"item": "%s"}' % fresh().encode()
    send: Callable[[], TargetResponse] = lambda: target.send(key, url=url, body=body)  # noqa: E731
    failure = send()
    expect(failure.status >= 500, "5xx the first time", failure)
    again = send()
    kept = again.status == failure.status and repeats(failure, again)
    expect(kept or again.done, "the work done now, or the same failure again", again)
    expect_repeat(again, send())


@CHECKS.check("2.6", "a retry after 5xx is processed, or gets the same 5xx; never 409 or 422")
def failure_is_no_dead_end(target: Target) -> None:
    _recovers(target, target.given("failing_url"))


@CHECKS.check("2.6", "the same for a retry after an exception in the handler")
def exception_is_no_dead_end(target: Target) -> None:
    _recovers(target, target.given("crashing_url"))


@CHECKS.check("safety", "a request whose response is too large to keep is not processed twice")
def large_response_runs_once(target: Target) -> None:
    key, url = fresh(), target.given("large_url")
    one, two = first(target.send(key, url=url)), target.send(key, url=url)
    expect(not two.done or repeats(one, two), "the same response, or an error that it is not kept", two)


@CHECKS.check("safety", "a request body over the published size → 413")
def oversized_request_is_refused(target: Target) -> None:
    reply = target.send(fresh(), body=b'"' + b"x" * target.given("max_request") + b'"')
    expect(reply.status == 413, "413", reply)
