"""Gauges of applications: read when metrics are collected, and summed over workers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from solely import InvalidInput
from solely.service.figures import GONE, Figure, FigureRegistry

PART = Figure("solely_test_part", "What this worker has of it", ("of",), kind="gauge")
WHOLE = Figure("solely_test_whole", "What all workers see", kind="shared gauge")
COUNTED = Figure("solely_test_counted", "A counter beside them")
KNOWN = (PART, WHOLE, COUNTED)


def worker(folder: Path, part: float, whole: float) -> FigureRegistry:
    it = FigureRegistry(KNOWN, str(folder))
    it.gauge(PART, lambda: part, "seats")
    it.gauge(WHOLE, lambda: whole)
    it.count(COUNTED)
    return it


def collected(it: FigureRegistry) -> list[str]:
    return [line for line in it.text().decode().splitlines() if not line.startswith("#") and "_created" not in line]


def test_a_gauge_is_read_whenever_metrics_are_collected() -> None:
    it, now = FigureRegistry(KNOWN), [1.0]
    it.gauge(WHOLE, lambda: now[0])
    assert "solely_test_whole 1.0" in collected(it)
    now[0] = 0.5
    assert "solely_test_whole 0.5" in collected(it)
    assert "# TYPE solely_test_whole gauge" in it.text().decode()


def test_parts_are_summed_and_of_a_whole_the_greatest_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1_000_001)
    worker(tmp_path, 3, 10).save()
    monkeypatch.setattr(os, "getpid", lambda: 1_000_002)
    here = worker(tmp_path, 4, 9)
    both = ['solely_test_part{of="seats"} 7.0', "solely_test_whole 10.0", "solely_test_counted_total 2.0"]
    assert collected(here) == both
    assert collected(here) == both, "collecting changes nothing"


def test_what_an_ended_worker_said_is_over_and_what_it_counted_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1_000_001)
    worker(tmp_path, 3, 10).save()
    long_ago = time.time() - GONE - 1
    os.utime(tmp_path / "1000001.counts", (long_ago, long_ago))
    monkeypatch.setattr(os, "getpid", lambda: 1_000_002)
    assert collected(worker(tmp_path, 4, 9)) == [
        'solely_test_part{of="seats"} 4.0',
        "solely_test_whole 9.0",
        "solely_test_counted_total 2.0",
    ]


def test_one_gauge_that_fails_hides_no_other() -> None:
    it = FigureRegistry(KNOWN)
    it.gauge(PART, lambda: 1 / 0, "seats")
    it.gauge(WHOLE, lambda: 2)
    assert collected(it) == ["solely_test_whole 2.0", "solely_test_counted_total 0.0"]


def test_a_name_is_given_once() -> None:
    with pytest.raises(InvalidInput, match="two figures named solely_test_whole"):
        FigureRegistry(KNOWN).add((WHOLE,))
