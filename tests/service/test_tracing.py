"""Spans of an application: under the current one, with attributes, and linked to a trace that is kept as a text."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from solely.service.tracing import Tracing


def test_a_span_has_its_attributes_and_is_linked_to_the_trace_that_was_kept() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing.on("solely.probes", provider)
    with tracing.span("probes.schedule", {"target": "db"}):
        kept = tracing.current()
        with tracing.span("probes.inner"):
            assert tracing.current().split("-")[1] == kept.split("-")[1]
    with tracing.span("probes.check", link=kept), tracing.span("probes.odd", link="not a traceparent"):
        pass
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert dict(spans["probes.schedule"].attributes or {}) == {"target": "db"}
    (link,) = spans["probes.check"].links
    assert f"{link.context.trace_id:032x}" == kept.split("-")[1]
    assert not spans["probes.odd"].links
    assert spans["probes.inner"].parent is not None


def test_without_telemetry_there_are_none() -> None:
    with Tracing().span("probes.check", {"target": "db"}, link="00-ab-cd-01"):
        assert Tracing().current() == ""
