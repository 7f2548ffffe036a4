"""solely completion SHELL: what makes the shell complete our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Prints the completion script; e.g. in ~/.bashrc: eval "$(solely completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    click.echo(kind(ctx.find_root().command, {}, "solely", "_SOLELY_COMPLETE").source())
