"""@once.idempotent: calls with the same key run the function once, and all get its result."""

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import solely
from solely import AsyncClient, Client, State, events
from solely.claims.arguments import KeyTemplate
from tests.claims.modes import PROMPT, Peek, guarded
from tests.conftest import PATIENT


class Order(NamedTuple):
    id: int
    amount: int


async def test_it_runs_once_per_key_and_all_get_the_result(once: Any, other: Any) -> None:
    runs: list[int] = []
    mutex = threading.Lock()

    def charge(order: Order, currency: str = "EUR") -> dict[str, Any]:
        with mutex:
            runs.append(order.id)
        return {"charged": order.amount, "in": currency}

    keys: list[Any] = [lambda order, currency="EUR": f"charge:{order.id}:{currency}", "charge:{order.id}:{currency}"]
    charges = [guarded(client, charge, key=key) for client in (once, other) for key in keys]
    results = await asyncio.gather(*(one(Order(n % 3, 5)) for n in range(6) for one in charges))
    assert results == [{"charged": 5, "in": "EUR"}] * 24
    assert sorted(runs) == [0, 1, 2]
    assert await charges[0](Order(1, 5), currency="USD") == {"charged": 5, "in": "USD"}
    assert len(runs) == 4


async def test_another_payload_under_the_same_key_is_a_mismatch(once: Any) -> None:
    charge = guarded(once, lambda order: order.amount, key="{order.id}", fingerprint=lambda order: order.amount)
    assert await charge(Order(1, 5)) == 5
    assert await charge(Order(1, 5)) == 5
    with pytest.raises(solely.Mismatch):
        await charge(Order(1, 6))


async def test_an_error_lets_the_next_call_run(once: Any, peek: Peek) -> None:
    outcomes: list[Any] = [ZeroDivisionError(), "fine"]

    def work() -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    run = guarded(once, work, key="constant")
    with pytest.raises(ZeroDivisionError):
        await run()
    assert peek("constant").state is State.FREE
    assert await run() == await run() == "fine"


