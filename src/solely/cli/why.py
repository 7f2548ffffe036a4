"""The command that explains a subject, in the sentences of the service's route `/api/<name>/why`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .options import in_form
from .output import Form, printable

if TYPE_CHECKING:
    from ..http import Client

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def why_command(at_service: Decorator, name: str, argument: str, help: str) -> click.Command:
    """The command `why` of this application: prints the verdict, or everything with `-o json`. `at_service` adds
    the options that name the service, and passes its client."""

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
