"""What the middleware promises, in ASGI and in WSGI alike."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from solely import StoreUnavailable
from solely.integrations.idempotency import Rules
from solely.ops import Finish, Op
from solely.stores import open_async_store, open_store
from solely.testing import ManualClock
from tests.client.refusing import AsyncRefusingStore, RefusingStore
from tests.http.calling import KEY, Reply, guarded
from tests.http.service import HEADERS, OTHER_HEADERS, Said, Service, principal

RULES = Rules(scope=principal)

TURNED_AWAY = {
    "missing": ({"key": None}, 400, "key-missing"),
    "token": ({"key": "token"}, 400, "key-malformed"),
    "number": ({"key": "42"}, 400, "key-malformed"),
    "list": ({"key": '"a", "b"'}, 400, "key-malformed"),
    "bad escape": ({"key": '"\\a"'}, 400, "key-malformed"),
    "empty": ({"key": '""'}, 400, "key-malformed"),
    "too long": ({"key": f'"{"x" * 256}"'}, 400, "key-malformed"),
    "wrong characters": ({"key": '"a b"'}, 400, "key-malformed"),
    "nobody": ({"headers": {}}, 403, "no-scope"),
    "too large": ({"body": b"x" * 1001}, 413, "body-too-large"),
}


@pytest.mark.parametrize("case", TURNED_AWAY)
async def test_a_bad_key_makes_no_store_call(kind: str, case: str) -> None:
    store = AsyncRefusingStore() if kind == "asgi" else RefusingStore()
    asked, status, problem = TURNED_AWAY[case]
    async with guarded(kind, None, Rules(scope=principal, max_request=1000), store=store) as (post, service, _):
        reply = await post(**asked)  # type: ignore[arg-type]
    assert (reply.status, reply.problem) == (status, problem)
    assert service.runs == []


async def test_a_key_without_quotes_is_accepted_where_the_rules_allow_it(kind: str, store_url: str) -> None:
    async with guarded(kind, store_url, Rules(scope=principal, bare_keys=True)) as (post, service, _):
        first, second = await post(key="order-42"), await post(key='"order-42"')
    assert (first.status, second.status, second.body) == (201, 201, first.body)
    assert second.headers["idempotent-replayed"] == "true"
    assert service.runs == ["/orders"]


# -- bug 10 of the peers


async def test_bug_10_an_identical_retry_is_not_answered_422(kind: str, store_url: str) -> None:
    """fastapi-idempotency-key 0.1.1 on Redis answered 422 to the very same request."""
    async with guarded(kind, store_url, RULES) as (post, service, _):
        one, two, three = [await post(body=b'{"b": 1, "a": [2.0, null]}') for _ in range(3)]
    assert (one.status, one.body) == (two.status, two.body) == (three.status, three.body)
    assert one.status == 201
    assert service.runs == ["/orders"]


@pytest.mark.parametrize("path", ["/failing", "/crashing"])
async def test_bug_10_no_409_for_ever_after_a_handler_error(kind: str, store_url: str, path: str) -> None:
    """asgi-idempotency-header 0.2.0 answered 409 to every retry after its handler had failed."""
    async with guarded(kind, store_url, RULES) as (post, service, _):
        if path == "/crashing":
            with pytest.raises(RuntimeError, match="as it should"):
                await post(path)
        else:
            assert (await post(path)).status == 500
        one, two = await post(path), await post(path)
    assert (one.status, two.status, two.body) == (201, 201, one.body)
    assert service.runs == [path, path]


async def test_bug_10_another_uris_response_is_never_replayed(kind: str, store_url: str) -> None:
    """asgi-idempotency-header 0.2.0 answered a request to one URI with the response of another."""
    async with guarded(kind, store_url, RULES) as (post, service, _):
        await post("/orders")
        for reply in (await post("/refunds"), await post("/orders?dry=1"), await post("/orders", method="PATCH")):
            assert (reply.status, reply.problem) == (422, "key-reused")
        assert (await post("/orders")).headers["idempotent-replayed"] == "true"
    assert service.runs == ["/orders"]


# -- replays


async def test_a_replay_has_the_same_bytes_and_the_safe_headers(kind: str) -> None:
    async with guarded(kind, "memory://", RULES) as (post, _service, _):
        one, two = await post("/login", b'{"item": "tea"}'), await post("/login", b'{"item": "tea"}')
    assert json.loads(one.body)["you_sent"] == '{"item": "tea"}'
    assert one.body == two.body
    for name in ("content-type", "content-length", "location", "idempotency-expires"):
        assert one.headers[name] == two.headers[name]
    assert {"set-cookie", "date"} & two.headers.keys() == set()
    assert one.headers["set-cookie"]
    assert "idempotent-replayed" not in one.headers
    assert two.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("path", ["/pieces", "/empty"])
async def test_a_response_in_pieces_or_without_a_body_is_replayed_too(kind: str, path: str) -> None:
    async with guarded(kind, "memory://", RULES) as (post, service, _):
        one, two = await post(path), await post(path)
    assert (one.status, one.body) == (two.status, two.body)
    assert ("content-length" in two.headers) == (path == "/pieces")
    assert service.runs == [path]


async def test_after_its_expiry_a_key_is_new(kind: str) -> None:
    clock = ManualClock()
    async with guarded(kind, "memory://", Rules(scope=principal, keep=3600), clock=clock) as (post, service, _):
        one = await post()
        clock.advance(3599)
        assert (await post()).body == one.body
        clock.advance(2)
        assert (await post()).body != one.body
    assert service.runs == ["/orders"] * 2


async def test_keys_of_two_principals_never_meet(kind: str) -> None:
    async with guarded(kind, "memory://", RULES) as (post, _service, _):
        one, two = await post(), await post(headers=OTHER_HEADERS, body=b"other")
        assert (one.status, two.status) == (201, 201)
        assert (await post()).body == one.body != two.body
        assert (await post(headers=OTHER_HEADERS)).status == 422


async def test_a_part_of_the_payload_can_be_what_counts(kind: str) -> None:
    rules = Rules(scope=principal, payload=lambda request: json.dumps(json.loads(request.body)["item"]).encode())
    async with guarded(kind, "memory://", rules) as (post, _service, _):
        one = await post(body=b'{"item": "tea", "sent_at": 1}')
        assert (await post(body=b'{"sent_at": 2, "item": "tea"}')).body == one.body
        assert (await post(body=b'{"item": "milk", "sent_at": 1}')).status == 422


async def test_a_request_without_a_key_passes_where_none_is_required(kind: str) -> None:
    async with guarded(kind, "memory://", Rules(scope=principal, required=False)) as (post, service, _):
        assert (await post(key=None)).status == (await post(key=None)).status == 201
        assert (await post(key="bad")).status == 400
    assert service.runs == ["/orders"] * 2


async def test_the_handler_finds_its_claim(kind: str) -> None:
    async with guarded(kind, "memory://", RULES) as (post, service, _):
        await post("/failing")
        await post("/failing")
        await post("/orders", key=None, method="GET")
    attempts = [claim and (claim.attempt, claim.key.split("/")[-1]) for claim in service.claims]
    assert attempts == [(1, KEY.strip('"')), (2, KEY.strip('"')), None]
    assert service.claims[0].fence < service.claims[1].fence


# -- failures


async def test_a_failure_can_be_kept(kind: str) -> None:
    rules = Rules(scope=principal, releases=lambda status: False)
    async with guarded(kind, "memory://", rules) as (post, service, _):
        one, two = await post("/failing"), await post("/failing")
        with pytest.raises(RuntimeError, match="as it should"):
            await post("/crashing", b"other", key='"other"')
        kept = await post("/crashing", b"other", key='"other"')
    assert (two.status, two.body) == (one.status, one.body)
    assert (kept.status, kept.problem) == (500, "failed")
    assert service.runs == ["/failing", "/crashing"]


async def test_if_the_first_fails_one_of_those_who_wait_runs_and_the_others_get_its_response(
    kind: str, store_url: str
) -> None:
    async with guarded(kind, store_url, RULES) as (post, service, _):
        replies = await asyncio.gather(*(post("/failing") for _ in range(10)))
    assert Counter(reply.status for reply in replies) == {500: 1, 201: 9}
    assert len({reply.body for reply in replies if reply.status == 201}) == 1
    assert service.runs == ["/failing"] * 2


# -- in flight


class Gated(Service):
    """Handlers that wait for their gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: list[asyncio.Event] = []
        self.loop = asyncio.get_running_loop()

    async def _pass(self) -> None:
        self.gates.append(asyncio.Event())
        await self.gates[-1].wait()

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        await self._pass()
        await super().asgi(scope, receive, send)

    def wsgi(self, environ: Any, start_response: Any) -> Any:
        asyncio.run_coroutine_threadsafe(self._pass(), self.loop).result(20)
        return super().wsgi(environ, start_response)

    async def entered(self, count: int) -> None:
        """Returns when that many handlers are waiting or were."""
        async with asyncio.timeout(100):
            while len(self.gates) < count:
                await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("rules", "status", "problem"),
    [
        (Rules(scope=principal, wait=0.05, retry_after=3), 503, "still-running"),
        (Rules(scope=principal, in_flight="conflict", retry_after=3), 409, "in-flight"),
    ],
    ids=["wait", "conflict"],
)
async def test_a_copy_in_flight_is_sent_away_in_the_end(kind: str, rules: Rules, status: int, problem: str) -> None:
    service = Gated()
    async with guarded(kind, "memory://", rules, service) as (post, _, _once):
        first = asyncio.ensure_future(post())
        await service.entered(1)
        copy = await post()
        other = await post(body=b"other")
        service.gates[0].set()
        one = await first
        again = await post()
    assert (copy.status, copy.problem, copy.headers["retry-after"]) == (status, problem, "3")
    assert (other.status, other.problem) == (422, "key-reused")
    assert (one.status, again.body) == (201, one.body)
    assert service.runs == ["/orders"]


