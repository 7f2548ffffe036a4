"""The Grafana dashboard and the alert rules of the docs name metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from solely.apps import APPS, find
from solely.service import workers
from solely.service.announce import ANNOUNCED
from solely.service.application import JOURNAL_DROPPED
from solely.service.figures import Figure
from solely.service.metrics import KNOWN
from solely.service.service import FAILURES
from tests.service.serving import Running

GRAFANA = Path(__file__).parent.parent.parent / "docs" / "grafana"
METRIC = re.compile(r"\bsolely_[a-z_]+\b")
BY = re.compile(r"\bby \(([^)]*)\)")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
OF_PROMETHEUS = {"instance", "job", "le"}


def figures() -> list[Figure]:
    """All that /metrics can tell: of the service, and of every application that there is."""
    of_apps = [figure for name in APPS for figure in find(name).figures]
    return [*KNOWN, ANNOUNCED, FAILURES, JOURNAL_DROPPED, *workers.FIGURES, *of_apps]


def suffixes(figure: Figure) -> tuple[str, ...]:
    """What its name ends with at /metrics."""
    if figure.kind:
        return ("",)
    return ("_bucket", "_sum", "_count") if figure.bounds else ("_total",)


def names() -> dict[str, set[str]]:
    """Each name that /metrics tells, and its labels."""
    return {figure.name + suffix: set(figure.labels) for figure in figures() for suffix in suffixes(figure)}


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((GRAFANA / "alerts.yml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GRAFANA / "dashboard.json").read_text())["panels"]
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    board = json.loads((GRAFANA / "dashboard.json").read_text())
    yield from (each["query"] for each in board["templating"]["list"] if each["type"] == "query")


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_metric_and_label_exists(expression: str) -> None:
    known = names()
    used = METRIC.findall(expression)
    assert set(used) <= known.keys()
    labels = OF_PROMETHEUS.union(*(known[name] for name in used))
    wanted = {label.strip() for group in BY.findall(expression) for label in group.split(",")}
    assert wanted | set(MATCHER.findall(expression)) <= labels


def test_every_metric_is_drawn() -> None:
    drawn = {name for expression in expressions() for name in METRIC.findall(expression)}
    for figure in figures():
        assert any(figure.name + suffix in drawn for suffix in suffixes(figure)), figure.name


def test_the_names_are_those_that_the_service_tells(open_service: Running) -> None:
    told = re.findall(r"^# TYPE (solely_\w+) ", open_service.get("/metrics").text, re.MULTILINE)
    known = [figure.name if figure.bounds or figure.kind else f"{figure.name}_total" for figure in figures()]
    assert sorted(told) == sorted(known)


def test_no_label_is_one_that_prometheus_sets() -> None:
    for figure in figures():
        assert not OF_PROMETHEUS & set(figure.labels), "Prometheus would rename ours to exported_…"


def test_every_rule_says_what_it_means_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
