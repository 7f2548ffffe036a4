"""solely alerts: sends alerts to a running service, and shows what happened to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ...kit.commands import Form, Group, Listing, add_commands, at_service, in_form, why_command
from . import acts

if TYPE_CHECKING:
    from ...kit.commands import ServiceClient


@click.group(cls=Group, default="firing")
def command() -> None:
    """Alerts: one notification each. Without a command, lists what fires now. Commands call the service at --at, with
    the token in SOLELY_TOKEN."""


@command.group()
def silence() -> None:
    """Silences: suppress alerts for a time."""


add_commands(
    command,
    firing=acts.FIRING,
    list=acts.WINDOWS,
    history=acts.HISTORY,
    acknowledged=acts.ACKNOWLEDGED,
    expire=acts.EXPIRE,
    clear=acts.CLEAR,
    acknowledge=acts.ACKNOWLEDGE,
    unacknowledge=acts.UNACKNOWLEDGE,
)
add_commands(silence, add=acts.SILENCE, edit=acts.EDIT_SILENCE, end=acts.END_SILENCE, list=acts.SILENCES)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """Splits NAME=VALUE arguments."""
    pairs = [each.partition("=") for each in given]
    for name, separator, _ in pairs:
        if not (name and separator):
            raise click.UsageError(f"{name!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


@command.command(
    examples=[
        "{path} DiskFull --severity critical --source db-1 --label disk=/dev/sda1",
        "{path} DiskFull --severity critical --source db-1 --label disk=/dev/sda1 --resolved",
    ]
)
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
    client: ServiceClient,
    form: Form,
    labels: tuple[str, ...],
    annotations: tuple[str, ...],
    resolved: bool,
    **given: str | None,
) -> None:
    """Sends an alert and prints its outcome: published, suppressed (and why), or queued."""
    alert = {name: text for name, text in given.items() if text is not None}
    pairs = {"labels": _pairs(labels), "annotations": _pairs(annotations)}
    status = "resolved" if resolved else "firing"
    answer = client.post("/api/alerts", {**alert, **pairs, "status": status}, dict[str, Any])
    retry_after = answer.pop("retryAfter", None)
    form.one({"reason": "", **answer, "retry_after": retry_after})


# Parts of the explanation, as tables.
_SECTIONS = (
    replace(acts.SILENCES, summary="Silences"),
    replace(acts.WINDOWS, summary="Windows", rows="windows", columns=acts.WINDOWS.columns[1:]),
    Listing("", "waiting", "Waiting", ("severity", "publisher", "left", "attempts")),
    Listing("", "dead_letters", "Dead letters", ("id", "publisher", "error")),
    Listing("", "suppressed", "Suppressed", ("reason", "count", "last"), times=("last",)),
    replace(acts.HISTORY, summary="Sent", rows="recent", columns=("at", "outcome", "status", "severity", "results")),
)
_WHY = "Explains why FINGERPRINT sent no notification: what suppresses it now, and what did so before."
command.add_command(why_command("alerts", "fingerprint", _WHY, _SECTIONS, example=acts.FINGERPRINT.example))
