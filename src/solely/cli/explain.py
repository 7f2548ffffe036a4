"""solely explain KEY: who has it, since when, until when, and why a call would be refused."""

from __future__ import annotations

from dataclasses import asdict

import click

from .options import Place, at_store, in_form
from .output import Form, as_json, printable


@click.command()
@click.argument("key")
@in_form
@at_store
def command(place: Place, form: Form, key: str) -> None:
    """All that is known under KEY: lock, mark, claim, reservation, watermark, and why a call would be refused."""
    with place.client() as once:
        explanation = once.explain(key)
    if form.name == "json":
        click.echo(as_json(asdict(explanation) | {"why": explanation.why}))
    else:
        click.echo(printable(str(explanation)))
