"""The settings of publishers: what is read, what is refused and with which error; which alerts each wants; the log."""

import base64
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import structlog

import solely
from solely.apps.alerts.model import Alert, Notification
from solely.apps.alerts.publishers import (
    CommandSettings,
    LogSettings,
    Match,
    PublisherSettings,
    SlackSettings,
    WebhookSettings,
    build,
)

SECRET = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
ALERT = Alert(name="n", severity="critical", source="s", fingerprint="f", labels={"team": "a", "zone": "b"})


@pytest.fixture
async def once() -> AsyncIterator[solely.AsyncClient]:
    async with solely.AsyncClient(f"memory://{secrets.token_hex(8)}") as client:
        yield client


def read(**given: Any) -> Any:
    return msgspec.convert(given, PublisherSettings)


def test_each_kind_is_read_by_its_type() -> None:
    hook = read(
        type="webhook", url="https://a.example/x", secrets=[SECRET], timeout=3, match={"severities": ["critical"]}
    )
    assert hook == WebhookSettings(
        url="https://a.example/x", secrets=(SECRET,), timeout=3.0, match=Match(severities=("critical",))
    )
    assert read(type="slack", name="ops", url="https://a.example/x") == SlackSettings(
        name="ops", url="https://a.example/x"
    )
    assert read(type="command", argv=["a", "b"]) == CommandSettings(argv=("a", "b"))
    assert read(type="log") == LogSettings(name="log")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"type": "pager"}, "Invalid value 'pager' - at `$.type`"),
        ({"url": "https://a.example"}, "missing required field `type`"),
        ({"type": "log", "colour": 1}, "unknown field `colour`"),
        ({"type": "log", "name": "Not/This"}, "matching regex"),
        ({"type": "webhook"}, "missing required field `url`"),
        ({"type": "webhook", "url": "https://a.example", "timeout": 0}, "`float` >= 0.1 - at `$.timeout`"),
        ({"type": "webhook", "url": "ftp://a.example"}, "url must begin with https:// or http://, not 'ftp'"),
        ({"type": "webhook", "url": "a.example/x"}, "url must begin with https:// or http://, not 'nothing'"),
        ({"type": "webhook", "url": "https:///x"}, "url names no host"),
        ({"type": "webhook", "url": "https://a.example:0/x"}, "url names no host"),
        ({"type": "webhook", "url": "https://a.example:99999/x"}, "url is invalid: Port out of range"),
        ({"type": "webhook", "url": "https://[::1/x"}, "url is invalid: Invalid IPv6 URL"),
        ({"type": "webhook", "url": "https://user:hidden-1@a.example/x"}, "give them as a header"),
        ({"type": "webhook", "url": "https://a.example/hidden-1 x"}, "without spaces"),
        ({"type": "webhook", "url": "https://a.example/hidden-1\r\nx"}, "without spaces"),
        ({"type": "webhook", "url": f"https://a.example/hidden-1{'x' * 2048}"}, "up to 2048"),
        ({"type": "webhook", "url": "https://a.example/hidden-1#x"}, "#fragment"),
        ({"type": "slack", "url": "file:///etc/passwd"}, "not 'file'"),
        ({"type": "webhook", "url": "https://a.example", "secrets": ["hidden-1"]}, "does not begin with whsec_"),
        ({"type": "webhook", "url": "https://a.example", "secrets": ["whsec_hidden-1"]}, "is not base64"),
        ({"type": "webhook", "url": "https://a.example", "secrets": ["whsec_aGlkZGVuLTE="]}, "has 8 bytes"),
        ({"type": "webhook", "url": "https://a.example", "headers": {"a b": "hidden-1"}}, "header 'a b' must be"),
        ({"type": "webhook", "url": "https://a.example", "headers": {"a": "hidden-1\n"}}, "header 'a' must be"),
        ({"type": "webhook", "url": "https://a.example", "headers": {"Webhook-Id": "hidden-1"}}, "sender itself"),
        ({"type": "webhook", "url": "https://a.example", "headers": {"Host": "hidden-1"}}, "sender itself"),
        ({"type": "webhook", "url": "https://a.example", "guard_allow": ["10.0.0.1/8"]}, "guard_allow: 10.0.0.1/8 has"),
        ({"type": "command", "argv": []}, "argv is empty"),
        ({"type": "command", "argv": [""]}, "argv is empty"),
        ({"type": "command", "argv": ["a\0"]}, "NUL"),
        ({"type": "command", "argv": ["a"], "environment": {"A=B": "hidden-1"}}, "'A=B' has no usable name"),
    ],
)
def test_invalid_settings_are_refused_without_showing_secrets(given: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        read(**given)
    assert text in str(raised.value)
    assert "hidden-1" not in str(raised.value)


async def test_two_of_one_name(once: solely.AsyncClient) -> None:
    with pytest.raises(solely.InvalidInput, match="same name: log; give each its own"):
        build([LogSettings(), LogSettings(name="other"), LogSettings()], once=once)


async def test_bounds_hold_for_settings_made_in_python(once: solely.AsyncClient) -> None:
    with pytest.raises(solely.InvalidInput, match="publisher 'command': Expected `float` <= 60"):
        build([CommandSettings(argv=("true",), timeout=1e9)], once=once)
    with pytest.raises(solely.InvalidInput, match="33 publishers; the most is 32"):
        build([LogSettings(name=f"log-{number}") for number in range(33)], once=once)
    with pytest.raises(solely.InvalidInput, match="argv is empty"):
        CommandSettings(argv=())


async def test_a_file_of_certificates_that_is_none(once: solely.AsyncClient, tmp_path: Any) -> None:
    for place in (tmp_path / "none.pem", tmp_path):
        with pytest.raises(solely.InvalidInput, match=r"ca_file .* cannot be read"):
            build([WebhookSettings(url="https://a.example", ca_file=str(place))], once=once)


@pytest.mark.parametrize(
    ("match", "wanted"),
    [
        (Match(), True),
        (Match(severities=("warning", "critical")), True),
        (Match(severities=("warning",)), False),
        (Match(labels={"team": "a"}), True),
        (Match(labels={"team": "a", "zone": "b"}, severities=("critical",)), True),
        (Match(labels={"team": "a", "zone": "c"}), False),
        (Match(labels={"other": ""}), False),
        (Match(statuses=("firing",)), True),
        (Match(statuses=("resolved",)), False),
    ],
)
async def test_which_alerts_are_wanted(once: solely.AsyncClient, match: Match, wanted: bool) -> None:
    publishers = build([LogSettings(match=match), CommandSettings(argv=("true",), match=match)], once=once)
    assert [publisher.wants(ALERT) for publisher in publishers] == [wanted, wanted]


@pytest.mark.parametrize(
    ("severity", "status", "level", "said"),
    [
        ("critical", "firing", "error", "alert_firing"),
        ("warning", "firing", "warning", "alert_firing"),
        ("odd", "firing", "warning", "alert_firing"),
        ("info", "firing", "info", "alert_firing"),
        ("critical", "resolved", "info", "alert_resolved"),
    ],
)
async def test_the_line_in_the_log(once: solely.AsyncClient, severity: str, status: Any, level: str, said: str) -> None:
    (publisher,) = build([LogSettings(name="lines")], once=once)
    alert = msgspec.structs.replace(ALERT, severity=severity, status=status)
    with structlog.testing.capture_logs() as lines:
        await publisher.publish(Notification(id="msg_1", alert=alert, at=0.5))
    await publisher.close()
    assert lines == [
        {
            "event": said,
            "log_level": level,
            "publisher": "lines",
            "id": "msg_1",
            "name": "n",
            "severity": severity,
            "source": "s",
            "fingerprint": "f",
            "labels": {"team": "a", "zone": "b"},
            "annotations": {},
            "at": "1970-01-01T00:00:00.500000+00:00",
        }
    ]
