"""solely queues: list queues and their items; push, take, renew, ack, give back and remove items."""

from __future__ import annotations

import sys
from collections import Counter

import click

from ..audit import REFUSED
from ..model import State
from ..queues.flow import ItemInfo, queue_of
from ..queues.handle import Queue
from .audit import CommandAudit
from .entries import not_found
from .exits import Exit, leave
from .help import Group
from .items import names, shown
from .options import DURATION, StoreOptions, at_store, by_reason, confirm, in_form, parsed_json
from .output import Form, Row, talk
from .waiting import waiting_for_item

_COUNTED = 1_000  # items of a queue that are counted by state: one page
_STATES = {State.FREE: "waiting", State.HELD: "taken", State.CLOSED: "delayed"}
_QUEUES = ("queue", "items", "waiting", "delayed", "taken")
_AS_BYTES = ". Add --bytes to push it as it is."
_ITEM = ("id", "state", "left", "attempts", "payload")


@click.group(cls=Group, default="list")
def queues() -> None:
    """Queues: work that waits, is delayed or taken."""


@queues.command("list", examples=["solely queues list", "solely queues list mails --json"])
@click.argument("queue", default="")
@click.option("--prefix", default="", metavar="TEXT", help="Queues whose name begins with TEXT.")
@click.option("--after", default="", metavar="ID", help="Start after this id, or after this queue.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Number of rows.")
@in_form
@at_store
def _list(options: StoreOptions, form: Form, queue: str, prefix: str, after: str, limit: int) -> None:
    """Lists the items of QUEUE, in the order of ids; without one, the queues that have items, and how many."""
    store = options.store()
    with options.client(store=store) as once:
        if not queue:
            rows = [_summary(once.queue(name)) for name in names(store, queue_of, prefix, after, limit)]
            form.rows(rows, _QUEUES, ("more",))
            return
        found = once.queue(queue).list(after=after, limit=limit)
    if len(found) == limit:
        talk(f"there may be more: --after {found[-1].id!r}")
    form.rows([_row(item) for item in found], _ITEM, ("fence",))


def _summary(queue: Queue) -> Row:
    """The states of its items, of the first _COUNTED if there are `more`; `items` counts all."""
    found = queue.list(limit=_COUNTED)
    states, more = Counter(_STATES[item.state] for item in found), len(found) == _COUNTED
    counts = {name: states[name] for name in _STATES.values()}
    return {"queue": queue.name, "items": queue.count() if more else len(found), **counts, "more": more}


def _row(item: ItemInfo) -> Row:
    return {
        "id": item.id,
        "state": _STATES[item.state],
        "left": item.left,
        "attempts": item.attempts,
        "payload": f"unreadable: {item.unreadable}" if item.unreadable else shown(item.payload),
        "fence": item.fence,
    }


@queues.command(examples=["solely queues show mails 42"])
@click.argument("queue")
@click.argument("id")
@in_form
@at_store
def show(options: StoreOptions, form: Form, queue: str, id: str) -> None:
    """Shows one item with its payload; exits with 3 if there is none."""
    with options.client() as once:
        item = once.queue(queue).read(id)
    if item is None:
        not_found(f"item {id!r} in {queue!r}")
    form.one(_row(item))


@queues.command(examples=["solely queues count mails"])
@click.argument("queue")
@in_form
@at_store
def count(options: StoreOptions, form: Form, queue: str) -> None:
    """Prints how many items the queue has: waiting, delayed and taken."""
    with options.client() as once:
        form.value("items", once.queue(queue).count())


@queues.command(
    examples=[
        'solely queues push mails 42 \'{"to": "alice"}\'',
        "solely queues push mails 43 --delay 10m --bytes < mail.eml",
    ]
)
@click.argument("queue")
@click.argument("id")
@click.argument("payload", default="-")
@click.option("--bytes", "raw", is_flag=True, help="The payload is bytes, not JSON.")
@click.option("--delay", type=DURATION, default="0s", show_default=True, help="Available after this long.")
@in_form
@at_store
def push(options: StoreOptions, form: Form, queue: str, id: str, payload: str, raw: bool, delay: float) -> None:
    """Adds an item with PAYLOAD, which is JSON; without one, it is read from stdin. Exits with 5 if there is an item of
    this ID already."""
    given = sys.stdin.buffer.read() if payload == "-" else payload.encode()
    with options.client() as once:
        if not once.queue(queue).push(id, given if raw else parsed_json(given, "The payload", _AS_BYTES), delay=delay):
            talk(f"not pushed: {queue!r} has an item {id!r} already")
            leave(Exit.BUSY)
    form.done({"pushed": id})


