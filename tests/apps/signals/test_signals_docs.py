"""The page on signals says what is: settings, options, metrics, endpoints, commands and log lines."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import msgspec

from solely.apps.signals.cli import command
from solely.apps.signals.figures import FIGURES
from solely.apps.signals.metrics import ABOUT, COUNTS
from solely.apps.signals.model import SignalOptions
from solely.apps.signals.settings import SignalsSettings
from tests.apps.operator import operating

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/signals.md").read_text()
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src/solely/apps/signals").rglob("*.py"))


def test_every_setting_and_option_is_documented() -> None:
    for field in msgspec.structs.fields(SignalsSettings):
        assert f"`{field.name}`" in PAGE, field.name
    for option in fields(SignalOptions):
        assert f"`{option.name}`" in PAGE or option.name == "own", option.name


def test_every_metric_and_alert_is_documented() -> None:
    for figure in FIGURES:
        assert figure.name in PAGE, figure.name
    for name in COUNTS:
        assert f"`signals.{name}`" in PAGE, name
    for alert in ABOUT:
        assert f"| `{alert}` |" in PAGE, alert


def test_every_command_is_documented() -> None:
    for name in command.commands:
        assert f"`solely signals {name}" in PAGE or f"`{name}" in PAGE, name


def test_every_endpoint_is_documented() -> None:
    with operating("signals", {}) as desk:
        paths = desk.ask("/openapi.json")["paths"]
    for path in paths:
        if path.startswith("/api/signals"):
            end = path.removeprefix("/api/signals")
            assert f"/api/signals{end}`" in PAGE or f"`{end}`" in PAGE, path


def test_every_log_line_that_is_named_exists() -> None:
    for name in ("signal_metrics", "signal_alert"):
        assert f"`{name}`" in PAGE
        assert name in SOURCE
