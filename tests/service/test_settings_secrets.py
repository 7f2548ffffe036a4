"""A mistake inside a secret setting is explained, with its place, and no value of the secret is repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from solely.errors import InvalidInput
from solely.service.settings import load
from solely.service.settings_parsing import MASK, masked

URL = "https://hooks.example/services/T0-swordfish"
GOOD = {"type": "webhook", "name": "first-one", "url": URL, "headers": {"x-key": "sesame-open"}}
KNOWN = "known are webhook, slack, command, email, log"


def told(*publishers: Any) -> str:
    """What is said of these publishers, which cannot be, from every source alike."""
    with pytest.raises(InvalidInput) as by_flag:
        load(environ={}, flags={"alerts.publishers": list(publishers)})
    with pytest.raises(InvalidInput) as by_variable:
        load(environ={"SOLELY_ALERTS_PUBLISHERS": json.dumps(publishers)})
    flag, variable = str(by_flag.value), str(by_variable.value)
    assert flag.removeprefix("flag: ") == variable.removeprefix("environment: ")
    assert flag.startswith("flag: alerts.publishers")
    return flag.removeprefix("flag: alerts.")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"type": "webhook", "url": 5}, "publishers[1].url: Expected `str`, got `int`"),
        ({"type": "webhook"}, "publishers[1]: Object missing required field `url`"),
        ({"type": "webhook", "ulr": URL}, "publishers[1]: unknown key 'ulr'; did you mean url?"),
        ({"type": "webhok", "url": URL}, f"publishers[1].type: there is no such type; {KNOWN}"),
        ({"type": ["log"]}, f"publishers[1].type: there is no such type; {KNOWN}"),
        ({"url": URL}, f"publishers[1].type: no type is given; {KNOWN}"),
        ({"type": "slack", "url": URL, "timeout": "soon"}, "publishers[1].timeout: "),
        ({"type": "slack", "url": URL, "timeout": 0}, "publishers[1].timeout: Expected `float` >= 0.1"),
        ({"type": "slack", "url": "ftp://hooks.example/T0-swordfish"}, "publishers[1]: '…': url must begin"),
        ({"type": "slack", "url": "https://joe:swordfish@hooks.example"}, "publishers[1]: '…': url has a "),
        ({"type": "webhook", "url": URL, "headers": {"x": 5}}, "publishers[1].headers[...]: Expected `str`, got `int`"),
        ({"type": "webhook", "url": URL, "secrets": ["swordfish"]}, "publishers[1]: '…': a secret does not"),
        ({"type": "email", "host": "h", "sender": "swordfish", "to": ["a@b"]}, "is not a mail address"),
        ({"type": "email", "host": "h", "sender": "swordfish" * 20, "to": ["a@b"]}, "is not a mail address"),
        ({"type": "email", "host": "h", "sender": "sword\nfish", "to": ["a@b"]}, "is not a mail address"),
        ({"type": "email", "host": "h", "security": "swordfish"}, "publishers[1].security: Invalid enum value '…'"),
        ("swordfish", "publishers[1]: Expected `object`, got `str`"),
    ],
)
def test_the_place_and_the_reason_are_told_and_no_value(wrong: Any, said: str) -> None:
    text = told(GOOD, wrong)
    assert said in text
    for value in ("swordf", "fish", "hooks.example", "sesame", "first-one", "webhok", "joe"):
        assert value not in text


def test_a_file_names_the_place_too(tmp_path: Path) -> None:
    file = tmp_path / "solely.toml"
    file.write_text(f'[[alerts.publishers]]\ntype = "log"\n[[alerts.publishers]]\ntype = "slack"\nulr = "{URL}"\n')
    with pytest.raises(InvalidInput, match=r"solely\.toml: alerts\.publishers\[1\]: unknown key 'ulr'") as refused:
        load(file)
    assert "swordfish" not in str(refused.value)


def test_what_is_no_secret_is_shown_with_its_place() -> None:
    with pytest.raises(InvalidInput, match=r"alerts\.policies\[\.\.\.\]\.hold .*'soon'"):
        load(environ={}, flags={"alerts.policies": {"critical": {"hold": "soon"}}})


@pytest.mark.parametrize(
    ("said", "secret", "left"),
    [
        ("the word sesame-open is wrong", ["sesame-open"], f"the word {MASK} is wrong"),
        ("a value 'ab' is wrong", ["xaby"], f"a value '{MASK}' is wrong"),
        ("not 'ab' but \"cd\"", {"k": ["ab"]}, f"not '{MASK}' but \"cd\""),
        ("it begins with sesame-op", [{"deep": "sesame-open"}], f"it begins with {MASK}"),
        ("a is a short word", ["a"], "a is a short word"),
        ("sesame-open is in it", '["sesame-open"]', f"{MASK} is in it"),
        ("nothing of it", [5, None, True], "nothing of it"),
    ],
)
def test_masks(said: str, secret: Any, left: str) -> None:
    assert masked(said, secret) == left
