"""solely explain and top: what the store holds, without changing it."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice

import click

from ..logs import printable
from ..model import State
from ..stores import Store
from .entries import Facts, facts_of, live
from .help import Command
from .options import DURATION, StoreOptions, at_store, in_form
from .output import Form, as_json, cell, grid

KINDS = ("lock", "claim", "reservation")
COLUMNS = ("kind", "key", "left", "waiters", "attempts", "holder")
MOST = 2_000  # entries read of each kind, so that watching does not load the store


@click.command(cls=Command, examples=["solely explain nightly"])
@click.argument("key")
@in_form
@at_store
def explain(options: StoreOptions, form: Form, key: str) -> None:
    """Everything stored under KEY: lock, mark, claim, reservation, limit, watermark, schedule, queue, and why a call
    would be refused."""
    with options.client() as once:
        explanation = once.explain(key)
    if form.name == "json":
        click.echo(as_json(asdict(explanation) | {"why": explanation.why}))
    else:
        click.echo(printable(str(explanation), keep="\n"))


@click.command(cls=Command, examples=["solely top", "solely top --every 5s", "solely top --json"])
@click.option("--every", type=DURATION, default="1s", show_default=True, help="Time between updates.")
@click.option("--count", type=click.IntRange(1), help="Number of updates.  [default: until ^C]")
@click.option("--limit", type=click.IntRange(1, MOST), default=30, show_default=True, help="Number of rows.")
@in_form
@at_store
def top(options: StoreOptions, form: Form, every: float, count: int | None, limit: int) -> None:
    """Held keys, the most contended first. Without a terminal, or in JSON, one update."""
    with closing(options.store()) as store:
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

    def table() -> Group:
        rows = _held(store, limit)
        waiters = sum(row["waiters"] for row in rows)
        head = f"{datetime.now(UTC):%H:%M:%S} UTC   {len(rows)} held   {waiters} processes wait   ^C ends"
        return Group(Text(head, style="bold"), grid(COLUMNS, [[cell(row[name]) for name in COLUMNS] for row in rows]))

    with Live(table(), screen=True, auto_refresh=False) as screen:
        updates = 1
        while count is None or updates < count:
            time.sleep(max(0.1, every))
            screen.update(table(), refresh=True)
            updates += 1