async def test_a_copy_in_flight_waits_and_gets_the_same_response(kind: str, store_url: str) -> None:
    service = Gated()
    async with guarded(kind, store_url, RULES, service) as (post, _, _once):
        first = asyncio.ensure_future(post())
        await service.entered(1)
        copies = [asyncio.ensure_future(post()) for _ in range(5)]
        await asyncio.sleep(0.02)
        service.gates[0].set()
        one, *others = await asyncio.gather(first, *copies)
    assert {reply.body for reply in others} == {one.body}
    assert all(reply.headers["idempotent-replayed"] == "true" for reply in others)
    assert service.runs == ["/orders"]


async def test_who_was_taken_over_gets_the_response_that_stands(kind: str, store_url: str) -> None:
    """The store believes the first to be dead, a copy runs and publishes; then the first ends after all."""
    clock, service = ManualClock(), Gated()
    async with (
        guarded(kind, store_url, RULES, service, clock=clock) as (post, _, _once),
        guarded(kind, store_url, RULES, service, clock=clock) as (elsewhere, _, _),
    ):
        first = asyncio.ensure_future(post())
        await service.entered(1)
        clock.advance(31)
        second = asyncio.ensure_future(elsewhere())
        await service.entered(2)
        service.gates[1].set()
        stands = await second
        service.gates[0].set()
        converged = await first
    assert (converged.status, converged.body) == (201, stands.body)
    assert converged.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in stands.headers
    assert [claim.attempt for claim in service.claims] == [2, 1]


