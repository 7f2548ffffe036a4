"""Whatever a command is given as an argument, it says in one line what is wrong with it: no traceback."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from solely.cli.exits import Exit
from solely.cli.program import perform
from solely.cli.program import solely as program
from tests.apps.triggers.test_work_http import Desk
from tests.cli.test_foreign_servers import _commands
from tests.service.serving import LINES, TOKENS, running

NO_UTF8 = "\udcff"  # as Python reads the byte FF of an argument
VALUES = (
    "[" * 60_000, '"\\ud800"', "1e999", "9" * 5_000, "-1", "", "a\nb", "nan", "NaN", "{}", "null", "x" * 3_000,
    "../..", "9999-12-31T23:59:59-12:00", "99999999999d", "253402300800", "://", "http://[::1", "%00", "\x1b[2J",
)  # fmt: skip
# Commands that run for long, start programs, or connect to what their example names.
OTHERS = {
    "bench", "completion", "copy", "cron", "migrate", "once", "replay", "rollback-store", "run", "serve", "top", "work",
}  # fmt: skip
ADDRESSES = {"--at", "--url", "--credentials", "--timeout"}
# Commands that read JSON.
JSON = (
    ("queues", "push", "q", "id"),
    ("triggers", "trigger", "task", "--payload"),
    ("signals", "send", "north", "chess"),
)


@pytest.fixture(scope="module")
def service() -> Iterator[Desk]:
    with running(tokens=LINES, triggers={"gate": "off"}) as it:
        yield Desk(it)


@pytest.fixture(autouse=True)
def at_the_service(service: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOLELY_URL", service.service.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])


def _calls(path: tuple[str, ...], command: click.Command, share: int) -> Iterator[list[str]]:
    """The first example of the command, with bad values in place of each of its words, and for each of its options:
    of the values one in `share`, others in each place, and always what is not UTF-8."""
    (example, *_) = command.examples(" ".join(("solely", *path)))  # type: ignore[attr-defined]
    words = shlex.split(example.partition(" < ")[0])[len(path) + 1 :]
    options = [
        each.opts[-1]
        for each in command.params
        if isinstance(each, click.Option) and not each.is_flag and ADDRESSES.isdisjoint(each.opts)
    ]
    for place, word in enumerate((*words, *options)):
        for number, value in enumerate((NO_UTF8, *VALUES)):
            if number and (number + place + len(path[-1])) % share:
                continue
            if place >= len(words):
                yield [*path, *words, f"{word}={value}"]
            elif not word.startswith("-"):
                yield [*path, *words[:place], value, *words[place + 1 :]]


@pytest.mark.timeout(1800)
def test_no_argument_makes_a_command_crash(capfd: pytest.CaptureFixture[str], thorough: bool) -> None:
    failed, count = {}, 0
    for path, command in _commands(program):
        for words in _calls(path, command, 1 if thorough else len(VALUES)) if path[-1] not in OTHERS else ():
            count += 1
            try:
                code = perform(words)
            except Exception as error:  # a process would print its traceback
                failed[shlex.join(word[:40] for word in words)] = repr(error)
            else:
                assert code in {*Exit}, words
            assert "Traceback" not in "".join(capfd.readouterr()), words
    assert failed == {}
    assert count > 400


@pytest.mark.parametrize("words", JSON, ids=" ".join)
@pytest.mark.parametrize(("text", "why"), [("[" * 60_000, "nested too deep"), ("{", "is not JSON"), ("1e999", "JSON")])
def test_what_json_cannot_say_is_refused(
    words: tuple[str, ...], text: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """And never sent as something else: infinity would be null."""
    code = perform([*words, text])
    out, err = capfd.readouterr()
    assert (code, out) == (Exit.USAGE, "")
    assert why in err


def test_a_command_that_is_run_gets_bytes_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    for words in (("run", "--url", url, "--lock", "a"), ("once", "--url", url, "a")):
        perform([*words, "--", "sh", "-c", 'printf %s "$1" | od -An -tx1', "sh", NO_UTF8])
        assert capfd.readouterr().out.strip() == "ff"