@pytest.mark.parametrize("result", [object(), b"x" * 262_145, {"deep": {1, 2}}], ids=["object", "large", "set"])
async def test_a_result_that_cannot_be_kept_is_returned_once_and_never_run_again(
    once: Any, other: Any, result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    def work() -> Any:
        runs.append(1)
        return result

    with caplog.at_level(logging.WARNING, "solely"):
        assert await guarded(once, work, key="a")() is result
    assert "result_not_kept" in caplog.text
    with pytest.raises(solely.NotKept):
        await guarded(other, work, key="a")()
    assert runs == [1]


async def test_who_waits_too_long_is_told_who_runs_it(once: Any, other: Any) -> None:
    claim = await once.claim("a", purpose="the long one")
    run = guarded(other, lambda: 1, key="a", wait=0.02)
    with pytest.raises(solely.TimedOut, match="the long one"):
        await run()
    await claim.publish(2)
    assert await run() == 2


async def test_a_late_function_returns_the_result_that_stands(once: Any, other: Any, clock: Any) -> None:
    async def late() -> Any:
        clock.advance(1.01)
        successor = await other.claim("a")
        assert (successor.won, successor.attempt) == (True, 2)
        await successor.publish("right")
        return "late"

    if isinstance(once, AsyncClient):
        assert await once.idempotent(key="a", ttl=1)(late)() == "right"
    else:
        loop = asyncio.get_running_loop()
        blocking = guarded(once, lambda: asyncio.run_coroutine_threadsafe(late(), loop).result(PROMPT), key="a", ttl=1)
        assert await blocking() == "right"


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


async def _coroutine() -> int:
    return 1


@pytest.mark.parametrize(
    ("client", "work", "options", "why"),
    [
        (Client, _coroutine, {"key": "a"}, "use an AsyncClient"),
        (AsyncClient, lambda: 1, {"key": "a"}, "use a Client"),
        (Client, _generator, {"key": "a"}, "generator"),
        (AsyncClient, _async_generator, {"key": "a"}, "generator"),
        (Client, partial(_generator), {"key": "a"}, "_generator.*is a generator"),
        (AsyncClient, partial(_async_generator), {"key": "a"}, "_async_generator.*is a generator"),
        (Client, lambda: 1, {"key": ""}, "key must be"),
        (Client, lambda: 1, {"key": 7}, "key must be"),
        (Client, lambda: 1, {"key": "a", "fingerprint": "x"}, "function of the call"),
        (Client, lambda: 1, {"key": "a", "ttl": 0}, "ttl"),
        (Client, lambda: 1, {"key": "a", "keep": -1}, "keep"),
        (Client, lambda: 1, {"key": "a", "policy": {}}, "Policy"),
    ],
)
async def test_what_cannot_be_decorated_is_refused_at_once(
    client: Any, work: Callable[..., Any], options: Any, why: str
) -> None:
    once = client("memory://")
    with pytest.raises(solely.InvalidInput, match=why):
        once.idempotent(**options)(work)
    closed = once.close()
    if closed is not None:
        await closed


def test_a_key_that_does_not_fit_the_call_is_refused() -> None:
    with Client("memory://") as once:
        for key in ("{missing}", "{order.nothing}", "{}"):
            with pytest.raises(solely.InvalidInput, match="does not fit"):
                once.idempotent(key=key)(lambda order: order)(Order(1, 2))


@pytest.mark.parametrize("key", ["{order[0]}", "{order", "order}", "{order:s}", "{order!x}"])
async def test_a_key_that_cannot_be_formatted_is_named(once: Any, key: str) -> None:
    runs: list[int] = []
    with pytest.raises(solely.InvalidInput, match=re.escape(f"key {key!r} does not fit")):
        await guarded(once, lambda order: runs.append(order), key=key)(7)
    assert not runs


def test_a_call_that_does_not_fit_the_function_is_a_type_error_as_without_us() -> None:
    with Client("memory://") as once:
        work: Callable[..., Any] = lambda order: order  # noqa: E731
        call = once.idempotent(key="{order}")(work)
        with pytest.raises(TypeError, match="missing a required argument: 'order'"):
            call()


def test_the_function_keeps_its_name_and_signature() -> None:
    with Client("memory://") as once:

        @once.idempotent(key="charge:{order}")
        def charge(order: int) -> int:
            """Charges."""
            return order

        assert (charge.__name__, charge.__doc__) == ("charge", "Charges.")
        assert charge(1) == 1


async def test_work_that_hangs_loses_its_claim_after_max_hold(open_client: Callable[..., Any], store_url: str) -> None:
    lost: list[Any] = []
    over = threading.Event()

    def hook(event: Any) -> None:
        if isinstance(event, events.Lost):
            lost.append((event.key, event.how))
            over.set()

    once = open_client(store_url, hooks=[hook], timeout=PATIENT)

    async def awaited(order: int) -> bool:
        return await asyncio.to_thread(over.wait, PATIENT)

    terms: dict[str, Any] = {"key": "charge:{order}", "ttl": 30, "max_hold": 0.2}
    in_asyncio = isinstance(once, AsyncClient)
    blocking = guarded(once, lambda order: over.wait(PATIENT), **terms)
    charge: Callable[[int], Any] = once.idempotent(**terms)(awaited) if in_asyncio else blocking
    assert await asyncio.wait_for(charge(1), PATIENT)
    assert lost == [("claim/charge:1", "max_hold")]


@pytest.mark.parametrize(
    ("key", "one", "another"),
    [
        ("{a}:{b}", ("x:y", "z"), ("x", "y:z")),
        ("{a}{b}", ("x", "yz"), ("xy", "z")),
        ("k{a}--{b}", ("x--y", "z"), ("x", "y--z")),
        ("{a}%{b}", ("x%y", "z"), ("x", "25y%z")),
    ],
)
async def test_different_arguments_never_share_a_result(once: Any, key: str, one: Any, another: Any) -> None:
    join = guarded(once, lambda a, b: [a, b], key=key)
    assert await join(*one) == list(one)
    assert await join(*another) == list(another)
    assert await join(*one) == list(one)


@given(
    st.lists(st.sampled_from(["", ":", "%", "--", "%/", "~", "a", "{{"]), min_size=3, max_size=3),
    st.lists(st.tuples(*[st.text("a:-%/~2535", max_size=4)] * 2), min_size=2, max_size=2),
)
def test_keys_are_the_same_only_for_the_same_arguments(literals: list[str], calls: list[tuple[str, str]]) -> None:
    template = KeyTemplate(f"{literals[0]}{{a}}{literals[1]}{{b}}{literals[2]}")
    one, another = (template.format({"a": a, "b": b}) for a, b in calls)
    assert (one == another) is (calls[0] == calls[1])


def test_keys_of_plain_arguments_are_as_str_format_writes_them() -> None:
    for text in ("constant", "a{{b}}", "charge:{a}", "{a!r:>5}|{b:03}", "{a}:{b}:{a}"):
        assert KeyTemplate(text).format({"a": "x", "b": 7}) == text.format(a="x", b=7)
    assert KeyTemplate("charge:{a}").format({"a": "x:y%z"}) == "charge:x:y%z"  # one field is never ambiguous
    assert KeyTemplate("{a}:{b}").format({"a": "x", "b": "y:z%"}) == "x:y:z%"  # nor is the last one