# -- responses that are not kept


async def test_a_large_response_is_sent_whole_and_leaves_a_tombstone(kind: str, store_url: str) -> None:
    async with guarded(kind, store_url, RULES) as (post, service, _):
        one, two = await post("/large"), await post("/large")
    assert one.status == 200
    assert len(one.body) > 256 * 1024
    assert (two.status, two.problem) == (410, "not-kept")
    assert two.headers["location"] == one.headers["location"]
    assert json.loads(two.body)["original_status"] == 200
    assert "idempotency-expires" in two.headers
    assert service.runs == ["/large"]


class Breaking(Service):
    """Breaks off in the middle of its answer."""

    def handle(self, path: str, body: bytes) -> Said:
        self.runs.append(path)
        return Said(200, [("Location", "/made/1")], [b"the begin"])

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        self.handle(scope["path"], b"")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"location", b"/made/1")]})
        await send({"type": "http.response.body", "body": b"the begin", "more_body": True})
        raise RuntimeError("broke off")

    def wsgi(self, environ: Any, start_response: Any) -> Any:
        self.handle(environ["PATH_INFO"], b"")
        start_response("200 OK", [("Location", "/made/1"), ("Content-Type", "text/plain")])
        yield b"the begin"
        raise RuntimeError("broke off")


async def test_a_response_that_breaks_off_leaves_a_tombstone(kind: str) -> None:
    async with guarded(kind, "memory://", RULES, Breaking()) as (post, service, _):
        with pytest.raises(RuntimeError, match="broke off"):
            await post()
        again = await post()
    assert (again.status, again.problem, again.headers["location"]) == (410, "not-kept", "/made/1")
    assert service.runs == ["/orders"]


# -- outages

NOWHERE = "redis://127.0.0.1:1"  # a port on which nobody listens


async def test_without_its_store_it_fails_closed(kind: str) -> None:
    async with guarded(kind, NOWHERE, RULES, timeout=0.2) as (post, service, _):
        reply = await post()
    assert (reply.status, reply.problem, reply.headers["retry-after"]) == (503, "unavailable", "1")
    assert service.runs == []


async def test_failing_open_is_a_choice_of_the_client(kind: str) -> None:
    async with guarded(kind, NOWHERE, RULES, timeout=0.2, on_outage="proceed") as (post, service, once):
        replies = [await post(), await post("/failing")]
    assert [reply.status for reply in replies] == [201, 500]
    assert service.runs == ["/orders", "/failing"]
    assert once.failed_open >= 2


class _NoFinish:
    """A store that is away whenever a result is to be published."""

    def __init__(self, store: Any, awaited: bool) -> None:
        self._store = store
        self._awaited = awaited

    def perform(self, ops: Sequence[Op]) -> Any:
        if not any(isinstance(op, Finish) for op in ops):
            return self._store.perform(ops)
        if self._awaited:
            return self._away()
        raise StoreUnavailable("away")

    async def _away(self) -> None:
        raise StoreUnavailable("away")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_a_response_that_cannot_be_published_is_sent_and_not_held_for_ever(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    opener = open_async_store if kind == "asgi" else open_store
    store = _NoFinish(opener("memory://", clock=None, timeout=1.0), kind == "asgi")
    async with guarded(kind, None, Rules(scope=principal, wait=0), store=store, timeout=0.2) as (post, _service, once):
        one: Reply = await post()
        copy = await post()
        assert list(once._context.keeper.holds) == []  # so its lease ends
    assert (one.status, copy.status) == (201, 503)
    assert sum(message.startswith("idempotency_not_settled: ") for message in caplog.messages) == 1
    assert HEADERS["Authorization"] not in caplog.text
