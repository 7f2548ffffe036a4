"""The program as a whole: exit codes, forms, help, completion, and the commands that are doors to other parts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import click
import pytest

from solely import Client
from solely.cli.options import DURATION
from solely.cli.output import cell, span
from solely.cli.program import COMMANDS
from solely.cli.program import solely as program
from solely.logs import printable
from tests.cli.conftest import Run, Start, until
from tests.servers import Valkey, free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/solely.db"


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("1.5", 1.5), ("250ms", 0.25), ("5m", 300), ("1h30m", 5_400), ("7d", 604_800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 minutes", "-5s", "1h 30m", "nan", "inf", "1e3", "5mm", "m5"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


def test_times_and_keys_as_people_read_them() -> None:
    assert [span(each) for each in (0.25, 119, 120, 86_400, 999_999, float("inf"))] == [
        "0.2s", "119.0s", "2m", "24h", "12d", "ever",
    ]  # fmt: skip
    assert printable("a\x1b[31mb\r\u202e") == "a\\x1b[31mb\\r\\u202e"
    assert cell({"a": float("inf")}) == '{"a": null}'


def test_every_command_has_help_that_fits_a_line(url: str, solely: Run) -> None:
    told = solely(url, "--help")
    assert told.code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name}  +\S", told.out, re.MULTILINE), name
        assert solely(url, name, "--help").code == 0


def test_every_command_and_option_stands_in_the_docs() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    context = click.Context(program)
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command is not None
        assert f"solely {name}" in page, name
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        for verb, each in inner.items():
            assert re.search(rf"\b{verb}\b", page), f"{name} {verb}"
            for option in (option for parameter in each.params for option in parameter.opts if option[:2] == "--"):
                assert option in page, f"{name} {verb} {option}"


def test_without_a_command_it_says_how(url: str, solely: Run) -> None:
    assert solely(url).code == 2
    assert solely(url, "nosuch").code == 2
    assert solely(url, "locks", "nosuch").code == 2
    assert solely(url, "locks", "show").code == 2


def test_url_and_json_stand_before_or_after_the_command(url: str, solely: Run, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    with Client(other) as once:
        once.mark("a")
    for words in (
        ("--url", other, "--json", "marks", "list"),
        ("--json", "marks", "list", "--url", other),
        ("marks", "--url", other, "--json"),
        ("--url", url, "marks", "list", "--url", other, "-o", "json"),
    ):
        told = solely(url, *words)
        assert (told.code, [row["key"] for row in json.loads(told.out)]) == (0, ["a"]), words
    assert "a" not in solely(url, "marks").out
    refused = solely(url, "--json", "run", "--lock", "a", "--", "true")
    assert (refused.code, "'solely run' prints no JSON" in refused.err) == (2, True)


def test_what_was_done_is_also_told_in_json(url: str, solely: Run) -> None:
    def told(*words: str) -> object:
        answer = solely(url, "--json", *words)
        assert answer.code == 0, answer
        return json.loads(answer.out)

    reason = ("--yes", "--reason", "a test")
    assert told("watermarks", "advance", "w", "7") == {"value": 7}
    assert told("watermarks", "rewind", "w", "5", *reason) == {"value": 5}
    assert told("watermarks", "clear", "w", *reason) == {"cleared": ["w"]}
    assert told("limits", "hit", "k", "--limit", "5", "--per", "1m") == {"hits": 1}
    assert told("queues", "push", "q", "a", "1") == {"pushed": "a"}
    assert told("queues", "count", "q") == {"items": 1}
    assert told("queues", "remove", "q", "a", *reason) == {"removed": "a"}


def test_the_version_names_the_drivers_of_stores(url: str, solely: Run) -> None:
    told = solely(url, "--version")
    assert told.code == 0
    assert re.match(r"solely \d\S+\nPython 3\S+ on \w+\nSQLite 3\S+\n", told.out)
    assert all(f"\n{name} " in told.out for name in ("redis", "psycopg", "pymongo", "httpx2"))


def test_check_is_doctor(url: str, solely: Run) -> None:
    assert json.loads(solely(url, "check", "--json").out)[0]["subject"] == "Python"


def test_a_service_that_does_not_run_is_told_with_the_remedy(solely: Run) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    for words in (("alerts", "list", "--at", away), ("--url", away, "alerts"), ("locks", "--url", away)):
        told = solely("memory://", *words, *(("--timeout", "200ms") if words[0] == "locks" else ()))
        assert told.code == 75, told
        assert away in told.err
        assert "solely serve" in told.err
    told = solely("memory://", "alerts", "list", "--at", "redis://host")
    assert (told.code, "'solely serve'" in told.err, "--at" in told.err) == (2, True, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("locks", "--url", "foo://x"), 2, "no store serves foo://"),
        (("locks", "--url", "nonsense"), 2, "a URL without a scheme"),
        (("locks", "--url", ""), 2, "it is empty; give a URL"),
        (("--url", "", "locks"), 2, "it is empty; give a URL"),
        (("locks", "--url", "http://a..b"), 2, "http://a..b is no address: check the host and the path"),
        (("alerts", "--at", f"https://{'a' * 64}.example"), 2, "is no address: check the host"),
        (("locks", "--url", f"http://{'é' * 70}"), 2, "is no address: check the host"),
        (("locks", "--url", "http://host/\x07"), 2, "http://host is no address: check the host and the path"),
        (("locks", "--url", "redis://127.0.0.1:99999"), 2, "the port 99999; ports are 1 to 65535"),
        (("locks", "--url", "sqlite:////no/such/folder/s.db"), 1, "its folder does not exist; create it"),
        (("locks", "--url", "sqlite:///"), 2, "names no file"),
        (("locks", "show", ""), 2, "a key must not be empty"),
        (("locks", "show", "k" * 600), 2, "has 600 bytes; the maximum is 512"),
        (("run", "--lock", "a", "--ttl", "soon", "--", "true"), 2, "'soon' is not a duration; write 30s"),
        (("locks", "--json", "-o", "wide"), 2, "--json and -o wide exclude each other"),
        (("run", "--lock", "a", "--skip-busy", "-E", "7", "--", "true"), 2, "give one of them"),
        (("token", "x", "--file", "/no/such/folder/tokens"), 1, "/no/such/folder/tokens: No such file or directory"),
        (("queues", "ack", "q", "nonsense"), 2, "`solely queues take`"),
        (("copy", "sqlite:////no/such.db"), 2, "there is no file /no/such.db"),
    ],
)
def test_wrong_input_is_told_with_its_value_and_what_to_do(
    words: tuple[str, ...], code: int, said: str, url: str, solely: Run
) -> None:
    told = solely(url, *words)
    assert (told.code, told.out) == (code, ""), told
    assert said in told.err


def test_bounds_are_in_units_of_people(url: str, run: Run) -> None:
    told = run(url, "run", "--lock", "a", "--ttl", "400d", "--", "true")
    assert told.code == 2
    assert "ttl=34560000 (400d) is out of bounds; give seconds from 0.01 (10ms) to 31622400 (366d)" in told.err


def test_a_store_that_gives_no_answer_is_75(solely: Run) -> None:
    away = f"redis://127.0.0.1:{free_port()}"
    for words in (("locks", "list"), ("locks", "show", "a"), ("explain", "a"), ("dlq", "list"), ("doctor",), ("top",)):
        told = solely(away, *words, "--timeout", "200ms")
        assert told.code == 75, words
        assert "Traceback" not in told.err


def test_a_store_that_denies_is_4(solely: Run) -> None:
    with Valkey() as server:
        server.ask("ACL", "SETUSER", "someone", "on", ">secret", "~*", "&*", "+@all")
        server.ask("ACL", "SETUSER", "default", "off")
        for words in (("locks", "list"), ("doctor",), ("explain", "a")):
            told = solely(server.url, *words)
            assert told.code == 4, told
        allowed = solely(f"redis://someone:secret@127.0.0.1:{server.port}", "doctor")
        assert allowed.code == 0
        assert "secret" not in allowed.out + allowed.err


def test_a_reader_that_leaves_is_no_traceback(url: str) -> None:
    with Client(url) as once:
        once.first_many([f"{n:06}" * 20 for n in range(2_000)])
    words = f"{sys.executable} -m solely.cli marks list --all | head -1; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SOLELY_URL": url}
    environment.pop("PYTHONUNBUFFERED", None)  # with it, Python forgets the rest of a partial write
    told = subprocess.run(["bash", "-c", words], env=environment, capture_output=True, text=True, timeout=50)
    assert (told.stdout.split()[0], told.stderr, told.returncode) == ("KEY", "", 141)


def test_copy_moves_what_is_remembered(url: str, solely: Run, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/target.db"
    with Client(url) as once:
        once.first_many(["a", "b"])
    dry = solely(target, "copy", url, "--dry-run", "-o", "json")
    assert (dry.code, json.loads(dry.out)["copied"]) == (0, 2)
    assert "2 copied" in solely(target, "copy", url).out
    with Client(target) as once:
        assert once.seen("a")
    assert solely(target, "copy", url, url).code == 2


def test_migrate_says_that_there_is_nothing_to_do(url: str, solely: Run) -> None:
    told = solely(url, "migrate")
    assert (told.code, told.out) == (0, "")
    assert "no schema" in told.err


def test_migrate_brings_postgres_up_to_date(postgres: object, solely: Run, request: pytest.FixtureRequest) -> None:
    from tests.conftest import STORES

    url = STORES["postgres"](request)
    dry = solely(url, "migrate", "--data-url", url, "--dry-run")
    assert (dry.code, dry.out) == (0, "")
    assert "is missing" in dry.err
    assert "alerts: to be applied: 001_" in dry.err
    done = solely(url, "migrate", "--data-url", url)
    assert int(done.out) > 0
    assert "alerts: applied: 001_" in done.err
    again = solely(url, "migrate", "--data-url", url, "--dry-run")
    assert "the schema is up to date" in again.err
    assert "alerts: the tables are up to date" in again.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(url: str, solely: Run, shell: str) -> None:
    told = solely(url, "completion", shell)
    assert told.code == 0
    assert "_SOLELY_COMPLETE" in told.out


def test_bash_is_given_the_commands_that_fit(run: Run, url: str) -> None:
    told = run(url, _SOLELY_COMPLETE="bash_complete", COMP_WORDS="solely wat", COMP_CWORD="1")
    assert told.out == "plain,watermarks\n"


def test_bench_passes_its_options_on(url: str, run: Run) -> None:
    told = run(url, "bench", "--only", "no-such-key")
    assert told.code == 2
    assert "no key begins with 'no-such-key'" in told.err


def test_check_config_shows_the_merged_settings_without_secrets(
    solely: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "solely.toml"
    file.write_text('port = 9000\nmax_wait = "1m30s"\n')
    monkeypatch.setenv("SOLELY_WORKERS", "2")
    url = "redis://user:hunter2@example.invalid"
    told = solely(url, "check-config", "--config", str(file), "--set", "idle_timeout=5s", "-o", "json")
    assert told.code == 0, told.err
    shown = json.loads(told.out)
    assert (shown["port"], shown["max_wait"], shown["workers"], shown["idle_timeout"]) == (9000, 90.0, 2, 5.0)
    assert "hunter2" not in told.out
    assert "port = 9000" in solely(url, "check-config", "--config", str(file)).out
    file.write_text("prot = 9000\n")
    wrong = solely(url, "check-config", "--config", str(file))
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean port" in wrong.err


def is_healthy(address: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{address}healthz", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def test_serve_says_where_it_is_and_ends_with_sigterm(url: str, start: Start) -> None:
    served = start(url, "serve", "--port", "0")
    assert served.process.stdout is not None
    line = served.process.stdout.readline()
    assert "http://127.0.0.1:" in line
    until(lambda: is_healthy(re.findall(r"http://\S+", line)[0]), "it answers")
    served.process.terminate()
    assert served.ended().code == 0
