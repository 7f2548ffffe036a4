"""The commands by name. An error becomes a sentence on stderr and an exit code, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .. import __version__
from ..apps import APPS, docstring, has, module_of
from ..errors import SolelyError
from .exits import INTERRUPTED, UNREAD, Exit, code_of, leave
from .extras import missing
from .global_options import check_url
from .help import Command, Group
from .output import talk

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Listed(NamedTuple):
    """A command: the module of this package that has it, under the same name with `_` for `-`, and its summary."""

    module: str
    summary: str


# The commands by what people want to do. Their summaries are here, so that the overview imports none of them.
SECTIONS: dict[str, dict[str, Listed]] = {
    "Run commands": {
        "run": Listed("run", "Run a command while holding a lock"),
        "once": Listed("once", "Run a command unless it ran before under the same key"),
        "cron": Listed("cron", "Run the jobs of a file, each tick on one of the hosts"),
    },
    "See what happens": {
        "explain": Listed("inspection", "Show everything stored under a key, and why a call is refused"),
        "history": Listed("history", "Show what happened to a key, and who did it"),
        "top": Listed("inspection", "Watch held keys, the most contended first"),
        "audit": Listed("audit", "List who changed what others hold, and why"),
        "doctor": Listed("doctor", "Check the store, its clock and its settings (also: check)"),
    },
    "List and change entries": {
        "locks": Listed("nouns", "Who holds which lock, and for how long"),
        "claims": Listed("nouns", "What runs once, who runs it, and how it ended"),
        "reservations": Listed("nouns", "What is being sent, what is quiet, what was suppressed"),
        "marks": Listed("nouns", "Which keys are marked, and until when"),
        "watermarks": Listed("nouns", "How far each poller got"),
        "limits": Listed("limits", "Which limits refuse calls now"),
        "schedules": Listed("schedules", "When each schedule ran last, and is due next"),
        "queues": Listed("queues", "Work that waits, is delayed or taken"),
        "dlq": Listed("dead_letters", "Dead letters: failed work, to be replayed or purged"),
        "hosts": Listed("hosts", "Release all that a dead host holds"),
    },
    "Operate": {
        "serve": Listed("serve", "Run the service: API, dashboard and applications"),
        "check-config": Listed("serve", "Print the settings with which the service would run"),
        "token": Listed("serve", "Make a token for a caller of the service"),
        "copy": Listed("copy", "Copy entries from one store into another"),
        "migrate": Listed("migrate", "Update the schemas in PostgreSQL"),
        "bench": Listed("program", "Measure against other libraries (needs a checkout)"),
        "completion": Listed("program", "Print the completion script of a shell"),
    },
}
COMMANDS: dict[str, Listed] = {name: each for section in SECTIONS.values() for name, each in section.items()}
ALIASES = {"check": "doctor"}
SHELLS = ("bash", "zsh", "fish")
CHECKOUT = Path(__file__).parents[3]  # the folder that has bench/, unless the package was installed
EXAMPLES = (
    "solely run --lock nightly --skip-busy -- ./nightly.sh",
    "solely once invoice:2026-01 -- ./send-invoices",
    "solely locks list",
    "solely explain nightly",
    "solely --url redis://localhost doctor",
)


class CommandGroup(Group):
    """Imports a command when it is used; those of an application are in its `cli.py` or follow from its `acts.py`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *ALIASES, *_apps()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands by section, in one column, without importing them."""
        apps = {name: summary_of_app(name) for name in _apps()}
        width = max(map(len, (*COMMANDS, *apps)))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), each.summary) for name, each in commands.items()])
        if apps:
            with formatter.section("Applications of a running service"):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in apps.items()])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = ALIASES.get(name, name)
        if name in COMMANDS:
            module, attribute = f"{__package__}.{COMMANDS[name].module}", name.replace("-", "_")
        elif name in _apps():
            return _app_command(name)
        else:
            return None
        command: click.Command = getattr(_imported(module, name), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that fit, with their summaries, and the options; none of them is imported."""
        from click.shell_completion import CompletionItem

        summaries = {name: each.summary for name, each in COMMANDS.items()}
        summaries |= {name: summary_of_app(name) for name in _apps()}
        fitting = [CompletionItem(name, help=text) for name, text in summaries.items() if name.startswith(incomplete)]
        return [*fitting, *click.Command.shell_complete(self, ctx, incomplete)]


def _apps() -> list[str]:
    """The applications that have commands."""
    return [name for name in APPS if has(name, "cli.py") or has(name, "acts.py")]


def summary_of_app(name: str) -> str:
    """The first sentence of its package, which is not imported."""
    text = docstring(name).partition("\n\n")[0]
    summary = " ".join(text.split()).partition(": ")[2].rstrip(".")
    return summary[:1].upper() + summary[1:]


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


def _print_versions(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Prints our version, Python's, and those of the drivers of stores, for reports of bugs."""
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version
    from sqlite3 import sqlite_version

    from ..stores import SCHEMES

    click.echo(f"solely {__version__}")
    click.echo(f"Python {python_version()} on {sys.platform}")
    click.echo(f"SQLite {sqlite_version}")
    for name in dict.fromkeys(package for each in SCHEMES.values() for package in each.packages):
        try:
            click.echo(f"{name} {version(name)}")
        except PackageNotFoundError:
            click.echo(f"{name} is not installed")
    ctx.exit()


@click.command(cls=CommandGroup, examples=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", metavar="URL", callback=check_url, help="The store, for any command.  [env var: SOLELY_URL]")
@click.option("--json", "as_json", is_flag=True, help="Print data as JSON, for any command that prints data.")
@click.option("-v", "--verbose", is_flag=True, help="Also print the library's log.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_versions,
    help="Print the versions of solely, Python and the drivers of stores.",
)  # fmt: skip
def solely(url: str | None, as_json: bool, verbose: bool) -> None:
    """Makes work that must happen once happen once.

    The store is --url, or SOLELY_URL, or a SQLite file in your data folder. 'solely COMMAND --help' has the options and
    examples of a command.
    """
    import gc
    import logging

    gc.enable()  # the command is imported by now
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    else:
        logging.getLogger("solely").addHandler(logging.NullHandler())  # the command reports what matters


@click.command(
    cls=Command,
    examples=['eval "$(solely completion bash)"', "solely completion fish > ~/.config/fish/completions/solely.fish"],
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Prints the completion script; e.g. in ~/.bashrc: eval "$(solely completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click supports all of SHELLS"
    click.echo(kind(ctx.find_root().command, {}, "solely", "_SOLELY_COMPLETE").source())


@click.command(
    cls=Command,
    examples=["solely bench --quick --only lock"],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
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
    output = sys.stdout
    try:
        return int(solely.main(words, prog_name="solely", standalone_mode=False) or Exit.OK)
    except SystemExit as end:
        return UNREAD if sys.stdout is not output else int(end.code or Exit.OK)  # click replaces one that is closed
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as end:  # ^C, or the user did not confirm
        by = end.__cause__ or end.__context__  # click hides the interruption of a question
        return INTERRUPTED if isinstance(by, KeyboardInterrupt) else Exit.ERROR
    except KeyboardInterrupt:  # while the command ended
        return INTERRUPTED
    except (SolelyError, OSError) as error:
        talk(f"solely: {_text_of(error)}")
        return code_of(error)


def _text_of(error: Exception) -> str:
    """What went wrong; of a file, its name first."""
    if isinstance(error, OSError) and not isinstance(error, SolelyError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
