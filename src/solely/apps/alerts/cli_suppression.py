"""solely alerts acknowledge, unacknowledge, acknowledged, and silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ...cli.options import DURATION, in_form
from ...cli.output import Form, talk
from .cli_options import LIMIT, at_service, row

if TYPE_CHECKING:
    from ...http import Client

ACKNOWLEDGED = ("made", "ends")  # the times of an acknowledgement
SILENCED = ("starts", "ends", "made")  # and of a silence


@click.command()
@click.argument("fingerprint")
@click.option("--severity", default="", help="Suppress only this severity.  [default: all]")
@click.option("--for", "lasts", type=DURATION, help="How long at most, e.g. 2h.  [default: the service's `ack_for`]")
@click.option("--comment", default="", metavar="TEXT", help="Who works on it, and how.")
@in_form
@at_service
def acknowledge(client: Client, form: Form, fingerprint: str, severity: str, lasts: float | None, comment: str) -> None:
    """Acknowledges FINGERPRINT: it sends no further notifications until it resolves. A group is named group:NAME. Exits
    with 3 if no notification of it was sent, or it is resolved."""
    from .api.acknowledgements import Acknowledge
    from .suppression.acknowledgements import Acknowledgement

    wanted = Acknowledge(fingerprint=fingerprint, severity=severity, lasts=lasts, comment=comment)
    form.one(row(client.post("/api/alerts/acknowledge", wanted, Acknowledgement), *ACKNOWLEDGED))


@click.command()
@click.argument("fingerprint")
@at_service
def unacknowledge(client: Client, fingerprint: str) -> None:
    """Removes the acknowledgement of FINGERPRINT. Exits with 3 if there is none."""
    from .api.acknowledgements import Unacknowledge, Unacknowledged

    client.post("/api/alerts/unacknowledge", Unacknowledge(fingerprint=fingerprint), Unacknowledged)
    talk(f"removed the acknowledgement of {fingerprint!r}")


@click.command()
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="The most rows.")
@in_form
@at_service
def acknowledged(client: Client, form: Form, limit: int) -> None:
    """Lists acknowledgements, the newest first."""
    from .api.acknowledgements import ListedAcknowledgements

    found = client.get("/api/alerts/acknowledged", ListedAcknowledgements, limit=limit).acknowledged
    rows = [row(each, *ACKNOWLEDGED) for each in found]
    form.rows(rows, ("fingerprint", "severity", "made_by", "ends", "comment"), ("made",))


def _terms(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --for, --starts and --reason."""
    lasts = click.option("--for", "lasts", type=DURATION, required=True, help="How long, e.g. 2h.")
    later = "When it starts, e.g. 2027-01-31T22:00:00+01:00.  [default: now]"
    starts = click.option("--starts", metavar="TIME", help=later)
    why = click.option("--reason", required=True, metavar="TEXT", help="Why: listed with the silence, and audited.")
    return lasts(starts(why(function)))


@click.group()
def silence() -> None:
    """Silences: suppress alerts for a time."""


@silence.command()
@click.argument("matchers", nargs=-1, required=True, metavar="MATCHER…")
@_terms
@in_form
@at_service
def add(client: Client, form: Form, matchers: tuple[str, ...], **terms: Any) -> None:
    """Silences alerts that match all MATCHERs: severity=critical, name=~'Disk.*', team!=dba, source!~'test-.*'."""
    from .api.silences import AddSilence
    from .suppression.silences import Silence

    wanted = AddSilence(matchers=list(matchers), **terms)
    form.one(row(client.post("/api/alerts/silences", wanted, Silence), *SILENCED))


@silence.command()
@click.argument("id")
@click.argument("matchers", nargs=-1, required=True, metavar="MATCHER…")
@_terms
@in_form
@at_service
def edit(client: Client, form: Form, id: str, matchers: tuple[str, ...], **terms: Any) -> None:
    """Edits the silence ID, which has not ended; one that has begun keeps its start. Exits with 3 if there is none."""
    from .api.silences import EditSilence
    from .suppression.silences import Silence

    wanted = EditSilence(id=id, matchers=list(matchers), **terms)
    form.one(row(client.post("/api/alerts/silences/edit", wanted, Silence), *SILENCED))


@silence.command("list")
@click.option("--ended", is_flag=True, help="Those that ended.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="The most rows.")
@in_form
@at_service
def list_silences(client: Client, form: Form, ended: bool, limit: int) -> None:
    """Lists current and future silences."""
    from .api.silences import ListedSilences

    found = client.get("/api/alerts/silences", ListedSilences, ended=str(ended).lower(), limit=limit).silences
    columns = ("id", "matchers", "ends", "made_by", "reason")
    form.rows([row(each, *SILENCED) for each in found], columns, ("starts", "made", "ended_by", "ended_why"))


@silence.command()
@click.argument("id")
@click.option("--reason", required=True, metavar="TEXT", help="Why: listed with the silence, and audited.")
@at_service
def end(client: Client, id: str, reason: str) -> None:
    """Ends a silence now. Exits with 3 if no current or future silence has this ID."""
    from .api.silences import ExpiredSilence, ExpireSilence

    client.post("/api/alerts/silences/expire", ExpireSilence(id=id, reason=reason), ExpiredSilence)
    talk(f"ended silence {id}")
