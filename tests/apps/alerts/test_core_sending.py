"""What operators see: log lines, metrics, spans, and the link from a suppressed alert to the one that was sent."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import LogCapture

from solely.apps.alerts import receiver, reports
from solely.apps.alerts.model import key_of
from solely.apps.alerts.notifications import delivery, publishing
from solely.apps.alerts.publishers import PublishFailed
from solely.kit import Tracing
from tests.apps.alerts.working import FakePublisher, Open, alert, until, working


@pytest.fixture
async def open_worker() -> AsyncIterator[Open]:
    async with working(f"memory://{secrets.token_hex(8)}") as open_one:
        yield open_one


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> LogCapture:
    """What is logged, however this process has configured its logs."""
    capture = LogCapture()
    logger = structlog.wrap_logger(None, processors=[capture], wrapper_class=structlog.BoundLogger)
    for module in (receiver, delivery, publishing, reports):
        monkeypatch.setattr(module, "log", logger)
    return capture


async def test_who_is_suppressed_by_a_reservation_stands_in_the_log_with_the_seconds_left(
    open_worker: Open, lines: LogCapture
) -> None:
    worker = await open_worker()
    await worker.once.reserve(key_of(alert()), hold=30)
    await worker.receive(alert())
    (line,) = lines.entries
    assert (line["event"], line["log_level"]) == ("Alert suppressed due to active reservation", "debug")
    assert (line["fingerprint"], line["severity"]) == ("cpu", "critical")
    seconds, _, decimals = line["seconds"].partition(".")
    assert 25 < float(line["seconds"]) <= 30
    assert (len(seconds), len(decimals)) == (2, 2)


async def test_a_reservation_that_an_admin_ended_is_unknown_when_it_is_recorded(
    open_worker: Open, lines: LogCapture
) -> None:
    worker = await open_worker()
    worker.publisher.open.clear()
    asking = asyncio.create_task(worker.receive(alert()))
    await until(lambda: worker.publisher.ids)
    await worker.once.expire_reservation(key_of(alert()), reason="test")
    worker.publisher.open.set()
    assert (await asking).outcome == "published"
    (line,) = lines.entries
    assert line["event"] == "Attempted to record alert with unknown reservation ID"
    assert (line["log_level"], line["fingerprint"], line["severity"]) == ("warning", "cpu", "critical")
    assert line["fence"] > 0
    assert await worker.waiting() == 0


async def test_a_reservation_that_another_has_since_is_a_mismatch(open_worker: Open, lines: LogCapture) -> None:
    worker = await open_worker()
    worker.publisher.open.clear()
    asking = asyncio.create_task(worker.receive(alert()))
    await until(lambda: worker.publisher.ids)
    await worker.once.expire_reservation(key_of(alert()), reason="test")
    other = await worker.once.reserve(key_of(alert()))
    worker.publisher.open.set()
    assert (await asking).outcome == "published"
    (line,) = lines.entries
    assert (line["event"], line["log_level"]) == ("Reservation ID mismatch", "warning")
    assert line["expected"] == other.fence > line["got"] > 0
    assert (line["fingerprint"], line["severity"]) == ("cpu", "critical")
    await other.release()


async def test_a_released_reservation_stands_in_the_log(open_worker: Open, lines: LogCapture) -> None:
    worker = await open_worker()
    worker.publisher.failure = PublishFailed("away")
    await worker.receive(alert())
    failed, released = lines.entries
    assert (failed["event"], failed["publisher"], failed["error"]) == ("publish_failed", "fake", "away")
    assert (released["event"], released["log_level"]) == ("Released reservation", "debug")
    assert (released["fingerprint"], released["severity"]) == ("cpu", "critical")


async def test_what_happens_is_counted(open_worker: Open) -> None:
    worker = await open_worker(FakePublisher("good"), FakePublisher("bad"))
    worker.publishers[1].failure = PublishFailed("away")
    await worker.receive(alert())
    await worker.receive(alert())
    await worker.once.reserve(key_of(alert("disk")))
    await worker.receive(alert("disk"))
    counted = {name: worker.counted(name) for name in ("received", "published", "queued", "collisions")}
    assert counted == {"received": 3, "published": 1, "queued": 0, "collisions": 1}
    assert (worker.counted("suppressed", "quiet"), worker.counted("suppressed", "reserved")) == (1, 1)
    assert worker.counted("publisher_failures", "bad") == 1
    histograms = worker.metrics.counts().histograms
    asked = histograms["solely_alerts_reserve_seconds"][()]
    assert sum(asked[:-1]) == 2  # one was answered from what the worker knew
    assert sum(histograms["solely_alerts_wait_seconds"][()][:-1]) == 2  # apart from how long it is held
    assert sum(histograms["solely_alerts_hold_seconds"][()][:-1]) == 1
    assert set(histograms["solely_alerts_publish_seconds"]) == {("good",), ("bad",)}
    text = worker.metrics.text().decode()
    assert 'solely_alerts_suppressed_total{reason="quiet"} 1.0' in text


async def test_a_store_that_is_away_is_a_lock_failure(open_worker: Open) -> None:
    from solely import StoreUnavailable

    worker = await open_worker()

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    worker.once.reserve = away  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreUnavailable):
        await worker.receive(alert())
    assert worker.counted("lock_failures") == 1
    assert worker.parts.capacity.active == 0


# -- spans


class Traced:
    """Spans that end up in memory."""

    def __init__(self) -> None:
        self.exporter, self.provider = InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("request")
        self.tracing = Tracing.on("solely.alerts", self.provider)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


def trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


async def test_reserve_publish_and_record_are_spans_of_the_request(open_worker: Open) -> None:
    traced = Traced()
    worker = await open_worker(tracing=traced.tracing)
    with traced.tracer.start_as_current_span("request") as request:
        await worker.receive(alert())
    spans = traced.spans()
    started = sorted((span for name, span in spans.items() if name != "request"), key=lambda span: span.start_time or 0)
    assert [span.name for span in started] == ["alerts.reserve", "alerts.publish", "alerts.record"]
    for span in started:
        assert span.parent is not None
        assert span.parent.span_id == request.get_span_context().span_id
        assert dict(span.attributes or {}) == {"solely.fingerprint": "cpu", "solely.severity": "critical"}
    (notification,) = worker.publisher.notifications
    assert notification.trace.split("-")[1] == f"{trace_id(spans['request']):032x}"


@pytest.mark.parametrize("known", [True, False], ids=["this worker knows", "the store knows"])
async def test_a_suppressed_span_links_to_the_trace_of_the_one_that_is_sent(open_worker: Open, known: bool) -> None:
    traced = Traced()
    first = await open_worker(tracing=traced.tracing)
    second = first if known else await open_worker(tracing=traced.tracing)
    with traced.tracer.start_as_current_span("original") as original:
        await first.receive(alert())
    with traced.tracer.start_as_current_span("repeat"):
        assert (await second.receive(alert())).reason == "quiet"
    suppressed = traced.spans()["alerts.suppressed"]
    (link,) = suppressed.links
    assert link.context.trace_id == original.get_span_context().trace_id
    assert trace_id(suppressed) != link.context.trace_id
    assert (suppressed.attributes or {})["solely.reason"] == "quiet"


async def test_who_takes_over_links_to_the_trace_of_the_request(open_worker: Open) -> None:
    traced = Traced()
    worker = await open_worker(tracing=traced.tracing)
    worker.publisher.failure = PublishFailed("away")
    with traced.tracer.start_as_current_span("request") as request:
        await worker.receive(alert())
    worker.publisher.failure = None
    await worker.sweep_until(lambda: worker.publisher.ids)
    (link,) = traced.spans()["alerts.take_over"].links
    assert link.context.trace_id == request.get_span_context().trace_id


async def test_without_telemetry_there_are_no_spans_and_no_traces(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.receive(alert())
    assert worker.publisher.notifications[0].trace == ""
    assert not trace.get_current_span().is_recording()


async def test_the_trace_travels_as_a_field_of_the_reservation(open_worker: Open) -> None:
    traced = Traced()
    worker = await open_worker(tracing=traced.tracing)
    name = f"00-{'a' * 32}-{'b' * 16}-01 msg_{'0' * 32}"  # an alert may be named like a trace and an id
    with traced.tracer.start_as_current_span("request") as request:
        await worker.receive(alert(name=name))
    (window,) = await worker.once.reservations(key_of(alert()))
    assert window.details["id"] == worker.publisher.ids[0]
    assert window.details["trace"].split("-")[1] == f"{request.get_span_context().trace_id:032x}"
    assert f"({name})" in window.holder
