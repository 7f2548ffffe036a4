"""The Grafana dashboard and the alert rules of the docs name metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from solely.service.metrics import KNOWN

GRAFANA = Path(__file__).parent.parent.parent / "docs" / "grafana"
METRIC = re.compile(r"\bsolely_[a-z_]+\b")
BY = re.compile(r"\bby \(([^)]*)\)")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
OF_PROMETHEUS = {"instance", "job", "le"}


def names() -> dict[str, set[str]]:
    """Each name that /metrics tells, and its labels."""
    told = {}
    for figure in KNOWN:
        for suffix in ("_bucket", "_sum", "_count") if figure.bounds else ("_total",):
            told[figure.name + suffix] = set(figure.labels)
    return told


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
    for figure in KNOWN:
        assert any(name.startswith(figure.name) for name in drawn), figure.name


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
