"""solely repos: what runs, what was received, and how to have a job performed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...kit.commands import Group, act_command, at_service, list_command
from . import acts

if TYPE_CHECKING:
    from ...kit.commands import ServiceClient


@click.group(cls=Group, default="jobs")
def command() -> None:
    """Repositories: each review, command and issue once. Without a command, lists the jobs. Commands call the service
    at --at, with the token in SOLELY_TOKEN."""


command.add_command(list_command(acts.JOBS, "jobs"))
command.add_command(list_command(acts.DUPLICATES, "duplicates"))
command.add_command(list_command(acts.WATERMARKS, "watermarks"))
command.add_command(act_command(acts.FORGET, "forget"))
command.add_command(act_command(acts.REPEAT, "repeat"))
command.add_command(act_command(acts.REWIND, "rewind"))


@command.command(examples=["{path} 1762771200000001"])
@click.argument("id")
@at_service
def log(client: ServiceClient, id: str) -> None:
    """Prints the output of the command of a job; ID is that of `solely repos jobs`."""
    click.echo(client.get("/api/repos/job", dict[str, Any], id=id)["log"])
