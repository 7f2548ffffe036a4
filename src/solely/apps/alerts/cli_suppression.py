"""solely alerts acknowledge, unacknowledge and acknowledged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from ...cli.options import DURATION, in_form
from ...cli.output import Form, Row, talk
from .cli_options import at_service

if TYPE_CHECKING:
    from ...http import Client
    from .suppression.acknowledgements import Acknowledgement

_MOST = 1_000  # rows: the most that the service gives


@click.command()
@click.argument("fingerprint")
@click.option("--severity", default="", help="Only of this one: others are told.  [default: of all]")
@click.option("--for", "lasts", type=DURATION, help="How long at most, e.g. 2h.  [default: the service's `ack_for`]")
@click.option("--comment", default="", metavar="TEXT", help="Who is at it, and what for.")
@in_form
@at_service
def acknowledge(client: Client, form: Form, fingerprint: str, severity: str, lasts: float | None, comment: str) -> None:
    """Somebody is at it: people are not told of FINGERPRINT again until it is over. A group is named group:NAME. Exits
    with 3 if people were not told of it, or it is over."""
    from .api.acknowledgements import Acknowledge
    from .suppression.acknowledgements import Acknowledgement

    wanted = Acknowledge(fingerprint=fingerprint, severity=severity, lasts=lasts, comment=comment)
    form.one(_row(client.post("/api/alerts/acknowledge", wanted, Acknowledgement)))


@click.command()
@click.argument("fingerprint")
@at_service
def unacknowledge(client: Client, fingerprint: str) -> None:
    """Takes an acknowledgement back: people are told of FINGERPRINT again. Exits with 3 if there is none."""
    from .api.acknowledgements import Unacknowledge, Unacknowledged

    client.post("/api/alerts/unacknowledge", Unacknowledge(fingerprint=fingerprint), Unacknowledged)
    talk(f"took back the acknowledgement of {fingerprint!r}")


@click.command()
@click.option("--limit", type=click.IntRange(1, _MOST), default=100, show_default=True, help="At most so many.")
@in_form
@at_service
def acknowledged(client: Client, form: Form, limit: int) -> None:
    """What is acknowledged, the newest first."""
    from .api.acknowledgements import ListedAcknowledgements

    found = client.get("/api/alerts/acknowledged", ListedAcknowledgements, limit=limit).acknowledged
    form.rows([_row(each) for each in found], ("fingerprint", "severity", "made_by", "ends", "comment"), ("made",))


def _row(made: Acknowledgement) -> Row:
    moments = {name: datetime.fromtimestamp(getattr(made, name), UTC) for name in ("made", "ends")}
    return msgspec.structs.asdict(made) | moments
