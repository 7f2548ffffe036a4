"""The command that explains a subject, in the sentences of the service's route `/api/<name>/why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import in_form
from .output import Form, printable
from .service_options import at_service

if TYPE_CHECKING:
    from ..http import Client


def why_command(name: str, argument: str, help: str) -> click.Command:
    """The command `why` of this application: prints the verdict, or everything with `-o json`."""

    @click.command("why", help=help)
    @click.argument("subject", metavar=argument.upper())
    @in_form
    @at_service
    def why(client: Client, form: Form, subject: str) -> None:
        show_verdict(form, client.get(f"/api/{name}/why", dict[str, Any], **{argument: subject}))

    return why


def show_verdict(form: Form, explained: dict[str, Any]) -> None:
    """Prints the sentences of an explanation; in JSON, all of it."""
    if form.name == "json":
        form.one(explained)
        return
    for sentence in explained["verdict"]:
        click.echo(printable(sentence))
