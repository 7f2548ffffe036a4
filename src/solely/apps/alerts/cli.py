"""solely alerts: sends alerts to a running service, and shows what happened to them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...cli.entries import not_found
from ...cli.options import DURATION, by_reason, confirm, in_form
from ...cli.output import Form, Row, cell, printable, talk
from .cli_options import LIMIT, at_service, row
from .cli_suppression import SILENCED, acknowledge, acknowledged, silence, unacknowledge

if TYPE_CHECKING:
    from ...http import Client
    from .api.explanation import Why
    from .api.windows import Window

NOTIFIED = ("at", "notified")  # the times of a notification


@click.group()
def command() -> None:
    """Alerts: one notification each. Calls the service at --at, with the token in SOLELY_TOKEN."""


for _each in (acknowledge, unacknowledge, acknowledged, silence):
    command.add_command(_each)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """Splits NAME=VALUE arguments."""
    pairs = [each.partition("=") for each in given]
    for name, separator, _ in pairs:
        if not (name and separator):
            raise click.UsageError(f"{name!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


@command.command()
@click.argument("name")
@click.option("--severity", required=True, help="E.g. critical, warning or info; it selects the policy.")
@click.option("--source", required=True, help="Where it comes from.")
@click.option("--fingerprint", help="Identifies the alert.  [default: made of the fields in the service's settings]")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--group", help="Alerts of a group share a notification.  [default: by the service's settings]")
@click.option("--annotation", "annotations", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--resolved", is_flag=True, help="The alert is resolved.")
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
    """Sends an alert and prints its outcome: published, suppressed (and why), or queued."""
    from .inputs.own_json import Intake
    from .model import FIRING, RESOLVED, AlertOutcome

    intake = Intake(
        name=name,
        severity=severity,
        source=source,
        fingerprint=fingerprint,
        labels=_pairs(labels),
        annotations=_pairs(annotations),
        status=RESOLVED if resolved else FIRING,
        group=group,
    )
    form.one(msgspec.structs.asdict(client.post("/api/alerts", intake, AlertOutcome)))


@command.command("list")
@click.argument("fingerprint", default="")
@click.option("--after", default="", metavar="KEY", help="Begin after this key.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="The most rows.")
@in_form
@at_service
def list_windows(client: Client, form: Form, fingerprint: str, after: str, limit: int) -> None:
    """Lists what is being sent or quiet, of FINGERPRINT or of all."""
    from .api.admin import ListedWindows

    query = {"fingerprint": fingerprint, "after": after, "limit": limit}
    page = client.get("/api/alerts/reservations", ListedWindows, **query)
    columns = ("fingerprint", "severity", "reason", "left", "suppressed_day", "last_sent", "who")
    form.rows([_window(each) for each in page.reservations], columns, ("suppressed", "sent", "key"))
    _more(page.next)


def _more(next: str | None) -> None:
    if next is not None:
        talk(f"there are more: --after {next!r}")


def _window(window: Window) -> Row:
    return row(window, "last_sent") | {"severity": window.severity or f"({window.status})"}


@command.command()
@click.argument("fingerprint", default="")
@click.option("--severity", default="", help="Only of this severity.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only of the last, e.g. 2h.")
@click.option("--after", default="", metavar="PLACE", help="Continue where the last page ended.")
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="The most rows.")
@in_form
@at_service
def history(
    client: Client, form: Form, fingerprint: str, severity: str, since: float | None, after: str, limit: int
) -> None:
    """Lists notifications, of FINGERPRINT or of all, the newest first."""
    from .api.admin import ListedHistory

    query: dict[str, Any] = {"fingerprint": fingerprint, "severity": severity, "after": after, "limit": limit}
    if since is not None:
        query["since"] = max(0.0, time.time() - since)
    page = client.get("/api/alerts/history", ListedHistory, **query)
    columns = ("at", "outcome", "status", "fingerprint", "severity", "name", "results")
    more = ("id", "source", "notified", "seconds", "labels", "annotations")
    form.rows([row(each, *NOTIFIED) for each in page.history], columns, more)
    _more(page.next)


@command.command()
@click.argument("fingerprint")
@in_form
@at_service
def why(client: Client, form: Form, fingerprint: str) -> None:
    """Explains why FINGERPRINT sent no notification: what suppresses it now, and what did so before."""
    from .api.explanation import Why

    known = client.get("/api/alerts/why", Why, fingerprint=fingerprint)
    if form.name == "json":
        form.one(msgspec.to_builtins(known))
        return
    for sentence in known.verdict:
        click.echo(printable(sentence))
    if form.name == "wide":
        _in_full(form, known)


def _in_full(form: Form, known: Why) -> None:
    silences = [row(each, *SILENCED) for each in known.silences]
    sections: tuple[tuple[str, list[Any], tuple[str, ...]], ...] = (
        ("Silences", silences, ("id", "matchers", "ends", "made_by", "reason")),
        (
            "Windows",
            list(map(_window, known.windows)),
            ("severity", "reason", "left", "suppressed_day", "last_sent", "who"),
        ),
        ("Waiting", list(map(row, known.waiting)), ("severity", "publisher", "left", "attempts")),
        ("Dead letters", list(map(row, known.dead_letters)), ("id", "publisher", "error")),
        ("Suppressed", [row(each, "last") for each in known.suppressed], ("reason", "count", "last")),
        ("Sent", [row(each, *NOTIFIED) for each in known.recent], ("at", "outcome", "status", "severity", "results")),
    )
    for title, rows, columns in sections:
        if rows:
            click.echo(f"\n{title}")
            form.rows(rows, columns)


@command.command()
@click.argument("fingerprint")
@click.argument("severity")
@by_reason
@at_service
def expire(client: Client, fingerprint: str, severity: str, reason: str, dry_run: bool, yes: bool) -> None:
    """Ends the hold or quiet window of FINGERPRINT and SEVERITY, so that the next alert is sent. Exits with 3 if there
    is none."""
    from .api.admin import ExpiredWindow, ExpireWindow

    found = [window for window in _windows(client, fingerprint) if window.severity == severity]
    what = f"window of {fingerprint!r} {severity}"
    if not found:
        not_found(what)
    if dry_run:
        talk(f"would end the {what} ({_summary(found)})")
        return
    confirm(f"End the {what} ({_summary(found)})", yes)
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
        talk(f"would end {len(found)} of {fingerprint!r} ({_summary(found)})")
        return
    confirm(f"End {len(found)} of {fingerprint!r} ({_summary(found)})", yes)
    wanted = ClearWindows(fingerprint=fingerprint, reason=reason)
    cleared = client.post("/api/alerts/reservations/clear", wanted, ClearedWindows).cleared
    talk(f"ended {cleared} of {fingerprint!r}")


def _windows(client: Client, fingerprint: str) -> list[Window]:
    from .api.admin import ListedWindows

    return client.get("/api/alerts/reservations", ListedWindows, fingerprint=fingerprint).reservations


def _summary(windows: list[Window]) -> str:
    return ", ".join(f"{each.severity or each.status} {each.reason} for {cell(each.left)}" for each in windows)
