"""solely alerts: send alerts to a running service, and ask it what became of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...cli.entries import not_found
from ...cli.options import DURATION, by_reason, confirm, in_form
from ...cli.output import Form, Row, cell, printable, talk
from .cli_options import at_service
from .cli_suppression import acknowledge, acknowledged, unacknowledge

if TYPE_CHECKING:
    from ...http import Client
    from .api.why import Why
    from .api.windows import Window
    from .records.history_queries import ToldAlert
    from .suppression.silences import Silence

AT_ONCE = 1_000  # rows of a page: the most that the service gives
_LIMIT = click.IntRange(1, AT_ONCE)


@click.group()
def command() -> None:
    """Alerts: one notification each. Asks the service at --at, with the token in SOLELY_TOKEN."""


for _each in (acknowledge, unacknowledge, acknowledged):
    command.add_command(_each)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """What was given as NAME=VALUE."""
    pairs = [each.partition("=") for each in given]
    for name, separator, _ in pairs:
        if not (name and separator):
            raise click.UsageError(f"{name!r} is no NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


@command.command()
@click.argument("name")
@click.option("--severity", required=True, help="E.g. critical, warning or info: says how long it is quiet afterwards.")
@click.option("--source", required=True, help="What it comes from.")
@click.option("--fingerprint", help="Which alerts are the same.  [default: made of what the service's settings name]")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--group", help="Told together with those of this group.  [default: made as the settings say]")
@click.option("--annotation", "annotations", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--resolved", is_flag=True, help="It is over.")
@in_form
@at_service
def send(
    client: Client,
    form: Form,
    name: str,
    severity: str,
    source: str,
    fingerprint: str | None,
    group: str | None,
    labels: tuple[str, ...],
    annotations: tuple[str, ...],
    resolved: bool,
) -> None:
    """Sends an alert and tells what became of it: published, suppressed (and why), or queued."""
    from .inputs.own_json import Intake
    from .model import FIRING, RESOLVED, Outcome

    given: dict[str, Any] = {
        "name": name,
        "severity": severity,
        "source": source,
        "labels": _pairs(labels),
        "annotations": _pairs(annotations),
        "status": RESOLVED if resolved else FIRING,
    }
    if fingerprint is not None:
        given["fingerprint"] = fingerprint
    if group is not None:
        given["group"] = group
    form.one(msgspec.structs.asdict(client.post("/api/alerts", Intake(**given), Outcome)))


@command.command("list")
@click.argument("fingerprint", default="")
@click.option("--after", default="", metavar="KEY", help="Begin after this key.")
@click.option("--limit", type=_LIMIT, default=100, show_default=True, help="At most so many.")
@in_form
@at_service
def list_windows(client: Client, form: Form, fingerprint: str, after: str, limit: int) -> None:
    """What is being sent or quiet, of FINGERPRINT or of all."""
    from .api.admin import ListedWindows

    asked = {"fingerprint": fingerprint, "after": after, "limit": limit}
    page = client.get("/api/alerts/reservations", ListedWindows, **asked)
    rows = [_window(window) for window in page.reservations]
    columns = ("fingerprint", "severity", "reason", "left", "suppressed_day", "last_sent", "who")
    form.rows(rows, columns, ("suppressed", "sent", "key"))
    if page.next is not None:
        talk(f"there are more: --after {page.next!r}")


def _window(window: Window) -> Row:
    severity = window.severity or f"({window.status})"
    return msgspec.structs.asdict(window) | {"severity": severity, "last_sent": _moment(window.last_sent)}


@command.command()
@click.argument("fingerprint", default="")
@click.option("--severity", default="", help="Only of this severity.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only of the last, e.g. 2h.")
@click.option("--after", default="", metavar="PLACE", help="Go on where the last page ended.")
@click.option("--limit", type=_LIMIT, default=50, show_default=True, help="At most so many.")
@in_form
@at_service
def history(
    client: Client, form: Form, fingerprint: str, severity: str, since: float | None, after: str, limit: int
) -> None:
    """What was told, of FINGERPRINT or of all, the newest first."""
    from .api.admin import ListedHistory

    asked: dict[str, Any] = {"fingerprint": fingerprint, "severity": severity, "after": after, "limit": limit}
    if since is not None:
        asked["since"] = max(0.0, time.time() - since)
    page = client.get("/api/alerts/history", ListedHistory, **asked)
    rows = [_told(each) for each in page.history]
    columns = ("at", "outcome", "status", "fingerprint", "severity", "name", "results")
    form.rows(rows, columns, ("id", "source", "told", "seconds", "labels", "annotations"))
    if page.next is not None:
        talk(f"there are more: --after {page.next!r}")


def _told(told: ToldAlert) -> Row:
    return msgspec.structs.asdict(told) | {"at": _moment(told.at), "told": _moment(told.told)}


@command.command()
@click.argument("fingerprint")
@in_form
@at_service
def why(client: Client, form: Form, fingerprint: str) -> None:
    """Why nobody was told of FINGERPRINT: what keeps it back now, and what did so."""
    from .api.why import Why

    known = client.get("/api/alerts/why", Why, fingerprint=fingerprint)
    if form.name == "json":
        form.one(msgspec.to_builtins(known))
        return
    for sentence in known.verdict:
        click.echo(printable(sentence))
    if form.name == "wide":
        _in_full(form, known)


def _in_full(form: Form, known: Why) -> None:
    windows = [_window(window) for window in known.windows]
    suppressed = [msgspec.structs.asdict(each) | {"last": _moment(each.last)} for each in known.suppressed]
    parts: tuple[tuple[str, list[Any], tuple[str, ...]], ...] = (
        ("Silences", [_silence(each) for each in known.silences], ("id", "matchers", "ends", "made_by", "reason")),
        ("Windows", windows, ("severity", "reason", "left", "suppressed_day", "last_sent", "who")),
        ("Waiting", list(map(msgspec.structs.asdict, known.waiting)), ("severity", "publisher", "left", "attempts")),
        ("Dead letters", list(map(msgspec.structs.asdict, known.dead_letters)), ("id", "publisher", "error")),
        ("Suppressed", suppressed, ("reason", "count", "last")),
        ("Told", [_told(each) for each in known.recent], ("at", "outcome", "status", "severity", "results")),
    )
    for title, rows, columns in parts:
        if rows:
            click.echo(f"\n{title}")
            form.rows(rows, columns)


@command.command()
@click.argument("fingerprint")
@click.argument("severity")
@by_reason
@at_service
def expire(client: Client, fingerprint: str, severity: str, reason: str, dry_run: bool, yes: bool) -> None:
    """Ends the hold or quiet window of FINGERPRINT and SEVERITY, so that the next alert is told. Exits with 3 if there
    is none."""
    from .api.admin import ExpiredWindow, ExpireWindow

    found = [window for window in _windows(client, fingerprint) if window.severity == severity]
    what = f"window of {fingerprint!r} {severity}"
    if not found:
        not_found(what)
    if dry_run:
        talk(f"would end the {what} ({_said(found)})")
        return
    confirm(f"End the {what} ({_said(found)})", yes)
    wanted = ExpireWindow(fingerprint=fingerprint, severity=severity, reason=reason)
    if not client.post("/api/alerts/reservations/expire", wanted, ExpiredWindow).expired:
        not_found(f"{what} any more")
    talk(f"ended the {what}")


@command.command()
@click.argument("fingerprint")
@by_reason
@at_service
def clear(client: Client, fingerprint: str, reason: str, dry_run: bool, yes: bool) -> None:
    """Ends all windows of FINGERPRINT, whatever the severity. Exits with 3 if there is none."""
    from .api.admin import ClearedWindows, ClearWindows

    found = _windows(client, fingerprint)
    if not found:
        not_found(f"window of {fingerprint!r}")
    if dry_run:
        talk(f"would end {len(found)} of {fingerprint!r} ({_said(found)})")
        return
    confirm(f"End {len(found)} of {fingerprint!r} ({_said(found)})", yes)
    wanted = ClearWindows(fingerprint=fingerprint, reason=reason)
    cleared = client.post("/api/alerts/reservations/clear", wanted, ClearedWindows).cleared
    talk(f"ended {cleared} of {fingerprint!r}")


def _windows(client: Client, fingerprint: str) -> list[Window]:
    from .api.admin import ListedWindows

    return client.get("/api/alerts/reservations", ListedWindows, fingerprint=fingerprint).reservations


def _said(windows: list[Window]) -> str:
    return ", ".join(f"{each.severity or each.status} {each.reason} for {cell(each.left)}" for each in windows)


@command.group()
def silence() -> None:
    """Silences: alerts that nobody is told of for a while."""


@silence.command()
@click.argument("matchers", nargs=-1, required=True, metavar="MATCHER…")
@click.option("--for", "lasts", type=DURATION, required=True, help="How long, e.g. 2h.")
@click.option("--reason", required=True, metavar="TEXT", help="Why: it is listed with the silence, and audited.")
@in_form
@at_service
def add(client: Client, form: Form, matchers: tuple[str, ...], lasts: float, reason: str) -> None:
    """Silences alerts that meet all MATCHERs: severity=critical, name=~'Disk.*', team!=dba, source!~'test-.*'."""
    from .api.silences import AddSilence
    from .suppression.silences import Silence

    wanted = AddSilence(matchers=list(matchers), lasts=lasts, reason=reason)
    form.one(_silence(client.post("/api/alerts/silences", wanted, Silence)))


@silence.command("list")
@click.option("--ended", is_flag=True, help="Those that are over.")
@click.option("--limit", type=_LIMIT, default=100, show_default=True, help="At most so many.")
@in_form
@at_service
def list_silences(client: Client, form: Form, ended: bool, limit: int) -> None:
    """Silences that hold or are to hold."""
    from .api.silences import ListedSilences

    found = client.get("/api/alerts/silences", ListedSilences, ended=str(ended).lower(), limit=limit).silences
    columns = ("id", "matchers", "ends", "made_by", "reason")
    form.rows([_silence(each) for each in found], columns, ("starts", "made", "ended_by", "ended_why"))


@silence.command()
@click.argument("id")
@click.option("--reason", required=True, metavar="TEXT", help="Why: it is listed with the silence, and audited.")
@at_service
def end(client: Client, id: str, reason: str) -> None:
    """Ends a silence now. Exits with 3 if there is none that holds."""
    from .api.silences import ExpiredSilence, ExpireSilence

    client.post("/api/alerts/silences/expire", ExpireSilence(id=id, reason=reason), ExpiredSilence)
    talk(f"ended silence {id}")


def _silence(silence: Silence) -> Row:
    moments = {name: _moment(getattr(silence, name)) for name in ("starts", "ends", "made")}
    return msgspec.structs.asdict(silence) | moments
