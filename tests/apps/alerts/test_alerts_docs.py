"""The page on alerts says what is: its settings, figures, endpoints, log lines, and the code that it shows."""

from __future__ import annotations

import base64
import re
import secrets
import time
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from solely.apps.alerts.app import AlertsApp
from solely.apps.alerts.figures import FIGURES
from solely.apps.alerts.inputs import alertmanager, labels, pagerduty
from solely.apps.alerts.model import MAX_FINGERPRINT
from solely.apps.alerts.publishers import MAX_PUBLISHERS, PublisherSettings
from solely.apps.alerts.settings import AlertsSettings, table
from solely.apps.alerts.suppression.silences import MOST
from solely.outgoing.signing import sign
from solely.service.service import Service
from solely.service.settings import load
from tests.service.serving import settings

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "docs/alerts.md").read_text()
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src/solely/apps/alerts").rglob("*.py"))


def block(kind: str, holding: str) -> str:
    """The first block of this kind that holds this text."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(next(each for each in blocks if holding in each))


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_setting_is_documented() -> None:
    text = section("Settings")
    for field in msgspec.structs.fields(AlertsSettings):
        assert re.search(rf"^\|[^|]*`{field.name}`", text, re.MULTILINE), field.name


def test_the_settings_that_are_shown_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "solely.toml"
    file.write_text(block("toml", "[alerts]"))
    read = load(file, environ={}, flags={"url": "memory://"}).settings.section("alerts")
    assert [publisher.name for publisher in read.publishers] == ["pager", "chat"]
    assert read.publishers[0].match.severities == ("critical", "error")
    assert (table(read)["critical"].quiet, table(read)["critical"].limit) == (600.0, 20)
    assert (table(read)["info"].quiet, table(read)["info"].limit) == (3600.0, None)
    assert read.severity_limits["critical"].per == 3600.0


@pytest.mark.parametrize(("severity", "named"), [("critical", "critical"), ("warning", "warning"), ("x", "all others")])
def test_the_policies_are_the_defaults(severity: str, named: str) -> None:
    policy = table(AlertsSettings())[severity]
    minutes = float(policy.terms["quiet"]) / 60
    assert f"| {named} | {policy.hold:.0f}s | {minutes:.0f}m | {policy.limit} per hour |" in PAGE
    assert policy.per == 3600.0


def test_every_publisher_is_documented_with_its_required_fields() -> None:
    text = section("Publishers")
    for kind in get_args(PublisherSettings):
        (row,) = re.findall(rf"^\| `{kind.__struct_config__.tag}` \|(.*)\|$", text, re.MULTILINE)
        for field in msgspec.structs.fields(kind):
            assert not field.required or f"`{field.name}`" in row, field.name


def test_receivers_can_check_signatures_as_is_shown() -> None:
    names: dict[str, object] = {}
    exec(block("python", "def is_genuine"), names)
    is_genuine = names["is_genuine"]
    assert callable(is_genuine)
    keys = [secrets.token_bytes(32), secrets.token_bytes(24)]
    old, new = (f"whsec_{base64.b64encode(key).decode()}" for key in keys)
    other = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
    headers = sign("msg_1", int(time.time()), b"{}", keys)
    assert is_genuine(headers, b"{}", old)
    assert is_genuine(headers, b"{}", new)
    assert not is_genuine(headers, b"{}", other)
    assert not is_genuine(headers, b"{ }", old)
    assert not is_genuine(headers | {"webhook-id": "msg_2"}, b"{}", old)
    assert not is_genuine(sign("msg_1", int(time.time()) - 600, b"{}", keys), b"{}", old)


def test_every_figure_is_documented() -> None:
    text = section("Figures and log lines")
    for figure in FIGURES:
        assert f"`{figure.name}`" in text or f"`{figure.name.removeprefix('solely_alerts')}`" in text, figure.name


def test_every_endpoint_is_documented() -> None:
    app = AlertsApp(Service(settings()), AlertsSettings())
    for route in app.routes():
        if not route.hidden:
            assert route.path in PAGE, route.path


def test_every_documented_log_line_is_written() -> None:
    lines = re.findall(r"^\| (?:debug|info|warning) \| (.*?) \|", section("Figures and log lines"), re.MULTILINE)
    assert len(lines) == 12
    for line in re.findall(r"`([^`]+)`", " ".join(lines)):
        assert f'"{line}"' in SOURCE, line


def test_the_bounds_are_those_of_the_code() -> None:
    text = section("Bounds")
    assert (labels.LONGEST_TEXT, labels.LONGEST_VALUE, labels.MOST_LABELS) == (MAX_FINGERPRINT, 8_192, 64)
    assert f"{MAX_FINGERPRINT} characters" in text
    assert f"{alertmanager.MAX_BODY >> 20} MiB and {alertmanager.MAX_ALERTS:,} alerts" in text
    assert f"{pagerduty.MAX_BODY >> 10} KiB (PagerDuty)" in text
    assert f"| publishers | {MAX_PUBLISHERS} |" in text
    assert f"| silences | {MOST:,} current and future" in text
