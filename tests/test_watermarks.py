"""Watermarks go forward by themselves and back only on purpose; numbers and times, persisted, on every store."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import solely
from solely import events
from solely.errors import Interrupted
from solely.formats import read_watermark, write_watermark
from solely.ops import Advance, Op, Read
from solely.stores.memory import AsyncMemoryStore, Memory, MemoryStore
from solely.watermarks import flow
from tests.client_modes import refusing_client, result_of

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EAST = timezone(timedelta(hours=5, minutes=30))


async def test_numbers_go_forward_and_never_back(open_client: Callable[..., Any], store_url: str) -> None:
    mark, other = open_client(store_url).watermark("a"), open_client(store_url).watermark("a", lookback=10)
    assert await result_of(mark.read()) is None
    assert await result_of(other.since()) is None
    assert await result_of(mark.advance(-700)) == -700
    assert await result_of(other.advance(-1_000)) == -700
    assert await result_of(mark.advance(-7)) == -7
    assert await result_of(other.advance(5)) == 5
    assert await result_of(mark.advance(-(2**63))) == 5
    assert await result_of(mark.read()) == 5
    assert await result_of(other.since()) == -5
    assert await result_of(mark.advance(2**63 - 1)) == 2**63 - 1


async def test_times_are_utc_and_a_restart_neither_replays_nor_skips(
    open_client: Callable[..., Any], store_url: str
) -> None:
    before = open_client(store_url)
    later = NOON + timedelta(microseconds=1)
    assert await result_of(before.watermark("poll").advance(NOON.astimezone(EAST))) == NOON
    assert await result_of(before.watermark("poll").advance(later)) == later
    assert await result_of(before.watermark("poll").advance(NOON)) == later
    assert await result_of(before.watermark("number").advance(42)) == 42
    if not store_url.startswith("memory"):
        await result_of(before.close())
    after = open_client(store_url)
    read = await result_of(after.watermark("poll").read())
    assert (read, read.tzinfo) == (later, UTC)
    assert await result_of(after.watermark("number").read()) == 42
    assert await result_of(after.watermark("poll", lookback=timedelta(minutes=5)).since()) == later - timedelta(
        minutes=5
    )
    assert await result_of(after.watermark("poll", lookback=0.5).since()) == later - timedelta(seconds=0.5)
    assert await result_of(after.watermark("poll", lookback=10**15).since()) == datetime.min.replace(tzinfo=UTC)


async def test_a_time_and_a_number_under_one_name_are_an_error_that_names_both(
    open_client: Callable[..., Any], store_url: str
) -> None:
    once = open_client(store_url)
    await result_of(once.watermark("number").advance(2**63 - 1))
    await result_of(once.watermark("time").advance(NOON))
    for name, stands, wrong in (("number", 2**63 - 1, NOON), ("time", NOON, 7)):
        mark = once.watermark(name)
        for call in (mark.advance, partial(mark.rewind, reason="test")):
            with pytest.raises(solely.InvalidInput) as refusal:
                await result_of(call(wrong))
            assert all(word in str(refusal.value) for word in ("time", "number", str(stands), str(wrong), repr(name)))
        assert await result_of(once.watermark(name).read()) == stands
    with pytest.raises(solely.InvalidInput, match="lookback must be an int"):
        await result_of(once.watermark("number", lookback=timedelta(seconds=1)).since())


async def test_of_many_who_advance_at_once_the_furthest_stands(
    open_client: Callable[..., Any], store_url: str, mode: str
) -> None:
    marks = [open_client(store_url).watermark("a") for _ in range(2)]

    async def advance(value: int) -> int:
        call = marks[value % 2].advance
        return int(await (asyncio.to_thread(call, value) if mode == "blocking" else call(value)))

    values = [17, 3, 40, 8, 25, 39, 1, 12]
    answers = await asyncio.gather(*map(advance, values))
    assert all(answer >= value for answer, value in zip(answers, values, strict=True))
    assert await result_of(marks[0].read()) == 40


async def test_a_rewind_goes_back_is_logged_and_told(
    open_client: Callable[..., Any], store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[events.Event] = []
    mark = open_client(store_url, hooks=[heard.append]).watermark("a")
    await result_of(mark.advance(100))
    with caplog.at_level(logging.WARNING, logger="solely"):
        assert await result_of(mark.rewind(40, reason="import was wrong")) == 40
    (line,) = [record for record in caplog.records if record.message.startswith("watermark_rewound: ")]
    facts = {name: getattr(line, name) for name in ("key", "before", "to", "reason")}
    assert facts == {"key": "watermark/a", "before": "100", "to": "40", "reason": "import was wrong"}
    assert [e for e in heard if isinstance(e, events.Rewound)] == [events.Rewound(**facts)]
    assert await result_of(mark.read()) == 40
    heard.clear()
    assert await result_of(mark.rewind(60, reason="forward is what advance is for")) == 40
    assert not heard
    assert await result_of(mark.advance(41)) == 41
    assert await result_of(mark.rewind(-1, reason="again")) == -1


class Away(MemoryStore):
    """A store that does not answer."""

    def perform(self, ops: Sequence[Op]) -> Any:
        raise solely.StoreUnavailable("away")


class AsyncAway(AsyncMemoryStore):
    """A store that does not answer."""

    def perform(self, ops: Sequence[Op]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_exception(solely.StoreUnavailable("away"))
        return answer


async def test_without_its_store_an_advance_may_proceed_but_nothing_is_read(
    open_client: Callable[..., Any], mode: str
) -> None:
    store = Away(Memory()) if mode == "blocking" else AsyncAway(Memory())
    once = open_client(store=store, timeout=0.05, on_outage="proceed")
    assert await result_of(once.watermark("a").advance(3)) == 3
    assert once.failed_open == 1
    for call in (once.watermark("a").read, once.watermark("a").since):
        with pytest.raises(solely.StoreUnavailable):
            await result_of(call())
    with pytest.raises(solely.StoreUnavailable):
        await result_of(once.watermark("a").rewind(1, reason="test"))


BAD_VALUES = [1.5, "7", True, None, 2**63, -(2**63) - 1, datetime(2026, 3, 1), b"1"]  # noqa: DTZ001


@pytest.mark.parametrize("value", BAD_VALUES, ids=repr)
async def test_values_that_cannot_be_are_refused_before_anything_is_sent(mode: str, value: Any) -> None:
    mark = refusing_client(mode).watermark("a")
    for call in (mark.advance, partial(mark.rewind, reason="test")):
        with pytest.raises(solely.InvalidInput):
            await result_of(call(value))


async def test_names_lookbacks_and_reasons_that_cannot_be(mode: str) -> None:
    once = refusing_client(mode)
    for name in ("", "k" * 513, 7, "a\0"):
        with pytest.raises(solely.InvalidInput, match="key"):
            once.watermark(name)
    for lookback in (-1, float("nan"), float("inf"), "1", True, timedelta(seconds=-1)):
        with pytest.raises(solely.InvalidInput, match="lookback"):
            once.watermark("a", lookback=lookback)
    for reason in ("", "  ", None, 7):
        with pytest.raises(solely.InvalidInput, match="reason"):
            await result_of(once.watermark("a").rewind(1, reason=reason))


# -- the flow, step by step

VALUES = st.integers(-(2**63), 2**63 - 1) | st.datetimes(timezones=st.just(UTC)) | st.datetimes(
    datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(EAST)  # noqa: DTZ001
)  # fmt: skip


@given(VALUES, VALUES)
def test_encoded_values_sort_as_the_values_do(one: Any, other: Any) -> None:
    assert read_watermark(write_watermark(one)) == one
    if isinstance(one, int) == isinstance(other, int):
        assert (write_watermark(one) < write_watermark(other)) == (one < other)


def test_a_rewind_succeeds_although_others_advance_meanwhile() -> None:
    memory, key = Memory(), "watermark/a"
    memory.perform([Advance(key, write_watermark(100))])
    rewinding = flow.rewind(key, 40, "test")
    request, interferences = next(rewinding), iter([101, 102])
    with pytest.raises(StopIteration) as end:
        for _ in range(20):
            if isinstance(request, list) and (value := next(interferences, None)):  # between the look and the step
                memory.perform([Advance(key, write_watermark(value))])
            replies = memory.perform(request if isinstance(request, list) else [request])  # type: ignore[list-item]
            request = rewinding.send(replies if isinstance(request, list) else replies[0])
    assert end.value.value == flow.Rewinding(100, 40)
    assert read_watermark(memory.perform([Read(key)])[0].value) == 40  # type: ignore[union-attr, arg-type]


def test_a_rewind_that_is_always_overtaken_says_so() -> None:
    memory, key = Memory(), "watermark/a"
    memory.perform([Advance(key, write_watermark(100))])
    rewinding = flow.rewind(key, 40, "test")
    request = next(rewinding)
    with pytest.raises(solely.Busy, match="faster than it can be rewound"):
        for value in range(101, 150):
            replies = memory.perform(request if isinstance(request, list) else [request])  # type: ignore[list-item]
            memory.perform([Advance(key, write_watermark(value))])
            request = rewinding.send(replies if isinstance(request, list) else replies[0])


def test_a_rewind_that_is_interrupted_leaves_a_value() -> None:
    memory, key = Memory(), "watermark/a"
    memory.perform([Advance(key, write_watermark(100))])
    rewinding = flow.rewind(key, 40, "test")
    rewinding.send(None)
    step: Any = rewinding.send(memory.perform([Read(key)])[0])
    memory.perform(step[:1])  # the batch got no further than its Clear
    undo = rewinding.throw(Interrupted(KeyboardInterrupt(), unanswered=True))
    memory.perform([undo])  # type: ignore[list-item]
    with pytest.raises(Interrupted):
        rewinding.send(None)
    assert read_watermark(memory.perform([Read(key)])[0].value) == 40  # type: ignore[union-attr, arg-type]
