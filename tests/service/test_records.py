"""Rows of a database as structs, and texts as columns."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from solely.service.records import from_row, json_texts


class Target(msgspec.Struct):
    """What is monitored."""

    host: str
    port: int


class CheckRow(msgspec.Struct):
    """One check."""

    id: str
    at: float
    seconds: float | None
    status: Literal["up", "down"]
    paused: bool
    labels: dict[str, str]
    steps: list[float] | None
    target: Target


ROW = {
    "id": "7", "at": 1, "seconds": None, "status": "up", "paused": 1, "labels": '{"a": "b"}', "steps": None,
    "target": '{"host": "db", "port": 5432}', "hour": 3600,
}  # fmt: skip


def test_a_column_of_json_becomes_what_its_field_is() -> None:
    assert from_row(CheckRow, dict(ROW)) == CheckRow("7", 1.0, None, "up", True, {"a": "b"}, None, Target("db", 5432))
    assert from_row(CheckRow, {**ROW, "steps": "[0.1, 2]"}).steps == [0.1, 2.0]


def test_a_text_that_reads_like_json_stays_a_text() -> None:
    assert from_row(CheckRow, {**ROW, "id": '{"a": 1}'}).id == '{"a": 1}'


def test_a_column_of_another_type_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_row(CheckRow, {**ROW, "status": "sideways"})


def test_texts_are_stored_without_what_a_database_cannot_store() -> None:
    assert msgspec.json.decode(json_texts({"a\0": 'b\0 "\\u0000'})) == {"a\ufffd": 'b\ufffd "\\u0000'}