@queues.command(examples=["solely queues take mails --wait 30s --json"])
@click.argument("queue")
@click.argument("id", default="")
@click.option("--ttl", type=DURATION, default="30s", show_default=True, help="How long nobody else can take it.")
@click.option("--wait", type=DURATION, default="0s", show_default=True, help="How long to wait for an item.")
@in_form
@at_store
def take(options: StoreOptions, form: Form, queue: str, id: str, ttl: float, wait: float) -> None:
    """Takes the item that has waited longest, or the one with this ID, and prints it with the token to ack it. Exits
    with 3 if none is available."""
    with options.client() as once:
        with waiting_for_item(queue, wait):
            item = once.queue(queue).take(ttl=ttl, wait=wait, id=id)
        if item is None:
            not_found(f"item available in {queue!r}")
        row = {"id": item.id, "payload": shown(item.payload), "attempts": item.attempts, "left": item.remaining()}
        form.one(row | {"token": item.hand_over()})


@queues.command(examples=['solely queues renew mails "$TOKEN" --ttl 5m'])
@click.argument("queue")
@click.argument("token")
@click.option("--ttl", type=DURATION, help="From now on; by default the ttl with which it was taken.")
@in_form
@at_store
def renew(options: StoreOptions, form: Form, queue: str, token: str, ttl: float | None) -> None:
    """Extends the lease of a taken item; prints the seconds left."""
    with options.client() as once:
        item = once.queue(queue).item_of(token)
        item.renew(ttl=ttl)
        form.value("left", round(item.remaining(), 1))


@queues.command(examples=['solely queues ack mails "$TOKEN"'])
@click.argument("queue")
@click.argument("token")
@in_form
@at_store
def ack(options: StoreOptions, form: Form, queue: str, token: str) -> None:
    """Removes a taken item, since its work is done. Exits with 5 if another caller has taken it since."""
    with options.client() as once:
        if not once.queue(queue).item_of(token).ack():
            talk("not acked: its lease expired and another caller took it, or the store lost it")
            leave(Exit.BUSY)
    form.done({"acked": True})


@queues.command("give-back", examples=['solely queues give-back mails "$TOKEN" --delay 1m'])
@click.argument("queue")
@click.argument("token")
@click.option("--delay", type=DURATION, default="0s", show_default=True, help="Available after this long.")
@click.option("--uncounted", is_flag=True, help="This take does not count as an attempt.")
@in_form
@at_store
def give_back(options: StoreOptions, form: Form, queue: str, token: str, delay: float, uncounted: bool) -> None:
    """Returns a taken item to its queue. Exits with 5 if it was no longer taken by this token."""
    with options.client() as once:
        if not once.queue(queue).item_of(token).give_back(delay=delay, uncounted=uncounted):
            talk("not given back: its lease expired, or it was acked or given back before")
            leave(Exit.BUSY)
    form.done({"given_back": True})


@queues.command(examples=['solely queues remove mails 42 --reason "sent by hand" --yes'])
@click.argument("queue")
@click.argument("id")
@by_reason
@in_form
@at_store
def remove(options: StoreOptions, form: Form, queue: str, id: str, reason: str, dry_run: bool, yes: bool) -> None:
    """Deletes an item that nobody has taken. Exits with 3 if there is none, 5 if it is taken or has changed."""
    store = options.store()
    with options.client(store=store) as once:
        there = once.queue(queue).read(id)
        if there is None:
            not_found(f"item {id!r} in {queue!r}")
        what = f"item {id!r} of {queue!r} ({_STATES[there.state]}, {there.attempts} attempts)"
        if dry_run:
            talk(f"would remove {what}")
            return
        confirm(f"Remove {what}", yes)
        with CommandAudit(options.url, store).acting("queues.remove", f"{queue}/{id}", reason) as act:
            removed = once.queue(queue).remove(id, expected=there)
            if not removed:
                act.outcome = f"{REFUSED}somebody has it taken, or it has changed since it was read"
        if not removed:
            talk(f"not removed: {what}: somebody has it taken, or it has changed since it was read")
            leave(Exit.BUSY)
    form.done({"removed": id})
