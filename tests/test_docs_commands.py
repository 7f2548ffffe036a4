"""Every `solely …` command that a page or a file of deploy/ shows exists, with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from solely.cli.program import solely as program

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples" / "README.md",
]
DEPLOY = [path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file()]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SHELLS = ("", "console", "sh", "bash", "text")
_ENDS = re.compile(r"\s(?:\||\|\||&&|;|>|>>|2>&1|#)(?:\s|$)")  # what ends a command in a shell


def commands(text: str) -> Iterator[str]:
    """The command lines in the shell blocks of a page: after `$`, variables, or the five fields of a crontab."""
    for language, block in BLOCK.findall(text.replace("<!-- layers -->\n```\n", "")):  # a drawing
        if language in SHELLS:
            for line in block.replace("\\\n", " ").splitlines():
                if found := re.match(r"\s*(?:\$ )?(?:\w+=\S+ )*(?:(?:\S+ ){5} ?)?(?:\w+=\S+ )*solely (.*)", line):
                    yield _ENDS.split(found[1])[0]


def parsed(words: list[str]) -> None:
    """Parses the words as click does, without running anything; click.UsageError if it would refuse them."""
    command: click.Command = program
    context = program.make_context("solely", list(words), resilient_parsing=False)
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return  # a group that does something by itself, or prints its help
        name, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        command, context = inner, inner.make_context(name, rest, parent=context)


def comments(text: str) -> list[str]:
    """The commands in the first lines of a file of deploy/: how to use it."""
    return [_ENDS.split(each)[0] for each in re.findall(r"^#\s+(?:\S*/)?solely (.*?)(?:   .*)?$", text, re.MULTILINE)]


SHOWN = [(page, line) for page in PAGES for line in commands(page.read_text())]
SHOWN += [(file, line) for file in DEPLOY for line in comments(file.read_text())]


@pytest.mark.parametrize(("page", "line"), SHOWN, ids=[f"{page.stem}: {line}" for page, line in SHOWN])
def test_a_command_of_the_docs_is_accepted(
    page: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)
    for word in words:  # a file that the page has its reader write
        if word.endswith((".toml", ".sh")) and not word.startswith(("/", "-")):
            Path(word).write_text("")
    try:
        with suppress(click.exceptions.Exit):  # of --help and --version
            parsed(words)
    except click.UsageError as error:
        pytest.fail(f"{page.relative_to(ROOT)}: solely {line}\n{error.format_message()}")


def test_many_commands_are_found() -> None:
    assert len(SHOWN) > 40
    assert {page.name for page, _ in SHOWN} >= {
        "README.md",
        "cli.md",
        "start.md",
        "cron-job.md",
        "troubleshoot.md",
        "compose.yaml",
    }


INLINE = re.compile(r"(?<!`)`solely ([a-z][^`]*)`(?!`)")


def options_of(words: list[str]) -> tuple[set[str], set[str]]:
    """The options among the words, and those that the command which they name has. AssertionError if there is none."""
    command: click.Command = program
    context = click.Context(program, info_name="solely")
    known = {option for each in program.params for option in each.opts}
    given = words[: words.index("--")] if "--" in words else words
    for word in given:
        if isinstance(command, click.Group) and re.fullmatch(r"[a-z][a-z-]*", word):
            inner = command.get_command(context, word)
            assert inner is not None, f"no command {word}"
            command, context = inner, click.Context(inner, info_name=word, parent=context)
            known |= {option for each in inner.get_params(context) for option in (*each.opts, *each.secondary_opts)}
    return {word.partition("=")[0] for word in given if re.match(r"--?[a-z]", word)}, known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_within_sentences_exist(page: Path) -> None:
    for shown in INLINE.findall(page.read_text()):
        if shown.startswith("greetings"):  # the application that CONTRIBUTING.md has its reader write
            continue
        shown = shown.partition("\\|")[0]  # as a table writes a pipe
        words = [word.strip("[](),…") for word in shown.replace("\n", " ").split()]
        given, known = options_of([word for word in words if word])
        assert given <= known, f"`solely {shown}` has no {', '.join(given - known)}"
