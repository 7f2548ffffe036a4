"""solely locks, marks, claims, reservations, watermarks: list, show and clear entries of one kind."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from .. import values
from ..claims.listing import PUBLISHED, outcome_of
from ..client import Client
from ..errors import Unreadable
from ..formats import WatermarkValue
from ..model import Entry
from ..watermarks.flow import decode
from .audit import CommandAudit
from .entries import Facts, Noun, add_clear, add_list, add_show, facts_of, not_found, page_of
from .help import Group
from .options import StoreOptions, at_store, by_reason, confirm, in_form, paged
from .output import Form, Row, cell, talk

RESERVATIONS_PER_PAGE = 100  # each costs a second read, of when it was last sent


@click.group(cls=Group, default="list")
def locks() -> None:
    """Locks: who holds them, and for how long."""


LOCK = Noun("lock", ("key", "state", "left", "fence", "waiters", "holder"), ("since", "attempts", "refused"))
add_list(locks, LOCK)
add_show(locks, LOCK)
add_clear(locks, LOCK, "Takes the lock from its holder, who is notified at the next renewal.")


@click.group(cls=Group, default="list")
def marks() -> None:
    """Marks: which keys are marked, and until when."""


MARK = Noun("mark", ("key", "state", "left"), ("fence",), example="seen:42")
add_list(marks, MARK)
add_show(marks, MARK)
add_clear(marks, MARK, "Removes the mark, so that the next caller is first again.")


# -- claims


def _claim_facts(entry: Entry) -> Facts:
    return facts_of(entry) | {"size": len(entry.value or b""), **_outcome(entry)}


def _outcome(entry: Entry) -> Facts:
    """How it ended, as `outcome`, and the value if there is one."""
    outcome = outcome_of(entry)
    value = values.decode(entry.value, entry.name) if outcome == PUBLISHED else None
    if isinstance(value, bytes):
        value = {"bytes": base64.b64encode(value).decode()}
    return {"outcome": outcome, "value": value}


@click.group(cls=Group, default="list")
def claims() -> None:
    """Claims: what runs once, who runs it, and how it ended."""


CLAIM = Noun(
    "claim",
    ("key", "state", "left", "attempts", "outcome", "holder"),
    ("fence", "waiters", "since", "size", "value"),
    _claim_facts,
    "invoice:2026-01",
)
add_list(claims, CLAIM)
add_show(claims, CLAIM)
add_clear(claims, CLAIM, "Removes the claim: a running one is superseded, finished work can run again.")


# -- reservations


@click.group(cls=Group, default="list")
def reservations() -> None:
    """Reservations: what is being sent, what is quiet, and how many were suppressed."""


RESERVATION = Noun(
    "reservation",
    ("key", "reason", "left", "suppressed", "last_sent", "holder"),
    ("fence", "sent"),
    example="mail:alice",
)


@reservations.command("list", examples=["solely reservations list", "solely reservations list mail: --json"])
@paged
@in_form
@at_store
def _list_reservations(
    options: StoreOptions, form: Form, prefix: str, after: str, limit: int, everything: bool
) -> None:
    """Lists those whose key begins with PREFIX, in the order of keys, a page at a time."""
    with options.client() as once:
        form.rows(page_of(_active(once, prefix, after), limit, everything), RESERVATION.columns, RESERVATION.more)


@reservations.command("show", examples=["solely reservations show mail:alice"])
@click.argument("key")
@in_form
@at_store
def _show(options: StoreOptions, form: Form, key: str) -> None:
    """Shows all facts of one; exits with 3 if there is none."""
    with options.client() as once:
        first = next((row for row in _active(once, key, "") if row["key"] == key), None)
    if first is None:
        not_found(f"reservation {key!r}")
    form.one(first)


def _active(once: Client, prefix: str, after: str) -> Iterator[Row]:
    while page := once.reservations(prefix, after=after, limit=RESERVATIONS_PER_PAGE):
        yield from (info._asdict() for info in page)
        after = page[-1].key


add_clear(
    reservations,
    RESERVATION,
    "Ends the hold or the quiet window, so that the next caller may send; limits still count what was sent.",
)


# -- watermarks


def _watermark_facts(entry: Entry) -> Facts:
    value: WatermarkValue | str | None
    try:
        value = decode(entry.value) if entry.value is not None else None
    except Unreadable as why:
        value = f"unreadable: {why}"
    lag = (datetime.now(UTC) - value).total_seconds() if isinstance(value, datetime) else None
    return {"key": entry.name, "value": value, "lag": lag, "fence": entry.fence}


class WatermarkParameter(click.ParamType[WatermarkValue]):
    """A whole number, or a time with its zone."""

    name = "value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> WatermarkValue:
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


@click.group(cls=Group, default="list")
def watermarks() -> None:
    """Watermarks: how far each poller got. Times are ISO 8601."""


WATERMARK = Noun("watermark", ("key", "value", "lag"), ("fence",), _watermark_facts, "orders")
add_list(watermarks, WATERMARK)
add_show(watermarks, WATERMARK)
add_clear(watermarks, WATERMARK, "Removes the watermark: the work starts from the beginning.")


@watermarks.command(
    context_settings={"ignore_unknown_options": True},
    examples=["solely watermarks advance orders 2026-01-31T12:00:00Z", "solely watermarks advance rows 4711"],
)
@click.argument("name")
@click.argument("value", type=WatermarkParameter())
@in_form
@at_store
def advance(options: StoreOptions, form: Form, name: str, value: WatermarkValue) -> None:
    """Moves it forward to VALUE; prints the resulting value, which may be further."""
    with options.client() as once:
        form.value("value", once.watermark(name).advance(value))


@watermarks.command(
    context_settings={"ignore_unknown_options": True},
    examples=['solely watermarks rewind orders 2026-01-30T00:00:00Z --reason "a day was imported wrongly" --yes'],
)
@click.argument("name")
@click.argument("value", type=WatermarkParameter())
@by_reason
@in_form
@at_store
def rewind(
    options: StoreOptions, form: Form, name: str, value: WatermarkValue, reason: str, dry_run: bool, yes: bool
) -> None:
    """Moves it back to VALUE, so that later work is done again; prints the resulting value."""
    store = options.store()
    with options.client(store=store) as once:
        mark = once.watermark(name)
        current = mark.read()
        if current is None:
            not_found(f"watermark {name!r}")
        what = f"watermark {name!r} from {cell(current)} to {cell(value)}"
        if dry_run:
            talk(f"would rewind {what}")
            return
        confirm(f"Rewind {what}", yes)
        with CommandAudit(options.url, store).acting("watermarks.rewind", name, reason):
            form.value("value", mark.rewind(value, reason=reason))
