"""The commands by name. An error becomes a sentence on stderr and an exit code, never a traceback."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..apps import APPS, has, module_of
from ..errors import SolelyError, missing_extra
from .exits import Exit, code_of, leave
from .output import talk

INTERRUPTED = 130  # 128 + SIGINT, as in shells

# command → module of this package that has it, under the same name with `_` for `-`
COMMANDS = {
    "run": "run",
    "once": "once",
    "locks": "nouns",
    "claims": "nouns",
    "reservations": "nouns",
    "marks": "nouns",
    "watermarks": "nouns",
    "limits": "limits",
    "queues": "queues",
    "schedules": "schedules",
    "cron": "cron",
    "dlq": "dead_letters",
    "audit": "audit",
    "explain": "inspection",
    "history": "history",
    "top": "inspection",
    "doctor": "doctor",
    "copy": "copy",
    "migrate": "migrate",
    "bench": "program",
    "serve": "serve",
    "check-config": "serve",
    "token": "serve",
    "completion": "program",
}
SHELLS = ("bash", "zsh", "fish")
CHECKOUT = Path(__file__).parents[3]  # the folder that has bench/, unless the package was installed


class CommandGroup(click.Group):
    """Imports a command when it is used; those of an application are in its `cli.py` or follow from its `acts.py`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_apps()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists our own commands with their help; applications only by name, since importing them all is slow."""
        width = formatter.width - max(map(len, COMMANDS)) - 6  # click's own margins
        with formatter.section("Commands"):
            commands = {name: self.get_command(ctx, name) for name in COMMANDS}
            formatter.write_dl([(name, each.get_short_help_str(width)) for name, each in commands.items() if each])
        if apps := _apps():
            with formatter.section("Applications"):
                formatter.write_dl([(name, f"See: solely {name} --help") for name in apps])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            module, attribute = f"{__package__}.{COMMANDS[name]}", name.replace("-", "_")
        elif name in _apps():
            return _app_command(name)
        else:
            return None
        command: click.Command = getattr(_imported(module, name), attribute)
        return command


def _apps() -> list[str]:
    """The applications that have commands."""
    return [name for name in APPS if has(name, "cli.py") or has(name, "acts.py")]


def _app_command(name: str) -> click.Command:
    """The `command` of the application's `cli.py`; without that module, a group with the commands of its acts."""
    if has(name, "cli.py"):
        command: click.Command = _imported(f"{module_of(name)}.cli", name).command
        return command
    from .acts import act_group

    return act_group(name, _imported(f"{module_of(name)}.acts", name))


def _imported(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise missing(error, what) from None


def missing(error: ImportError, what: str) -> ImportError:
    """MissingExtra, with the command to run, if a third-party module is missing; else the error itself."""
    if isinstance(error, SolelyError) or (error.name or "").startswith("solely"):
        return error
    return missing_extra(what, error.name, "service")


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option("-v", "--verbose", is_flag=True, help="Also print the library's log.")
def solely(verbose: bool) -> None:
    """Makes work that must happen once happen once.

    The store is --url, or SOLELY_URL, or a SQLite file in your data folder.
    """
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    else:
        logging.getLogger("solely").addHandler(logging.NullHandler())  # the command reports what matters


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the completion script; e.g. in ~/.bashrc: eval "$(solely completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click supports all of SHELLS"
    click.echo(kind(ctx.find_root().command, {}, "solely", "_SOLELY_COMPLETE").source())


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[--json] [--only PREFIX] [--quick] [--strict]", type=click.UNPROCESSED)
def bench(words: tuple[str, ...]) -> None:
    """Measures locks, marks and the rest against their peers. Needs a checkout, as the benchmarks start servers."""
    import subprocess

    if not (CHECKOUT / "bench" / "__main__.py").is_file():
        talk("solely: the benchmarks are not installed with the package; clone the repository and run scripts/bench")
        leave(Exit.ERROR)
    leave(subprocess.run([sys.executable, "-m", "bench", *words], cwd=CHECKOUT, check=False).returncode)


def perform(words: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    try:
        return int(solely.main(words, prog_name="solely", standalone_mode=False) or Exit.OK)
    except SystemExit as end:
        return int(end.code or Exit.OK)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as end:  # ^C, or the user did not confirm
        return INTERRUPTED if isinstance(end.__cause__, KeyboardInterrupt) else Exit.ERROR
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.ERROR
    except (SolelyError, OSError) as error:
        click.echo(f"solely: {error}", err=True)
        return code_of(error)
