"""solely token NAME: a fresh token for the service, and the line by which the service knows it."""

from __future__ import annotations

import os
from pathlib import Path

import click

SCOPES = ("read", "write", "admin")  # by name: the service is not imported for a page of help


@click.command()
@click.argument("name")
@click.option("--scope", type=click.Choice(SCOPES), default="read", show_default=True)
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Append the line here (tokens_file).")
def command(name: str, scope: str, file: Path | None) -> None:
    """Prints a fresh token, once; only its SHA-256 is kept, in the file or wherever you put the line.

    Two tokens of a name are valid at once: add the new one, move your clients over, then remove the old line.
    """
    from ..service.security import Scope, mint

    token, line = mint(name, Scope[scope.upper()])
    if file is None:
        click.echo(f"Add this to tokens or tokens_file: {line}", err=True)
    else:
        with open(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as lines:  # nobody else's business
            lines.write(f"{line}\n")
    click.echo(token)
