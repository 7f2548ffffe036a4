"""Output formats: a table, a wide table with all columns, or JSON. NO_COLOR is honored."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from ..logs import printable

FORMS = ("table", "json", "wide")
Row = Mapping[str, Any]
_NONE: Mapping[str, str] = {}


@dataclass(frozen=True)
class Form:
    """One of FORMS."""

    name: str

    def rows(
        self, rows: Sequence[Row], columns: Sequence[str], more: Sequence[str] = (), styles: Mapping[str, str] = _NONE
    ) -> None:
        """Prints rows: `columns`, and `more` if wide; JSON has all fields. A terminal shows the cells that are in
        `styles` in that style."""
        if self.name == "json":
            click.echo(as_json([dict(row) for row in rows]))
            return
        shown = (*columns, *more) if self.name == "wide" else columns
        cells = [[cell(row.get(column)) for column in shown] for row in rows]
        if sys.stdout.isatty():
            _on_terminal(shown, cells, styles)
        else:
            click.echo("\n".join(plain(shown, cells)))

    def one(self, row: Row) -> None:
        """Prints one row with all its fields."""
        if self.name == "json":
            click.echo(as_json(dict(row)))
            return
        width = max(map(len, row))
        for name, value in row.items():
            click.echo(f"{name:<{width}}  {cell(value)}")

    def value(self, name: str, value: Any) -> None:
        """Prints one value alone; in JSON, an object with this name."""
        if self.name == "json":
            click.echo(as_json({name: value}))
        else:
            click.echo(value.isoformat() if isinstance(value, datetime) else printable(str(value), keep="\n"))

    def done(self, facts: Row) -> None:
        """Prints what was done, in JSON only: for people a message says it."""
        if self.name == "json":
            click.echo(as_json(dict(facts)))


def talk(text: str) -> None:
    """Prints a message for the user on stderr."""
    click.echo(printable(text, keep="\n"), err=True)


def as_json(value: Any) -> str:
    """Strict JSON: infinity is null, times are ISO 8601 in UTC."""
    return json.dumps(_plain(value), indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def cell(value: Any) -> str:
    """A value as text for a table."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return span(value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    if isinstance(value, str | int):
        return printable(str(value))
    return json.dumps(_plain(value))


def span(seconds: float) -> str:
    """Seconds in a short form: 12.3s, 14m, 23h, 12d, ever."""
    if seconds == math.inf:
        return "ever"
    for least, unit, size in ((2 * 86_400, "d", 86_400), (2 * 3_600, "h", 3_600), (120, "m", 60)):
        if seconds >= least:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.1f}s"


def plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns without truncation."""
    lines = [[column.replace("_", " ").upper() for column in columns], *cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def grid(columns: Sequence[str], cells: Sequence[Sequence[str]], styles: Mapping[str, str] = _NONE) -> Any:
    """The same as a rich table."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " ").upper(), overflow="fold")
    for line in cells:
        table.add_row(
            *[Text(text, styles.get(text, "")) for text in line]
        )  # as Text, so that a key is not read as markup
    return table


def _on_terminal(columns: Sequence[str], cells: Sequence[Sequence[str]], styles: Mapping[str, str]) -> None:
    from rich.console import Console

    Console().print(grid(columns, cells, styles))
