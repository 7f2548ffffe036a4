"""Sections 2.4 and 2.6: a retry gets the first response again; a different request with the same key is refused."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from .checking import Checklist, expect, expect_repeat, first, repeats
from .target import Target, TargetResponse, fresh

CHECKS = Checklist()


def _twice(target: Target) -> tuple[TargetResponse, TargetResponse]:
    key = fresh()
    return first(target.send(key)), target.send(key)


@CHECKS.check("2.6", "a first request is processed, and two keys are two requests")
def new_key_runs(target: Target) -> None:
    one, two = first(target.send(fresh())), first(target.send(fresh()))
    expect(one.body != two.body, "another body for another key", two)


@CHECKS.check("2.6", "a retry is not processed: it gets the first response, again and again")
def retry_is_replayed(target: Target) -> None:
    key = fresh()
    one = first(target.send(key))
    for _ in range(3):
        expect_repeat(one, target.send(key))


@CHECKS.check("2.6", "a retry gets the same status and the same bytes")
def retry_is_equal(target: Target) -> None:
    one, two = _twice(target)
    expect((two.status, two.body) == (one.status, one.body), f"the same status and bytes: {one}", two)


@CHECKS.check("2.6", "a retry gets the same Content-Type and Location")
def retry_has_the_same_headers(target: Target) -> None:
    one, two = _twice(target)
    for name in ("Content-Type", "Location"):
        seen = two.headers.get(name)
        expect(seen == one.headers.get(name), f"{name}: {one.headers.get(name)}", f"{name}: {seen}")


@CHECKS.check("safety", "a retry gets the first response without its cookie")
def cookie_is_not_replayed(target: Target) -> None:
    key, url = fresh(), target.given("cookie_url")
    one, two = first(target.send(key, url=url)), target.send(key, url=url)
    expect("Set-Cookie" in one.headers, "Set-Cookie in the first response", one)
    expect_repeat(one, two)
    expect("Set-Cookie" not in two.headers, "no Set-Cookie", f"Set-Cookie: {two.headers.get('Set-Cookie')}")


@CHECKS.check("safety", "a replay says `Idempotent-Replayed: true`, a first response does not")
def replay_is_marked(target: Target) -> None:
    one, two = _twice(target)
    marks = one.headers.get("Idempotent-Replayed"), two.headers.get("Idempotent-Replayed")
    expect(marks == (None, "true"), "Idempotent-Replayed on the replay only", f"{marks[0]}, then {marks[1]}")


@CHECKS.check("2.3", "a replay says until when it is kept (`Idempotency-Expires`, a date in the future)")
def replay_says_its_expiry(target: Target) -> None:
    _, two = _twice(target)
    date = two.headers.get("Idempotency-Expires", "")
    expect(bool(date), "Idempotency-Expires", "none")
    try:
        moment = parsedate_to_datetime(date).timestamp()
    except ValueError:
        moment = 0.0
    expect(moment > time.time() - 60, "a date in the future", date)  # less a minute: clocks differ


@CHECKS.check("2.7", "the key with another payload → 422")
def other_payload_is_refused(target: Target) -> None:
    key = fresh()
    first(target.send(key))
    reply = target.send(key, body=target.other_body)
    expect(reply.status == 422, "422", reply)


@CHECKS.check("safety", "after that, the first payload is still replayed")
def refusal_harms_nothing(target: Target) -> None:
    key = fresh()
    one = first(target.send(key))
    target.send(key, body=target.other_body)
    expect_repeat(one, target.send(key))


@CHECKS.check("safety", "the key at another URI does not get the first response")
def other_uri_is_not_answered_with_the_first(target: Target) -> None:
    key = fresh()
    one = first(target.send(key))
    reply = target.send(key, url=target.given("other_url"))
    expect(not repeats(one, reply), "anything but the first response", reply)


@CHECKS.check("safety", "the key at another URI → 422")
def other_uri_is_refused(target: Target) -> None:
    key = fresh()
    first(target.send(key))
    reply = target.send(key, url=target.given("other_url"))
    expect(reply.status == 422, "422", reply)


@CHECKS.check("safety", "the key with another query → 422")
def other_query_is_refused(target: Target) -> None:
    key = fresh()
    first(target.send(key))
    reply = target.send(key, url=f"{target.url}?other=1")
    expect(reply.status == 422, "422", reply)


@CHECKS.check("safety", "the key with another method does not get the first response")
def other_method_is_not_answered_with_the_first(target: Target) -> None:
    key = fresh()
    one = first(target.send(key))
    reply = target.send(key, method="PATCH")
    expect(not repeats(one, reply), "anything but the first response", reply)


@CHECKS.check("safety", "the key with another method → 422")
def other_method_is_refused(target: Target) -> None:
    key = fresh()
    first(target.send(key))
    reply = target.send(key, method="PATCH")
    expect(reply.status in (422, 405), "422 (or 405 from the service)", reply)


@CHECKS.check("5", "the key from another principal is another key")
def other_principal_sees_nothing(target: Target) -> None:
    headers = target.given("other_headers")
    key = fresh()
    one = first(target.send(key))
    other = target.send(key, headers=headers)
    expect(other.done and not repeats(one, other), "its own response", other)
    elsewhere = target.send(key, body=target.other_body, headers=headers)
    expect(elsewhere.status == 422, "422 for another payload of that principal", elsewhere)
