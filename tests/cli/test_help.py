"""Every command's help: it has examples that work, summaries that are not cut, and suggestions for mistyped names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from solely.cli.help import Command, Group, summary_of
from solely.cli.program import COMMANDS, SECTIONS
from solely.cli.program import solely as program
from tests.cli.conftest import Run

WIDTH = 80


def commands(group: Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """All commands, also of applications, with the words with which they are called."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        inner = click.Context(command, parent=context, info_name=name)
        yield inner.command_path, command
        if isinstance(command, Group):
            yield from commands(command, inner)


EVERY = dict(commands(program, click.Context(program, info_name="solely")))


def called(line: str) -> list[str]:
    """The words of our command in a line of a shell."""
    found = re.search(r'(?:^|\| |\$\()(solely .*?)(?: [<>] \S+|\)")?$', line)
    assert found, line
    return shlex.split(found[1])[1:]


@pytest.mark.parametrize("path", EVERY)
def test_every_command_has_examples_that_it_accepts(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.toml").touch()
    command = EVERY[path]
    assert isinstance(command, Command | Group), f"{path}: declare it with cls=Command"
    lines = command.examples(path)
    assert lines, f"{path} has no examples"
    for line in lines:
        words = called(line)
        context = program.make_context("solely", list(words))
        while isinstance(context.command, click.Group):  # as click does, up to the call of the function
            rest = [*context._protected_args, *context.args]
            name, inner, rest = context.command.resolve_command(context, rest)
            assert inner is not None, line
            context = inner.make_context(name, rest, parent=context)
        own = path.replace("solely check", "solely doctor")
        assert isinstance(command, Group) or context.command_path.replace("solely check", "solely doctor") == own, line


@pytest.mark.parametrize("path", EVERY)
def test_every_help_ends_with_the_examples(path: str, solely: Run) -> None:
    told = solely("memory://", *path.split()[1:], "--help")
    assert told.code == 0
    command = EVERY[path]
    assert isinstance(command, Command | Group)
    assert told.out.endswith("Examples:\n" + "".join(f"  {line}\n" for line in command.examples(path)))


def test_no_summary_is_cut(solely: Run) -> None:
    told = solely("memory://", "--help")
    assert "..." not in told.out.replace("[ARGS]...", "")
    for section, listed in SECTIONS.items():
        assert f"\n{section}:\n" in told.out
        for name, each in listed.items():
            assert re.search(rf"^  {name} +{re.escape(each.summary)}$", told.out, re.MULTILINE), name
    for path, command in EVERY.items():
        if isinstance(command, Group):
            shown = " ".join(solely("memory://", *path.split()[1:], "--help").out.split())
            assert all(summary_of(inner) in shown for inner in command.commands.values()), path


def test_without_a_command_there_is_an_overview(solely: Run) -> None:
    told = solely("memory://")
    assert told.code == 2
    assert all(name in told.err for name in COMMANDS)
    assert "Examples:" in told.err


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("lcoks",), "'locks'"),
        (("chekc",), "'check'"),
        (("locks", "lits"), "'list'"),
        (("alerts", "silnce"), "'silence'"),
        (("run", "--lokc", "a", "--", "true"), "'--lock'"),
        (("locks", "list", "--jsno"), "'--json'"),
        (("--ulr", "x", "locks"), "'--url'"),
    ],
)
def test_a_mistyped_name_gets_a_suggestion(words: tuple[str, ...], instead: str, solely: Run) -> None:
    told = solely("memory://", *words)
    assert (told.code, told.out) == (2, "")
    assert f"Did you mean {instead}" in told.err


SEEDED = (  # what the examples below act on
    "solely once invoice:2026-01 -- true",
    "solely watermarks advance orders 2026-01-31T12:00:00Z",
    "solely queues push mails 42 null",
)


def test_examples_that_need_no_more_than_a_store_run(
    solely: Run, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/solely.db"
    for line in SEEDED:
        assert run(url, *called(line)).code == 0, line
    # Held by others, served, or of other stores: their own tests run those.
    other = ("run", "once", "cron", "serve", "bench", "copy", "migrate", "top", "check", "history", "hosts")
    nothing_there = {"nightly", "seen:42", "mail:alice", "$TOKEN"}
    for path, command in EVERY.items():
        if isinstance(command, Command) and (noun := path.split()[1]) in COMMANDS and noun not in other:
            for line in command.examples(path):
                words = called(line)
                if not nothing_there & set(words) and "<" not in line and "/etc" not in line and "redis:" not in line:
                    told = solely(url, *words)
                    assert told.code in (0, 3, 5), (line, told)
                    assert "Traceback" not in told.err
