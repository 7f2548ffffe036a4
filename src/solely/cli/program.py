"""The commands by name, and what becomes of their errors: a sentence on stderr and an exit code, never a traceback."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from .. import __version__
from ..apps import APPS, has, module_of
from ..errors import SolelyError, missing_extra
from .exits import Exit, code_of

INTERRUPTED = 130  # 128 and SIGINT, as shells say it

# name → module of this package, whose `command` it is
COMMANDS = {
    "run": "run",
    "once": "once",
    "locks": "locks",
    "claims": "claims",
    "reservations": "reservations",
    "marks": "marks",
    "watermarks": "watermarks",
    "dlq": "dlq",
    "explain": "explain",
    "top": "top",
    "doctor": "doctor",
    "copy": "copy",
    "migrate": "migrate",
    "bench": "bench",
    "serve": "serve",
    "check-config": "check_config",
    "token": "token",
    "completion": "completion",
}


class Program(click.Group):
    """Imports a command when it is asked for; an application's is in its `cli.py`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_nouns()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Our own commands with what they do; applications by name, since to import them all takes a while."""
        room = formatter.width - max(map(len, COMMANDS)) - 6  # click's own margins
        with formatter.section("Commands"):
            commands = {name: self.get_command(ctx, name) for name in COMMANDS}
            formatter.write_dl([(name, each.get_short_help_str(room)) for name, each in commands.items() if each])
        if nouns := _nouns():
            with formatter.section("Applications"):
                formatter.write_dl([(name, f"See: solely {name} --help") for name in nouns])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            module = f"{__package__}.{COMMANDS[name]}"
        elif name in _nouns():
            module = f"{module_of(name)}.cli"
        else:
            return None
        try:
            command: click.Command = import_module(module).command
        except ImportError as error:
            raise missing(error, name) from None
        return command


def _nouns() -> list[str]:
    """The applications that have commands."""
    return [name for name in APPS if has(name, "cli.py")]


def missing(error: ImportError, what: str) -> ImportError:
    """What to install where a module of another's is missing; the error itself where it is one of ours."""
    if isinstance(error, SolelyError) or (error.name or "").startswith("solely"):
        return error
    return missing_extra(what, error.name, "service")


@click.command(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option("-v", "--verbose", is_flag=True, help="Also say what the library logs.")
def solely(verbose: bool) -> None:
    """Makes work that must happen once happen once.

    The store is --url, or SOLELY_URL, or a SQLite file in your data folder.
    """
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    else:
        logging.getLogger("solely").addHandler(logging.NullHandler())  # what matters is said by the command itself


def perform(words: Sequence[str] | None = None) -> int:
    """The exit code of the command."""
    try:
        return int(solely.main(words, prog_name="solely", standalone_mode=False) or Exit.OK)
    except SystemExit as end:
        return int(end.code or Exit.OK)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as end:  # ^C, or somebody was asked and said no
        return INTERRUPTED if isinstance(end.__cause__, KeyboardInterrupt) else Exit.ERROR
    except BrokenPipeError:  # who read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.ERROR
    except (SolelyError, OSError) as error:
        click.echo(f"solely: {error}", err=True)
        return code_of(error)
