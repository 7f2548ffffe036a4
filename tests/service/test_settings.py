"""Settings: what is merged from where, what is refused, and that secrets are not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from solely import InvalidInput
from solely.rules import duration
from solely.service.security import Scope, mint
from solely.service.settings import Settings, as_toml, load, shown
from tests.service.serving import LINES


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "solely.toml"
    file.write_text('port = 1001\nmax_wait = "1m30s"\nmax_ttl = 7200\nallowed_hosts = ["a.example"]\n')
    loaded = load(file, {"SOLELY_PORT": "1002", "SOLELY_MAX_TTL": "1h", "HOME": "/"}, {"port": 1003, "host": None})
    assert loaded.settings.port == 1003
    assert loaded.settings.max_ttl == 3600.0
    assert loaded.settings.max_wait == 90.0
    assert loaded.settings.allowed_hosts == ("a.example",)
    assert loaded.settings.host == "127.0.0.1"
    assert loaded.sources == {
        "port": "flag",
        "max_ttl": "environment",
        "max_wait": f"file {file}",
        "allowed_hosts": f"file {file}",
    }


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "solely.toml"
    file.write_text("port = 1001\n")
    assert load(environ={"SOLELY_CONFIG": str(file)}).settings.port == 1001


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1d", 86_400), ("1.5s", 1.5), ("42", 42), (" 7 ", 7)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 m", "5x", "m5", "1h-5m", "5m!", "one"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration(text)


@pytest.mark.parametrize("value", ["nan", "inf", "-1s", "-1", "1e999", "2h"])
def test_a_duration_out_of_bounds_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="max_wait"):
        load(environ={"SOLELY_MAX_WAIT": value})


def test_unknown_keys_are_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "solely.toml"
    file.write_text("max_wiat = 3\n")
    with pytest.raises(InvalidInput, match=r"solely\.toml: unknown key 'max_wiat'; did you mean max_wait\?"):
        load(file)
    with pytest.raises(InvalidInput, match=r"environment: unknown key 'SOLELY_PROT'; did you mean port\?"):
        load(environ={"SOLELY_PROT": "1"})
    with pytest.raises(InvalidInput, match="flag: unknown key 'zzz'; known are url"):
        load(environ={}, flags={"zzz": 1})


def test_variables_of_others_are_let_be() -> None:
    others = {"SOLELY_FENCE": "7", "SOLELY_TEST_REDIS_URL": "x", "SOLELY_TOKEN": "y", "_SOLELY_COMPLETE": "z"}
    assert load(environ=others).sources == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"port": "many"}, "port 'many'"),
        ({"port": 70_000}, "port 70000"),
        ({"workers": 0}, "workers 0"),
        ({"demo": "perhaps"}, "demo 'perhaps'"),
        ({"log_level": "loud"}, "log_level 'loud'"),
        ({"workers": 2, "url": "memory://"}, "cannot share memory"),
        ({"host": "0.0.0.0"}, "can be reached by others"),
        ({"host": "db.example.com"}, "can be reached by others"),
        ({"data_url": "redis://x"}, "data_url"),
        ({"session_secret": "short"}, "session_secret"),
        ({"tokens": "a:read:00"}, "name:scope:digest"),
        ({"tokens": "a:boss:" + "0" * 64}, "name:scope:digest"),
        ({"tokens_file": "/nowhere/tokens"}, "tokens_file"),
        ({"tokens": [mint("a", Scope.READ)[1] for _ in range(3)]}, "2 may be valid at once"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load(environ={}, flags=wrong)


@pytest.mark.parametrize("text", ["port = ", "\xff", "= 3"])
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "solely.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"solely\.toml"):
        load(file)
    with pytest.raises(InvalidInput, match="nothing"):
        load(tmp_path / "nothing.toml")


def test_a_wrong_secret_is_not_repeated() -> None:
    with pytest.raises(InvalidInput) as refused:
        load(environ={"SOLELY_TOKENS": "swordfish"})
    assert "swordfish" not in str(refused.value)


def test_tokens_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# for CI\n{LINES[0]}\n\n  {LINES[1]}  \n")
    made = load(environ={"SOLELY_TOKENS_FILE": str(file), "SOLELY_TOKENS": LINES[2], "SOLELY_HOST": "0.0.0.0"}).settings
    assert sorted(made.token_lines()) == sorted(LINES)


def test_what_is_shown_has_no_secrets_and_can_be_read_again(tmp_path: Path) -> None:
    secret = "s" * 32
    given = {
        "url": "redis://user:swordfish@host:1/0?password=sesame",
        "data_url": "postgresql://user:swordfish@host/db",
        "session_secret": secret,
        "tokens": LINES,
        "max_wait": "5m",
    }
    loaded = load(environ={}, flags=given)
    text = as_toml(loaded)
    for hidden in ("swordfish", "sesame", secret, LINES[0].rpartition(":")[2]):
        assert hidden not in text
        assert hidden not in str(shown(loaded))
    assert "redis://user:…@host:1/0?password=…" in text
    assert "reader:read:…" in text
    file = tmp_path / "shown.toml"
    public = [line for line in text.splitlines() if "…" not in line]
    file.write_text("\n".join(public))
    again = load(file).settings
    for field in msgspec.structs.fields(Settings):
        if field.name not in ("url", "data_url", "tokens", "session_secret", "sections"):
            assert getattr(again, field.name) == getattr(loaded.settings, field.name)
    for app in again.mounted:
        assert again.section(app) == loaded.settings.section(app)


def test_every_setting_says_what_it_is() -> None:
    for field in msgspec.structs.fields(Settings):
        described: Any = msgspec.inspect.type_info(field.type)
        assert described.extra_json_schema["description"]


def test_the_page_names_every_setting() -> None:
    docs = Path(__file__).parent.parent.parent / "docs"
    page = (docs / "service.md").read_text() + (docs / "applications.md").read_text()
    for field in msgspec.structs.fields(Settings):
        assert f"`{field.name}`" in page
