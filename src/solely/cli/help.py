"""The help of commands: summaries that are not cut, examples, and suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

_SHOWN = 4  # examples of a group's help: one of each of its first commands


class Command(click.Command):
    """A command whose help ends with examples: lines that can be pasted into a shell. In them, {path} stands for the
    words with which the command is called, which are not known when it is declared."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **words: Any) -> None:
        super().__init__(*args, **words)
        self._examples = tuple(examples)

    def examples(self, path: str) -> list[str]:
        """The examples of the command at this path: "solely locks list"."""
        return [line.replace("{path}", path) for line in self._examples]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the arguments; BadParameter if a text is not UTF-8, as only paths and commands may be."""
        rest = super().parse_args(ctx, args)
        for each in self.params:
            if each.type is click.STRING:
                _check_text(ctx, each, ctx.params.get(each.name or ""))
        return rest

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(formatter, self.examples(_path(ctx)))
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; UsageError if the global --json was given to one that prints no data."""
        if ctx.find_root().params.get("as_json") and not any(each.name == "as_json" for each in self.params):
            raise click.UsageError(f"'{ctx.command_path}' prints no JSON; leave out --json.", ctx)
        return super().invoke(ctx)


class Group(click.Group):
    """Commands of one noun. Without a command, the one that is its `default` is run, if it has one."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, examples: Sequence[str] = (), default: str = "", **words: Any) -> None:
        super().__init__(*args, **words)
        self._examples = tuple(examples)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Completes the words by the default command, to which options then belong: `solely locks --json`."""
        asks_for_help = bool(args) and args[0] in self.get_help_option_names(ctx)
        if self.default and not asks_for_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def examples(self, path: str) -> list[str]:
        """Its own examples, or else the first of each of its commands."""
        commands = {name: each for name, each in self.commands.items() if isinstance(each, Command | Group)}
        firsts = [line for name, each in commands.items() for line in each.examples(f"{path} {name}")[:1]]
        return [*self._examples] or firsts[:_SHOWN]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands with their whole summaries, which wrap."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary_of(each)) for name, each in self.commands.items() if not each.hidden])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(formatter, self.examples(_path(ctx)))
        super().format_epilog(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of this name; UsageError, which suggests similar ones, if there is none."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            from difflib import get_close_matches  # here, as it takes long to import, and few words are mistyped

            similar = get_close_matches(name, self.list_commands(ctx))
            instead = f"Did you mean {' or '.join(map(repr, similar))}?" if similar else "See --help for the commands."
            raise click.UsageError(f"No such command {name!r:.80}. {instead}", ctx)
        return super().resolve_command(ctx, args)


def _check_text(ctx: click.Context, parameter: click.Parameter, given: Any) -> None:
    for text in given if isinstance(given, tuple) else (given,):
        if isinstance(text, str):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise click.BadParameter(f"{text!r:.80} is not UTF-8", ctx, parameter) from None


def _path(ctx: click.Context) -> str:
    """The words with which the command is called: those of the groups that it is in, and its own."""
    return " ".join([*([_path(ctx.parent)] if ctx.parent else []), ctx.info_name or ""])


def summary_of(command: click.Command) -> str:
    """The first sentence of its help."""
    text = " ".join((command.short_help or command.help or "").split("\n\n")[0].replace("\b", "").split())
    return text.partition(". ")[0].rstrip(".")


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
