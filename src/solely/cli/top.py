"""solely top: what is held and waited for, live."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice

import click

from ..model import State
from ..stores import Store
from .entries import Facts, facts_of, live
from .options import DURATION, Place, at_store, in_form
from .output import Form, cell, grid

KINDS = ("lock", "claim", "reservation")
COLUMNS = ("kind", "key", "left", "waiters", "attempts", "holder")
MOST = 2_000  # of a kind that are looked at: a look must not weigh on the store it watches


@click.command()
@click.option("--every", type=DURATION, default="1s", show_default=True, help="How often to look.")
@click.option("--count", type=click.IntRange(1), help="Look so often, then end.  [default: until ^C]")
@click.option("--limit", type=click.IntRange(1, MOST), default=30, show_default=True, help="Show so many.")
@in_form
@at_store
def command(place: Place, form: Form, every: float, count: int | None, limit: int) -> None:
    """What is held now, the most waited for first. Without a terminal, or in JSON, one look."""
    with closing(place.store()) as store:
        if form.name == "json" or not sys.stdout.isatty():
            form.rows(_held(store, limit), COLUMNS, ("fence", "since", "refused"))
        else:
            _show(store, every, count, limit)


def _held(store: Store, limit: int) -> list[Facts]:
    found: list[Facts] = [
        {"kind": entry.kind, **facts_of(entry)}
        for kind in KINDS
        for entry in islice(live(store, kind), MOST)
        if entry.state is State.HELD
    ]
    return sorted(found, key=lambda facts: (-facts["waiters"], facts["left"]))[:limit]


def _show(store: Store, every: float, count: int | None, limit: int) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    def look() -> Group:
        rows = _held(store, limit)
        waiters = sum(row["waiters"] for row in rows)
        head = f"{datetime.now(UTC):%H:%M:%S} UTC   {len(rows)} held   {waiters} processes wait   ^C ends"
        return Group(Text(head, style="bold"), grid(COLUMNS, [[cell(row[name]) for name in COLUMNS] for row in rows]))

    with Live(look(), screen=True, auto_refresh=False) as screen:
        looks = 1
        while count is None or looks < count:
            time.sleep(max(0.1, every))
            screen.update(look(), refresh=True)
            looks += 1
