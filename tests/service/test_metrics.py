"""Metrics: every event is counted, no key is ever a label, workers are summed, and what the documents name exists."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from solely import events
from solely.events import Event
from solely.service.feed import Feed, word
from solely.service.metrics import KNOWN, Metrics
from tests.service.serving import TOKENS, Running, bearer, running

DOCS = Path(__file__).parent.parent.parent / "docs"
ALL = [
    each for each in vars(events).values() if isinstance(each, type) and issubclass(each, Event) and each is not Event
]
SECRET_KEY = "lock/a-key-that-must-not-be-a-label"


def made(kind: type[Event]) -> Event:
    """An event of this kind, with something in every field."""
    values: dict[str, Any] = {"str": "expired", "float": 0.5, "int": 2, "bool": True}
    given = {each.name: values[str(each.type)] for each in fields(kind) if each.default is MISSING}
    return kind(**{**given, "key": SECRET_KEY})


def samples(text: bytes) -> dict[str, float]:
    """Every sample of a page of figures, by name and labels."""
    return {
        sample.name + json.dumps(sample.labels, sort_keys=True): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_event_is_counted_and_no_key_is_a_label(kind: type[Event]) -> None:
    metrics = Metrics()
    before = samples(metrics.text())
    metrics(made(kind))
    text = metrics.text()
    assert samples(text) != before
    assert b"a-key-that" not in text


def test_what_must_be_counted_is() -> None:
    names = {figure.name.removeprefix("solely_") for figure in KNOWN}
    assert names >= {
        "acquired", "contended", "wait_seconds", "renewed", "lost", "suppressed", "claimed", "replayed", "took_over",
        "superseded", "mismatched", "timed_out", "failed_open", "dead_lettered", "hold_seconds", "op_seconds",
    }  # fmt: skip


def test_figures_add_up() -> None:
    metrics = Metrics()
    for waited in (0.0002, 0.002, 40.0):
        metrics(events.Acquired("lock/a", 1, waited))
    metrics(events.Marked("mark/a", True))
    metrics(events.Marked("mark/a", False))
    metrics(events.Suppressed("reservation/a", "quiet", 1.0))
    told = samples(metrics.text())
    assert told['solely_acquired_total{"kind": "lock"}'] == 3
    assert told["solely_marked_total{}"] == 1
    assert told['solely_suppressed_total{"reason": "seen"}'] == 1
    assert told['solely_suppressed_total{"reason": "quiet"}'] == 1
    assert told['solely_wait_seconds_count{"kind": "lock"}'] == 3
    assert told['solely_wait_seconds_sum{"kind": "lock"}'] == pytest.approx(40.0022)
    assert told['solely_wait_seconds_bucket{"kind": "lock", "le": "0.0003"}'] == 1
    assert told['solely_wait_seconds_bucket{"kind": "lock", "le": "0.003"}'] == 2
    assert told['solely_wait_seconds_bucket{"kind": "lock", "le": "30.0"}'] == 2
    assert told['solely_wait_seconds_bucket{"kind": "lock", "le": "+Inf"}'] == 3


def test_the_figures_of_all_workers_are_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Metrics(str(tmp_path)), Metrics(str(tmp_path))
    for worker, pid in ((first, 1001), (second, 1002)):
        monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
        worker(events.Acquired("lock/a", 1, 0.5))
        worker(events.Marked("mark/a", True))
        worker.save()
    told = samples(second.text())
    assert told['solely_acquired_total{"kind": "lock"}'] == 2
    assert told["solely_marked_total{}"] == 2
    assert told['solely_wait_seconds_count{"kind": "lock"}'] == 2
    monkeypatch.setattr("os.getpid", lambda: 1003)
    assert samples(Metrics(str(tmp_path)).text())["solely_marked_total{}"] == 2, "what ended workers counted stays"


def test_the_service_counts_requests_round_trips_and_work(guarded: Running) -> None:
    writer = bearer(TOKENS["write"])
    token = guarded.post("/v1/locks/acquire", {"key": "metered"}, headers=writer).json()["token"]
    guarded.post("/v1/locks/acquire", {"key": "metered"}, headers=writer)
    guarded.post("/v1/locks/renew", {"token": token}, headers=writer)
    guarded.post("/v1/locks/release", {"token": token}, headers=writer)
    guarded.get("/never/heard/of/it")
    answer = guarded.get("/metrics", headers=bearer(TOKENS["read"]))
    assert answer.headers["content-type"].startswith("text/plain; version=")
    told = samples(answer.content)
    assert told['solely_acquired_total{"kind": "lock"}'] >= 1
    assert told['solely_contended_total{"kind": "lock"}'] >= 1
    assert told['solely_renewed_total{"kind": "lock"}'] >= 1
    assert told['solely_released_total{"kind": "lock", "outcome": "released"}'] >= 1
    assert told['solely_hold_seconds_count{"kind": "lock"}'] >= 1
    ops = [told.get(f'solely_op_seconds_count{{"op": "{op}"}}', 0) for op in ("acquire", "batch")]
    assert sum(ops) >= 2, "a batch, if an application sent its ops in the same moment"
    taken = '{"method": "POST", "route": "/v1/locks/acquire", "status": "200"}'
    assert told[f"solely_http_requests_total{taken}"] >= 1
    assert told['solely_http_requests_total{"method": "any", "route": "unmatched", "status": "404"}'] >= 1
    assert "metered" not in answer.text
    assert "never" not in answer.text


# -- the feed


def test_the_feed_keeps_the_last_events_newest_first() -> None:
    feed = Feed()
    for number in range(1200):
        feed(events.Acquired(f"lock/{number}", number, 0.5))
    feed(events.Suppressed("reservation/x", "quiet", 2.0))
    last = feed.last(3)
    assert [(each.event, each.kind, each.key) for each in last] == [
        ("suppressed", "reservation", "x"),
        ("acquired", "lock", "1199"),
        ("acquired", "lock", "1198"),
    ]
    assert last[0].facts == {"reason": "quiet", "retry_after": 2.0}
    assert len(feed.last(5000)) == 1000
    assert [each.key for each in feed.last(2, prefix="reservation/")] == ["x"]


async def test_the_feed_can_be_followed_from_where_one_was() -> None:
    feed = Feed()
    for number in range(3):
        feed(events.Marked(f"mark/{number}", True))
    following = feed.follow(after=1)
    assert [(await anext(following)).key for _ in range(2)] == ["1", "2"]
    feed(events.Marked("mark/3", True))
    assert (await anext(following)).key == "3"
    feed.close()
    assert [each async for each in following] == []


async def test_a_reader_that_is_too_slow_misses_the_oldest_and_can_see_that() -> None:
    feed = Feed()
    following = feed.follow(after=0)
    feed(events.Marked("mark/0", True))
    assert (await anext(following)).id == 1
    for number in range(1500):
        feed(events.Marked(f"mark/{number}", True))
    assert (await anext(following)).id == 502, "ids tell what is missing"
    await following.aclose()


def test_every_event_has_a_word() -> None:
    assert len({word(kind) for kind in ALL}) == len(ALL)
    assert word(events.DeadLettered) == "dead_lettered"


# -- telemetry


def test_a_request_is_a_span_with_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from solely.service import telemetry

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    made = telemetry.Telemetry
    monkeypatch.setattr(telemetry, "Telemetry", lambda: made(provider))
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    with running(telemetry=True) as it:
        parent = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
        it.post("/v1/locks/acquire", {"key": "traced"}, headers=parent)
        it.get("/nothing")
    taken, unmatched = exporter.get_finished_spans()
    assert taken.name == "POST /v1/locks/acquire"
    assert taken.context is not None
    assert f"{taken.context.trace_id:032x}" == trace_id
    assert taken.attributes is not None
    assert taken.attributes["http.response.status_code"] == 200
    assert [(each.name, (each.attributes or {})["solely.key"]) for each in taken.events] == [
        ("solely.acquired", "traced")
    ]
    assert unmatched.name == "GET unmatched"
