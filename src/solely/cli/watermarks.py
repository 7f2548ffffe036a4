"""solely watermarks: how far the work has come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from ..errors import Unreadable
from ..formats import WatermarkValue as Value
from ..model import Entry
from ..watermarks.flow import decode
from .audited import Audit
from .entries import Facts, Noun, add_clear, add_list, add_show, not_found
from .options import Place, at_store, by_reason, confirm
from .output import cell, talk


def _facts(entry: Entry) -> Facts:
    value: Value | str | None
    try:
        value = decode(entry.value) if entry.value is not None else None
    except Unreadable as why:
        value = f"unreadable: {why}"
    lag = (datetime.now(UTC) - value).total_seconds() if isinstance(value, datetime) else None
    return {"key": entry.name, "value": value, "lag": lag, "fence": entry.fence}


class Mark(click.ParamType[Value]):
    """A whole number, or a time with its zone."""

    name = "value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value:
        if isinstance(value, int | datetime):
            return value
        try:
            return int(value)
        except ValueError:
            pass
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor a time such as 2026-01-31T12:00:00Z", param, ctx)
        if time.tzinfo is None:
            self.fail(f"{value!r} has no zone; add Z for UTC", param, ctx)
        return time


NOUN = Noun("watermark", ("key", "value", "lag"), ("fence",), _facts)


@click.group()
def command() -> None:
    """Watermarks: how far the work has come. Times are ISO 8601."""


add_list(command, NOUN)
add_show(command, NOUN)
add_clear(command, NOUN, "Forgets the watermark: the work begins anew.")


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value", type=Mark())
@at_store
def advance(place: Place, name: str, value: Value) -> None:
    """Moves it forward to VALUE; prints what then stands, which may be further."""
    with place.client() as once:
        click.echo(_said(once.watermark(name).advance(value)))


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value", type=Mark())
@by_reason
@at_store
def rewind(place: Place, name: str, value: Value, reason: str, dry_run: bool, yes: bool) -> None:
    """Takes it back to VALUE, so that what came after is done again; prints what then stands."""
    store = place.store()
    with place.client(store=store) as once:
        mark = once.watermark(name)
        stands = mark.read()
        if stands is None:
            not_found(f"watermark {name!r}")
        what = f"watermark {name!r} from {cell(stands)} to {cell(value)}"
        if dry_run:
            talk(f"would rewind {what}")
            return
        confirm(f"Rewind {what}", yes)
        Audit(place.url, store).record("watermarks.rewind", name, reason)
        click.echo(_said(mark.rewind(value, reason=reason)))


def _said(value: Value) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
