"""The command that explains a subject, in the sentences of the service's route `/api/<name>/why`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..acts import Listing
from ..logs import printable
from .acts import show_rows
from .help import Command
from .options import in_form
from .output import Form
from .service_options import at_service

if TYPE_CHECKING:
    from ..http import Client


def why_command(
    name: str, argument: str, help: str, sections: Sequence[Listing] = (), *, example: str = "ID"
) -> click.Command:
    """The command `why` of this application: prints the verdict, with `-o wide` also the `sections` of the explanation
    that have rows, as tables under their summaries, and with `-o json` everything."""

    @click.command("why", cls=Command, help=help, examples=[f"{{path}} {example}", f"{{path}} {example} -o wide"])
    @click.argument("subject", metavar=argument.upper())
    @in_form
    @at_service
    def why(client: Client, form: Form, subject: str) -> None:
        known = client.get(f"/api/{name}/why", dict[str, Any], **{argument: subject})
        show_verdict(form, known)
        for section in sections if form.name == "wide" else ():
            if known[section.rows]:
                click.echo(f"\n{section.summary}")
                show_rows(form, section, known)

    return why


def show_verdict(form: Form, explained: dict[str, Any]) -> None:
    """Prints the sentences of an explanation; in JSON, all of it."""
    if form.name == "json":
        form.one(explained)
        return
    for sentence in explained["verdict"]:
        click.echo(printable(sentence, keep="\n"))
