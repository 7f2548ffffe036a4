"""What clients of PagerDuty's Events API v2 send, read as alerts."""

from typing import Any

import msgspec
import pytest

from solely.apps.alerts.inputs.pagerduty import parse, read
from solely.apps.alerts.model import Alert
from solely.errors import InvalidInput

PAYLOAD = {"summary": "Queue is 9,000 long", "source": "worker-3.example.org", "severity": "error"}


def parsed(**fields: Any) -> Alert:
    return parse(read({"routing_key": "k", "event_action": "trigger"} | fields))


def test_a_trigger() -> None:
    alert = parsed(
        dedup_key="queue/worker-3",
        payload=PAYLOAD
        | {
            "timestamp": "2026-03-01T12:00:00.000+0000",
            "component": "queue",
            "group": "workers",
            "class": "backlog",
            "custom_details": {"length": 9000, "oldest": "14 min", "shards": {"a": 1}},
        },
        client="Watcher",
        client_url="https://watcher.example.org",
        links=[{"href": "https://example.org/runbook", "text": "Runbook"}, {"href": "https://example.org/graph"}],
        images=[{"src": "https://example.org/graph.png", "alt": None}],
        something_new=True,
    )
    assert alert == Alert(
        name="Queue is 9,000 long",
        severity="error",
        source="worker-3.example.org",
        fingerprint="queue/worker-3",
        labels={"component": "queue", "group": "workers", "class": "backlog"},
        annotations={
            "length": "9000",
            "oldest": "14 min",
            "shards": '{"a":1}',
            "timestamp": "2026-03-01T12:00:00.000+0000",
            "client": "Watcher",
            "client_url": "https://watcher.example.org",
            "link_1": "Runbook: https://example.org/runbook",
            "link_2": "https://example.org/graph",
            "image_1": "https://example.org/graph.png",
        },
    )


@pytest.mark.parametrize(("details", "kept"), [(None, {}), ("free text", {"custom_details": "free text"})])
def test_details_of_another_kind(details: Any, kept: dict[str, str]) -> None:
    assert parsed(payload=PAYLOAD | {"custom_details": details}).annotations == kept


def test_a_long_summary_is_cut_in_the_name_only() -> None:
    alert = parsed(payload=PAYLOAD | {"summary": "s" * 1024})
    assert (len(alert.name), alert.annotations) == (255, {"summary": "s" * 1024})


def test_details_are_bounded_and_the_rest_comes_first() -> None:
    alert = parsed(payload=PAYLOAD | {"custom_details": {f"d{n}": "x" * 10_000 for n in range(100)}}, client="Watcher")
    assert len(alert.annotations) == 64
    assert alert.annotations["client"] == "Watcher"
    assert len(alert.annotations["d0"]) == 8192


def test_nulls_are_as_good_as_nothing() -> None:
    alert = parsed(dedup_key=None, payload=PAYLOAD | {"component": None}, client=None, links=None, images=None)
    assert (alert.labels, alert.annotations) == ({}, {})


def test_a_trigger_without_a_key_has_one_that_a_repeat_has_too() -> None:
    first, again, raised = (
        parsed(payload=PAYLOAD | {"timestamp": "1"}),
        parsed(payload=PAYLOAD | {"timestamp": "2"}),
        parsed(payload=PAYLOAD | {"severity": "critical"}),
    )
    others = [parsed(payload=PAYLOAD | {name: "another"}) for name in ("summary", "source", "component", "class")]
    assert first.fingerprint == again.fingerprint == raised.fingerprint
    assert len({each.fingerprint for each in [first, *others]}) == 5


def test_a_resolve_needs_no_payload() -> None:
    alert = parsed(event_action="resolve", dedup_key="queue/worker-3")
    assert (alert.status, alert.fingerprint, alert.name) == ("resolved", "queue/worker-3", "queue/worker-3")
    assert (alert.severity, alert.source) == ("none", "pagerduty")


def test_a_resolve_with_a_payload_keeps_it() -> None:
    alert = parsed(event_action="resolve", dedup_key="q", payload=PAYLOAD)
    assert (alert.status, alert.severity, alert.name) == ("resolved", "error", "Queue is 9,000 long")


def test_a_resolve_is_not_refused_for_what_it_need_not_have() -> None:
    assert parsed(event_action="resolve", dedup_key="q", payload={}, links="none").fingerprint == "q"


@pytest.mark.parametrize("action", ["resolve", "acknowledge"])
@pytest.mark.parametrize("key", [None, ""])
def test_only_a_trigger_can_do_without_a_key(action: str, key: str | None) -> None:
    with pytest.raises(InvalidInput, match=f"what to {action}"):
        parsed(event_action=action, dedup_key=key)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"payload": PAYLOAD | {"severity": "fatal"}}, "payload.severity"),
        ({"payload": PAYLOAD | {"summary": ""}}, "payload.summary"),
        ({"payload": {"summary": "x", "severity": "info"}}, "source"),
        ({"event_action": "shout", "payload": PAYLOAD}, "event_action"),
        ({"payload": PAYLOAD, "dedup_key": "k" * 256}, "dedup_key"),
        ({"event_action": "resolve", "dedup_key": "k" * 256}, "dedup_key"),
        ({"payload": PAYLOAD, "routing_key": 7}, "routing_key"),
        ({"payload": PAYLOAD, "links": [{"text": "no href"}]}, "href"),
    ],
)
def test_what_is_no_event_is_refused_and_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        parsed(**wrong)


def test_a_trigger_without_a_payload_is_refused() -> None:
    with pytest.raises(InvalidInput, match="payload is missing"):
        parsed()
